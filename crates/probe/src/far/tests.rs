//! Runs sender and reflector over a path of known delays and losses, in simulated time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sojourn_port::{Capabilities, Framing, Received, Route, Sent};
use sojourn_record::{Counts, Probe};
use sojourn_time::{Clock, SimulatedClock, Source, Stamp, Time};
use sojourn_wire::Key;
use sojourn_wire::stamp::Scale;

use super::*;
use crate::respond::{Asked, ClockState, Guard, Numbering, Policy, Reflector, Refusal, Reply};
use crate::{Engine, Host, Kind, Request, Shape, Step, Timestamps, To, Udp};

/// A time of day in 2026, TAI.
const START: Time = Time(1_795_392_000_123_456_789);
const STAY: Nanos = Nanos(3_210);

struct Path {
    there: Nanos,
    back: Nanos,
    lost_there: f64,
    lost_back: f64,
}

struct Session {
    numbering: Numbering,
    key: Option<Arc<Key>>,
    timestamps: Timestamps,
    bytes: usize,
}

struct Outcome {
    probes: Vec<Probe>,
    counts: Counts,
    far: Option<FarEnd>,
    /// The true losses, forward and backward.
    truth: [u64; 2],
    refused: u64,
}

fn open() -> Session {
    Session { numbering: Numbering::Stateful, key: None, timestamps: Timestamps::Ntp, bytes: 44 }
}

fn clock(format: Format) -> ClockState {
    ClockState::new(Scale { format, tai_offset_s: 37 }, true, Nanos::micros(70))
}

/// Runs `count` probes, a millisecond apart. `tamper` may change the replies.
fn run(path: &Path, session: &Session, count: u32, seed: u64, tamper: impl Fn(u32, &mut Vec<u8>)) -> Outcome {
    let to = To::Udp(Udp { peer: "10.0.0.2:862".parse().expect("a peer"), dev: None, dscp: None });
    let shape = Shape::regular(count, Nanos::millis(1), Nanos::millis(100));
    let mut request = Request::new(1, to, Kind::Stamp, session.bytes, shape);
    request.stamp.timestamps = session.timestamps;
    request.check().expect("it can be done");
    request.check_key(session.key.is_some()).expect("it has room");
    let host = Host { session: 77, key: session.key.clone(), clock: clock(Format::Ntp), ..Host::default() };
    let port = Capabilities { framing: Framing::Udp, max_frame: 1_500, tx_timestamps: false };
    let mut engine = Engine::new(&request, &port, &host);
    let guard = Rc::new(RefCell::new(Guard::new(Policy::default(), 1)));
    let mut reflector = Reflector::new(
        session.numbering,
        session.key.clone(),
        Rc::new(Cell::new(clock(Format::Ptp))),
        Rc::clone(&guard),
    );
    let now = SimulatedClock::default();
    let mut draw = StdRng::seed_from_u64(seed);
    let mut truth = [0; 2];
    now.wait_until(START, Nanos::ZERO);
    engine.begin(START);
    for seq in 0..count {
        let Step::Depart(at) = engine.poll(now.now()) else { panic!("a departure is due") };
        now.wait_until(at, Nanos::ZERO);
        engine.stamp(&now);
        let asked = engine.frame().to_vec();
        engine.departed(at, Sent { number: seq, called: at });
        if draw.random_bool(path.lost_there) {
            truth[0] += 1;
            continue;
        }
        let arrived = at + path.there;
        let route = Route {
            from: "10.0.0.1:40000".parse().expect("an address"),
            to: None,
            to_group: false,
            hop_limit: Some(63),
        };
        let mut reply = vec![0; asked.len()];
        let leaves = || arrived + STAY;
        let request = Asked { framing: Framing::Udp, route: Some(route), request: &asked, arrived, now: &leaves };
        assert_eq!(reflector.reply(&request, &mut reply), Some(asked.len()));
        if session.key.is_some() {
            assert_eq!(reflector.reply(&request, &mut vec![0; asked.len()]), None, "a replay is not answered");
        }
        if draw.random_bool(path.lost_back) {
            truth[1] += 1;
            continue;
        }
        tamper(seq, &mut reply);
        let back = arrived + STAY + path.back;
        let received = Received {
            length: reply.len(),
            arrived: Stamp { at: back, source: Source::Kernel },
            returned: back,
            from: None,
            to_group: false,
        };
        engine.on_frame(&reply, &received);
    }
    let (probes, counts, far) = engine.finish(0);
    let refused = guard.borrow().refused(Refusal::Replayed);
    Outcome { probes, counts, far, truth, refused }
}

