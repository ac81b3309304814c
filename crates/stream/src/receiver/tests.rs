//! Tests of the receiver's answers; arbitrary bytes do not make it panic.

use proptest::prelude::*;
use sojourn_port::StampKind;
use sojourn_time::{Nanos, Source, Stamp};
use sojourn_wire::stream::{SEQ_LIMIT, Tag};
use sojourn_wire::{Key, MacAddress};

use super::*;
use crate::{Keep, Unexpected};

mod aim;

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// Payload of a frame.
const USER_BYTES: usize = 200;
const KEY: SessionKey = SessionKey(0x0123_4567_89AB_CDEF);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn receiver(framing: Framing, answer: Option<Answering>) -> Receiver {
    receiver_of(Senders::Known(KEY), framing, answer)
}

fn receiver_of(senders: Senders, framing: Framing, answer: Option<Answering>) -> Receiver {
    receiver_with(Auth::default(), senders, framing, answer)
}

fn receiver_with(auth: Auth, senders: Senders, framing: Framing, answer: Option<Answering>) -> Receiver {
    Receiver::new(&request(auth, senders, framing, answer))
}

fn request(auth: Auth, senders: Senders, framing: Framing, answer: Option<Answering>) -> ReceiveRequest {
    ReceiveRequest {
        senders,
        allowed: Vec::new(),
        seed: 1,
        auth,
        ports: vec![PortRequest { framing, mac: OWN, answer, tx_timestamps: true }],
        flows: vec![1, 2],
        keep: Keep::Histograms,
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 77,
    }
}

fn received(at: i64) -> Received {
    Received {
        length: 0,
        arrived: Stamp { at: Time(at), source: Source::Kernel },
        returned: Time(at + 10),
        from: None,
        to_group: false,
    }
}

fn frame(kind: Kind, seq: u64, text: &str) -> Vec<u8> {
    let tag = Some(Tag { vlan: 3, priority: 6 });
    let link = Link { destination: MacAddress([0xFF; 6]), source: PEER, tag };
    let mut frame = vec![0; link.header_bytes() + USER_BYTES];
    link.write(&mut frame);
    let payload = &mut frame[link.header_bytes()..];
    if kind == Kind::Data {
        fill(payload)
    } else {
        payload[HEADER_BYTES..HEADER_BYTES + text.len()].copy_from_slice(text.as_bytes())
    }
    StreamHeader { kind, node: 0, flow: 1, key: KEY, seq, intended: Time(1), sent: Time(2) }.write(payload);
    frame
}

#[test]
fn clock_exchange_is_answered_with_arrival_and_departure_times() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 2_000];
    let length = receiver.on_frame(0, &frame(Kind::SyncRequest, 12, ""), &received(500), &mut reply).unwrap();
    receiver.stamp(0, &mut reply[..length], Time(900));
    let (link, payload) = Link::split(&reply[..length]).unwrap();
    assert_eq!((link.source, link.destination, link.tag), (OWN, PEER, Some(Tag { vlan: 3, priority: 6 })));
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.seq, header.intended, header.sent), (Kind::SyncReply, 12, Time(500), Time(900)));
    assert_eq!(SyncTail::read(payload), Some(SyncTail { clock: 77, source: Source::Kernel, follows_up: false }));
    let outcome = receiver.finish(&[][..], &[]);
    assert_eq!((outcome.ports[0].frames, outcome.ports[0].control, outcome.ports[0].unexpected.total()), (1, 1, 0));
}

/// Makes a time request that can use a follow-up, with `payload_bytes` bytes of payload.
fn asking(payload_bytes: usize) -> Vec<u8> {
    let mut request = frame(Kind::SyncRequest, 12, "");
    let at = request.len() - USER_BYTES;
    SyncTail { clock: 3, source: Source::User, follows_up: true }.write(&mut request[at..]);
    request.truncate(at + payload_bytes);
    request
}

