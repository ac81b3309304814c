//! Ports that need programs in the kernel: the suite over AF_XDP, and live frames, across a veth link between two namespaces.
//!
//! A user namespace does not grant such programs: there these tests are skipped and say why; with `CI` set that is a failure.

mod namespace;
mod suite;

use std::process::{Command, Stdio};

use sojourn_port::kernel::{Interface, wait_for_any};
use sojourn_port::live::{LiveCounter, LiveSender, LiveSent, LiveStream};
use sojourn_port::packet::{PacketListener, PacketOptions, PacketPort};
use sojourn_port::xdp::XdpPort;
use sojourn_port::{Batch, Listener, Mode, Port, PortError};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::stream::{Kind, Link, STREAM_ETHERTYPE, StreamHeader, Tag};

use namespace::{at_far_end, ip, ip_says, link, run, within};
use suite::{Bench, frames};

const HOLDS: &str = "SOJOURN_TEST_HOLDS_A_PROGRAM";

/// Runs `test` in a namespace of its own where programs in the kernel are permitted.
fn within_permitted(name: &str, test: fn()) {
    if std::env::var_os("CI").is_none() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: programs in the kernel need root");
        return;
    }
    within(name, test);
}

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
        settle();
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
        settle();
        let mut kept = 0;
        while far.receive_batch(&mut |_, _| kept += 1).expect("receives") > 0 {}
        let own = far.own_drops();
        assert!(own > 0, "more were sent than the ring holds");
        assert_eq!(kept + own, sent);
        near.transmit(&frames[..60]).expect("transmits");
        settle();
        assert!(far.receive(&mut [0; 100]).expect("receives").is_some(), "and it goes on");
    });
}

#[test]
fn live_frames_are_all_accounted_for() {
    within_permitted("live_frames_are_all_accounted_for", || {
        link();
        let mut counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let before = dropped_at_far_end();
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let sent = send(&mut sender, 200_000, None);
        assert_eq!(sent.made, 200_000);
        settle();
        let dropped = dropped_at_far_end() - before;
        let [flow] = <[_; 1]>::try_from(counter.flows().expect("reads")).expect("one flow");
        assert_eq!((flow.block, flow.flow, flow.node, flow.duplicated, flow.reordered), (7, 3, 0, 0, 0));
        // A veth counts what its far end has no room for at both ends.
        assert_eq!((flow.first + sent.refused, dropped), (sent.made, sent.refused), "{sent:?}");
        assert_eq!((flow.bytes, flow.least), (flow.frames * 60, 0));
        assert_eq!((flow.delay.count(), flow.inter_arrival.count()), (flow.frames, flow.frames - 1));
        assert!(sent.first <= flow.first_at && sent.last <= flow.last_at, "{sent:?}");
        assert!(Nanos::ZERO < flow.delay_least && flow.delay_least <= flow.delay_greatest);
        counter.clear().expect("clears");
        assert_eq!(counter.flows().expect("reads"), []);
        // Numbers go on, at the rate that is asked for; where others have the processor, at one of three times.
        let mut lasted = [200_000, 202_000, 204_000].into_iter().map(|least| {
            counter.clear().expect("clears");
            let paced = send(&mut sender, 2_000, Some(10_000.0));
            settle();
            let flow = counter.flows().expect("reads").remove(0);
            assert_eq!((paced.made, flow.first, flow.least), (2_000, 2_000, least));
            (paced.last - paced.first).0
        });
        assert!(lasted.any(|lasted| (199_000_000..400_000_000).contains(&lasted)), "it takes too long each time");
    });
}

#[test]
fn live_frames_stop_when_they_are_told_to() {
    within_permitted("live_frames_stop_when_they_are_told_to", || {
        link();
        let counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let end = HostClock.now() + Nanos::millis(200);
        let sent = sender.send(1_000_000, Some(1_000.0), &mut || HostClock.now() > end).expect("sends");
        assert!((1..100_000).contains(&sent.made), "{sent:?}");
        settle();
        assert_eq!(counter.flows().expect("reads")[0].first, sent.made);
    });
}

