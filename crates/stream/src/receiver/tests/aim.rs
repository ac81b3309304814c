//! Tests of where answers go and how long they are, for frames with a key that somebody in the path has seen.

use std::net::SocketAddr;

use super::*;

const SENDER: &str = "10.0.0.1:40000";
const VICTIM: &str = "10.0.0.9:40000";
const ATTACKER: &str = "10.0.0.7:40000";
const ANSWERING: Answering = Answering { node: 4, payload_bytes: 64 };

/// A receiver of UDP that was greeted from [`SENDER`].
fn greeted(allowed: &[&str], answering: Answering) -> Receiver {
    let senders = Senders::Greeting { secret: SECRET };
    let request = request(Auth::default(), senders, Framing::Udp, Some(answering));
    let allowed = allowed.iter().map(|peers| peers.parse().unwrap()).collect();
    let mut receiver = Receiver::new(&ReceiveRequest { allowed, ..request });
    let greeting = packet(Kind::Greeting, 0, GREETING_BYTES);
    assert_eq!(hear(&mut receiver, SENDER, &greeting), Some(GREETING_BYTES));
    assert!(receiver.sender(1).is_some());
    receiver
}

/// A greeting that returns the cookie of another host, or none.
fn greeting(cookie_of_host: Option<&str>) -> Vec<u8> {
    let mut payload = packet(Kind::Greeting, 0, GREETING_BYTES);
    let cookie = cookie_of_host.map_or(NO_COOKIE, |host| cookie_of(internet(host), 1, KEY));
    GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut payload);
    payload
}

/// The payload of a frame with the right key, of so many bytes.
fn packet(kind: Kind, seq: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![0; bytes];
    match kind {
        Kind::Data => fill(&mut payload),
        Kind::Greeting => {
            let cookie = cookie_of(internet(SENDER), 1, KEY);
            GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut payload);
        }
        Kind::SyncRequest => SyncTail { clock: 3, source: Source::User, follows_up: true }.write(&mut payload),
        Kind::End => {
            let text = END_OF(9, "null");
            payload[HEADER_BYTES..HEADER_BYTES + text.len()].copy_from_slice(text.as_bytes());
        }
        _ => {}
    }
    StreamHeader { kind, node: 0, flow: 1, key: KEY, seq, intended: Time(1), sent: Time(2) }.write(&mut payload);
    payload
}

/// Returns the length of what is sent back to the source of a frame: the answer and its follow-up.
fn hear(receiver: &mut Receiver, from: &str, payload: &[u8]) -> Option<usize> {
    hear_at(receiver, from.parse().ok(), payload, 1)
}

fn hear_at(receiver: &mut Receiver, from: Option<SocketAddr>, payload: &[u8], at: i64) -> Option<usize> {
    let (mut reply, mut room) = ([0; 2_000], [0; 2_000]);
    let length = receiver.on_frame(0, payload, &Received { from, ..received(at) }, &mut reply)?;
    receiver.stamp(0, &mut reply[..length], Time(at + 20));
    receiver.answered(0, &reply[..length], from, Sent { number: 7, called: Time(at + 20) });
    let left = Stamp { at: Time(at + 30), source: Source::Kernel };
    let follow_up = receiver.on_stamp(0, &TxTimestamp { number: 7, left, kind: StampKind::Left }, &mut room);
    assert!(follow_up.is_none_or(|follow_up| follow_up.to == from), "to whom the reply went");
    Some(length + follow_up.map_or(0, |follow_up| follow_up.length))
}

