//! Runs the suite over AF_XDP, the port that needs a BPF program, across a veth link between two namespaces.
//!
//! A user namespace does not permit such programs: there these tests are skipped with a message; with `CI` set that is
//! a failure.

mod namespace;
mod suite;

use sojourn_port::kernel::wait_for_any;
use sojourn_port::packet::{PacketListener, PacketOptions, PacketPort};
use sojourn_port::xdp::XdpPort;
use sojourn_port::{Batch, Listener, Mode, Port};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::stream::{Kind, STREAM_ETHERTYPE, Tag};

use namespace::{at_far_end, goes_when_killed, hold, ip_says, link, stream_frame, wait_for_delivery, within_permitted};
use suite::{Bench, frames};

const HOLDS: &str = "SOJOURN_TEST_HOLDS_A_PROGRAM";

#[test]
fn xdp_passes_the_suite() {
    within_permitted("xdp_passes_the_suite", || {
        link();
        let port = XdpPort::open("near", PROBE_ETHERTYPE).expect("opens");
        assert_eq!((port.mode(), port.mac()), (Mode::Native, frames::NEAR));
        assert_eq!(port.engine(), "AF_XDP copy, native XDP");
        let frames::Frames { request, sequence, lengths } = frames::ETHERNET;
        let far = at_far_end(|| PacketListener::open(&[])).expect("listens");
        let (clock, answer, source) = (Box::new(HostClock), answering(far), Source::Kernel);
        suite::run(Bench { port, clock, request, sequence, lengths, answer, source });
    });
}

#[test]
fn xdp_takes_its_ethertype_tagged_or_not_and_leaves_the_rest() {
    within_permitted("xdp_takes_its_ethertype_tagged_or_not_and_leaves_the_rest", || {
        link();
        let mut far = at_far_end(|| XdpPort::open("far", STREAM_ETHERTYPE)).expect("opens");
        let mut near = XdpPort::open("near", STREAM_ETHERTYPE).expect("opens");
        let rest = PacketOptions::default();
        let mut other = at_far_end(|| PacketPort::open_for("far", PROBE_ETHERTYPE, rest)).expect("opens");
        let plain = stream_frame(Kind::Data, 1, 0, None);
        let tagged = stream_frame(Kind::Data, 1, 1, Some(Tag { vlan: 10, priority: 3 }));
        let probe = [&plain[..12], &PROBE_ETHERTYPE.to_be_bytes(), &plain[14..]].concat();
        for frame in [&plain, &probe, &tagged] {
            near.transmit(frame).expect("transmits");
        }
        let start = HostClock.now();
        wait_for_any(far.descriptor().into_iter(), Nanos::seconds(60)).expect("waits");
        assert!(HostClock.now() - start < Nanos::seconds(30), "what has come ends a sleep");
        let mut seen = Vec::new();
        wait_for_delivery();
        far.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives");
        assert_eq!(seen, [plain, tagged]);
        let mut buffer = [0; 100];
        let received = other.receive(&mut buffer).expect("receives").expect("what is not redirected");
        assert_eq!(buffer[..received.length], probe);
        let refused = at_far_end(|| XdpPort::open("far", STREAM_ETHERTYPE)).expect_err("is taken").to_string();
        assert!(refused.contains("hangs on it already"), "{refused}");
    });
}

#[test]
fn every_frame_over_xdp_is_kept_or_counted_as_dropped() {
    within_permitted("every_frame_over_xdp_is_kept_or_counted_as_dropped", || {
        link();
        let mut far = at_far_end(|| XdpPort::open("far", STREAM_ETHERTYPE)).expect("opens");
        let mut near = XdpPort::open("near", STREAM_ETHERTYPE).expect("opens");
        let frames: Vec<u8> = (0..64).flat_map(|seq| stream_frame(Kind::Data, 1, seq, None)).collect();
        let mut sent = 0;
        while sent < 20_000 {
            sent += near.transmit_batch(&frames, 60).expect("transmits") as u64;
        }
        wait_for_delivery();
        let mut kept = 0;
        while far.receive_batch(&mut |_, _| kept += 1).expect("receives") > 0 {}
        let own = far.local_drops();
        assert!(own > 0, "more were sent than the ring holds");
        assert_eq!(kept + own, sent);
        near.transmit(&frames[..60]).expect("transmits");
        wait_for_delivery();
        assert!(far.receive(&mut [0; 100]).expect("receives").is_some(), "and it goes on");
    });
}

#[test]
fn bpf_programs_are_detached_when_their_process_is_killed() {
    within_permitted("bpf_programs_are_detached_when_their_process_is_killed", || {
        if std::env::var_os(HOLDS).is_some() {
            let _port = XdpPort::open("near", STREAM_ETHERTYPE).expect("opens");
            hold();
        }
        link();
        goes_when_killed("bpf_programs_are_detached_when_their_process_is_killed", HOLDS, || {
            ip_says("link show dev near").contains("xdp")
        });
    });
}

#[test]
fn missing_capability_is_named() {
    within_permitted("missing_capability_is_named", || {
        link();
        sojourn_rights::keep_only(&[]).expect("gives up rights");
        let denied = XdpPort::open("near", STREAM_ETHERTYPE).expect_err("is denied").to_string();
        assert!(denied.contains("CAP_BPF"), "{denied}");
    });
}

/// Answers all requests that have arrived at the far end.
fn answering(mut far: PacketListener) -> Box<dyn FnMut()> {
    let mut request = vec![0; 2000];
    let mut reply = vec![0; 2000];
    Box::new(move || {
        while let Some((received, peer)) = far.receive(&mut request).expect("receives") {
            let length = answer(&request[..received.length], received.arrived.at, &mut reply);
            far.answer(&peer, &reply[..length]).expect("answers");
        }
    })
}

fn answer(request: &[u8], arrived: Time, reply: &mut [u8]) -> usize {
    let (header, payload) = Header::split(request).expect("a header");
    let back = Header { destination: header.source, source: header.destination, ..header }.to_bytes();
    reply[..back.len()].copy_from_slice(&back);
    back.len() + sojourn_wire::answer(payload, arrived, HostClock.now(), &mut reply[back.len()..]).expect("a request")
}