#[test]
fn a_veth_that_takes_no_live_frames_is_said_to_be_so() {
    within_permitted("a_veth_that_takes_no_live_frames_is_said_to_be_so", || {
        link();
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let refused = sender.send(10, None, &mut || false).expect_err("the far end has no NAPI").to_string();
        assert!(refused.contains("ethtool -K PEER gro on"), "{refused}");
        let options = PacketOptions::default();
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM_ETHERTYPE, options)).expect("opens");
        gro("peer", "far");
        assert_eq!(send(&mut sender, 10, None).made, 10);
        settle();
        let mut seen = Vec::new();
        far.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives");
        let headers: Vec<StreamHeader> = seen.iter().map(|frame| header(frame)).collect();
        assert!(headers.iter().all(|header| header.kind == Kind::Live && header.sent <= HostClock.now()));
        // The ones that did not leave had numbers, too.
        assert_eq!(headers.iter().map(|header| header.seq).collect::<Vec<_>>(), (10..20).collect::<Vec<_>>());
        for bad in [13, 59, 2_000] {
            let stream = LiveStream { frame_bytes: bad, ..live_stream(None) };
            assert!(matches!(LiveSender::open("near", &stream), Err(PortError::Wrong { .. })), "{bad}");
        }
    });
}

#[test]
fn live_frames_go_through_a_bridge_whose_port_has_gro() {
    within_permitted("live_frames_go_through_a_bridge_whose_port_has_gro", || {
        bridged_link();
        let counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let tag = Some(Tag { vlan: 10, priority: 3 });
        let mut sender = LiveSender::open("near", &live_stream(tag)).expect("opens");
        sender.send(10, None, &mut || false).expect_err("the bridge's port has no NAPI");
        gro("device", "near-port");
        let sent = send(&mut sender, 5_000, Some(20_000.0));
        settle();
        let flow = counter.flows().expect("reads").remove(0);
        assert_eq!((flow.first, flow.duplicated, flow.reordered), (sent.made, 0, 0));
        // The bridge took the tags off and keeps them beside the frames, where XDP does not see them.
        assert_eq!(flow.bytes, flow.frames * 56);
    });
}

#[test]
fn a_counter_tells_what_came_twice_or_late_and_lets_the_rest_pass() {
    within_permitted("a_counter_tells_what_came_twice_or_late_and_lets_the_rest_pass", || {
        link();
        let counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let options = PacketOptions::default();
        let mut beside = at_far_end(|| PacketPort::open_for("far", STREAM_ETHERTYPE, options)).expect("opens");
        let mut near = PacketPort::open_for("near", STREAM_ETHERTYPE, options).expect("opens");
        for seq in [5, 6, 8, 7, 8, 5, 70, 10_000, 70, 6_000, 9_000, 9_000] {
            near.transmit(&stream_frame(Kind::Data, 1, seq, None)).expect("transmits");
        }
        near.transmit(&stream_frame(Kind::SyncRequest, 1, 0, None)).expect("transmits");
        let mut foreign = stream_frame(Kind::Data, 1, 0, None);
        foreign[14] = b'X';
        near.transmit(&foreign).expect("transmits");
        for flow in 2..=65 {
            near.transmit(&stream_frame(Kind::Answer, flow, 0, None)).expect("transmits");
        }
        settle();
        let flows = counter.flows().expect("reads");
        let flow = &flows[0];
        assert_eq!((flow.frames, flow.first, flow.duplicated, flow.beyond), (12, 8, 3, 1));
        // 7 after 8, 6,000 and 9,000 after 10,000.
        assert_eq!((flow.reordered, flow.least, flow.greatest), (3, 5, 10_000));
        assert_eq!((flows.len(), counter.others().expect("reads").unlisted), (64, 1));
        assert_eq!(counter.others().expect("reads").foreign, 1);
        let mut passed = Vec::new();
        beside.receive_batch(&mut |frame, _| passed.push(header(frame).kind)).expect("receives");
        assert_eq!(passed, [Kind::SyncRequest]);
    });
}

