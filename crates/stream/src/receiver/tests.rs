//! What the receiver answers to whom, and that no bytes make it panic.

use proptest::prelude::*;
use sojourn_port::StampKind;
use sojourn_time::{Nanos, Source, Stamp};
use sojourn_wire::MacAddress;
use sojourn_wire::stream::Tag;

use super::*;
use crate::Keep;

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn receiver(framing: Framing, answer: Option<Answering>) -> Receiver {
    Receiver::new(&ReceiveRequest {
        block: 5,
        ports: vec![PortRequest { framing, mac: OWN, answer, transmit_stamps: true }],
        flows: vec![1, 2],
        keep: Keep::Histograms,
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 77,
    })
}

fn received(at: i64) -> Received {
    Received { length: 0, arrived: Stamp { at: Time(at), source: Source::Kernel }, returned: Time(at + 10) }
}

fn frame(kind: Kind, seq: u64, text: &str) -> Vec<u8> {
    let tag = Some(Tag { vlan: 3, priority: 6 });
    let link = Link { destination: MacAddress([0xFF; 6]), source: PEER, tag };
    let mut frame = vec![0; link.header_bytes() + 100];
    link.write(&mut frame);
    let payload = &mut frame[link.header_bytes()..];
    if kind == Kind::Data {
        fill(payload)
    } else {
        payload[40..40 + text.len()].copy_from_slice(text.as_bytes())
    }
    StreamHeader { kind, node: 0, flow: 1, block: 5, seq, intended: Time(1), sent: Time(2) }.write(payload);
    frame
}

#[test]
fn a_synchronisation_is_answered_with_arrival_and_departure() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 2_000];
    let length = receiver.on_frame(0, &frame(Kind::SyncRequest, 12, ""), &received(500), &mut reply).unwrap();
    receiver.stamp(0, &mut reply[..length], Time(900));
    let (link, payload) = Link::split(&reply[..length]).unwrap();
    assert_eq!((link.source, link.destination, link.tag), (OWN, PEER, Some(Tag { vlan: 3, priority: 6 })));
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.seq, header.intended, header.sent), (Kind::SyncReply, 12, Time(500), Time(900)));
    assert_eq!(SyncTail::read(payload), Some(SyncTail { clock: 77, source: Source::Kernel, follows_up: false }));
    let outcome = receiver.finish(&[], &[]);
    assert_eq!((outcome.ports[0].frames, outcome.ports[0].control, outcome.ports[0].unexpected), (1, 1, 0));
}

/// A request that can use a follow-up, with so much user data.
fn asking(payload_bytes: usize) -> Vec<u8> {
    let mut request = frame(Kind::SyncRequest, 12, "");
    let at = request.len() - 100;
    SyncTail { clock: 3, source: Source::User, follows_up: true }.write(&mut request[at..]);
    request.truncate(at + payload_bytes);
    request
}

#[test]
fn a_reply_that_promised_it_is_followed_up_once_when_its_stamp_comes() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let (mut reply, mut room) = ([0; 2_000], [0; 2_000]);
    let length = receiver.on_frame(0, &asking(SYNC_BYTES), &received(500), &mut reply).unwrap();
    receiver.stamp(0, &mut reply[..length], Time(900));
    receiver.answered(0, &reply[..length], Sent { number: 4, called: Time(901) });
    let stamp = |number, kind| TransmitStamp { number, left: Stamp { at: Time(950), source: Source::Kernel }, kind };
    assert_eq!(receiver.on_stamp(0, &stamp(3, StampKind::Left), &mut room), None, "of another frame");
    assert_eq!(receiver.on_stamp(1, &stamp(4, StampKind::Left), &mut room), None, "of another port");
    assert_eq!(receiver.on_stamp(0, &stamp(4, StampKind::Scheduled), &mut room), None, "not left yet");
    assert_eq!(receiver.on_stamp(0, &stamp(4, StampKind::Left), &mut room), Some(length), "as long as the reply");
    let (link, payload) = Link::split(&room[..length]).unwrap();
    assert_eq!((link.source, link.destination), (OWN, PEER));
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.seq, header.intended, header.sent), (Kind::SyncFollowUp, 12, Time(500), Time(950)));
    assert_eq!(SyncTail::read(payload), Some(SyncTail { clock: 77, source: Source::Kernel, follows_up: false }));
    assert_eq!(receiver.on_stamp(0, &stamp(4, StampKind::Left), &mut room), None, "once");
}

#[test]
fn a_request_shorter_than_the_reply_is_not_followed_up() {
    let mut reply = [0; 2_000];
    for (bytes, promised) in [(SYNC_BYTES, true), (SYNC_BYTES - 1, false)] {
        let mut receiver = receiver(Framing::Ethernet, None);
        let length = receiver.on_frame(0, &asking(bytes), &received(500), &mut reply).unwrap();
        let (_, payload) = Link::split(&reply[..length]).unwrap();
        assert_eq!(SyncTail::read(payload).map(|tail| tail.follows_up), Some(promised));
    }
}