#[test]
fn a_flow_is_answered_only_at_the_address_that_greeted() {
    let mut receiver = greeted(&[], ANSWERING);
    let frames = [(Kind::SyncRequest, SYNC_BYTES), (Kind::End, 100), (Kind::Data, 64)];
    for (seq, from) in [(0, VICTIM), (1, "[fd77::1]:40000")] {
        for (kind, bytes) in frames {
            assert_eq!(hear(&mut receiver, from, &packet(kind, seq, bytes)), None, "{kind:?} from {from}");
        }
    }
    assert_eq!((receiver.end(1), receiver.progress().0), (None, 2), "packets with the key are counted");
    // Behind an address translator the port may change.
    for (seq, from) in [(2, SENDER), (3, "10.0.0.1:50000")] {
        let lengths = frames.map(|(kind, bytes)| hear(&mut receiver, from, &packet(kind, seq, bytes)));
        assert_eq!(lengths, [Some(2 * SYNC_BYTES), Some(HEADER_BYTES), Some(64)], "{from}");
    }
    assert_eq!(receiver.end(1).map(|end| end.sent), Some(9));
    let outcome = receiver.finish(&[][..], &[]);
    let unexpected = Unexpected { exchanges: 2, ends: 2, ..Unexpected::default() };
    let port = outcome.ports[0];
    assert_eq!((port.unexpected, port.control, port.unanswered, outcome.flows[0].counts.first), (unexpected, 5, 2, 4));
}

/// One frame to a broadcast address would be answered by each receiver in the network.
#[test]
fn what_was_sent_to_a_group_that_was_not_joined_is_counted_and_not_answered() {
    let mut receiver = greeted(&[], ANSWERING);
    let frames =
        [(Kind::Greeting, GREETING_BYTES), (Kind::SyncRequest, SYNC_BYTES), (Kind::End, 100), (Kind::Data, 64)];
    for (kind, bytes) in frames {
        let to_group = Received { from: SENDER.parse().ok(), to_group: true, ..received(1) };
        assert_eq!(receiver.on_frame(0, &packet(kind, 0, bytes), &to_group, &mut [0; 200]), None, "{kind:?}");
    }
    assert_eq!((receiver.end(1), receiver.progress().0), (None, 0));
    let port = receiver.finish(&[][..], &[]).ports[0];
    assert_eq!((port.frames, port.control), (5, 1));
    assert_eq!(port.unexpected, Unexpected { to_group: 4, ..Unexpected::default() });
}

/// Who hears a cookie at an address of its own must not begin a stream in the name of another one, with a key that it
/// chose: that address would get twice the bytes of each forged time request.
#[test]
fn a_cookie_of_one_address_is_refused_from_another() {
    let senders = Senders::Greeting { secret: SECRET };
    let mut receiver = receiver_of(senders, Framing::Udp, Some(ANSWERING));
    assert_eq!(hear(&mut receiver, ATTACKER, &greeting(None)), Some(GREETING_BYTES));
    for host in [ATTACKER, SENDER] {
        assert_eq!(hear(&mut receiver, VICTIM, &greeting(Some(host))), Some(GREETING_BYTES), "told its own, as long");
    }
    assert_eq!((receiver.sender(1), receiver.greeted()), (None, None));
    for (kind, bytes) in [(Kind::SyncRequest, SYNC_BYTES), (Kind::End, 100), (Kind::Data, 64)] {
        assert_eq!(hear(&mut receiver, VICTIM, &packet(kind, 0, bytes)), None, "{kind:?}");
    }
    assert_eq!(hear(&mut receiver, VICTIM, &greeting(Some(VICTIM))), Some(GREETING_BYTES));
    assert_eq!(receiver.sender(1), Some(internet(VICTIM)));
}

#[test]
fn ethernet_frames_are_answered_only_at_the_mac_address_that_greeted() {
    let mut receiver = receiver_of(Senders::Greeting { secret: SECRET }, Framing::Ethernet, Some(ANSWERING));
    assert!(super::greet(&mut receiver, own_cookie(1, KEY), 1, KEY).is_some());
    let mut reply = [0; 300];
    let text = END_OF(9, "null");
    for (kind, text) in [(Kind::SyncRequest, ""), (Kind::End, &text[..]), (Kind::Data, "")] {
        for (source, is_answered) in [(MacAddress([2, 0, 0, 0, 0, 9]), false), (PEER, true)] {
            let mut frame = forged(kind, text, |header| header.seq = u64::from(is_answered));
            frame[6..12].copy_from_slice(&source.0);
            let length = receiver.on_frame(0, &frame, &received(1), &mut reply);
            assert_eq!(length.is_some(), is_answered, "{kind:?} from {source}");
        }
    }
}

