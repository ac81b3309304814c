//! Control messages and requests: ends and greetings of streams, TCP blocks, clocks to simulate, and the packets of an
//! emulator's log. Where bytes become frames, a valid header precedes them.

use std::panic;

use sojourn_clock::simulate::Truth;
use sojourn_clock::{Estimator, Limits};
use sojourn_emulate::replay::{before_gap, differences, replay};
use sojourn_emulate::{Cause, Config, Direction, Disposition, Outcome};
use sojourn_port::{Framing, Received};
use sojourn_record::packet::Head;
use sojourn_record::{Origin, Packet, PacketFile, PacketReader};
use sojourn_stream::{Auth, Keep, PortRequest, ReceiveRequest, Receiver, Senders};
use sojourn_time::{Nanos, Source, Stamp, Time};
use sojourn_wire::stream::{GREETING_BYTES, HEADER_BYTES, Kind};
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
const COOKIE: u64 = 0x0102_0304_0506_0708;

/// The user data of a greeting, an exchange and an end, for a receiver without a key, one with another key, and one for
/// which the tag is corrected: no reply is longer than its request, except in an exchange, and the values of an end
/// never overflow.
fn stream_control(bytes: &[u8]) {
    let Ok(shared) = Key::new(&[9; 16]) else { return };
    for kind in [Kind::Greeting, Kind::SyncRequest, Kind::End] {
        for (auth, is_sealed) in [(None, false), (Some(shared.clone()), false), (Some(shared.clone()), true)] {
            let auth = Auth::from(auth);
            let mut payload = vec![0; HEADER_BYTES];
            payload.extend_from_slice(&bytes[..bytes.len().min(1_400)]);
            if is_sealed {
                payload.extend_from_slice(&vec![0; auth.bytes()]);
            }
            let at = Time(1);
            StreamHeader { kind, node: 0, flow: 1, key: KEY, seq: 0, intended: at, sent: at }.write(&mut payload);
            if is_sealed {
                auth.seal(&mut payload);
            }
            hear(&payload, kind, auth);
        }
    }
}

fn hear(payload: &[u8], kind: Kind, auth: Auth) {
    let senders = if kind == Kind::Greeting { Senders::Greeting { cookie: COOKIE } } else { Senders::Known(KEY) };
    let mut receiver = Receiver::new(&ReceiveRequest {
        senders,
        allowed: Vec::new(),
        seed: 1,
        auth,
        ports: vec![PortRequest {
            framing: Framing::Udp,
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            answer: None,
            tx_timestamps: true,
        }],
        flows: vec![1],
        keep: Keep::Histograms,
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 77,
    });
    let arrived = Stamp { at: Time(5), source: Source::Kernel };
    let from = Some(([10, 0, 0, 1], 40_000).into());
    let received = Received { length: payload.len(), arrived, returned: Time(6), from };
    let mut reply = vec![0; receiver.longest_reply()];
    if let Some(length) = receiver.on_frame(0, payload, &received, &mut reply) {
        assert!(kind == Kind::SyncRequest || length <= payload.len(), "{length} octets to {}", payload.len());
        receiver.stamp(0, &mut reply[..length], Time(7));
    }
    if let Some(end) = receiver.end(1) {
        assert!(end.is_possible());
    }
    let outcome = receiver.finish(&[][..], &[0]);
    let (port, unexpected) = (&outcome.ports[0], outcome.ports[0].unexpected.total());
    assert_eq!(port.frames, 1);
    assert_eq!(port.control + unexpected, 1);
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
    let mut greeting = COOKIE.to_be_bytes().to_vec();
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
