//! Tests of `probe respond` as a user starts it, at the far end of a veth link.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sojourn_port::kernel::Interface;
use sojourn_port::packet::PacketPort;
use sojourn_port::udp::UdpPort;
use sojourn_port::{Port, Received};
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::{Key, MacAddress, ProbeHeader};

use namespace::{ip, link, within};

const FAR: [MacAddress; 2] = [MacAddress([2, 0x77, 0, 0, 1, 2]), MacAddress([2, 0x77, 0, 0, 2, 2])];

#[test]
fn answers_each_probe_from_the_address_and_interface_that_received_it() {
    within("answers_each_probe_from_the_address_and_interface_that_received_it", || {
        link();
        second_link();
        for wait in ["spin", "sleep"] {
            let options = ["--dev", "far", "--dev", "far2", "--udp", "0", "--until-eof", "--wait", wait];
            let mut responder = Responder::start(&options);
            let port = responder.udp_port();
            // 10.77.1.3 is the far end's second address: a connected socket would not receive a reply from the first one.
            for host in ["10.77.1.2", "10.77.1.3", "[fd77::2]"] {
                let address: SocketAddr = format!("{host}:{port}").parse().expect("an address");
                let mut udp = UdpPort::open(address, None).expect("opens");
                let (received, reply) = exchange(&mut udp, &request(300, 100));
                check_reply(&received, &reply, 100);
            }
            for (near, far) in ["near", "near2"].into_iter().zip(FAR) {
                let mut packet = PacketPort::open(near, true).expect("opens");
                let header = Header { destination: far, source: packet.mac(), ethertype: PROBE_ETHERTYPE };
                let (received, reply) = exchange(&mut packet, &[&header.to_bytes()[..], &request(1500, 46)].concat());
                check_reply(&received, &reply[14..], 46);
            }
            let end = responder.finish();
            assert_eq!(
                (&end["answered"], &end["unexpected"], &end["local_drops"]),
                (&5.into(), &0.into(), &0.into()),
                "{end}"
            );
        }
    });
}

/// Sends a request from a plain socket bound to `from`, and returns the length of the reply, if any.
fn ask(from: &str, to: &str, request: &[u8]) -> Option<usize> {
    let socket = UdpSocket::bind(from).expect("binds");
    socket.set_broadcast(true).expect("may broadcast");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("sets");
    socket.send_to(request, to).expect("sends");
    socket.recv(&mut [0; 10_000]).ok()
}

#[test]
fn only_a_named_peer_gets_a_reply_longer_than_its_request() {
    within("only_a_named_peer_gets_a_reply_longer_than_its_request", || {
        link();
        let mut responder = Responder::start(&["--udp", "7707", "--dev", "far", "--until-eof"]);
        let ask = |request: &[u8]| ask("10.77.1.1:0", "10.77.1.2:7707", request);
        assert_eq!(ask(&request(40, 9_216)), None);
        assert_eq!(ask(&request(100, 101)), None);
        assert_eq!(ask(&request(100, 100)), Some(100));
        let end = responder.finish();
        assert_eq!((&end["answered"], &end["too_long"]), (&1.into(), &2.into()), "{end}");
        for (named, answers) in [("10.77.1.1", true), ("10.77.1.0/24", true), ("10.77.2.0/24", false), ("any", true)] {
            let mut responder = Responder::start(&["--udp", "7707", "--until-eof", "--allow-amplification", named]);
            assert_eq!(ask(&request(40, 1_400)), answers.then_some(1_400), "{named}");
            assert_eq!(ask(&request(40, 9_217)), None, "beyond any frame");
            responder.finish();
        }
    });
}

#[test]
fn requests_usable_for_reflection_or_amplification_are_ignored_and_counted() {
    within("requests_usable_for_reflection_or_amplification_are_ignored_and_counted", || {
        link();
        let mut responder = Responder::start(&["--udp", "7707", "--dev", "far", "--until-eof"]);
        let group = UdpSocket::bind("[::]:0").expect("binds");
        let near = Interface::named("near").expect("an interface").index;
        let all_nodes = SocketAddrV6::new("ff02::1".parse().expect("an address"), 7707, 0, near);
        ip("route add 224.0.0.0/4 dev near");
        for to in ["10.77.1.255:7707", "224.0.0.1:7707"] {
            assert_eq!(ask("10.77.1.1:0", to, &request(100, 100)), None, "{to}");
        }
        group.send_to(&request(100, 100), all_nodes).expect("sends");
        for from in ["10.77.1.1:7", "10.77.1.1:19", "10.77.1.1:862", "10.77.1.1:7707", "10.77.1.1:11211"] {
            assert_eq!(ask(from, "10.77.1.2:7707", &request(100, 100)), None, "{from}");
        }
        let mut packet = PacketPort::open("near", true).expect("opens");
        let header = Header { destination: MacAddress([0xFF; 6]), source: packet.mac(), ethertype: PROBE_ETHERTYPE };
        packet.transmit(&[&header.to_bytes()[..], &request(46, 46)].concat()).expect("transmits");
        assert_eq!(ask("10.77.1.1:0", "10.77.1.2:7707", b"nonsense"), None);
        assert_eq!(ask("10.77.1.1:40000", "10.77.1.2:7707", &request(100, 100)), Some(100), "others are answered");
        let end = responder.finish();
        let counts = ["answered", "to_group", "source_port", "unexpected", "too_long", "not_allowed"]
            .map(|key| end[key].as_u64());
        assert_eq!(counts, [1, 4, 5, 1, 0, 0].map(Some), "{end}");
    });
}