/// A receiver that was given the key is greeted by nobody, and its caller names the lengths of packets and answers.
#[test]
fn an_answer_is_longer_than_its_packet_only_if_the_key_was_given() {
    let data = |seq| packet(Kind::Data, seq, 50);
    let longer = Answering { payload_bytes: 51, ..ANSWERING };
    let as_long = Answering { payload_bytes: 50, ..ANSWERING };
    for (allowed, answering, answered) in
        [(&[][..], as_long, Some(50)), (&[], longer, None), (&["any"], longer, None), (&["10.0.0.0/8"], longer, None)]
    {
        let mut receiver = greeted(allowed, answering);
        assert_eq!(hear(&mut receiver, SENDER, &data(0)), answered, "{allowed:?}");
        let outcome = receiver.finish(&[][..], &[]);
        let told = (outcome.flows[0].counts.first, outcome.ports[0].unanswered);
        assert_eq!(told, (1, u64::from(answered.is_none())), "{allowed:?}");
    }
    let mut known = receiver(Framing::Udp, Some(longer));
    assert_eq!(hear(&mut known, SENDER, &data(0)), Some(51));
}

/// Where the key was given there are no strangers, and a missing answer would be taken for a loss.
#[test]
fn answers_to_packets_are_rate_limited_and_packets_without_one_are_counted() {
    let from = SENDER.parse().ok();
    for (mut receiver, is_limited) in
        [(greeted(&[], ANSWERING), true), (receiver(Framing::Udp, Some(ANSWERING)), false)]
    {
        // For 30 ms, a packet every 100 ns.
        let mut hears = |seq: u64, at| hear_at(&mut receiver, from, &packet(Kind::Data, seq, 64), at).is_some();
        let answered = (0..300_000).filter(|nth| hears(*nth, 1_000_000_000 + *nth as i64 * 100)).count();
        let expected = if is_limited { RATE as usize * 13 / 100 } else { 300_000 };
        assert!((expected - 5..=expected + 5).contains(&answered), "a burst of 100 ms, and 30 ms: {answered}");
        assert!(hears(300_000, 3_000_000_000), "later");
        let outcome = receiver.finish(&[][..], &[]);
        let unanswered = outcome.ports[0].unanswered;
        assert_eq!((outcome.flows[0].counts.first, unanswered), (300_001, 300_000 - answered as u64));
    }
}

proptest! {
    /// Somebody who has seen the key sends any frames from any addresses, before and after the sender's greeting; only the
    /// victim's cookie is not known to it.
    #[test]
    fn an_address_that_did_not_greet_gets_nothing_longer_than_it_sent(
        frames in prop::collection::vec((0..5_usize, 0..3_usize, 0..9_u64, HEADER_BYTES..120, 0..3_usize), 1..40),
        answer_bytes in 40..130_usize,
    ) {
        let senders = Senders::Greeting { secret: SECRET };
        let answering = Answering { payload_bytes: answer_bytes, ..ANSWERING };
        let mut receiver = receiver_of(senders, Framing::Udp, Some(answering));
        let hosts = [SENDER, VICTIM, ATTACKER];
        for (kind, host, seq, bytes, cookie) in frames {
            let kind = [Kind::Greeting, Kind::SyncRequest, Kind::End, Kind::Data, Kind::Live][kind];
            let mut payload = packet(kind, seq, bytes.max(if kind == Kind::End { 90 } else { 0 }));
            if kind == Kind::Greeting {
                payload[HEADER_BYTES..].fill(0);
                let known = greeting([None, Some(SENDER), Some(ATTACKER)][cookie]);
                let length = payload.len().min(known.len());
                payload[..length].copy_from_slice(&known[..length]);
            }
            let peer = internet(hosts[host]);
            let is_sender = receiver.sender(1).is_some_and(|sender| sender.is_same_host(peer));
            let sent = hear(&mut receiver, hosts[host], &payload).unwrap_or_default();
            prop_assert!(is_sender || sent <= payload.len(), "{:?}: {} to {}", kind, sent, payload.len());
            prop_assert!(is_sender || kind == Kind::Greeting || sent == 0);
            prop_assert!(kind != Kind::Data || sent <= payload.len());
            prop_assert!(receiver.sender(1) != Some(internet(VICTIM)));
        }
    }
}
