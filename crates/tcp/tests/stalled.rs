//! A peer that is not reading when the time is up: the rest of a message waits for it without using CPU time, and the
//! peer finally receives every byte. The test is a process of its own, so that its CPU time is the sender's.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::thread;

use sojourn_tcp::{Send, Settings, Sockets};
use sojourn_time::{Clock, HostClock, Nanos};

const MESSAGE_BYTES: u32 = 8 << 20;
const STALL: Nanos = Nanos::millis(1_500);

#[test]
fn the_rest_of_a_message_waits_for_a_stalled_peer_without_spinning() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        HostClock.wait_until(HostClock.now() + STALL, Nanos::ZERO);
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).unwrap()
    });
    let settings = Settings { sndbuf_bytes: Some(1 << 16), ..Settings::default() };
    let request = Send {
        to,
        bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        duration: Some(Nanos::millis(300)),
        bytes: None,
        message_bytes: MESSAGE_BYTES,
        interval: Some(Nanos::millis(100)),
        connections: 1,
        dscp: Vec::new(),
        from_ports: Vec::new(),
        sockets: Sockets { block: 0, settings, read_every: None },
        read_before_send: false,
        is_eor: false,
        again_every: None,
        keep_calls: false,
    };
    let before = HostClock.processor_time();
    let outcomes = sojourn_tcp::send(&request, &AtomicBool::new(false)).unwrap();
    let took = HostClock.processor_time() - before;
    let [outcome] = &outcomes[..] else { panic!("one connection: {outcomes:?}") };
    assert_eq!(outcome.problem, None);
    let whole = outcome.pacing.as_ref().map(|pacing| (pacing.written, pacing.partial));
    assert_eq!(whole, Some((1, 1)), "the first message fills the buffers, and is not cut");
    assert_eq!(outcome.moved_bytes, u64::from(MESSAGE_BYTES));
    assert_eq!(peer.join().unwrap() as u64, outcome.moved_bytes);
    assert!(took < Nanos::millis(500), "a stall of {STALL:?} took {took:?} of a processor");
}