#[test]
fn delays_of_both_directions_are_what_the_path_has() {
    let path = Path { there: Nanos(12_345), back: Nanos(67_890), lost_there: 0.0, lost_back: 0.0 };
    let key = Some(Arc::new(Key::new(&[7; 32]).expect("long enough")));
    for session in [
        open(),
        Session { timestamps: Timestamps::Ptp, bytes: 1_400, ..open() },
        Session { numbering: Numbering::Stateless, ..open() },
        Session { key, bytes: 112, ..open() },
    ] {
        let outcome = run(&path, &session, 1_000, 1, |_, _| {});
        assert_eq!((outcome.counts.sent, outcome.counts.received, outcome.counts.unexpected), (1_000, 1_000, 0));
        for probe in &outcome.probes {
            let reply = probe.reply.expect("a reply");
            let (arrival, departure) = reply.responder.expect("its times");
            assert_eq!(probe.rtt(), Some(path.there + STAY + path.back));
            assert_eq!((arrival - probe.send_call, departure - arrival), (path.there, STAY));
            assert_eq!(reply.arrival.at - departure, path.back);
        }
        let far = outcome.far.expect("a reflector");
        assert!(far.is_synchronised && far.error >= Nanos::micros(70) && far.error < Nanos::micros(71), "{far:?}");
        assert_eq!((far.ttl, far.is_ptp), ((63, 63), true));
        assert_eq!(outcome.refused, if session.key.is_some() { 1_000 } else { 0 });
    }
}

#[test]
fn reply_that_does_not_echo_the_request_is_unexpected() {
    let path = Path { there: Nanos(10), back: Nanos(10), lost_there: 0.0, lost_back: 0.0 };
    // The sender's timestamp, its number, the session's identifier.
    for at in [28, 35, 27, 15] {
        let outcome = run(&path, &open(), 10, 1, |seq, reply| reply[at] ^= u8::from(seq == 4) * 8);
        assert_eq!((outcome.counts.received, outcome.counts.unexpected), (9, 1), "{at}");
    }
    // A reflector of RFC 8762 without RFC 8972 sends zeros for the identifier.
    let outcome = run(&path, &open(), 10, 1, |_, reply| reply[14..16].fill(0));
    assert_eq!((outcome.counts.received, outcome.counts.unexpected), (10, 0));
}

proptest! {
    /// A stateful reflector's numbers reveal the exact loss in each direction, except after the last answered probe.
    #[test]
    fn losses_are_put_to_their_direction(there in 0.0..0.9_f64, back in 0.0..0.9_f64, seed: u64) {
        let path = Path { there: Nanos(10_000), back: Nanos(20_000), lost_there: there, lost_back: back };
        let outcome = run(&path, &open(), 200, seed, |_, _| {});
        prop_assert_eq!(outcome.counts.lost, outcome.truth[0] + outcome.truth[1]);
        let answered = |seq: u32| outcome.probes[seq as usize].reply.is_some();
        if let Some(loss) = outcome.far.and_then(|far| far.loss(200, answered, true)) {
            prop_assert_eq!(loss.there + loss.back + loss.unknown, outcome.counts.lost);
            prop_assert!(loss.there <= outcome.truth[0] && loss.back <= outcome.truth[1]);
            prop_assert!(outcome.truth[0] - loss.there + outcome.truth[1] - loss.back == loss.unknown);
        }
    }

    #[test]
    fn a_stateless_reflector_tells_no_direction(there in 0.0..0.9_f64, seed: u64) {
        let path = Path { there: Nanos(10_000), back: Nanos(20_000), lost_there: there, lost_back: 0.1 };
        let outcome = run(&path, &Session { numbering: Numbering::Stateless, ..open() }, 100, seed, |_, _| {});
        prop_assert_eq!(outcome.far.and_then(|far| far.loss(100, |_| true, false)), None);
    }

    #[test]
    fn arbitrary_replies_never_panic(bytes: Vec<u8>, cut in 0..120_usize) {
        let path = Path { there: Nanos(10), back: Nanos(10), lost_there: 0.0, lost_back: 0.0 };
        let outcome = run(&path, &open(), 3, 1, |seq, reply| match seq {
            0 => *reply = bytes.clone(),
            1 => reply.truncate(cut),
            _ => {}
        });
        prop_assert_eq!(outcome.counts.received + outcome.counts.lost, 3);
    }
}