#[test]
fn programs_go_with_the_process_that_was_killed() {
    within_permitted("programs_go_with_the_process_that_was_killed", || {
        if std::env::var_os(HOLDS).is_some() {
            let _port = XdpPort::open("near", STREAM_ETHERTYPE).expect("opens");
            let _counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
            println!("held");
            loop {
                HostClock.wait_until(HostClock.now() + Nanos::seconds(1), Nanos::ZERO);
            }
        }
        link();
        let program = std::env::current_exe().expect("this test's program");
        let arguments = ["--exact", "programs_go_with_the_process_that_was_killed", "--nocapture"];
        let mut holder =
            Command::new(program).args(arguments).env(HOLDS, "1").stdout(Stdio::null()).spawn().expect("starts");
        let give_up = HostClock.now() + Nanos::seconds(60);
        let hangs =
            || [ip_says("link show dev near"), ip_says("-n peer link show dev far")].map(|text| text.contains("xdp"));
        while hangs() != [true, true] {
            assert!(HostClock.now() < give_up, "the programs were never there");
            HostClock.wait_until(HostClock.now() + Nanos::millis(5), Nanos::ZERO);
        }
        holder.kill().expect("is killed");
        holder.wait().expect("ends");
        let give_up = HostClock.now() + Nanos::seconds(10);
        while hangs() != [false, false] {
            assert!(HostClock.now() < give_up, "the programs are still there");
            HostClock.wait_until(HostClock.now() + Nanos::millis(5), Nanos::ZERO);
        }
    });
}

#[test]
fn without_the_right_it_is_said_which_one() {
    within_permitted("without_the_right_it_is_said_which_one", || {
        link();
        sojourn_port::rights::keep_only(&[]).expect("gives up rights");
        let denied = LiveCounter::attach("near").expect_err("is denied").to_string();
        assert!(denied.contains("CAP_BPF"), "{denied}");
        let denied = XdpPort::open("near", STREAM_ETHERTYPE).expect_err("is denied").to_string();
        assert!(denied.contains("CAP_BPF"), "{denied}");
    });
}

fn live_stream(tag: Option<Tag>) -> LiveStream {
    let link = Link { destination: frames::FAR, source: frames::NEAR, tag };
    LiveStream { link, frame_bytes: 60, flow: 3, block: 7 }
}

fn send(sender: &mut LiveSender, count: u64, rate: Option<f64>) -> LiveSent {
    sender.send(count, rate, &mut || false).expect("sends")
}

fn stream_frame(kind: Kind, flow: u16, seq: u64, tag: Option<Tag>) -> Vec<u8> {
    let link = Link { destination: frames::FAR, source: frames::NEAR, tag };
    let mut frame = vec![0; 60];
    link.write(&mut frame);
    let sent = HostClock.now();
    StreamHeader { kind, node: 0, flow, block: 1, seq, intended: sent, sent }.write(&mut frame[link.header_bytes()..]);
    frame
}

fn header(frame: &[u8]) -> StreamHeader {
    let (_, payload) = Link::split(frame).expect("a stream's frame");
    StreamHeader::read(payload).expect("a header")
}

/// Frames that the far interface itself has dropped.
fn dropped_at_far_end() -> u64 {
    at_far_end(|| Interface::named("far").and_then(|far| far.counters()).expect("counts").receive_dropped)
}

/// Switches generic receive offload on, and NAPI with it.
fn gro(namespace: &str, device: &str) {
    run("ip", &format!("netns exec {namespace} ethtool -K {device} gro on"));
}

/// A bridge in a third namespace between `near` and `far`.
fn bridged_link() {
    ip("netns add peer");
    ip("netns add device");
    ip("link add name near address 02:77:00:00:01:01 type veth peer name near-port netns device");
    ip("-n peer link add name far address 02:77:00:00:01:02 type veth peer name far-port netns device");
    ip("-n device link add name bridge type bridge");
    for port in ["near-port", "far-port"] {
        ip(&format!("-n device link set dev {port} master bridge up"));
    }
    ip("-n device link set dev bridge up");
    ip("link set dev near up");
    ip("-n peer link set dev far up");
}

/// Gives the kernel time for what is still on its way: others may keep it busy.
fn settle() {
    HostClock.wait_until(HostClock.now() + Nanos::millis(300), Nanos::ZERO);
}

/// Answers all that has come in at the far end.
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
