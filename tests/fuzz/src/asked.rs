//! Control messages and requests: ends and greetings of streams, TCP blocks, clocks to simulate, and the packets of an
//! emulator's log. Where bytes become frames, a valid header precedes them.

use std::panic;

use sojourn_clock::simulate::Truth;
use sojourn_clock::{Estimator, Limits};
use sojourn_emulate::replay::{before_gap, differences, replay};
use sojourn_emulate::{Cause, Config, Direction, Disposition, Outcome};
use sojourn_port::{Framing, Received, Sent, StampKind, TxTimestamp};
use sojourn_record::packet::Head;
use sojourn_record::{Origin, Packet, PacketFile, PacketReader};
use sojourn_stream::{Answering, Auth, Keep, PortRequest, ReceiveRequest, Receiver, SECRET_BYTES, Senders};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::stream::{GREETING_BYTES, GreetingTail, GreetingWord, HEADER_BYTES, Kind, fill};
use sojourn_wire::{Key, MacAddress, SessionKey, StreamHeader};

use crate::Target;
use crate::files::with_file;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "stream-control", read: stream_control, seeds: controls },
    Target { name: "tcp-request", read: tcp_request, seeds: tcp_requests },
    Target { name: "clock-truth", read: clock_truth, seeds: truths },
    Target { name: "packet-log", read: packet_log, seeds: packet_logs },
];

const KEY: SessionKey = SessionKey(7);
const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];

/// The user data of a greeting, an exchange, an end and a packet, for a receiver without a key, one with another key, and
/// one for which the tag is corrected: no reply is longer than its request, nothing goes to an address that did not
/// greet, and the values of an end never overflow.
fn stream_control(bytes: &[u8]) {
    let Ok(shared) = Key::new(&[9; 16]) else { return };
    for kind in [Kind::Greeting, Kind::SyncRequest, Kind::End, Kind::Data] {
        for (auth, is_sealed) in [(None, false), (Some(shared.clone()), false), (Some(shared.clone()), true)] {
            let auth = Auth::from(auth);
            let tail = &bytes[..bytes.len().min(1_400)];
            for senders in [Senders::Greeting { secret: SECRET }, Senders::Known(KEY)] {
                for is_aimed in [false, true] {
                    hear(senders, (kind, tail, is_sealed), &auth, is_aimed);
                }
            }
        }
    }
}

/// Returns the user data of a frame.
fn framed(kind: Kind, tail: &[u8], auth: Option<&Auth>) -> Vec<u8> {
    let mut payload = vec![0; HEADER_BYTES];
    payload.extend_from_slice(tail);
    if kind == Kind::Data {
        fill(&mut payload);
    }
    if let Some(auth) = auth {
        payload.extend_from_slice(&vec![0; auth.bytes()]);
    }
    let at = Time(1);
    StreamHeader { kind, node: 0, flow: 1, key: KEY, seq: 0, intended: at, sent: at }.write(&mut payload);
    if let Some(auth) = auth.filter(|auth| auth.bytes() > 0) {
        auth.seal(&mut payload);
    }
    payload
}

/// Lets a receiver hear one frame, after the greeting of its flow unless it is one itself; `is_aimed`: from another
/// address than the greeting's.
fn hear(senders: Senders, (kind, tail, is_sealed): (Kind, &[u8], bool), auth: &Auth, is_aimed: bool) {
    let mut receiver = Receiver::new(&ReceiveRequest {
        senders,
        allowed: Vec::new(),
        seed: 1,
        auth: auth.clone(),
        ports: vec![PortRequest {
            framing: Framing::Udp,
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            // A receiver that was given the key has been told the lengths of its answers, too.
            answer: matches!(senders, Senders::Greeting { .. }).then_some(Answering { node: 1, payload_bytes: 64 }),
            tx_timestamps: true,
        }],
        flows: vec![1],
        keep: Keep::Histograms,
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 77,
    });
    let is_greeted = matches!(senders, Senders::Greeting { .. }) && kind != Kind::Greeting;
    if is_greeted {
        let cookie = greet(&mut receiver, 0, auth);
        assert!(cookie != 0 && receiver.sender(1).is_none());
        greet(&mut receiver, cookie, auth);
        assert!(receiver.sender(1).is_some());
    }
    let payload = framed(kind, tail, is_sealed.then_some(auth));
    let (back, _) = sent_back(&mut receiver, &payload, if is_aimed { 2 } else { 1 });
    // The sender of a flow gets a follow-up, too, which is as long as the reply.
    let is_followed = kind == Kind::SyncRequest && !(is_greeted && is_aimed);
    assert!(back <= payload.len() * if is_followed { 2 } else { 1 }, "{back} octets to {}", payload.len());
    assert!(back == 0 || !(is_greeted && is_aimed), "{kind:?} of another address");
    if let Some(end) = receiver.end(1) {
        assert!(end.is_possible() && !(is_greeted && is_aimed));
    }
    let outcome = receiver.finish(&[][..], &[0]);
    let (port, counted) = (&outcome.ports[0], outcome.flows.iter().map(|flow| flow.counts.frames()).sum::<u64>());
    assert_eq!(port.frames, 1 + 2 * u64::from(is_greeted));
    assert_eq!(port.control + counted, port.frames);
}