#[test]
fn promised_follow_up_is_sent_once_when_the_tx_timestamp_is_known() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let (mut reply, mut room) = ([0; 2_000], [0; 2_000]);
    let length = receiver.on_frame(0, &asking(SYNC_BYTES), &received(500), &mut reply).unwrap();
    receiver.stamp(0, &mut reply[..length], Time(900));
    receiver.answered(0, &reply[..length], None, Sent { number: 4, called: Time(901) });
    let stamp = |number, kind| TxTimestamp { number, left: Stamp { at: Time(950), source: Source::Kernel }, kind };
    assert_eq!(receiver.on_stamp(0, &stamp(3, StampKind::Left), &mut room), None, "of another frame");
    assert_eq!(receiver.on_stamp(1, &stamp(4, StampKind::Left), &mut room), None, "of another port");
    assert_eq!(receiver.on_stamp(0, &stamp(4, StampKind::Scheduled), &mut room), None, "not left yet");
    assert_eq!(
        receiver.on_stamp(0, &stamp(4, StampKind::Left), &mut room),
        Some(FollowUp { length, to: None }),
        "as long as the reply"
    );
    let (link, payload) = Link::split(&room[..length]).unwrap();
    assert_eq!((link.source, link.destination), (OWN, PEER));
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.seq, header.intended, header.sent), (Kind::SyncFollowUp, 12, Time(500), Time(950)));
    assert_eq!(SyncTail::read(payload), Some(SyncTail { clock: 77, source: Source::Kernel, follows_up: false }));
    assert_eq!(receiver.on_stamp(0, &stamp(4, StampKind::Left), &mut room), None, "once");
}

#[test]
fn a_time_request_shorter_than_the_reply_is_not_replied_to() {
    for auth in [Auth::default(), shared(b"0123456789abcdef")] {
        let mut receiver = receiver_with(auth.clone(), Senders::Known(KEY), Framing::Ethernet, None);
        let mut replied = |bytes: usize| {
            let mut request = asking(bytes + auth.bytes());
            let at = request.len() - bytes - auth.bytes();
            auth.seal(&mut request[at..]);
            let mut reply = [0; 2_000];
            let length = receiver.on_frame(0, &request, &received(500), &mut reply)?;
            assert_eq!(length, request.len());
            let (_, payload) = Link::split(&reply[..length]).unwrap();
            SyncTail::read(payload).map(|tail| tail.follows_up)
        };
        assert_eq!(replied(SYNC_BYTES), Some(true), "promises a follow-up");
        assert_eq!(replied(SYNC_BYTES - 1), None);
        let port = &receiver.finish(&[][..], &[]).ports[0];
        assert_eq!((port.unexpected.exchanges, port.control), (1, 1));
    }
}

#[test]
fn replies_without_a_tx_timestamp_are_discarded() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let (mut reply, mut room) = ([0; 2_000], [0; 2_000]);
    for number in 0..100 {
        let length = receiver.on_frame(0, &asking(SYNC_BYTES), &received(500), &mut reply).unwrap();
        receiver.answered(0, &reply[..length], None, Sent { number, called: Time(901) });
    }
    let left = Stamp { at: Time(950), source: Source::Kernel };
    let followed = (0..100).filter(|number| {
        let stamp = TxTimestamp { number: *number, left, kind: StampKind::Left };
        receiver.on_stamp(0, &stamp, &mut room).is_some()
    });
    assert_eq!(followed.count(), 64);
}

#[test]
fn configured_receiver_replies_to_each_packet_once() {
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
fn receiver_that_sends_no_replies_counts_received_replies() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 2_000];
    for node in [1, 2] {
        let mut answer = frame(Kind::Data, 0, "");
        let at = answer.len() - USER_BYTES;
        StreamHeader { kind: Kind::Answer, node, flow: 1, key: KEY, seq: 0, intended: Time(1), sent: Time(2) }
            .write(&mut answer[at..]);
        assert_eq!(receiver.on_frame(0, &answer, &received(502), &mut reply), None);
    }
    let outcome = receiver.finish(&[][..], &[]);
    let told: Vec<_> = outcome.flows.iter().filter(|flow| flow.node > 0).map(|f| (f.node, f.counts.first)).collect();
    assert_eq!((told, outcome.ports[0].unexpected.total()), (vec![(1, 1), (2, 1)], 0));
}

#[test]
fn end_message_takes_effect_once_and_is_acknowledged_each_time() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 200];
    assert_eq!(receiver.end(1), None);
    for sent in [7, 8] {
        let text = format!("{{\"sent\":{sent},\"clock\":null}}");
        let length = receiver.on_frame(0, &frame(Kind::End, 0, &text), &received(1), &mut reply).unwrap();
        let (_, payload) = Link::split(&reply[..length]).unwrap();
        assert_eq!(StreamHeader::read(payload).unwrap().kind, Kind::EndAck);
    }
    assert_eq!(receiver.end(1), Some(End { sent: 7, next: None, clock: None, pacing_error_ns: None, of: None }));
    let outcome = receiver.finish(&[][..], &[]);
    assert_eq!((outcome.flows[0].counts.lost, outcome.flows[1].counts.lost), (7, 0));
}

