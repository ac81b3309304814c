//! Runs engine and driver over simulated links: compares reported numbers with the truth, and every probe is in exactly
//! one count.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use sojourn_port::sim::{Delay, Hold, Line, Normal, SenderLate, Sim, Stall};
use sojourn_time::{Clock, Pace, SimulatedClock, Wait};

use super::*;
use crate::{Host, Kind, Shape, Simulated, Summary, To, run};

fn simulated() -> Host {
    Host { pace: Pace { wait: Wait::Sleep, is_real_time: false }, session: 9, ..Host::default() }
}

fn request(line: Line, schedule: Schedule, count: u32) -> Request {
    let shape = Shape { schedule, seed: 42, ..Shape::regular(count, Nanos::millis(1), Nanos::seconds(5)) };
    Request::new(1, To::Sim(Simulated { line: Box::new(line), carries: None }), Kind::Icmp, 56, shape)
}

fn measure(request: &Request) -> (Vec<Probe>, Counts) {
    request.check().unwrap();
    let To::Sim(Simulated { line, .. }) = &request.to else { panic!("a simulated line") };
    let mut sim = Sim::new(&SimulatedClock::default(), line, request.carrier()).unwrap();
    sim.begin_block(request.head.block);
    let clock = sim.clock();
    let (rows, counts, _) = run(request, &mut sim, &clock, simulated(), &AtomicBool::new(false)).unwrap();
    assert_conserved(&rows, &counts);
    (rows, counts)
}

fn assert_conserved(rows: &[Probe], counts: &Counts) {
    assert_eq!(counts.sent, rows.len() as u64);
    assert_eq!(counts.sent, counts.received + counts.lost);
    let answered = rows.iter().filter(|row| row.reply.is_some()).count() as u64;
    assert_eq!(counts.received, answered);
    let replies: u64 = rows.iter().map(|row| u64::from(row.replies)).sum();
    assert_eq!(replies, counts.received + counts.duplicated);
    assert!(rows.iter().all(|row| (row.replies > 0) == row.reply.is_some()));
    assert_eq!(counts.late, rows.iter().filter(|row| row.is_late).count() as u64);
    assert_eq!(counts.reordered, rows.iter().filter(|row| row.is_reordered).count() as u64);
}

fn rtts(rows: &[Probe]) -> Vec<i64> {
    rows.iter().filter_map(Probe::rtt).map(|rtt| rtt.0).collect()
}

#[test]
fn constant_delay_is_measured_exactly() {
    let line = Line { per_byte_ns: 0.5, responder_ns: 1_000, ..Line::constant(5_000, 9_000) };
    let (rows, counts) = measure(&request(line, Schedule::Regular, 100));
    assert_eq!(counts, Counts { sent: 100, received: 100, ..Counts::default() });
    // A payload of 56 bytes makes a frame of 102.
    assert!(rtts(&rows).iter().all(|rtt| *rtt == 5_000 + 9_000 + 1_000 + 102), "{:?}", rtts(&rows));
    assert!(rows.iter().all(|row| row.pacing_error() == Nanos::ZERO && row.rtt() == row.rtt_user()));
    assert!(rows.iter().all(|row| row.departure.source == Source::Simulated));
}

#[test]
fn responder_timestamps_show_asymmetric_delays() {
    for carries in [crate::Carries::Ethernet, crate::Carries::Udp, crate::Carries::Udp6] {
        let line = Line { responder_ns: 300, ..Line::constant(2_000, 7_000) };
        let request = Request {
            to: To::Sim(Simulated { line: Box::new(line.clone()), carries: Some(carries) }),
            kind: Kind::RequestResponse,
            response_payload_bytes: 1_000,
            ..request(line, Schedule::Regular, 10)
        };
        let (rows, counts) = measure(&request);
        assert_eq!(counts.received, 10);
        for row in rows {
            let reply = row.reply.unwrap();
            let (arrival, departure) = reply.responder.unwrap();
            assert_eq!(arrival - row.departure.at, Nanos(2_000));
            assert_eq!(departure - arrival, Nanos(300));
            assert_eq!(reply.arrival.at - departure, Nanos(7_000));
        }
    }
}

#[test]
fn loss_is_counted_within_its_binomial_interval() {
    let line = Line { loss: 0.01, loss_backward: 0.02, ..Line::constant(1_000, 1_000) };
    let (_, counts) = measure(&request(line, Schedule::Regular, 20_000));
    let expected = 20_000.0 * (1.0 - 0.99 * 0.98);
    // Five standard deviations.
    assert!((counts.lost as f64 - expected).abs() < 5.0 * expected.sqrt(), "{} of {expected}", counts.lost);
}

#[test]
fn duplicates_are_counted_apart() {
    let line = Line { duplicate: 1.0, ..Line::constant(1_000, 1_000) };
    for schedule in [Schedule::Regular, Schedule::Poisson, Schedule::ClosedLoop] {
        let (rows, counts) = measure(&request(line.clone(), schedule, 50));
        assert_eq!((counts.received, counts.duplicated, counts.unexpected), (50, 50, 0), "{schedule:?}");
        assert!(rows.iter().all(|row| row.replies == 2));
    }
}

