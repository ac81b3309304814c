//! Whatever arrives at a sender is counted once or not at all, and only true replies and answers count as such.

use proptest::prelude::*;
use sojourn_time::{Source, Stamp};
use sojourn_wire::Key;
use sojourn_wire::stream::{HEADER_BYTES, Link, SYNC_BYTES, SyncTail, fill};

use super::*;
use crate::{FlowRequest, Head, Keep, Pattern, Schedule, SyncRequest};

const KEY: SessionKey = SessionKey(0x0123_4567_89AB_CDEF);
fn auth(is_keyed: bool) -> Auth {
    Auth::from(is_keyed.then(|| Key::new(&[9; 16]).unwrap()))
}

fn ears(framing: Framing, is_keyed: bool) -> (Ears, Capabilities) {
    let head = if framing == Framing::Udp { Head::Udp } else { Head::Link(LINK) };
    let schedule = Schedule::new(Pattern::Regular, 1_000.0, 3, 1);
    let port = Capabilities { framing, max_frame: 1_500, tx_timestamps: true };
    let request = SendRequest {
        block: 1,
        key: KEY,
        auth: auth(is_keyed),
        flows: vec![FlowRequest { flow: 1, port: 0, head, payload_bytes: 60, schedule }],
        keep: Keep::Packets { room: 8 },
        start_in: Nanos::ZERO,
        at_most: None,
        sync: Some(SyncRequest { flows: vec![0], before: 1, during: None, after: 1, spacing: Nanos::millis(1) }),
        answers_late_after: Some(Nanos::seconds(1)),
        clock: 7,
    };
    let mut ears = Ears::new(&request, &[port]);
    for number in 0..2 {
        assert!(ears.request(Time(100)).is_some());
        ears.asked(Sent { number, called: Time(100) });
    }
    (ears, port)
}

const LINK: Link =
    Link { destination: sojourn_wire::MacAddress([2; 6]), source: sojourn_wire::MacAddress([4; 6]), tag: None };

fn received(length: usize) -> Received {
    let arrived = Stamp { at: Time(900), source: Source::Kernel };
    Received { length, arrived, returned: Time(901), from: None, to_group: false }
}

/// A message to the sender.
#[derive(Clone, Debug)]
struct Message {
    kind: Kind,
    is_ours: bool,
    is_sealed: bool,
    flow: u16,
    seq: u64,
    clock: u64,
    times: (i64, i64),
    cut: usize,
}

fn message() -> impl Strategy<Value = Message> {
    let times = prop_oneof![Just((300, 400)), any::<(i64, i64)>()];
    let cut = prop_oneof![4 => Just(0), 1 => 0..120_usize];
    let of =
        (prop::sample::select(&Kind::ALL[..]), any::<bool>(), any::<bool>(), 1..3_u16, 0..4_u64, 0..3_u64, times, cut);
    of.prop_map(|(kind, is_ours, is_sealed, flow, seq, clock, times, cut)| Message {
        kind,
        is_ours,
        is_sealed,
        flow,
        seq,
        clock,
        times,
        cut,
    })
}