/// Frames that the kernel generated have sequence numbers even if our own machine refused them. Ends of earlier
/// versions do not report that.
#[test]
fn sequence_numbers_of_refused_packets_are_not_an_excess() {
    for (next, excess) in [(",\"next\":10", 0), ("", 1)] {
        let mut receiver = receiver(Framing::Ethernet, None);
        let mut reply = [0; 200];
        for seq in (0..10).filter(|seq| *seq != 3) {
            receiver.on_frame(0, &forged(Kind::Data, "", |header| header.seq = seq), &received(1), &mut reply);
        }
        let told = format!("{{\"sent\":9{next},\"clock\":null}}");
        assert!(receiver.on_frame(0, &frame(Kind::End, 0, &told), &received(2), &mut reply).is_some());
        let outcome = receiver.finish(&[][..], &[]);
        let counts = outcome.flows[0].counts;
        assert_eq!((counts.first, counts.lost, counts.excess), (9, 0, excess));
        assert_eq!(outcome.flows[0].loss_run.count(), excess, "which one was refused is not known");
    }
}

#[test]
fn end_message_for_another_receiver_of_the_group_is_ignored() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 200];
    let told = |of: u64| frame(Kind::End, 0, &format!("{{\"sent\":{of},\"clock\":null,\"of\":{of}}}"));
    assert_eq!(receiver.on_frame(0, &told(78), &received(1), &mut reply), None);
    assert_eq!(receiver.end(1), None);
    assert!(receiver.on_frame(0, &told(77), &received(1), &mut reply).is_some());
    assert_eq!(receiver.end(1).map(|end| end.sent), Some(77));
}

/// Makes a frame with a modified header and a valid checksum.
fn forged(kind: Kind, text: &str, forge: impl Fn(&mut StreamHeader)) -> Vec<u8> {
    let mut forged = frame(kind, 0, text);
    let at = forged.len() - USER_BYTES;
    let mut header = StreamHeader::read(&forged[at..]).unwrap();
    forge(&mut header);
    header.write(&mut forged[at..]);
    forged
}

const END_OF: fn(u64, &str) -> String = |sent, clock| format!("{{\"sent\":{sent},\"clock\":{clock}}}");
const SHARED: &str = r#"{"shared":true,"reference_ns":0,"offset_ns":0,"skew_ppb":0,"bound_ns":0,"error95_ns":0}"#;

/// An attack with packets, claims of a shared clock and ends from unknown senders: all are refused.
#[test]
fn packets_from_unknown_senders_end_no_stream_and_change_no_count() {
    let mut receiver = receiver(Framing::Ethernet, None);
    let mut reply = [0; 200];
    let (mine, stranger) = (|_: &mut StreamHeader| {}, |header: &mut StreamHeader| header.key.0 ^= 1);
    for seq in [0, 1, 2] {
        receiver.on_frame(0, &forged(Kind::Data, "", |header| header.seq = seq), &received(1), &mut reply);
    }
    let attack = [
        forged(Kind::Data, "", |header| (header.key, header.seq) = (SessionKey(0), SEQ_LIMIT - 1)),
        forged(Kind::Data, "", |header| (header.flow, header.seq) = (99, 5)),
        forged(Kind::End, &END_OF(u64::MAX, SHARED), stranger),
        forged(Kind::End, &END_OF(0, SHARED), stranger),
        forged(Kind::End, &END_OF(1, "null"), stranger),
        forged(Kind::End, &END_OF(3, "null"), |header| header.flow = 99),
        forged(Kind::SyncRequest, "", stranger),
        forged(Kind::SyncReply, "", stranger),
        forged(Kind::SyncFollowUp, "", mine),
        forged(Kind::EndAck, "", mine),
        forged(Kind::GreetingReply, "", mine),
    ];
    for frame in &attack {
        assert_eq!(receiver.on_frame(0, frame, &received(2), &mut reply), None, "nobody is replied to");
    }
    assert_eq!((receiver.end(1), receiver.end(99), receiver.progress().0), (None, None, 3));
    // The stream's own end, twice, and impossible ones with the right key.
    for text in [END_OF(u64::MAX, "null"), END_OF(3, "null"), END_OF(3, "null"), END_OF(1, "null"), "{}".to_owned()] {
        receiver.on_frame(0, &forged(Kind::End, &text, mine), &received(3), &mut reply);
    }
    assert_eq!(receiver.end(1).map(|end| end.sent), Some(3));
    let outcome = receiver.finish(&[][..], &[]);
    let counts = outcome.flows[0].counts;
    assert_eq!((counts.first, counts.lost, counts.excess, outcome.flows[1].counts.first), (3, 0, 0, 0));
    assert_eq!(outcome.flows.len(), 2, "no flow was made");
    let unexpected = Unexpected { packets: 2, exchanges: 3, ends: 7, greetings: 1, ..Unexpected::default() };
    assert_eq!((outcome.ports[0].unexpected, outcome.ports[0].control), (unexpected, 3));
    assert_eq!(outcome.ports[0].frames, 3 + attack.len() as u64 + 5);
}