#[test]
fn only_named_peers_are_answered_and_only_at_named_addresses() {
    within("only_named_peers_are_answered_and_only_at_named_addresses", || {
        link();
        second_link();
        ip("address add 10.77.1.9/24 dev near");
        let options =
            ["--udp", "7707", "--bind", "10.77.1.2", "--bind", "fd77::2", "--allow", "10.77.1.9", "--until-eof"];
        let mut responder = Responder::start(&options);
        assert_eq!(responder.ready["udp"], serde_json::json!(["10.77.1.2:7707", "[fd77::2]:7707"]));
        for (from, to, answers) in [
            ("10.77.1.9:0", "10.77.1.2:7707", true),
            ("10.77.1.1:0", "10.77.1.2:7707", false),
            ("10.77.1.9:0", "10.77.1.3:7707", false),
            ("[fd77::1]:0", "[fd77::2]:7707", false),
        ] {
            assert_eq!(ask(from, to, &request(100, 100)).is_some(), answers, "{from} {to}");
        }
        let end = responder.finish();
        assert_eq!((&end["answered"], &end["not_allowed"]), (&1.into(), &2.into()), "{end}");
    });
}

#[test]
fn replies_are_rate_limited_per_peer() {
    within("replies_are_rate_limited_per_peer", || {
        link();
        for option in ["--peer-rate", "--rate"] {
            let mut responder = Responder::start(&["--udp", "7707", "--until-eof", option, "100"]);
            let socket = UdpSocket::bind("10.77.1.1:0").expect("binds");
            let started = HostClock.now();
            for _ in 0..1_000 {
                socket.send_to(&request(100, 100), "10.77.1.2:7707").expect("sends");
            }
            HostClock.wait_until(HostClock.now() + Nanos::millis(200), Nanos::ZERO);
            let end = responder.finish();
            let took = (HostClock.now() - started).0 as f64 / 1e9;
            let key = option.trim_start_matches("--").replace('-', "_");
            let (answered, refused) =
                (end["answered"].as_u64().expect("a count"), end[&key].as_u64().expect("a count"));
            // 100 ms worth of requests immediately, then 100 per second while it still reads.
            assert!((10..=12 + (took * 100.0) as u64).contains(&answered), "{end} in {took} s");
            assert_eq!(answered + refused, 1_000, "{end}");
        }
    });
}

#[test]
fn both_ends_accept_only_packets_with_their_shared_key() {
    within("both_ends_accept_only_packets_with_their_shared_key", || {
        link();
        let file = |name: &str, secret: &str| {
            let path = format!("{}/{name}-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
            std::fs::write(&path, secret).expect("writes");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("sets");
            path
        };
        let (ours, theirs) = (file("ours", "a secret of both ends"), file("theirs", "somebody else's secret"));
        let mut responder = Responder::start(&["--udp", "7707", "--dev", "far", "--until-eof", "--key", &ours]);
        let probe = |words: &[&str]| {
            let output = Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
                .arg("probe")
                .args(words)
                .args(["-c", "20", "-i", "2ms", "--timeout", "200ms", "--json"])
                .output()
                .expect("starts");
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let problem = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || problem.contains("with the same key or none"), "{problem}");
            told["received"].as_u64().expect("a count")
        };
        let raw = ["raw", "--dev", "near", "--to", "02:77:00:00:01:02", "--payload-bytes", "56", "--key", &ours];
        assert_eq!(probe(&["udp", "10.77.1.2", "--key", &ours]), 20);
        assert_eq!(probe(&raw), 20);
        assert_eq!(probe(&["udp", "10.77.1.2", "--key", &theirs]), 0);
        assert_eq!(probe(&["udp", "10.77.1.2"]), 0);
        // A packet that was seen once is replayed, also from another address.
        let mut seen = request(56, 56);
        sojourn_wire::probe::authenticate(&mut seen, &Key::new(b"a secret of both ends").expect("long enough"));
        assert_eq!(ask("10.77.1.1:0", "10.77.1.2:7707", &seen), Some(56));
        assert_eq!(ask("10.77.1.1:0", "10.77.1.2:7707", &seen), None);
        let end = responder.finish();
        let counts = ["answered", "unauthenticated", "replayed", "unexpected"].map(|key| end[key].as_u64());
        assert_eq!(counts, [41, 40, 1, 0].map(Some), "{end}");
        // A responder without the key is not trusted.
        let mut responder = Responder::start(&["--udp", "7707", "--until-eof"]);
        assert_eq!(probe(&["udp", "10.77.1.2", "--key", &ours]), 0);
        assert_eq!(responder.finish()["answered"], 20);
    });
}

