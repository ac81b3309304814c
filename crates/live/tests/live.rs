//! Send live frames over a veth pair between two namespaces.
//!
//! A user namespace does not permit BPF programs: there the tests are skipped with the reason; with `CI` set they fail.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use sojourn_live::{LiveCounter, LiveSender, LiveSent, LiveStream};
use sojourn_port::kernel::Interface;
use sojourn_port::packet::{PacketOptions, PacketPort};
use sojourn_port::{Batch, Port, PortError};
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::stream::{Kind, Link, STREAM_ETHERTYPE, StreamHeader, Tag};
use sojourn_wire::{MacAddress, SessionKey};

use namespace::{
    KEY, at_far_end, goes_when_killed, hold, ip, ip_says, link, run, stream_frame, wait_for_delivery, within_permitted,
};

const HOLDS: &str = "SOJOURN_TEST_HOLDS_A_COUNTER";
const NEAR: MacAddress = MacAddress([0x02, 0x77, 0, 0, 1, 1]);
const FAR: MacAddress = MacAddress([0x02, 0x77, 0, 0, 1, 2]);

#[test]
fn live_frames_are_all_accounted_for() {
    within_permitted("live_frames_are_all_accounted_for", || {
        link();
        let mut counter = counter();
        let before = dropped_at_far_end();
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let sent = send(&mut sender, 200_000, None);
        assert_eq!(sent.made, 200_000);
        wait_for_delivery();
        let dropped = dropped_at_far_end() - before;
        let [flow] = <[_; 1]>::try_from(counter.flows().expect("reads")).expect("one flow");
        assert_eq!((flow.key, flow.flow, flow.node, flow.duplicated, flow.reordered), (KEY, 3, 0, 0, 0));
        // A veth counts frames without room at the far end on both ends.
        assert_eq!((flow.first + sent.refused, dropped), (sent.made, sent.refused), "{sent:?}");
        assert_eq!((flow.bytes, flow.least), (flow.frames * 60, 0));
        assert_eq!((flow.delay.count(), flow.inter_arrival.count()), (flow.frames, flow.frames - 1));
        assert!(sent.first <= flow.first_at && sent.last <= flow.last_at, "{sent:?}");
        assert!(Nanos::ZERO < flow.delay_least && flow.delay_least <= flow.delay_greatest);
        assert_eq!(flow.damaged, 0);
        counter.clear().expect("clears");
        assert_eq!(counter.flows().expect("reads"), []);
        // Sequence numbers continue at the requested rate; on a busy CPU, in one of three attempts.
        let mut lasted = [200_000, 202_000, 204_000].into_iter().map(|least| {
            counter.clear().expect("clears");
            counter.expect(KEY, 3).expect("takes a key");
            let paced = send(&mut sender, 2_000, Some(10_000.0));
            wait_for_delivery();
            let flow = counter.flows().expect("reads").remove(0);
            assert_eq!((paced.made, flow.first, flow.least), (2_000, 2_000, least));
            (paced.last - paced.first).0
        });
        assert!(lasted.any(|lasted| (199_000_000..400_000_000).contains(&lasted)), "it takes too long each time");
    });
}

#[test]
fn live_frames_stop_on_request() {
    within_permitted("live_frames_stop_on_request", || {
        link();
        let counter = counter();
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let end = HostClock.now() + Nanos::millis(200);
        let sent = sender.send(1_000_000, Some(1_000.0), &mut || HostClock.now() > end).expect("sends");
        assert!((1..100_000).contains(&sent.made), "{sent:?}");
        wait_for_delivery();
        assert_eq!(counter.flows().expect("reads")[0].first, sent.made);
    });
}

#[test]
fn sender_that_is_aimed_again_sends_by_that_device_alone_and_flows_registered_again_begin_anew() {
    within_permitted(
        "sender_that_is_aimed_again_sends_by_that_device_alone_and_flows_registered_again_begin_anew",
        || {
            link();
            ip("link add name near2 type veth peer name far2 netns peer");
            ip("link set dev near2 up");
            ip("-n peer link set dev far2 up");
            let attach = |device| {
                let mut counter = at_far_end(|| LiveCounter::attach(device)).expect("attaches");
                counter.expect(KEY, 3).expect("takes a key");
                counter
            };
            let mut counters = [attach("far"), attach("far2")];
            let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
            for (device, at) in [("near", 0), ("near2", 1), ("near", 0)] {
                sender.aim(device, &live_stream(None)).expect("aims");
                assert_eq!(send(&mut sender, 1_000, Some(100_000.0)).made, 1_000);
                wait_for_delivery();
                let counted = counters.each_ref().map(|one| one.flows().expect("reads"));
                assert_eq!((counted[at][0].first, counted[at][0].least), (1_000, 0), "{device}");
                assert_eq!(counted[1 - at], [], "{device}");
                counters.iter_mut().for_each(|one| one.expect(KEY, 3).expect("takes it again"));
                assert_eq!(counters.each_ref().map(|one| one.flows().expect("reads")), [[], []]);
            }
        },
    );
}