#[test]
fn impossible_end_messages_are_rejected() {
    let clock = |change: (&str, &str)| END_OF(3, &SHARED.replace(change.0, change.1));
    for text in [
        END_OF(SEQ_LIMIT + 1, "null"),
        clock(("\"offset_ns\":0", "\"offset_ns\":1e19")),
        clock(("\"offset_ns\":0", "\"offset_ns\":5")),
        clock(("\"bound_ns\":0", "\"bound_ns\":5")),
        "{\"sent\":3,\"next\":2,\"clock\":null}".to_owned(),
        "{\"sent\":3,\"next\":281474976710657,\"clock\":null}".to_owned(),
        clock(("\"reference_ns\":0", "\"reference_ns\":-9223372036854775808")),
        clock(("\"skew_ppb\":0", "\"skew_ppb\":1e300")),
        clock(("\"bound_ns\":0", "\"bound_ns\":-1")),
        clock(("\"error95_ns\":0", "\"error95_ns\":-1e-3")),
        "{\"sent\":3,\"clock\":null,\"pacing_error_ns\":1e300}".to_owned(),
        "{\"sent\":-1,\"clock\":null}".to_owned(),
        "[3]".to_owned(),
    ] {
        let mut receiver = receiver(Framing::Udp, None);
        let mut payload = vec![0; 300];
        payload[HEADER_BYTES..HEADER_BYTES + text.len()].copy_from_slice(text.as_bytes());
        let (intended, sent) = (Time(1), Time(2));
        StreamHeader { kind: Kind::End, node: 0, flow: 1, key: KEY, seq: 0, intended, sent }.write(&mut payload);
        assert_eq!(receiver.on_frame(0, &payload, &received(1), &mut [0; 200]), None, "{text}");
        assert_eq!((receiver.end(1), receiver.finish(&[][..], &[]).ports[0].unexpected.ends), (None, 1), "{text}");
    }
}

const SECRET: [u8; 32] = [0xC0; 32];

/// Returns the cookie that a receiver sends to a peer for a flow and key.
fn cookie_of(peer: PeerAddress, flow: u16, key: SessionKey) -> u64 {
    let header = StreamHeader { kind: Kind::Greeting, node: 0, flow, key, seq: 0, intended: Time(1), sent: Time(2) };
    Cookies::new(&SECRET).unwrap().of(Some(peer), &header)
}

/// The same for the peer that sends frames of Ethernet.
fn own_cookie(flow: u16, key: SessionKey) -> u64 {
    cookie_of(PeerAddress::Ethernet(PEER), flow, key)
}

fn internet(address: &str) -> PeerAddress {
    PeerAddress::Internet(address.parse().unwrap())
}

/// Returns the receiver's reply to a greeting with this cookie, flow and key.
fn greet(receiver: &mut Receiver, cookie: u64, flow: u16, key: SessionKey) -> Option<GreetingTail> {
    let mut greeting = forged(Kind::Greeting, "", |header| (header.flow, header.key) = (flow, key));
    let at = greeting.len() - USER_BYTES;
    GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut greeting[at..]);
    greeting.truncate(at + GREETING_BYTES);
    let mut reply = [0xFF; 200];
    let length = receiver.on_frame(0, &greeting, &received(1), &mut reply)?;
    assert_eq!(length, greeting.len(), "no more than was asked with");
    let (_, payload) = Link::split(&reply[..length]).unwrap();
    let header = StreamHeader::read(payload).unwrap();
    assert_eq!((header.kind, header.flow, header.key), (Kind::GreetingReply, flow, key));
    GreetingTail::read(payload)
}

