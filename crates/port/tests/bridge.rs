//! Bridge ports: runs the suite over veth cables with each I/O backend; tests how ports are opened, and that they end
//! with their process.

mod cables;
mod namespace;
mod twins;

use std::net::UdpSocket;
use std::process::{Command, Stdio};

use sojourn_port::bridge::{self, BridgePort, How, Means};
use sojourn_port::kernel::Interface;
use sojourn_port::xdp::XdpPort;
use sojourn_time::{Clock, HostClock, Nanos, Source};
use sojourn_wire::stream::STREAM_ETHERTYPE;

use cables::{Bridge, FOUR, MEANS, cables, hosts, hosts_with_queues, pause, tcp};
use namespace::{at, ip, ip_says, run, within_permitted};
use twins::Twin;

const HOLDS: &str = "SOJOURN_TEST_HOLDS_A_BRIDGE";

#[test]
fn kernel_ports_pass_the_suite() {
    within_permitted("kernel_ports_pass_the_suite", || {
        cables("stations", "stations");
        for (means, engine) in MEANS {
            kernel_twin(means, engine);
        }
        // An MTU too large for native XDP leaves only generic XDP.
        for station in ["west", "east"] {
            ip(&format!("-n stations link set dev {station} mtu 9000"));
        }
        let said = kernel_twin(Means::Xdp, "AF_XDP copy, generic XDP");
        assert!(said.iter().any(|sentence| sentence.contains("super-frames, which generic XDP loses")), "{said:?}");
        let (left, _, said) = bridge::open("left", "right", &How::default()).expect("opens");
        assert_eq!(left.engine(), MEANS[1].1);
        assert!(said[0].starts_with("AF_PACKET in place of AF_XDP: left: it takes VLAN tags off"), "{said:?}");
    });
}

fn kernel_twin(means: Means, engine: &str) -> Vec<String> {
    let how = How { means: Means::Packet, ..How::default() };
    let (west, east, _) = at("stations", || bridge::open("west", "east", &how)).expect("opens");
    let (left, right, said) = bridge::open("left", "right", &How { means, ..How::default() }).expect("opens");
    assert_eq!((left.engine(), right.engine()), (engine, engine));
    twins::run(&mut Kernel { ports: [left, right], stations: [west, east] });
    said
}

struct Kernel {
    ports: [Box<dyn BridgePort>; 2],
    stations: [Box<dyn BridgePort>; 2],
}

impl Twin for Kernel {
    fn ports(&mut self) -> [&mut dyn BridgePort; 2] {
        let [left, right] = &mut self.ports;
        [left.as_mut(), right.as_mut()]
    }

    fn send(&mut self, side: usize, frame: &[u8]) {
        assert!(self.stations[side].put(frame).expect("puts"), "there is room");
        self.stations[side].flush().expect("sends");
    }

    fn take(&mut self, side: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while self.stations[side].receive(64, &mut |frame, _| frames.push(frame.to_vec())).expect("receives") > 0 {}
        frames
    }

    fn source(&self) -> Source {
        Source::Kernel
    }

    fn wait_for_frames(&mut self) {
        pause(Nanos::millis(5));
    }
}

#[test]
fn unbridgeable_interfaces_are_refused_in_one_sentence() {
    within_permitted("unbridgeable_interfaces_are_refused_in_one_sentence", || {
        hosts();
        let said = |left: &str, right: &str, means| {
            bridge::open(left, right, &How { means, ..How::default() }).map(drop).expect_err("is refused").to_string()
        };
        assert_eq!(
            said("left", "left", Means::Auto),
            "left: a bridge stands between two interfaces; name another one for its other side"
        );
        assert!(said("left", "nosuch", Means::Auto).contains("no such interface"));
        ip("link set dev right down");
        assert_eq!(
            said("left", "right", Means::Auto),
            "right: the interface is down; switch it on with `ip link set dev right up`"
        );
        ip("link set dev right up");
        // Another emulator with any backend.
        for (has, _) in MEANS {
            let _first = Bridge::open(has);
            for (wants, _) in MEANS {
                let error = said("right", "left", wants);
                let own = std::process::id();
                let expected =
                    format!("right: another emulator (process {own}) bridges it already; ending that frees it");
                assert_eq!(error, expected);
            }
        }
        // An XDP program of another process.
        let foreign = XdpPort::open("right", STREAM_ETHERTYPE).expect("opens");
        for means in [Means::Auto, Means::Xdp, Means::Packet] {
            assert_eq!(
                said("left", "right", means),
                "right: an XDP program hangs on it already; `ip link show dev right` tells which"
            );
        }
        drop(foreign);
        assert!(!ip_says("link show").contains("xdp"), "nothing is left attached");
        ip("-n east link set dev east down");
        // The kernel reports it with a delay.
        until(|| !Interface::named("right").expect("is there").running, "it still has its carrier");
        let bridge = Bridge::open(Means::Auto);
        assert_eq!(bridge.said, ["right has no carrier: frames flow when its other end is there"]);
        drop(bridge);
        ip("-n east link set dev east up");
        sojourn_rights::keep_only(&[]).expect("gives up rights");
        assert!(said("left", "right", Means::Xdp).contains("CAP_BPF"));
        assert!(said("left", "right", Means::Auto).contains("CAP_NET_RAW"));
    });
}