/// Greets with a cookie from the first host, and returns that of the reply.
fn greet(receiver: &mut Receiver, cookie: u64, auth: &Auth) -> u64 {
    let mut greeting = vec![0; GREETING_BYTES];
    GreetingTail { cookie, word: GreetingWord::Greet }.write(&mut greeting);
    let greeting = framed(Kind::Greeting, &greeting[HEADER_BYTES..], Some(auth));
    let (back, reply) = sent_back(receiver, &greeting, 1);
    assert_eq!(back, greeting.len());
    GreetingTail::read(&reply).map_or(0, |tail| tail.cookie)
}

/// Returns the length of what a receiver sends to the host with this number for a frame: the reply, which is no longer
/// than the frame, and its follow-up; and the reply.
fn sent_back(receiver: &mut Receiver, payload: &[u8], host: u8) -> (usize, Vec<u8>) {
    let arrived = Stamp { at: Time(5), source: Source::Kernel };
    let from = Some(([10, 0, 0, host], 40_000).into());
    let received = Received { length: payload.len(), arrived, returned: Time(6), from, to_group: false };
    let mut reply = vec![0; receiver.longest_reply()];
    let Some(length) = receiver.on_frame(0, payload, &received, &mut reply) else {
        return (0, Vec::new());
    };
    assert!(length <= payload.len(), "{length} octets to {}", payload.len());
    receiver.stamp(0, &mut reply[..length], Time(7));
    receiver.answered(0, &reply[..length], from, Sent { number: 3, called: Time(7) });
    let left = Stamp { at: Time(8), source: Source::Kernel };
    let stamp = TxTimestamp { number: 3, left, kind: StampKind::Left };
    let said = reply[..length].to_vec();
    (length + receiver.on_stamp(0, &stamp, &mut reply).map_or(0, |follow_up| follow_up.length), said)
}

fn tcp_request(bytes: &[u8]) {
    if let Ok(asked) = serde_json::from_slice::<sojourn_tcp::Send>(bytes) {
        let _ = asked.check();
    }
    if let Ok(asked) = serde_json::from_slice::<sojourn_tcp::Receive>(bytes) {
        let _ = asked.check();
    }
}

/// A request of `clock sim`, with few exchanges: however absurd the clocks, estimating them does not fail.
fn clock_truth(bytes: &[u8]) {
    let limits = serde_json::from_slice::<Limits>(bytes).unwrap_or_default();
    let Ok(truth) = serde_json::from_slice::<Truth>(bytes) else { return };
    // `clock sim` refuses these.
    if truth.interval_ns <= 0 || truth.offset_ns.abs() > 1e15 || truth.skew_ppm.abs() > 1000.0 {
        return;
    }
    let truth = Truth { count: truth.count.min(200), ..truth };
    let Ok(exchanges) = truth.exchanges() else { return };
    let mut estimator = Estimator::new(limits);
    exchanges.into_iter().for_each(|exchange| estimator.push(exchange));
    let _ = estimator.estimate();
}

/// An emulator's log, read and replayed. The reader catches arrow-ipc's panics; the hook suppresses their output.
fn packet_log(bytes: &[u8]) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut rows = Vec::new();
    with_file(bytes, |path| {
        let Ok(mut reader) = PacketReader::open(path, vec!["both".to_owned()]) else { return };
        while let Ok(true) = reader.next(&mut rows) {}
    });
    panic::set_hook(hook);
    let logged: Vec<Disposition> = rows.iter().filter_map(disposition).collect();
    let logged = before_gap(logged);
    let mut config = Config { pipes: vec![sojourn_emulate::Pipe::default()], ..Config::default() };
    config.select_by_name();
    if let Ok(replayed) = replay(&config, Time(0), &[], &logged) {
        let _ = differences(&logged, &replayed);
    }
}