#[test]
fn flow_belongs_to_the_first_sender_that_completed_the_greeting() {
    let mut receiver = receiver_of(Senders::Greeting { secret: SECRET }, Framing::Ethernet, None);
    let said = |flow, key, word| Some(GreetingTail { cookie: own_cookie(flow, key), word });
    let mut reply = [0; 200];
    let data = |key| forged(Kind::Data, "", move |header| header.key = key);
    let (first, second) = (KEY, SessionKey(7));
    receiver.on_frame(0, &data(first), &received(1), &mut reply);
    // A replayed greeting, or one whose sender does not receive our replies, has no cookie or a wrong one.
    assert_eq!(greet(&mut receiver, 0, 1, second), said(1, second, GreetingWord::Again));
    let others = [
        own_cookie(1, first),
        own_cookie(2, second),
        cookie_of(internet("10.0.0.1:1"), 1, second),
        own_cookie(1, second) ^ 1,
    ];
    for other in others {
        assert_eq!(greet(&mut receiver, other, 1, second), said(1, second, GreetingWord::Again));
    }
    assert_eq!((receiver.greeted(), receiver.progress().0), (None, 0));
    assert_eq!(greet(&mut receiver, own_cookie(1, first), 1, first), said(1, first, GreetingWord::Accepted));
    assert_eq!((receiver.greeted(), receiver.greeted()), (Some((1, first)), None));
    assert_eq!(greet(&mut receiver, 0, 1, first), said(1, first, GreetingWord::Accepted), "its reply may be lost");
    assert_eq!(greet(&mut receiver, own_cookie(1, second), 1, second), said(1, second, GreetingWord::Taken));
    assert_eq!(greet(&mut receiver, own_cookie(3, second), 3, second), said(3, second, GreetingWord::NoSuchFlow));
    assert_eq!(
        greet(&mut receiver, own_cookie(2, second), 2, second),
        said(2, second, GreetingWord::Accepted),
        "another flow is free"
    );
    for key in [first, second, SessionKey(0)] {
        receiver.on_frame(0, &data(key), &received(1), &mut reply);
        receiver.on_frame(
            0,
            &forged(Kind::End, &END_OF(9, "null"), |header| header.key = key),
            &received(1),
            &mut reply,
        );
    }
    let outcome = receiver.finish(&[][..], &[]);
    let counts = outcome.flows.iter().map(|flow| (flow.counts.first, flow.counts.lost)).collect::<Vec<_>>();
    assert_eq!(counts, [(1, 8), (0, 0)], "the second sender's frames of flow 1 do not mix with the first one's");
    let unexpected = Unexpected { packets: 3, ends: 2, greetings: 2, ..Unexpected::default() };
    assert_eq!(outcome.ports[0].unexpected, unexpected);
}

fn shared(secret: &[u8]) -> Auth {
    Auth::from(Some(Key::new(secret).unwrap()))
}