#[test]
fn held_back_probes_arrive_reordered() {
    let line = Line { reorder: 0.1, reorder_ns: 1_500_000, ..Line::constant(1_000, 1_000) };
    let (rows, counts) = measure(&request(line, Schedule::Regular, 1_000));
    let held = rows.iter().filter(|row| row.rtt().unwrap() > Nanos::millis(1));
    // Delayed by one and a half intervals: overtaken by the next reply, unless that is delayed too. The last has no
    // next one.
    let overtaken = held.filter(|row| {
        let next = rows.get(row.seq as usize + 1);
        next.is_some_and(|next| next.rtt().unwrap() < Nanos::millis(1))
    });
    assert_eq!(counts.reordered, overtaken.count() as u64);
    assert!(counts.reordered > 50, "{}", counts.reordered);
}

#[test]
fn delay_of_every_50th_probe_is_measured() {
    let line = Line { hold: Some(Hold { every: 50, for_ns: 100_000 }), ..Line::constant(5_000, 5_000) };
    let (rows, _) = measure(&request(line, Schedule::Regular, 500));
    for row in rows {
        let expected = if (row.seq + 1) % 50 == 0 { 110_000 } else { 10_000 };
        assert_eq!(row.rtt(), Some(Nanos(expected)), "probe {}", row.seq);
    }
}

#[test]
fn only_an_open_loop_sees_a_stall_of_a_second() {
    let stall = Stall { at_ns: 1_000_000_000, for_ns: 1_000_000_000 };
    let line = Line { stall: Some(stall), ..Line::constant(5_000, 5_000) };
    let share_above_100_ms = |schedule| {
        let (rows, _) = measure(&request(line.clone(), schedule, 3_000));
        let slow = rows.iter().filter(|row| row.rtt_intended().unwrap() > Nanos::millis(100)).count();
        (slow as f64 / rows.len() as f64, Summary::of(rows.iter().filter_map(Probe::rtt)).unwrap())
    };
    let (open, summary) = share_above_100_ms(Schedule::Regular);
    assert!((open - 0.3).abs() < 0.001, "{open}");
    assert!(summary.p90_ns > 600_000_000, "{summary:?}");
    let (closed, summary) = share_above_100_ms(Schedule::ClosedLoop);
    assert!(closed <= 1.0 / 3_000.0, "{closed}");
    assert_eq!(summary.p99_ns, 10_000);
}

#[test]
fn drift_is_measured() {
    let line = Line { drift_ns_per_s: 1_000.0, ..Line::constant(5_000, 5_000) };
    let (rows, _) = measure(&request(line, Schedule::Regular, 2_001));
    let rtts = rtts(&rows);
    assert_eq!(rtts[2_000] - rtts[0], 2_000);
}

#[test]
fn late_replies_keep_their_arrival() {
    let line = Line { hold: Some(Hold { every: 2, for_ns: 2_500_000 }), ..Line::constant(1_000, 1_000) };
    for schedule in [Schedule::Regular, Schedule::ClosedLoop] {
        let mut request = request(line.clone(), schedule, 101);
        request.shape.timeout = Nanos::millis(2);
        let (rows, counts) = measure(&request);
        assert_eq!((counts.received, counts.late, counts.lost), (101, 50, 0), "{schedule:?}");
        assert_eq!(rows[1].rtt(), Some(Nanos(2_502_000)));
    }
}

#[test]
fn a_silent_peer_ends_the_block_a_timeout_after_the_last_departure() {
    let line = Line { loss: 1.0, ..Line::constant(1_000, 1_000) };
    let mut request = request(line.clone(), Schedule::Regular, 10);
    request.shape.timeout = Nanos::millis(7);
    let clock = SimulatedClock::default();
    let mut sim = Sim::new(&clock, &line, request.carrier()).unwrap();
    let prober_clock = sim.clock();
    let never = AtomicBool::new(false);
    let (rows, counts, _) = run(&request, &mut sim, &prober_clock, simulated(), &never).unwrap();
    assert_eq!((counts.sent, counts.lost), (10, 10));
    assert_eq!(clock.now(), rows[9].send_call + Nanos::millis(7));
}

#[test]
fn a_late_sender_shows_in_the_departures_and_not_in_the_rtt() {
    let late = SenderLate { probability: 1.0, by_ns: 40_000 };
    let line = Line { sender_late: Some(late), ..Line::constant(5_000, 5_000) };
    let (rows, _) = measure(&request(line, Schedule::Regular, 10));
    for row in rows {
        assert_eq!(row.pacing_error(), Nanos(40_000));
        assert_eq!((row.rtt(), row.rtt_intended()), (Some(Nanos(10_000)), Some(Nanos(50_000))));
    }
}