#[test]
fn interfaces_with_several_queues_use_af_packet() {
    within_permitted("interfaces_with_several_queues_use_af_packet", || {
        hosts();
        ip("link delete dev left");
        ip(
            "link add name left numrxqueues 2 numtxqueues 2 type veth peer name west numrxqueues 2 numtxqueues 2 netns west",
        );
        ip("link set dev left up");
        ip("-n west link set dev west up");
        ip("-n west address add 10.77.2.1/24 dev west");
        let mut bridge = Bridge::open(Means::Auto);
        assert!(bridge.left.engine().starts_with("AF_PACKET"));
        assert_eq!(bridge.right.engine(), MEANS[0].1);
        assert!(bridge.said[0].contains("2 queues"), "{:?}", bridge.said);
        tcp(&mut bridge, FOUR, 1_000_000);
    });
}

#[test]
fn frames_of_a_queue_without_a_socket_are_local_drops() {
    within_permitted("frames_of_a_queue_without_a_socket_are_local_drops", || {
        hosts_with_queues();
        let (mut left, _right, _) =
            bridge::open("left", "right", &How { means: Means::Xdp, ..How::default() }).expect("opens");
        run("ethtool", "-L left rx 4");
        let (mut sent, mut came) = (0, 0);
        // Each socket has a port of its own, and so its frames a queue of their own choice.
        while left.local_drops() == 0 {
            assert!(sent < 1000, "every frame came by one queue");
            let from = at("west", || UdpSocket::bind("10.77.2.1:0")).expect("binds");
            from.send_to(b"some", "10.77.2.2:7778").expect("sends");
            sent += 1;
            until(
                || {
                    came += left.receive(64, &mut |_, _| {}).expect("receives") as u64;
                    came + left.local_drops() == sent
                },
                "a frame is neither received nor dropped",
            );
        }
    });
}

#[test]
fn bridge_is_removed_when_its_process_is_killed() {
    within_permitted("bridge_is_removed_when_its_process_is_killed", || {
        if std::env::var_os(HOLDS).is_some() {
            let _bridge = Bridge::open(Means::Xdp);
            loop {
                pause(Nanos::seconds(1));
            }
        }
        cables("west", "east");
        let program = std::env::current_exe().expect("this test's program");
        let arguments = ["--exact", "bridge_is_removed_when_its_process_is_killed", "--nocapture"];
        let mut holder =
            Command::new(program).args(arguments).env(HOLDS, "1").stdout(Stdio::null()).spawn().expect("starts");
        let hangs = || ["left", "right"].map(|port| ip_says(&format!("link show dev {port}")).contains("xdp"));
        until(|| hangs() == [true, true], "the programs were never there");
        let taken = bridge::open("left", "right", &How { means: Means::Packet, ..How::default() })
            .map(drop)
            .expect_err("is taken");
        assert!(taken.to_string().contains("another emulator"), "{taken}");
        holder.kill().expect("is killed");
        holder.wait().expect("ends");
        until(|| hangs() == [false, false], "the programs are still there");
        until(|| bridge::open("left", "right", &How::default()).is_ok(), "the interfaces are still claimed");
    });
}

fn until(mut holds: impl FnMut() -> bool, else_say: &str) {
    let give_up = HostClock.now() + Nanos::seconds(10);
    while !holds() {
        assert!(HostClock.now() < give_up, "{else_say}");
        pause(Nanos::millis(5));
    }
}