/// With a shared key, a sender that does not know it is refused, even if it knows the session key and the cookie.
#[test]
fn shared_key_is_required_for_greeting_end_and_clock_exchange() {
    let (ours, theirs) = (shared(b"0123456789abcdef"), shared(b"0123456789abcdeF"));
    let said = |kind, auth: &Auth, text: &str| {
        let mut frame = frame(kind, 0, text);
        let at = frame.len() - USER_BYTES;
        if kind == Kind::Greeting {
            GreetingTail { cookie: own_cookie(1, KEY), word: GreetingWord::Greet }.write(&mut frame[at..]);
        }
        auth.seal(&mut frame[at..]);
        frame
    };
    let mut receiver = receiver_with(ours.clone(), Senders::Greeting { secret: SECRET }, Framing::Ethernet, None);
    let mut reply = [0; 300];
    let mut hears = |frame: &[u8]| {
        let length = receiver.on_frame(0, frame, &received(3), &mut reply)?;
        receiver.stamp(0, &mut reply[..length], Time(5));
        assert!(length <= frame.len(), "no more than was asked with");
        let (_, payload) = Link::split(&reply[..length]).unwrap();
        let tail = GreetingTail::read(payload).filter(|tail| tail.word == GreetingWord::Keyed);
        if let Some(tail) = tail {
            assert!(tail.cookie == 0 && ours.open(payload).is_none(), "no peer with the key accepts it");
            return None;
        }
        assert!(ours.open(payload).is_some() && theirs.open(payload).is_none());
        Some(StreamHeader::read(payload).unwrap().kind)
    };
    let text = END_OF(3, "null");
    for auth in [&Auth::default(), &theirs] {
        for kind in [Kind::Greeting, Kind::SyncRequest, Kind::End] {
            assert_eq!(hears(&said(kind, auth, &text)), None);
        }
    }
    assert_eq!(hears(&said(Kind::Greeting, &ours, "")), Some(Kind::GreetingReply));
    for auth in [&Auth::default(), &theirs] {
        for kind in [Kind::Greeting, Kind::SyncRequest, Kind::End] {
            assert_eq!(hears(&said(kind, auth, &text)), None);
        }
    }
    let mut changed = said(Kind::End, &ours, &text);
    changed[18 + HEADER_BYTES + 9] = b'4';
    assert_eq!(hears(&changed), None, "another count");
    let mut cut = said(Kind::End, &ours, &text);
    cut.truncate(18 + HEADER_BYTES + 10);
    assert_eq!(hears(&cut), None);
    assert_eq!(hears(&said(Kind::SyncRequest, &ours, "")), Some(Kind::SyncReply));
    assert_eq!(hears(&said(Kind::End, &ours, &text)), Some(Kind::EndAck));
    assert_eq!(receiver.end(1).map(|end| end.sent), Some(3));
    let outcome = receiver.finish(&[][..], &[]);
    let unexpected = Unexpected { exchanges: 4, ends: 6, greetings: 4, ..Unexpected::default() };
    assert_eq!((outcome.ports[0].unexpected, outcome.ports[0].control), (unexpected, 3));
}

#[test]
fn greeting_without_the_key_is_told_that_a_key_is_required() {
    let senders = Senders::Greeting { secret: SECRET };
    let mut receiver = receiver_with(shared(b"0123456789abcdef"), senders, Framing::Ethernet, None);
    let said = greet(&mut receiver, own_cookie(1, KEY), 1, KEY);
    assert_eq!(said, Some(GreetingTail { cookie: 0, word: GreetingWord::Keyed }));
    assert_eq!((receiver.greeted(), receiver.sender(1)), (None, None));
    let outcome = receiver.finish(&[][..], &[]);
    assert_eq!((outcome.ports[0].unexpected.greetings, outcome.ports[0].control), (1, 0));
    // A peer that is not allowed gets no reply.
    let allowed = vec!["02:00:00:00:00:03".parse().unwrap()];
    let request = request(shared(b"0123456789abcdef"), senders, Framing::Ethernet, None);
    assert_eq!(greet(&mut Receiver::new(&ReceiveRequest { allowed, ..request }), own_cookie(1, KEY), 1, KEY), None);
}

#[test]
fn replies_to_greetings_and_clock_exchanges_are_rate_limited_and_counted() {
    let senders = Senders::Greeting { secret: SECRET };
    let mut greeting = [0; GREETING_BYTES];
    let (intended, sent) = (Time(1), Time(2));
    let header = StreamHeader { kind: Kind::Greeting, node: 0, flow: 1, key: KEY, seq: 0, intended, sent };
    header.write(&mut greeting);
    let cookie = cookie_of(internet("10.0.0.1:40000"), 1, KEY);
    GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut greeting);
    let mut exchange = [0; SYNC_BYTES];
    StreamHeader { kind: Kind::SyncRequest, ..header }.write(&mut exchange);
    for (frame, peers) in [(&greeting[..], 1), (&exchange[..], 1), (&greeting[..], 1_000)] {
        let mut receiver = receiver_of(senders, Framing::Udp, None);
        let from = |peer: i64| format!("10.0.{}.{}:40000", peer / 250, peer % 250 + 1).parse().ok();
        let mut hears = |frame: &[u8], peer: i64, at: i64| {
            let received = Received { from: from(peer), returned: Time(at), ..received(at) };
            receiver.on_frame(0, frame, &received, &mut [0; 200]).is_some()
        };
        assert!(hears(&greeting, 0, 1));
        // For a tenth of a second, a frame every 200 ns: 500,000 frames.
        let answered = (0..500_000).filter(|nth| hears(frame, nth % peers, 1_000_000_000 + nth * 200)).count();
        let rate = if peers == 1 { PEER_RATE } else { RATE } as usize;
        // A burst of a tenth of a second, and what accumulates meanwhile.
        assert!((rate / 5 - 5..=rate / 5 + 5).contains(&answered), "{peers}: {answered}");
        assert!(hears(&greeting, 7, 3_000_000_000), "later, others are answered");
        let port = &receiver.finish(&[][..], &[]).ports[0];
        let unexpected = port.unexpected.greetings + port.unexpected.exchanges;
        assert_eq!((unexpected, port.control), (500_000 - answered as u64, answered as u64 + 2));
    }
}

