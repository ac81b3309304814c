//! What becomes of interfaces while they are bridged: programs detached or replaced, changes of links, addresses and bridges;
//! and who is refused a port to begin with.
//!
//! Programs in the kernel need root: else these tests are skipped and say why; with `CI` set that is a failure.

mod cables;
mod links;
mod namespace;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sojourn_port::PortError;
use sojourn_port::bridge::{self, How, Means, Wanted};
use sojourn_port::kernel::Interface;
use sojourn_time::{Clock, HostClock, Nanos};

use cables::{Bridge, FOUR, MEANS, cables, hosts, pause, udp};
use namespace::{ip, ip_says, within_permitted};

/// Within which everything is to be said.
const SOON: Nanos = Nanos::seconds(1);

fn index(name: &str) -> u64 {
    Interface::named(name).expect("is there").index.into()
}

/// Does something, and returns what is said of it, in time.
fn soon(bridge: &mut Bridge, act: impl FnOnce()) -> Result<String, PortError> {
    act();
    let start = HostClock.now();
    let told = bridge.until_news();
    let took = HostClock.now() - start;
    assert!(took < SOON, "{told:?} after {took:?}");
    told
}

fn taken_away(told: Result<String, PortError>) -> String {
    let error = told.expect_err("it is over");
    assert!(matches!(error, PortError::TakenAway { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_program_that_is_detached_is_attached_again_until_somebody_insists() {
    within_permitted("a_program_that_is_detached_is_attached_again_until_somebody_insists", || {
        hosts();
        let mut bridge = Bridge::open(Means::Xdp);
        let left = index("left");
        for _ in 0..3 {
            let told = soon(&mut bridge, || links::detach(std::process::id(), "xdp", left)).expect("goes on");
            assert!(told.starts_with("the XDP program of left was detached and was attached again: "), "{told}");
            udp(&mut bridge, FOUR, &[100, 1400]);
        }
        let told = taken_away(soon(&mut bridge, || links::detach(std::process::id(), "xdp", left)));
        assert_eq!(told, "left: its XDP program was detached 4 times: somebody wants it gone");
    });
}

#[test]
fn a_program_is_attached_again_without_any_right() {
    within_permitted("a_program_is_attached_again_without_any_right", || {
        hosts();
        let (left, right, said) = bridge::open("left", "right", &How::default()).expect("opens");
        let number = index("left");
        // Another thread keeps its rights, to detach.
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let detach =
            std::thread::spawn(move || begun.recv().map(|()| links::detach(std::process::id(), "xdp", number)));
        sojourn_rights::keep_only(&[]).expect("gives up rights");
        let mut bridge = Bridge::of(left, right, said);
        let told = soon(&mut bridge, || {
            begin.send(()).expect("it waits");
            detach.join().expect("ends").expect("detaches");
        });
        assert!(told.expect("goes on").contains("attached again"));
    });
}

#[test]
fn a_program_that_is_replaced_ends_it() {
    within_permitted("a_program_that_is_replaced_ends_it", || {
        hosts();
        let mut bridge = Bridge::open(Means::Xdp);
        let right = index("right");
        let told = taken_away(soon(&mut bridge, || links::replace(std::process::id(), "xdp", right)));
        assert!(told.starts_with("right: its XDP program was replaced by another one"), "{told}");
    });
}

#[test]
fn a_program_of_traffic_control_that_is_detached_or_replaced_ends_it() {
    within_permitted("a_program_of_traffic_control_that_is_detached_or_replaced_ends_it", || {
        hosts();
        let wanted = [Wanted::Ethertypes(Vec::new()), Wanted::Ethertypes(Vec::new())];
        let how = How { wanted, ..How::default() };
        let itself = std::process::id();
        // "tcx-in" of left and "tcx-out" of right are left's, the other two right's.
        for (port, end) in [("left", "tcx-in"), ("left", "tcx-out"), ("right", "tcx-in"), ("right", "tcx-out")] {
            let number = index(port);
            for (does, becomes) in [
                (links::detach as fn(u32, &str, u64), "was detached; start again"),
                (links::replace, "was replaced by another one ("),
            ] {
                let (left, right, said) = bridge::open("left", "right", &how).expect("opens");
                assert_eq!(left.engine(), "within the kernel (TC redirect)");
                let mut bridge = Bridge::of(left, right, said);
                udp(&mut bridge, FOUR, &[100]);
                let told = taken_away(soon(&mut bridge, || does(itself, end, number)));
                assert!(
                    told.starts_with(&format!("{port}: its program of traffic control {becomes}")),
                    "{end}: {told}"
                );
            }
        }
    });
}

#[test]
fn what_changes_at_an_interface_is_said_in_time() {
    within_permitted("what_changes_at_an_interface_is_said_in_time", || {
        hosts();
        ip("link add br0 type bridge");
        for (means, _) in MEANS {
            let mut bridge = Bridge::open(means);
            let mut told = |command: &str| soon(&mut bridge, || ip(command));
            assert_eq!(
                told("link set dev left mtu 1400").expect("goes on"),
                "the MTU of left is 1400 bytes now; it was 1500"
            );
            let address = told("address add 10.9.9.9/24 dev left").expect("goes on");
            assert!(address.starts_with("left has the address 10.9.9.9 now: this host"), "{address}");
            let down = told("link set dev right down").expect("goes on");
            assert!(down.starts_with("right is down"), "{down}");
            let up = told("link set dev right up").expect("goes on");
            assert!(up.starts_with("right is up again"), "{up}");
            assert_eq!(told("link set dev right name starboard").expect("goes on"), "right is called starboard now");
            udp(&mut bridge, FOUR, &[100]);
            let joined = soon(&mut bridge, || ip("link set dev left master br0"));
            match means {
                Means::Packet => {
                    let told = taken_away(joined);
                    assert_eq!(told, "left: it belongs to br0 now, which forwards its frames a second time");
                }
                _ => {
                    let told = joined.expect("goes on");
                    assert!(told.starts_with("left belongs to br0 now: what that sends by it"), "{told}");
                }
            }
            drop(bridge);
            ip("link set dev left nomaster");
            ip("address flush dev left");
            ip("link set dev starboard name right");
            ip("link set dev left mtu 1500");
        }
    });
}

#[test]
fn another_program_before_a_packet_socket_is_said() {
    within_permitted("another_program_before_a_packet_socket_is_said", || {
        hosts();
        let mut bridge = Bridge::open(Means::Packet);
        let other = bridge::open("left", "right", &How { means: Means::Xdp, ..How::default() });
        assert!(other.is_err(), "a second emulator is refused");
        let foreign = sojourn_port::xdp::XdpPort::open("left", 0x88B5).expect("attaches");
        let told = soon(&mut bridge, || {}).expect("goes on");
        assert!(told.starts_with("an XDP program (") && told.contains("hangs on left now"), "{told}");
        drop(foreign);
    });
}

#[test]
fn ports_that_this_host_uses_are_refused_unless_they_are_taken_over() {
    within_permitted("ports_that_this_host_uses_are_refused_unless_they_are_taken_over", || {
        hosts();
        ip("link add br0 type bridge");
        let open = |means, take_over| {
            let how = How { means, take_over, ..How::default() };
            bridge::open("left", "right", &how).map(|(_, _, said)| said).map_err(|error| error.to_string())
        };
        // An address that IPv6 gives by itself is nobody's.
        namespace::run("sysctl", "-qw net.ipv6.conf.left.disable_ipv6=0");
        ip("link set dev left down");
        ip("link set dev left up");
        assert!(ip_says("address show dev left").contains("fe80::"));
        for (means, _) in MEANS {
            assert!(open(means, false).is_ok());
        }
        for (used, free, uses) in [
            (
                "address add 10.9.9.9/24 dev right",
                "address flush dev right",
                "right: it has the address 10.9.9.9, so this host",
            ),
            (
                "route add 10.99.0.0/16 dev right",
                "route flush dev right",
                "right: a route leads by it to 10.99.0.0/16, so",
            ),
            (
                "link set dev right master br0",
                "link set dev right nomaster",
                "right: it belongs to br0, so this host uses it",
            ),
        ] {
            ip(used);
            for (means, _) in MEANS {
                let told = open(means, false).expect_err("is refused");
                assert!(told.starts_with(uses) && told.contains("--take-over"), "{told}");
                match open(means, true) {
                    Ok(said) => {
                        assert!(said.iter().any(|one| one.contains("this host loses the use of it")), "{said:?}")
                    }
                    Err(told) => assert!(told.contains("a port of br0") && means == Means::Packet, "{told}"),
                }
            }
            ip(free);
        }
        assert!(open(Means::Auto, false).is_ok());
        ip("link add one type veth peer name other");
        for end in ["one", "other"] {
            ip(&format!("link set dev {end} up"));
        }
        let told = bridge::open("one", "other", &How::default()).map(drop).expect_err("a loop").to_string();
        assert_eq!(told, "one: it and other are the two ends of one veth: every frame would go round for ever");
    });
}

#[test]
fn nobody_else_can_take_the_place_of_an_emulator() {
    within_permitted("nobody_else_can_take_the_place_of_an_emulator", || {
        cables("west", "east");
        // As an earlier version claimed them, in a name space that anybody may use.
        let squatted = format!("sojourn-emulate/{}", index("left"));
        let name = SocketAddr::from_abstract_name(squatted).expect("a name");
        let _squatter = UnixDatagram::bind_addr(&name).expect("binds");
        let first = Bridge::open(Means::Packet);
        let locks = || std::fs::read_dir("/run/sojourn").expect("a folder").count();
        assert_eq!(locks(), 2);
        drop(first);
        pause(Nanos::millis(1));
        assert_eq!(locks(), 0, "they go with it");
    });
}
