//! Repeated transfers: each uses a connection of its own, starts on time, and carries all of its bytes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;

use sojourn_tcp::{Listen, Listening, Receive, Send, Settings, Sockets};
use sojourn_time::Nanos;

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn each_transfer_has_its_bytes_and_begins_when_it_is_due() {
    let sockets = || Sockets { block: 0, settings: Settings::default(), read_every: None };
    let at = Listen { address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port: 0 };
    let listening = Listening::begin(Receive { at, connections: 8, sockets: sockets() }, &STOP).unwrap();
    let request = Send {
        to: listening.at,
        bind: None,
        duration: Some(Nanos::millis(350)),
        bytes: Some(10_000),
        message_bytes: 64 << 10,
        interval: None,
        connections: 2,
        dscp: Vec::new(),
        from_ports: Vec::new(),
        sockets: sockets(),
        read_before_send: false,
        is_eor: false,
        again_every: Some(Nanos::millis(100)),
        keep_calls: false,
    };
    let sent = sojourn_tcp::send(&request, &STOP).unwrap();
    let received = listening.finish(Nanos::seconds(5)).unwrap();
    assert_eq!((sent.len(), received.len()), (8, 8));
    assert!(sent.iter().chain(&received).all(|one| one.problem.is_none() && one.moved_bytes == 10_000));
    let mut numbers: Vec<u32> = sent.iter().map(|one| one.facts.connection).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    let first = sent.iter().map(|one| one.started_ns).min().unwrap();
    for one in &sent {
        let due = i64::from(one.facts.connection / 2) * 100_000_000;
        // Not before it is due; on a busy machine it may be late.
        assert!(one.started_ns - first >= due - 5_000_000, "{}: {}", one.facts.connection, one.started_ns - first);
        assert!(one.ended_ns > one.started_ns);
    }
}