#[test]
fn replies_whose_stamps_never_come_are_forgotten() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let (mut reply, mut room) = ([0; 2_000], [0; 2_000]);
    for number in 0..100 {
        let length = receiver.on_frame(0, &asking(SYNC_BYTES), &received(500), &mut reply).unwrap();
        receiver.answered(0, &reply[..length], Sent { number, called: Time(901) });
    }
    let left = Stamp { at: Time(950), source: Source::Kernel };
    let followed = (0..100).filter(|number| {
        let stamp = TransmitStamp { number: *number, left, kind: StampKind::Left };
        receiver.on_stamp(0, &stamp, &mut room).is_some()
    });
    assert_eq!(followed.count(), 64);
}

#[test]
fn packets_are_answered_once_by_who_is_told_to() {
    let mut receiver = receiver(Framing::Ethernet, Some(Answering { node: 4, payload_bytes: 200 }));
    let mut reply = [0; 2_000];
    let length = receiver.on_frame(0, &frame(Kind::Data, 3, ""), &received(500), &mut reply).unwrap();
    let (link, payload) = Link::split(&reply[..length]).unwrap();
    assert_eq!((link.destination, payload.len()), (PEER, 200));
    let answer = reply[..length].to_vec();
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.node, header.seq, header.sent), (Kind::Answer, 4, 3, Time(2)));
    assert!(sojourn_wire::stream::is_intact(payload));
    assert_eq!(receiver.on_frame(0, &frame(Kind::Data, 3, ""), &received(501), &mut reply), None, "a duplicate");
    assert_eq!(receiver.on_frame(0, &answer, &received(502), &mut reply), None, "an answer");
}

#[test]
fn answers_are_counted_where_none_are_given() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 2_000];
    for node in [1, 2] {
        let mut answer = frame(Kind::Data, 0, "");
        let at = answer.len() - 100;
        StreamHeader { kind: Kind::Answer, node, flow: 1, block: 5, seq: 0, intended: Time(1), sent: Time(2) }
            .write(&mut answer[at..]);
        assert_eq!(receiver.on_frame(0, &answer, &received(502), &mut reply), None);
    }
    let outcome = receiver.finish(&[], &[]);
    let told: Vec<_> = outcome.flows.iter().filter(|flow| flow.node > 0).map(|f| (f.node, f.counts.first)).collect();
    assert_eq!((told, outcome.ports[0].unexpected), (vec![(1, 1), (2, 1)], 0));
}

#[test]
fn an_end_is_believed_once_and_acknowledged_each_time() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 200];
    assert_eq!(receiver.end(1), None);
    for sent in [7, 8] {
        let text = format!("{{\"sent\":{sent},\"clock\":null}}");
        let length = receiver.on_frame(0, &frame(Kind::End, 0, &text), &received(1), &mut reply).unwrap();
        let (_, payload) = Link::split(&reply[..length]).unwrap();
        assert_eq!(StreamHeader::read(payload).unwrap().kind, Kind::EndAck);
    }
    assert_eq!(receiver.end(1), Some(End { sent: 7, clock: None, pacing_error_ns: None, of: None }));
    let outcome = receiver.finish(&[], &[]);
    assert_eq!((outcome.flows[0].counts.lost, outcome.flows[1].counts.lost), (7, 0));
}

#[test]
fn an_end_of_another_receiver_of_the_group_is_left_to_it() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 200];
    let told = |of: u64| frame(Kind::End, 0, &format!("{{\"sent\":{of},\"clock\":null,\"of\":{of}}}"));
    assert_eq!(receiver.on_frame(0, &told(78), &received(1), &mut reply), None);
    assert_eq!(receiver.end(1), None);
    assert!(receiver.on_frame(0, &told(77), &received(1), &mut reply).is_some());
    assert_eq!(receiver.end(1).map(|end| end.sent), Some(77));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes: Vec<u8>, at: prop::sample::Index, by: u8, room in 0..300_usize, kind in 0..9_u8,
        cut: prop::sample::Index, number: u32,
    ) {
        let mut reply = vec![0; room];
        for framing in [Framing::Ethernet, Framing::Udp, Framing::Icmp4] {
            let mut receiver = receiver(framing, Some(Answering { node: 1, payload_bytes: 64 }));
            receiver.on_frame(0, &bytes, &received(1), &mut reply);
            receiver.on_frame(9, &bytes, &received(1), &mut reply);
            receiver.stamp(0, &mut bytes, Time(1));
            receiver.answered(0, &bytes, Sent { number, called: Time(1) });
            let left = Stamp { at: Time(2), source: Source::Kernel };
            receiver.on_stamp(0, &TransmitStamp { number, left, kind: StampKind::Left }, &mut reply);
            let mut frame = frame(Kind::Data, 1, "");
            frame[18 + 4] = kind;
            let place = at.index(frame.len());
            frame[place] ^= by;
            let end = cut.index(frame.len());
            receiver.on_frame(0, &frame[..end], &received(1), &mut reply);
            let outcome = receiver.finish(&[], &[]);
            let counted: u64 = outcome.flows.iter().map(|flow| flow.counts.frames()).sum();
            prop_assert_eq!(counted + outcome.ports[0].control, 2);
        }
    }
}
