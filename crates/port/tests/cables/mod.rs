//! Builds two cables for a bridge: `left` and `right` here, `west` and `east` in other namespaces.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{JoinHandle, spawn};

use sojourn_port::PortError;
use sojourn_port::bridge::{self, BridgePort, How, Means, Watch};
use sojourn_time::{Clock, HostClock, Nanos};

use super::namespace::{at, ip, run};

/// Addresses of west and east.
pub const FOUR: [&str; 2] = ["10.77.2.1", "10.77.2.2"];
pub const SIX: [&str; 2] = ["fd77:2::1", "fd77:2::2"];
/// The timeout of a test.
pub const ENOUGH: Nanos = Nanos::seconds(60);

/// Both I/O backends, and their names.
pub const MEANS: [(Means, &str); 2] =
    [(Means::Auto, "AF_XDP copy, native XDP"), (Means::Packet, "AF_PACKET recvmmsg, TX_RING, qdisc bypassed")];

/// Builds two cables from `left` and `right` here to `west` and `east` elsewhere, without frames of the kernel's own.
pub fn cables(west: &str, east: &str) {
    ip("link set dev lo up");
    quiet("");
    for (port, station, namespace, number) in [("left", "west", west, 1), ("right", "east", east, 2)] {
        if number == 1 || west != east {
            ip(&format!("netns add {namespace}"));
            quiet(&format!("ip netns exec {namespace} "));
        }
        ip(&format!(
            "link add name {port} type veth peer name {station} address 02:00:00:00:00:0{number} netns {namespace}"
        ));
        ip(&format!("link set dev {port} up"));
        ip(&format!("-n {namespace} link set dev {station} up"));
    }
}

/// Prevents the kernel from sending frames of its own.
pub fn quiet(prefix: &str) {
    for which in ["all", "default"] {
        let setting = format!("net.ipv6.conf.{which}.disable_ipv6=1");
        let words = format!("{prefix}sysctl -qw {setting}");
        let (program, arguments) = words.split_once(' ').expect("a command");
        run(program, arguments);
    }
}

pub fn pause(span: Nanos) {
    HostClock.wait_until(HostClock.now() + span, Nanos::ZERO);
}

/// A bridge without an emulator, and the watch of its ports.
pub struct Bridge {
    pub watch: Watch,
    pub left: Box<dyn BridgePort>,
    pub right: Box<dyn BridgePort>,
    pub said: Vec<String>,
    pub longest_seen: usize,
}

impl Bridge {
    pub fn open(means: Means) -> Self {
        let (left, right, said) = bridge::open("left", "right", &How { means, ..How::default() }).expect("opens");
        Self::of(left, right, said)
    }

    pub fn of(left: Box<dyn BridgePort>, right: Box<dyn BridgePort>, said: Vec<String>) -> Self {
        let guards = [left.guard(), right.guard()].into_iter().flatten();
        let watch = Watch::start(guards, None, || Ok(())).expect("starts");
        Self { watch, left, right, said, longest_seen: 0 }
    }

    /// Bridges until there is a message, or a port can no longer be bridged, and returns which.
    pub fn until_news(&mut self) -> Result<String, PortError> {
        let give_up = HostClock.now() + ENOUGH;
        loop {
            assert!(HostClock.now() < give_up, "nothing is said");
            for port in [&mut self.left, &mut self.right] {
                if let Some(news) = port.news()? {
                    return Ok(news);
                }
            }
            pause(Nanos::millis(1));
        }
    }

    /// Bridges until `done` returns true; fails after a timeout.
    pub fn run_until(&mut self, mut done: impl FnMut() -> bool) {
        let give_up = HostClock.now() + ENOUGH;
        while !done() {
            assert!(HostClock.now() < give_up, "it takes too long");
            self.turn();
        }
    }

    /// Bridges the waiting frames.
    pub fn turn(&mut self) {
        for is_back in [false, true] {
            let (from, to) =
                if is_back { (&mut self.right, &mut self.left) } else { (&mut self.left, &mut self.right) };
            let longest = &mut self.longest_seen;
            from.receive(64, &mut |frame, _| {
                *longest = frame.len().max(*longest);
                to.put(frame).expect("puts");
            })
            .expect("receives");
            to.flush().expect("flushes");
        }
    }
}

/// Builds two hosts with addresses at the ends of the cables.
pub fn hosts() {
    cables("west", "east");
    for (number, host) in [(1, "west"), (2, "east")] {
        run("ip", &format!("netns exec {host} sysctl -qw net.ipv6.conf.{host}.disable_ipv6=0"));
        ip(&format!("-n {host} link set dev lo up"));
        ip(&format!("-n {host} address add 10.77.2.{number}/24 dev {host}"));
        ip(&format!("-n {host} address add fd77:2::{number}/64 dev {host} nodad"));
    }
}

/// Builds the same two hosts, but `left` and `west` have four queues, of which `left` uses one.
pub fn hosts_with_queues() {
    hosts();
    ip("link delete dev left");
    let queues = "numrxqueues 4 numtxqueues 4";
    ip(&format!("link add name left {queues} type veth peer name west {queues} netns west"));
    run("ethtool", "-L left rx 1");
    run("ip", "netns exec west ethtool -L west tx 4");
    ip("link set dev left up");
    ip("-n west link set dev west up");
    ip("-n west address add 10.77.2.1/24 dev west");
    ip("-n west neighbor replace 10.77.2.2 lladdr 02:00:00:00:00:02 dev west nud permanent");
}

/// Runs `job` in a thread in a namespace.
pub fn on<T: Send + 'static>(host: &'static str, job: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn(move || at(host, job))
}

pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Sends `bytes` bytes by TCP from west to east over the bridge; they must arrive unchanged.
pub fn tcp(bridge: &mut Bridge, addresses: [&str; 2], bytes: usize) {
    let east: SocketAddr = (addresses[1].parse::<IpAddr>().expect("an address"), 7777).into();
    let listener = at("east", || TcpListener::bind(east)).expect("listens");
    let reader = on("east", move || {
        let mut arrived = Vec::new();
        listener.accept().and_then(|(mut stream, _)| stream.read_to_end(&mut arrived)).expect("reads");
        arrived
    });
    let writer = on("west", move || TcpStream::connect(east).and_then(|mut s| s.write_all(&pattern(bytes))));
    bridge.run_until(|| reader.is_finished() && writer.is_finished());
    writer.join().expect("ends").expect("writes");
    assert!(reader.join().expect("ends") == pattern(bytes), "{bytes} bytes to {east}");
}

/// Sends datagrams of these lengths; they must arrive.
pub fn udp(bridge: &mut Bridge, addresses: [&str; 2], lengths: &[usize]) {
    let [west, east] = addresses.map(|address| SocketAddr::new(address.parse().expect("an address"), 7778));
    let to = at("east", || UdpSocket::bind(east)).expect("binds");
    to.set_nonblocking(true).expect("does not block");
    let from = at("west", || UdpSocket::bind(west)).expect("binds");
    for length in lengths {
        from.send_to(&pattern(*length), east).expect("sends");
        let mut buffer = vec![0; 70_000];
        let mut arrived = 0;
        bridge.run_until(|| to.recv(&mut buffer).map(|length| arrived = length).is_ok());
        assert!(buffer[..arrived] == pattern(*length), "{length} bytes to {east}: {arrived}");
    }
}