#[test]
fn poisson_and_regular_probes_measure_the_same_delay() {
    let forward = Delay::Normal(Normal { mean_ns: 50_000.0, sd_ns: 5_000.0 });
    for schedule in [Schedule::Regular, Schedule::Poisson, Schedule::ClosedLoop] {
        let line = Line { forward, ..Line::constant(0, 10_000) };
        let (rows, _) = measure(&request(line, schedule, 10_000));
        let summary = Summary::of(rows.iter().filter_map(Probe::rtt)).unwrap();
        // Five standard errors: 5000 / √10000 × 5.
        assert!((summary.mean_ns - 60_000.0).abs() < 250.0, "{schedule:?}: {summary:?}");
        assert!((summary.sd_ns - 5_000.0).abs() < 180.0, "{schedule:?}: {summary:?}");
    }
}

#[test]
fn sequence_numbers_go_on_beyond_16_bits() {
    for payload in [0, 56] {
        let request = Request {
            request_payload_bytes: payload,
            response_payload_bytes: payload,
            ..request(Line::constant(100, 100), Schedule::Regular, 70_000)
        };
        let (rows, counts) = measure(&request);
        assert_eq!((counts.received, counts.unexpected, counts.reordered), (70_000, 0, 0));
        assert!(rtts(&rows).iter().all(|rtt| *rtt == 200));
    }
}

#[test]
fn stopped_block_keeps_its_results() {
    let mut engine = Engine::new(
        &request(Line::constant(1, 1), Schedule::Regular, 100),
        &Capabilities { framing: sojourn_port::Framing::Icmp4, max_frame: 1_500, tx_timestamps: false },
        &simulated(),
    );
    engine.begin(Time(0));
    assert_eq!(engine.poll(Time(0)), Step::Depart(Time(0)));
    engine.departed(Time(0), Sent { number: 0, called: Time(3) });
    engine.stop();
    assert_eq!(engine.poll(Time(4)), Step::Await(Time(3) + STOP_PATIENCE));
    assert_eq!(engine.poll(Time(3) + STOP_PATIENCE), Step::Done);
    let (rows, counts, _) = engine.finish(0);
    assert_conserved(&rows, &counts);
    assert_eq!((counts.sent, counts.lost), (1, 1));
}

#[test]
fn local_drops_are_neither_sent_nor_lost() {
    let mut engine = Engine::new(
        &request(Line::constant(1, 1), Schedule::Regular, 2),
        &Capabilities { framing: sojourn_port::Framing::Icmp4, max_frame: 1_500, tx_timestamps: false },
        &simulated(),
    );
    engine.begin(Time(0));
    engine.refused(Time(0));
    assert_eq!(engine.poll(Time(0)), Step::Depart(Time(1_000_000)));
    engine.departed(Time(1_000_000), Sent { number: 0, called: Time(1_000_000) });
    assert!(matches!(engine.poll(Time(1_000_001)), Step::Await(_)));
    let (_, counts, _) = engine.finish(3);
    assert_eq!((counts.sent, counts.lost, counts.local_drops), (1, 1, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn every_probe_is_in_exactly_one_counter(
        loss in 0.0..0.5, loss_backward in 0.0..0.5, duplicate in 0.0..0.5, reorder in 0.0..0.5,
        sd_ns in 0.0..2e6, schedule in 0..3_usize, timeout_ns in 1..5_000_000_i64, payload in 0..100_usize, seed: u64,
    ) {
        let schedule = [Schedule::Regular, Schedule::Poisson, Schedule::ClosedLoop][schedule];
        let forward = Delay::Normal(Normal { mean_ns: 1e6, sd_ns });
        let line = Line {
            forward, loss, loss_backward, duplicate, reorder, reorder_ns: 2_500_000, seed, ..Line::constant(0, 1_000)
        };
        let mut request = Request {
            request_payload_bytes: payload,
            response_payload_bytes: payload,
            ..request(line, schedule, 200)
        };
        request.shape.timeout = Nanos(timeout_ns);
        let (_, counts) = measure(&request);
        prop_assert_eq!(counts.sent, 200);
    }

    #[test]
    fn unexpected_frames_change_nothing_but_their_counter(frames: Vec<Vec<u8>>) {
        let mut engine = Engine::new(
            &request(Line::constant(1, 1), Schedule::Regular, 10),
            &Capabilities { framing: sojourn_port::Framing::Icmp4, max_frame: 1_500, tx_timestamps: false },
            &simulated(),
        );
        engine.begin(Time(0));
        engine.departed(Time(0), Sent { number: 0, called: Time(3) });
        let stamp = sojourn_time::Stamp { at: Time(9), source: Source::Kernel };
        for frame in &frames {
            engine.on_frame(frame, &Received { length: frame.len(), arrived: stamp, returned: Time(9), from: None, to_group: false });
        }
        let (_, counts, _) = engine.finish(0);
        prop_assert_eq!(counts, Counts { sent: 1, lost: 1, unexpected: frames.len() as u64, ..Counts::default() });
    }
}