/// A flood of greetings may have the spoofed address of a peer that has our key.
#[test]
fn greetings_without_the_key_do_not_consume_the_rate_of_peers_with_it() {
    let senders = Senders::Greeting { secret: SECRET };
    let mut receiver = receiver_with(shared(b"0123456789abcdef"), senders, Framing::Udp, None);
    let header =
        StreamHeader { kind: Kind::Greeting, node: 0, flow: 1, key: KEY, seq: 0, intended: Time(1), sent: Time(2) };
    let mut greeting = [0; GREETING_BYTES + 16];
    header.write(&mut greeting);
    let cookie = cookie_of(internet("10.0.0.1:40000"), 1, KEY);
    GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut greeting);
    let stranger = greeting;
    shared(b"0123456789abcdef").seal(&mut greeting);
    let from = "10.0.0.1:40000".parse().ok();
    let mut hears = |frame: &[u8], at: i64| {
        let received = Received { from, returned: Time(at), ..received(at) };
        receiver.on_frame(0, frame, &received, &mut [0; 200]).is_some()
    };
    // Far more greetings than any of the limits allows.
    let answered = (0..200_000).filter(|nth| hears(&stranger, 1_000_000_000 + nth)).count();
    let burst = STRANGER_RATE as usize / 10;
    assert!((burst..=burst + 2).contains(&answered), "{answered}");
    assert!(hears(&greeting, 1_000_200_000), "it has the key");
    assert!(!hears(&stranger, 1_000_200_001) && hears(&stranger, 3_000_000_000));
}

/// A cookie proves only an address, which may be a stranger's own. It must also be allowed.
#[test]
fn peer_that_is_not_allowed_starts_no_stream_with_any_cookie() {
    let senders = Senders::Greeting { secret: SECRET };
    let receiver = |framing, allowed: &[&str]| {
        let allowed = allowed.iter().map(|peers| peers.parse().unwrap()).collect();
        Receiver::new(&ReceiveRequest { allowed, ..request(Auth::default(), senders, framing, None) })
    };
    let (intended, sent) = (Time(1), Time(2));
    let mut greeting = [0; GREETING_BYTES];
    StreamHeader { kind: Kind::Greeting, node: 0, flow: 1, key: KEY, seq: 0, intended, sent }.write(&mut greeting);
    for (allowed, from, is_allowed) in [
        (&["10.0.0.1"][..], "10.0.0.1:40000", true),
        (&["10.0.0.1"][..], "10.0.0.2:40000", false),
        (&["10.0.0.1", "fd00::/8"][..], "[fd77::1]:7708", true),
        (&["02:00:00:00:00:02"][..], "10.0.0.1:40000", false),
        (&["any"][..], "10.0.0.2:40000", true),
        (&[][..], "10.0.0.2:40000", true),
    ] {
        let mut receiver = receiver(Framing::Udp, allowed);
        let peer = internet(from);
        GreetingTail { cookie: cookie_of(peer, 1, KEY), word: GreetingWord::Greet }.write(&mut greeting);
        let received = Received { from: from.parse().ok(), ..received(1) };
        let replied = receiver.on_frame(0, &greeting, &received, &mut [0; 200]);
        let told = (replied.is_some(), receiver.sender(1), receiver.greeted().is_some());
        assert_eq!(told, (is_allowed, is_allowed.then_some(peer), is_allowed), "{allowed:?} {from}");
        assert_eq!(receiver.finish(&[][..], &[]).ports[0].unexpected.greetings, u64::from(!is_allowed));
    }
    for (allowed, is_allowed) in [("02:00:00:00:00:02", true), ("02:00:00:00:00:03", false), ("10.0.0.0/8", false)] {
        let mut receiver = receiver(Framing::Ethernet, &[allowed]);
        assert_eq!(greet(&mut receiver, own_cookie(1, KEY), 1, KEY).is_some(), is_allowed);
        assert_eq!(receiver.sender(1), is_allowed.then_some(PeerAddress::Ethernet(PEER)));
    }
}

