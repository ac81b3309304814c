//! Tests changes to interfaces while they are bridged: programs detached or replaced, changes of links, addresses and
//! bridges; and which ports are refused at the start.
//!
//! BPF programs need root: otherwise these tests are skipped with a message; with `CI` set that is a failure.

mod cables;
mod links;
mod namespace;

use std::io::{BufRead, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sojourn_port::PortError;
use sojourn_port::bridge::{self, How, Means, Wanted};
use sojourn_port::kernel::Interface;
use sojourn_time::{Clock, HostClock, Nanos};

use cables::{Bridge, ENOUGH, FOUR, MEANS, cables, hosts, hosts_with_queues, udp};
use namespace::{ip, ip_says, within_permitted};

/// The longest delay of a report.
const SOON: Nanos = Nanos::seconds(1);

fn index(name: &str) -> u64 {
    Interface::named(name).expect("is there").index.into()
}

/// Makes a change, and returns its report, which must arrive in time.
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
fn detached_program_is_reattached_until_it_is_detached_repeatedly() {
    within_permitted("detached_program_is_reattached_until_it_is_detached_repeatedly", || {
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
fn program_is_reattached_without_capabilities() {
    within_permitted("program_is_reattached_without_capabilities", || {
        hosts();
        let (left, right, said) = bridge::open("left", "right", &How::default()).expect("opens");
        let number = index("left");
        // Another thread keeps its capabilities, to detach the program.
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
fn replaced_xdp_program_ends_the_bridge() {
    within_permitted("replaced_xdp_program_ends_the_bridge", || {
        hosts();
        let mut bridge = Bridge::open(Means::Xdp);
        let right = index("right");
        let told = taken_away(soon(&mut bridge, || links::replace(std::process::id(), "xdp", right)));
        assert!(told.starts_with("right: its XDP program was replaced by another one"), "{told}");
    });
}

#[test]
fn more_queues_at_an_af_xdp_port_end_the_bridge() {
    within_permitted("more_queues_at_an_af_xdp_port_end_the_bridge", || {
        hosts_with_queues();
        let mut bridge = Bridge::open(Means::Xdp);
        let told = taken_away(soon(&mut bridge, || drop(namespace::run("ethtool", "-L left rx 4"))));
        assert!(told.starts_with("left: its frames come in by 4 queues, and AF_XDP here listens to one"), "{told}");
    });
}

#[test]
fn detached_or_replaced_tc_program_ends_the_bridge() {
    within_permitted("detached_or_replaced_tc_program_ends_the_bridge", || {
        hosts();
        let wanted = [Wanted::Ethertypes(Vec::new()), Wanted::Ethertypes(Vec::new())];
        let how = How { wanted, ..How::default() };
        let itself = std::process::id();
        // "tcx-in" of left and "tcx-out" of right belong to left, the other two to right.
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
fn interface_changes_are_reported_in_time() {
    within_permitted("interface_changes_are_reported_in_time", || {
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
fn route_or_interface_on_top_is_reported_and_automatic_ones_are_not() {
    within_permitted("route_or_interface_on_top_is_reported_and_automatic_ones_are_not", || {
        hosts();
        for (means, _) in MEANS {
            let mut bridge = Bridge::open(means);
            // IPv6 comes up, with its link-local address, its multicast routes and the route of that address.
            namespace::run("sysctl", "-qw net.ipv6.conf.left.disable_ipv6=0");
            ip("link set dev left down");
            ip("link set dev left up");
            let come = || ip_says("-6 route show table all dev left");
            let give_up = HostClock.now() + ENOUGH;
            while !(come().contains("fe80::/64") && come().contains("multicast")) {
                assert!(HostClock.now() < give_up, "{}", come());
            }
            let mut told = |command: &str| soon(&mut bridge, || ip(command)).expect("goes on");
            for (command, sentence) in [
                ("route add 10.99.0.0/16 dev left", "a route leads by left to 10.99.0.0/16 now: what this host sends"),
                ("route add 2001:db8::/32 dev left", "a route leads by left to 2001:db8::/32 now: what this host"),
                ("link add link right name other type macvlan mode private", "other is on top of right now: it "),
                ("link add link left name above type macvlan", "above is on top of left now: it "),
                ("link set dev left mtu 1400", "the MTU of left is 1400"),
            ] {
                let mut said = told(command);
                // What the port itself says of its way down and up.
                while ["left is down", "left is up"].iter().any(|own| said.starts_with(own)) {
                    said = told("link show dev left");
                }
                assert!(said.starts_with(sentence), "{said}");
            }
            drop(bridge);
            for command in ["link delete dev above", "link delete dev other", "route flush dev left"] {
                ip(command);
            }
            ip("link set dev left mtu 1500");
            ip("-6 route flush 2001:db8::/32");
            namespace::run("sysctl", "-qw net.ipv6.conf.left.disable_ipv6=1");
        }
    });
}

#[test]
fn foreign_program_before_a_packet_socket_is_reported() {
    within_permitted("foreign_program_before_a_packet_socket_is_reported", || {
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
        // An automatic IPv6 address does not count as use.
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
            (
                "link add link right name above type macvlan mode bridge",
                "link delete dev above",
                "right: on top of it is above, so this host uses it",
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
        for name in ["first", "second"] {
            ip(&format!("link add link one name {name} type macvlan mode bridge"));
            ip(&format!("link set dev {name} up"));
        }
        for means in [Means::Auto, Means::Packet] {
            let how = How { means, ..How::default() };
            let told = bridge::open("first", "second", &how).map(drop).expect_err("a loop").to_string();
            let ends =
                "it and second are a macvlan and a macvlan on one interface: every frame would go round for ever";
            assert_eq!(told, format!("first: {ends}"));
        }
    });
}

#[test]
fn other_users_cannot_claim_the_lock_of_an_emulator() {
    within_permitted("other_users_cannot_claim_the_lock_of_an_emulator", || {
        cables("west", "east");
        // The claim of an earlier version, in a namespace open to every user.
        let squatted = format!("sojourn-emulate/{}", index("left"));
        let name = SocketAddr::from_abstract_name(squatted).expect("a name");
        let _squatter = UnixDatagram::bind_addr(&name).expect("binds");
        let first = Bridge::open(Means::Packet);
        let locks = || std::fs::read_dir("/run/sojourn").expect("a folder").count();
        assert_eq!(locks(), 0, "nothing that it would have to remove");
        let told = bridge::open("left", "right", &packet()).map(drop).expect_err("is taken").to_string();
        let own = std::process::id();
        assert_eq!(told, format!("left: another emulator (process {own}) bridges it already; ending that frees it"));
        drop(first);
        drop(Bridge::open(Means::Packet));
        assert_eq!(locks(), 0, "nothing is left");
    });
}

/// A user with a lock folder of its own.
const ANOTHER: u32 = 64_001;
/// Set where this program is started again as that user.
const AS_ANOTHER: &str = "SOJOURN_BRIDGES_AS_ANOTHER";
fn packet() -> How {
    How { means: Means::Packet, ..How::default() }
}

#[test]
fn two_users_cannot_run_emulators_on_one_port() {
    if std::env::var_os(AS_ANOTHER).is_some() {
        let opened = bridge::open("left", "right", &packet());
        println!("told: {}", opened.as_ref().map_or_else(ToString::to_string, |_| "opened".to_owned()));
        // Until the parent has read that.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    within_permitted("two_users_cannot_run_emulators_on_one_port", || {
        cables("west", "east");
        if Another::can_be().is_err_and(|why| {
            assert!(std::env::var_os("CI").is_none(), "CI must be root: {why}");
            eprintln!("skipped: {why}");
            true
        }) {
            return;
        }
        let first = Bridge::open(Means::Packet);
        let mut another = Another::start("+net_raw,+net_admin");
        let taken = |process: u32| {
            format!("left: another emulator (process {process}) bridges it already; ending that frees it")
        };
        // Only root sees the process.
        assert_eq!(another.told(), "left: another emulator (user 0) bridges it already; ending that frees it");
        drop((first, another));
        let mut another = Another::start("+net_raw,+net_admin");
        assert_eq!(another.told(), "opened");
        let told = bridge::open("left", "right", &packet()).map(drop).expect_err("is taken").to_string();
        assert_eq!(told, taken(another.0.id()));
        drop(another);
        // A user who may not bridge a port cannot exclude an emulator from it.
        let mut without = Another::start("");
        let told = without.told();
        assert!(told.contains("CAP_NET_RAW"), "{told}");
        drop(Bridge::open(Means::Packet));
    });
}

/// This test run as another user, until it is dropped.
struct Another(std::process::Child);

impl Another {
    /// Checks that another user can be assumed here.
    fn can_be() -> Result<(), String> {
        let tried = std::process::Command::new("setpriv").args(Self::words("")).arg("true").output();
        let tried = tried.map_err(|error| error.to_string())?;
        if tried.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&tried.stderr).into_owned()) }
    }

    fn words(rights: &str) -> Vec<String> {
        let rights = if rights.is_empty() { "-all".to_owned() } else { format!("-all,{rights}") };
        let user = ANOTHER.to_string();
        ["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps", &rights, "--ambient-caps", &rights]
            .map(str::to_owned)
            .to_vec()
    }

    fn start(rights: &str) -> Self {
        // A place that this user can read, whoever owns the build folder.
        let program = std::path::Path::new("/run/another");
        std::fs::copy(std::env::current_exe().expect("its path"), program).expect("copies");
        let started = std::process::Command::new("setpriv")
            .args(Self::words(rights))
            .arg(program)
            .args(["--exact", "two_users_cannot_run_emulators_on_one_port", "--nocapture"])
            .env(AS_ANOTHER, "yes")
            .env("XDG_RUNTIME_DIR", "/nowhere")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        Self(started.expect("setpriv starts"))
    }

    /// Returns the child's report about the ports.
    fn told(&mut self) -> String {
        let output = self.0.stdout.take().expect("its output");
        let mut lines = std::io::BufReader::new(output).lines().map_while(Result::ok);
        let told = lines.find_map(|line| line.split_once("told: ").map(|(_, told)| told.to_owned()));
        told.expect("it says what it found")
    }
}

impl Drop for Another {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
        let _ = std::fs::remove_dir(std::env::temp_dir().join(format!("sojourn-{ANOTHER}")));
    }
}
