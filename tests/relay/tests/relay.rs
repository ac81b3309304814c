//! Runs the relay between two namespaces and compares its log with a prober's measurements.

#[path = "../../../crates/port/tests/namespace/mod.rs"]
mod namespace;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use sojourn_port::Port;
use sojourn_port::icmp::IcmpPort;
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::icmp::{Echo, Version};

use namespace::{ip, within};

const PROBES: u16 = 60;
const FORWARD_NS: i64 = 300_000;
const BACKWARD_NS: i64 = 100_000;
const EVERY: usize = 20;
const EXTRA_NS: i64 = 1_000_000;

#[test]
fn frames_are_delayed_as_the_log_states() {
    within("frames_are_delayed_as_the_log_states", || {
        relayed_link();
        // If other programs use the CPU, the path outside the relay takes longer; three such results are a failure of
        // the relay.
        let besides: Vec<i64> =
            (0..3).map(|_| median_beside_the_relay()).take_while(|beside| *beside >= 100_000).collect();
        assert!(besides.len() < 3, "half of the round trips spend this outside the relay: {besides:?}");
    });
}

/// Sends probes through the relay, and checks the holding times in its log. Returns the median of the round-trip time
/// outside it.
fn median_beside_the_relay() -> i64 {
    let mut relay = Command::new("ip")
        .args(["netns", "exec", "relay", env!("CARGO_BIN_EXE_sojourn-test-relay"), "--log", "/run/log.csv"])
        .args(["--path", &format!("ra,rb,{FORWARD_NS},{BACKWARD_NS},{EVERY},{EXTRA_NS}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut output = BufReader::new(relay.stdout.take().expect("its output")).lines();
    assert!(output.next().expect("a line").expect("text").contains("ready"));
    let rtts: Vec<i64> = (0..PROBES).map(round_trip(&mut open())).collect();
    drop(relay.stdin.take());
    assert!(relay.wait().expect("ends").success());
    let end: serde_json::Value = serde_json::from_str(&output.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!((&end["forwarded"], &end["refused"], &end["dropped"]), (&120.into(), &0.into(), &0.into()), "{end}");
    let [forward, backward] = ["forward", "backward"].map(held);
    for (index, rtt) in rtts.iter().enumerate() {
        let asked = FORWARD_NS + if index % EVERY == EVERY - 1 { EXTRA_NS } else { 0 };
        assert!(forward[index] >= asked && backward[index] >= BACKWARD_NS, "frame {index} left before it was due");
        let rest = rtt - forward[index] - backward[index];
        assert!(rest > 0, "frame {index}: a round trip of {rtt} ns is shorter than the relay held it");
    }
    let mut rest: Vec<i64> = (0..rtts.len()).map(|index| rtts[index] - forward[index] - backward[index]).collect();
    rest.sort_unstable();
    rest[rest.len() / 2]
}

/// Returns a function that measures a round-trip time, in nanoseconds, by the kernel's timestamps.
fn round_trip(port: &mut IcmpPort) -> impl FnMut(u16) -> i64 {
    |sequence| {
        let mut message = [0; 64];
        Echo { is_reply: false, identifier: 1, sequence }.write(Version::V4, &mut message);
        let sent = port.transmit(&message).expect("transmits");
        let deadline = sent.called + Nanos::seconds(20);
        let received = loop {
            assert!(HostClock.now() < deadline, "no reply came");
            port.wait(deadline).expect("waits");
            if let Some(received) = port.receive(&mut [0; 100]).expect("receives") {
                break received;
            }
        };
        let stamp = port.tx_timestamp().expect("reads stamps").expect("a stamp");
        assert_eq!(stamp.number, sent.number);
        (received.arrived.at - stamp.left.at).0
    }
}

fn open() -> IcmpPort {
    IcmpPort::open("10.77.1.2".parse().expect("an address"), None).expect("opens")
}

/// Returns the holding times of a direction's frames, in nanoseconds, from the relay's log.
fn held(direction: &str) -> Vec<i64> {
    let log = std::fs::read_to_string("/run/log.csv").expect("a log");
    let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let number = |text: &String| text.parse::<i64>().expect("a number");
    let rows = log.lines().skip(1).map(fields).filter(|row| row[1] == direction);
    rows.map(|row| {
        assert_eq!((row[4].as_str(), row[7].as_str()), ("kernel", "kernel"));
        number(&row[6]) - number(&row[3])
    })
    .collect()
}

fn relayed_link() {
    ip("netns add peer");
    ip("netns add relay");
    ip("link add name near index 11 address 02:77:00:00:01:01 type veth peer name ra index 21 netns relay");
    ip("-n peer link add name far index 12 address 02:77:00:00:01:02 type veth peer name rb index 22 netns relay");
    for (prefix, end) in [("", "near"), ("-n peer ", "far"), ("-n relay ", "ra"), ("-n relay ", "rb")] {
        // Without IPv6 there are no frames but the test's.
        ip(&format!("{prefix}link set dev {end} addrgenmode none"));
        ip(&format!("{prefix}link set dev {end} up"));
    }
    ip("address add 10.77.1.1/24 dev near");
    ip("-n peer address add 10.77.1.2/24 dev far");
    ip("neighbor replace 10.77.1.2 lladdr 02:77:00:00:01:02 dev near nud permanent");
    ip("-n peer neighbor replace 10.77.1.1 lladdr 02:77:00:00:01:01 dev far nud permanent");
}