impl Message {
    fn frame(&self, framing: Framing, auth: &Auth) -> Vec<u8> {
        let start = if framing == Framing::Udp { 0 } else { LINK.header_bytes() };
        let mut frame = vec![0; start + SYNC_BYTES + auth.bytes()];
        if framing == Framing::Ethernet {
            LINK.write(&mut frame);
        }
        let payload = &mut frame[start..];
        let key = if self.is_ours { KEY } else { SessionKey(!KEY.0) };
        let (intended, sent) = (Time(self.times.0), Time(self.times.1));
        if self.kind == Kind::Answer {
            fill(payload);
        } else {
            SyncTail { clock: self.clock, source: Source::Kernel, follows_up: true }.write(payload);
        }
        StreamHeader { kind: self.kind, node: 1, flow: self.flow, key, seq: self.seq, intended, sent }.write(payload);
        if self.is_sealed {
            auth.seal(payload);
        }
        frame.truncate(frame.len() - self.cut.min(frame.len()));
        frame
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_reply(frames: Vec<Vec<u8>>, framing in 0..4_usize, is_keyed: bool) {
        let framing = [Framing::Udp, Framing::Ethernet, Framing::Icmp4, Framing::Icmp6][framing];
        let (mut ears, port) = ears(framing, is_keyed);
        for frame in &frames {
            ears.on_frame((0, &port), frame, &received(frame.len()));
        }
        let heard = ears.finish(&[], &[0]);
        // Of other framings, a sender is not the only one to receive.
        let counted = if framing == Framing::Udp { frames.len() as u64 } else { 0 };
        let unexpected = Unexpected { foreign: counted, ..Unexpected::default() };
        prop_assert_eq!((heard.exchanges, heard.unexpected), (vec![], unexpected));
        prop_assert_eq!(heard.answers.unwrap().ports[0].frames, 0);
    }

    /// A valid header before arbitrary bytes.
    #[test]
    fn header_with_arbitrary_bytes_is_counted_at_most_once(
        kind in prop::sample::select(&Kind::ALL[..]), seq in 0..3_u64, times: (i64, i64), rest: Vec<u8>, is_keyed: bool,
    ) {
        let (mut ears, port) = ears(Framing::Udp, is_keyed);
        let mut frame = [&[0; HEADER_BYTES][..], &rest].concat();
        let (intended, sent) = (Time(times.0), Time(times.1));
        StreamHeader { kind, node: 0, flow: 1, key: KEY, seq, intended, sent }.write(&mut frame);
        ears.on_frame((0, &port), &frame, &received(frame.len()));
        let heard = ears.finish(&[], &[0]);
        let counted = heard.exchanges.len() as u64 + heard.unexpected.total() + heard.answers.unwrap().ports[0].frames;
        prop_assert!(counted <= 1, "{counted}");
    }

    #[test]
    fn each_message_is_counted_once_by_what_it_is(
        messages in prop::collection::vec(message(), 0..20), is_raw: bool, is_keyed: bool,
    ) {
        let framing = if is_raw { Framing::Ethernet } else { Framing::Udp };
        let (mut ears, port) = ears(framing, is_keyed);
        let auth = auth(is_keyed);
        let (mut answers, mut wrong, mut exchanges) = (0, 0, Vec::new());
        for message in &messages {
            let frame = message.frame(framing, &auth);
            ears.on_frame((0, &port), &frame, &received(frame.len()));
            let start = if is_raw { LINK.header_bytes() } else { 0 };
            if frame.len() < start + HEADER_BYTES {
                wrong += u64::from(!is_raw);
                continue;
            }
            // A tag that was cut off, and one that is not the key's, are equally wrong.
            let is_forged = is_keyed && !(message.is_sealed && message.cut == 0);
            match (message.kind, message.is_ours) {
                (Kind::Answer | Kind::SyncReply | Kind::SyncFollowUp | Kind::EndAck | Kind::GreetingReply, false) => {
                    wrong += 1;
                }
                (Kind::SyncReply | Kind::SyncFollowUp, true) if is_forged => wrong += 1,
                (Kind::SyncReply, true) if frame.len() >= start + SYNC_BYTES && message.seq < 2 => {
                    exchanges.push((message.seq, message.clock));
                }
                (Kind::Answer, true) => answers += 1,
                (Kind::Data | Kind::Live | Kind::SyncRequest | Kind::End | Kind::Greeting, _) => {
                    wrong += u64::from(!is_raw);
                }
                _ => {}
            }
        }
        // Of each request, the first reply of each clock counts.
        exchanges.sort_unstable();
        exchanges.dedup();
        let heard = ears.finish(&[], &[0]);
        let mut found: Vec<_> = heard.exchanges.iter().map(|one| (one.number, one.clock)).collect();
        found.sort_unstable();
        prop_assert_eq!(found, exchanges);
        prop_assert_eq!(heard.unexpected.total(), wrong);
        prop_assert_eq!(heard.answers.unwrap().ports[0].frames, answers);
    }
}