#[test]
fn a_greeting_shorter_than_its_reply_is_not_replied_to() {
    let mut receiver = receiver_of(Senders::Greeting { secret: SECRET }, Framing::Udp, None);
    let (intended, sent) = (Time(1), Time(2));
    let mut payload = [0; GREETING_BYTES];
    StreamHeader { kind: Kind::Greeting, node: 0, flow: 1, key: KEY, seq: 0, intended, sent }.write(&mut payload);
    for length in HEADER_BYTES..GREETING_BYTES {
        assert_eq!(receiver.on_frame(0, &payload[..length], &received(1), &mut [0; 200]), None);
    }
    assert!(receiver.on_frame(0, &payload, &received(1), &mut [0; 200]).is_some());
    assert_eq!(receiver.finish(&[][..], &[]).ports[0].unexpected.greetings, 9);
}

proptest! {
    /// Frames with a valid checksum, which random bytes never have: of any kind, key, flow and content, truncated anywhere.
    #[test]
    fn arbitrary_frames_are_in_one_counter_and_end_no_stream_of_another_key(
        frames in prop::collection::vec(
            (1..11_u8, any::<bool>(), 0..4_u16, any::<u64>(), any::<(i64, i64)>(), prop::collection::vec(any::<u8>(), 0..60)),
            1..60,
        ),
        is_known: bool, answers: bool,
    ) {
        let answer = answers.then_some(Answering { node: 1, payload_bytes: 64 });
        let senders = if is_known { Senders::Known(KEY) } else { Senders::Greeting { secret: SECRET } };
        let mut receiver = receiver_of(senders, Framing::Udp, answer);
        let mut reply = [0; 300];
        let mut count = 0;
        for (kind, is_ours, flow, seq, (intended, sent), rest) in frames {
            let key = if is_ours { KEY } else { SessionKey(seq) };
            let header = StreamHeader {
                kind: Kind::Data, node: 0, flow, key, seq: seq % SEQ_LIMIT, intended: Time(intended), sent: Time(sent),
            };
            let header = StreamHeader { kind: Kind::ALL[usize::from(kind) - 1], ..header };
            let mut payload = header.to_bytes().to_vec();
            payload.extend(&rest);
            let at = receiver.end(flow);
            if let Some(length) = receiver.on_frame(0, &payload, &received(5), &mut reply) {
                prop_assert!(length <= payload.len() || is_known && matches!(header.kind, Kind::Data | Kind::Live));
                receiver.stamp(0, &mut reply[..length], Time(9));
                receiver.answered(0, &reply[..length], None, Sent { number: 1, called: Time(9) });
            }
            prop_assert!(key == KEY || receiver.end(flow) == at);
            count += 1;
        }
        let outcome = receiver.finish(&[][..], &[]);
        let counted: u64 = outcome.flows.iter().map(|flow| flow.counts.frames()).sum();
        prop_assert_eq!(counted + outcome.ports[0].control, count);
        prop_assert_eq!(outcome.ports[0].frames, count);
        prop_assert!(outcome.flows.iter().all(|flow| flow.counts.lost <= SEQ_LIMIT));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes: Vec<u8>, at: prop::sample::Index, by: u8, room in 0..300_usize, kind in 0..11_u8,
        cut: prop::sample::Index, number: u32,
    ) {
        let mut reply = vec![0; room];
        for framing in [Framing::Ethernet, Framing::Udp, Framing::Icmp4] {
            let mut receiver = receiver(framing, Some(Answering { node: 1, payload_bytes: 64 }));
            receiver.on_frame(0, &bytes, &received(1), &mut reply);
            receiver.on_frame(9, &bytes, &received(1), &mut reply);
            receiver.stamp(0, &mut bytes, Time(1));
            receiver.answered(0, &bytes, None, Sent { number, called: Time(1) });
            let left = Stamp { at: Time(2), source: Source::Kernel };
            receiver.on_stamp(0, &TxTimestamp { number, left, kind: StampKind::Left }, &mut reply);
            let mut frame = frame(Kind::Data, 1, "");
            frame[18 + 4] = kind;
            let place = at.index(frame.len());
            frame[place] ^= by;
            let end = cut.index(frame.len());
            receiver.on_frame(0, &frame[..end], &received(1), &mut reply);
            let outcome = receiver.finish(&[][..], &[]);
            let counted: u64 = outcome.flows.iter().map(|flow| flow.counts.frames()).sum();
            prop_assert_eq!(counted + outcome.ports[0].control, 2);
        }
    }
}