#[test]
fn two_probers_on_one_interface_do_not_take_each_others_replies() {
    within("two_probers_on_one_interface_do_not_take_each_others_replies", || {
        link();
        let _responder = Responder::start(&["--dev", "far", "--until-eof"]);
        let probers = [(); 2].map(|()| {
            Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
                .args([
                    "probe",
                    "raw",
                    "--dev",
                    "near",
                    "--to",
                    "02:77:00:00:01:02",
                    "-c",
                    "300",
                    "-i",
                    "5ms",
                    "--json",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts")
        });
        for prober in probers {
            let output = prober.wait_with_output().expect("ends");
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!((&told["received"], &told["duplicated"]), (&300.into(), &0.into()), "{told}");
            assert!(told["unexpected"].as_u64() > Some(0), "they ran side by side: {told}");
        }
    });
}

#[test]
fn signal_ends_the_responder_with_its_counts() {
    within("signal_ends_the_responder_with_its_counts", || {
        link();
        for (signal, wait) in [(Signal::TERM, "sleep"), (Signal::INT, "spin")] {
            let mut responder = Responder::start(&["--udp", "0", "--wait", wait]);
            kill_process(Pid::from_child(&responder.process), signal).expect("is still there");
            assert_eq!(responder.end()["answered"], 0);
        }
    });
}

#[test]
fn unsupported_requests_are_errors() {
    within("unsupported_requests_are_errors", || {
        link();
        for (arguments, status, said) in [
            (vec!["--dev", "nosuch"], 2, "no such interface"),
            (vec!["--fifo", "--wait", "spin"], 2, "3 of each 40 ms"),
            (vec!["--udp", "7", "--udp", "7"], 3, "in use"),
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
                .args(["probe", "respond"])
                .args(arguments)
                .output()
                .expect("starts");
            let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(status), "{sentence}");
            assert!(sentence.starts_with("sojourn-instrument: ") && sentence.contains(said), "{sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    });
}

/// A responder in the far namespace.
struct Responder {
    process: Child,
    output: BufReader<ChildStdout>,
    ready: Value,
}

impl Responder {
    fn start(options: &[&str]) -> Self {
        let mut process = Command::new("ip")
            .args(["netns", "exec", "peer", env!("CARGO_BIN_EXE_sojourn-instrument"), "probe", "respond", "--json"])
            .args(["--die-with-parent"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a first line");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(ready["event"], "ready");
        Self { process, output, ready }
    }

    fn udp_port(&self) -> u16 {
        let address: SocketAddr = self.ready["udp"][0].as_str().expect("an address").parse().expect("an address");
        address.port()
    }

    /// Closes its input, and returns its counters.
    fn finish(&mut self) -> Value {
        drop(self.process.stdin.take());
        self.end()
    }

    fn end(&mut self) -> Value {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its final message");
        assert_eq!(self.process.wait().expect("ends").code(), Some(0));
        serde_json::from_str(&rest).expect("one line of JSON")
    }
}

fn second_link() {
    ip("link add name near2 index 13 address 02:77:00:00:02:01 type veth \
        peer name far2 index 14 address 02:77:00:00:02:02 netns peer");
    ip("link set dev near2 up");
    ip("-n peer link set dev far2 up");
    ip("-n peer address add 10.77.1.3/24 dev far");
    ip("neighbor replace 10.77.1.3 lladdr 02:77:00:00:01:02 dev near nud permanent");
}

fn request(length: usize, response_bytes: u16) -> Vec<u8> {
    let mut payload = vec![0; length];
    ProbeHeader::request(1, 2, response_bytes).write(&mut payload);
    payload
}

fn exchange(port: &mut impl Port, frame: &[u8]) -> (Received, Vec<u8>) {
    let sent = port.transmit(frame).expect("transmits");
    let deadline = sent.called + Nanos::seconds(20);
    let mut buffer = vec![0; 2_000];
    loop {
        assert!(HostClock.now() < deadline, "no answer came");
        port.wait(deadline).expect("waits");
        if let Some(received) = port.receive(&mut buffer).expect("receives") {
            buffer.truncate(received.length);
            return (received, buffer);
        }
    }
}

fn check_reply(received: &Received, payload: &[u8], length: usize) {
    assert_eq!(payload.len(), length);
    let header = ProbeHeader::read(payload).expect("our header");
    assert_eq!((header.session, header.seq), (1, 2));
    let (arrival, departure) = header.times().expect("a reply");
    assert!(arrival <= departure && departure <= received.arrived.at, "both ends are on one clock here");
}