#[test]
fn veth_without_support_for_live_frames_is_reported() {
    within_permitted("veth_without_support_for_live_frames_is_reported", || {
        link();
        let mut sender = LiveSender::open("near", &live_stream(None)).expect("opens");
        let refused = sender.send(10, None, &mut || false).expect_err("the far end has no NAPI").to_string();
        assert!(refused.contains("ethtool -K PEER gro on"), "{refused}");
        let options = PacketOptions::default();
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM_ETHERTYPE, options)).expect("opens");
        gro("peer", "far");
        assert_eq!(send(&mut sender, 10, None).made, 10);
        wait_for_delivery();
        let mut seen = Vec::new();
        far.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives");
        let headers: Vec<StreamHeader> = seen.iter().map(|frame| header(frame)).collect();
        assert!(headers.iter().all(|header| header.kind == Kind::Live && header.sent <= HostClock.now()));
        // Frames that did not leave had sequence numbers too.
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
        let counter = counter();
        let tag = Some(Tag { vlan: 10, priority: 3 });
        let mut sender = LiveSender::open("near", &live_stream(tag)).expect("opens");
        sender.send(10, None, &mut || false).expect_err("the bridge's port has no NAPI");
        gro("device", "near-port");
        let sent = send(&mut sender, 5_000, Some(20_000.0));
        wait_for_delivery();
        let flow = counter.flows().expect("reads").remove(0);
        assert_eq!((flow.first, flow.duplicated, flow.reordered), (sent.made, 0, 0));
        // The bridge moved the tags into the skb metadata, where XDP does not see them.
        assert_eq!(flow.bytes, flow.frames * 56);
    });
}

#[test]
fn counter_reports_duplicates_and_reordering_and_passes_other_frames() {
    within_permitted("counter_reports_duplicates_and_reordering_and_passes_other_frames", || {
        link();
        let mut counter = counter();
        counter.expect(KEY, 1).expect("takes a key");
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
        for node in 1..=127 {
            near.transmit(&changed(Kind::Answer, |header| header.node = node)).expect("transmits");
        }
        wait_for_delivery();
        let flows = counter.flows().expect("reads");
        let flow = &flows[0];
        assert_eq!((flow.frames, flow.first, flow.duplicated, flow.beyond), (12, 8, 3, 1));
        // 7 after 8; 6,000 and 9,000 after 10,000.
        assert_eq!((flow.reordered, flow.least, flow.greatest), (3, 5, 10_000));
        // Two flows are registered, one of which has 126 responders; the last has no room.
        assert_eq!((flows.len(), counter.others().expect("reads").unlisted), (127, 1));
        assert_eq!((counter.others().expect("reads").foreign, counter.others().expect("reads").keyless), (1, 0));
        let mut passed = Vec::new();
        beside.receive_batch(&mut |frame, _| passed.push(header(frame).kind)).expect("receives");
        assert_eq!(passed, [Kind::SyncRequest]);
    });
}

#[test]
fn flows_are_counted_and_answered_up_to_the_same_limit() {
    within_permitted("flows_are_counted_and_answered_up_to_the_same_limit", || {
        link();
        let mut counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let mut near = PacketPort::open_for("near", STREAM_ETHERTYPE, PacketOptions::default()).expect("opens");
        for flow in 1..=64 {
            counter.expect(KEY, flow).expect("takes a key");
            let answer = changed(Kind::Answer, |header| (header.flow, header.node) = (flow, 1));
            near.transmit(&answer).expect("transmits");
        }
        wait_for_delivery();
        let flows = counter.flows().expect("reads");
        assert!(flows.iter().all(|flow| (flow.frames, flow.node) == (1, 1)), "{flows:?}");
        assert_eq!((flows.len(), counter.others().expect("reads").unlisted), (64, 0));
    });
}

#[test]
fn flows_with_the_same_place_are_counted_apart() {
    within_permitted("flows_with_the_same_place_are_counted_apart", || {
        link();
        let mut counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
        let mut near = PacketPort::open_for("near", STREAM_ETHERTYPE, PacketOptions::default()).expect("opens");
        let mut expected = [(KEY, 3, 1), (KEY, 67, 2), (KEY, 131, 3), (SessionKey(KEY.0 ^ 1), 3, 4)];
        let mut send = |flows: &[(SessionKey, u16, u64)]| {
            for &(key, flow, frames) in flows {
                for seq in 0..frames {
                    let data = changed(Kind::Data, |header| (header.key, header.flow, header.seq) = (key, flow, seq));
                    near.transmit(&data).expect("transmits");
                }
            }
            wait_for_delivery();
        };
        expected.iter().for_each(|(key, flow, _)| counter.expect(*key, *flow).expect("takes a key"));
        send(&expected);
        expected.sort_by_key(|(key, flow, _)| (key.0, *flow));
        let counted = |counter: &LiveCounter| -> Vec<_> {
            counter.flows().expect("reads").iter().map(|flow| (flow.key, flow.flow, flow.first)).collect()
        };
        assert_eq!(counted(&counter), expected);
        assert_eq!(counter.others().expect("reads").keyless, 0);
        counter.clear().expect("clears");
        send(&expected);
        assert_eq!((counted(&counter), counter.others().expect("reads").keyless), (Vec::new(), 10));
        // The place is another flow's now, and its counts begin at 0.
        counter.expect(KEY, 67).expect("takes a key");
        send(&expected);
        assert_eq!((counted(&counter), counter.others().expect("reads").keyless), (vec![(KEY, 67, 2)], 18));
    });
}