/// Converts a row as `emulate replay` does.
fn disposition(row: &Packet) -> Option<Disposition> {
    let outcome = match row.disposition {
        "unmatched" => Outcome::Unmatched,
        "sent" => Outcome::Sent,
        _ => Outcome::Lost(Cause::named(row.cause)?),
    };
    let direction = if row.direction == Direction::Forward.name() { Direction::Forward } else { Direction::Backward };
    (row.frame_bytes < 1 << 18).then(|| Disposition {
        number: row.number,
        copy_of: row.copy_of,
        direction,
        pipe: row.pipe,
        flow: row.flow,
        bytes: row.frame_bytes.saturating_sub(4),
        head: row.head.bytes,
        head_len: row.head.length,
        arrived: row.arrival.at,
        source: row.arrival.source,
        entered: row.entered,
        outcome,
        drawn: row.drawn,
        link_left: row.link_left,
        intended: row.intended,
        departed: row.departure,
        is_marked: row.is_marked,
        flipped: row.flipped,
        is_reordered: row.is_reordered,
        queue_slots: row.queue_slots,
        queue_bytes: row.queue_bytes,
        sub_queue: row.class,
    })
}

fn controls() -> Vec<Vec<u8>> {
    let mut greeting = 0x0102_0304_0506_0708_u64.to_be_bytes().to_vec();
    greeting.resize(GREETING_BYTES, 0);
    let end = r#"{"sent":3,"next":5,"clock":{"shared":false,"reference_ns":1,"offset_ns":5.0,"skew_ppb":1.0,"bound_ns":9.0,"error95_ns":3.0},"pacing_error_ns":7.5,"of":77}"#;
    vec![greeting, vec![0; GREETING_BYTES], end.as_bytes().to_vec(), br#"{"sent":3,"clock":null}"#.to_vec()]
}

fn tcp_requests() -> Vec<Vec<u8>> {
    [
        r#"{"block":1,"to":"10.0.0.2:1","duration_ns":1,"settings":{"mss_bytes":900},"interval_ns":5,"connections":2}"#,
        r#"{"block":1,"at":"5201","connections":1,"settings":{"congestion":"cubic"},"read_every_ns":1}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn truths() -> Vec<Vec<u8>> {
    [
        r#"{"offset_ns":5e8,"skew_ppm":40,"drift_ppm_per_s":0.1,"interval_ns":10000000,"count":100,"seed":3}"#,
        r#"{"step":{"at_ns":500000000,"by_ns":40000},"temperature":{"amplitude_ppm":1,"period_s":9},"load_grows":3}"#,
        r#"{"skew_ppm":200,"drift_ppm_per_s":0.5,"asymmetry_share":0.1}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn packet_logs() -> Vec<Vec<u8>> {
    let row = |number: u64| Packet {
        block: 1,
        number,
        copy_of: None,
        direction: if number.is_multiple_of(2) { "forward" } else { "backward" },
        pipe: Some(0),
        flow: number,
        frame_bytes: 64,
        head: Head::of(&[2; 54]),
        arrival: Stamp { at: Time(number as i64 * 1_000), source: Source::Kernel },
        entered: Time(number as i64 * 1_000),
        disposition: "sent",
        cause: "",
        drawn: Some(Nanos(0)),
        link_left: None,
        intended: Some(Time(number as i64 * 1_000)),
        departure: Some(Time(number as i64 * 1_000)),
        is_marked: false,
        flipped: 0,
        is_reordered: false,
        queue_slots: 0,
        queue_bytes: 0,
        class: 0,
    };
    let written = || {
        let folder = tempfile::tempdir().ok()?;
        let pipes = vec!["both".to_owned()];
        let mut file = PacketFile::create(folder.path(), ("a", 0), pipes, &Origin::default()).ok()?;
        file.write(&(0..20).map(row).collect::<Vec<_>>()).ok()?;
        file.finish().ok()?;
        std::fs::read(folder.path().join("packets-a-000.arrow")).ok()
    };
    written().into_iter().collect()
}