#[test]
fn frames_with_another_key_or_flow_change_no_count() {
    within_permitted("frames_with_another_key_or_flow_change_no_count", || {
        link();
        let counter = counter();
        let options = PacketOptions::default();
        let mut near = PacketPort::open_for("near", STREAM_ETHERTYPE, options).expect("opens");
        near.transmit(&changed(Kind::Live, |header| header.seq = 7)).expect("transmits");
        let forged: [(Kind, Forge); 6] = [
            (Kind::Live, |header| header.key.0 ^= 1),
            (Kind::Data, |header| header.key.0 ^= 1 << 63),
            (Kind::Answer, |header| (header.key, header.node) = (SessionKey(0), 5)),
            (Kind::Live, |header| header.flow = 4),
            (Kind::Data, |header| header.flow = 0xFFFF),
            (Kind::Data, |header| (header.key, header.seq) = (SessionKey(0), 1 << 47)),
        ];
        for (kind, forge) in forged {
            near.transmit(&changed(kind, forge)).expect("transmits");
        }
        // A reply without a responder is counted with the flow itself.
        near.transmit(&changed(Kind::Answer, |header| (header.node, header.seq) = (0, 9))).expect("transmits");
        // One bit is damaged in the number, the key or a time: the parity shows it, except in the key, which then is
        // not registered.
        for at in [14 + 21, 14 + 17, 14 + 12, 14 + 36] {
            let mut damaged = changed(Kind::Live, |header| header.seq = 8);
            damaged[at] ^= 0x40;
            near.transmit(&damaged).expect("transmits");
        }
        wait_for_delivery();
        let [flow] = <[_; 1]>::try_from(counter.flows().expect("reads")).expect("one flow");
        assert_eq!((flow.key, flow.flow, flow.frames, flow.least, flow.greatest, flow.damaged), (KEY, 3, 2, 7, 9, 3));
        let others = counter.others().expect("reads");
        assert_eq!((others.keyless, others.unlisted, others.foreign), (forged.len() as u64 + 1, 0, 0));
    });
}

#[test]
fn counter_is_detached_when_its_process_is_killed() {
    within_permitted("counter_is_detached_when_its_process_is_killed", || {
        if std::env::var_os(HOLDS).is_some() {
            let _counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
            hold();
        }
        link();
        goes_when_killed("counter_is_detached_when_its_process_is_killed", HOLDS, || {
            ip_says("-n peer link show dev far").contains("xdp")
        });
    });
}

#[test]
fn missing_capability_is_named() {
    within_permitted("missing_capability_is_named", || {
        link();
        sojourn_rights::keep_only(&[]).expect("gives up rights");
        let denied = LiveCounter::attach("near").expect_err("is denied").to_string();
        assert!(denied.contains("CAP_BPF"), "{denied}");
    });
}

/// A modification of a header.
type Forge = fn(&mut StreamHeader);

/// Attach a counter at the far end that expects the live stream.
fn counter() -> LiveCounter {
    let mut counter = at_far_end(|| LiveCounter::attach("far")).expect("attaches");
    counter.expect(KEY, 3).expect("takes a key");
    counter
}

/// Return a frame of the live stream with a modified header and a valid check.
fn changed(kind: Kind, change: impl Fn(&mut StreamHeader)) -> Vec<u8> {
    let mut frame = stream_frame(kind, 3, 0, None);
    let mut header = header(&frame);
    change(&mut header);
    header.write(&mut frame[14..]);
    frame
}

fn live_stream(tag: Option<Tag>) -> LiveStream {
    let link = Link { destination: FAR, source: NEAR, tag };
    LiveStream { link, frame_bytes: 60, flow: 3, key: KEY }
}

fn send(sender: &mut LiveSender, count: u64, rate: Option<f64>) -> LiveSent {
    sender.send(count, rate, &mut || false).expect("sends")
}

fn header(frame: &[u8]) -> StreamHeader {
    let (_, payload) = Link::split(frame).expect("a stream's frame");
    StreamHeader::read(payload).expect("a header")
}

/// Return how many frames the far interface has dropped.
fn dropped_at_far_end() -> u64 {
    at_far_end(|| Interface::named("far").and_then(|far| far.counters()).expect("counts").receive_dropped)
}

/// Enable generic receive offload, and with it NAPI.
fn gro(namespace: &str, device: &str) {
    run("ip", &format!("netns exec {namespace} ethtool -K {device} gro on"));
}

/// Create a bridge in a third namespace between `near` and `far`.
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
