//! A link's departures follow the exact recursion, rounded down to whole nanoseconds, without accumulating errors.

mod drive;

use drive::{START, at, dispositions, endless, frame::udp, one};
use rand::{Rng, SeedableRng, rngs::StdRng};
use sojourn_emulate::config::{Cell, Delay, Link};
use sojourn_emulate::{Direction, Engine, Outcome, Pipe};
use sojourn_time::{Nanos, Time};

/// Returns a pipe with a rate and a queue that is never full.
fn link(rate_bps: u64) -> Pipe {
    Pipe { link: Link { rate_bps: Some(rate_bps), ..Link::default() }, queue: endless(), ..Pipe::default() }
}

/// Returns the departures of a link in units of 1 / rate nanoseconds: max(arrival, previous departure) + bits, in integers.
fn recursion(rate: u64, arrivals: &[(i64, usize)], bits: impl Fn(usize) -> u64) -> Vec<i64> {
    let mut free = 0_u128;
    let departs = arrivals.iter().map(|(at, bytes)| {
        free = free.max(*at as u128 * u128::from(rate)) + u128::from(bits(*bytes)) * 1_000_000_000;
        (free / u128::from(rate)) as i64
    });
    departs.collect()
}

#[test]
fn departures_equal_the_exact_lindley_recursion() {
    let seed = 20_261_121;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..50 {
        let rate = 10_f64.powf(random.random_range(4.0..11.0)) as u64;
        let load = random.random_range(0.3..1.3);
        let mut now = 0.0;
        let arrivals: Vec<_> = (0..20_000)
            .map(|_| {
                let bytes = random.random_range(60..9_018);
                now += -random.random::<f64>().ln() * 4_500.0 * 8e9 / rate as f64 / load;
                (now as i64, bytes)
            })
            .collect();
        let (overhead, cell) = (random.random_range(-20..40), random.random_bool(0.5));
        let cell = cell.then_some(Cell { bytes: 48, overhead_bytes: 5 });
        let mut pipe = link(rate);
        (pipe.link.overhead_bytes, pipe.link.cell) = (overhead, cell);
        let mut config = one(pipe);
        config.memory_bytes = 4 << 30;
        let bits = |bytes: usize| {
            let bytes = (bytes as i64 + i64::from(overhead)) as u64;
            8 * if cell.is_some() { bytes.div_ceil(48) * 53 } else { bytes }
        };
        let truth = recursion(rate, &arrivals, bits);
        let left = dispositions(&config, arrivals);
        assert_eq!(left.len(), truth.len());
        for (disposition, truth) in left.iter().zip(truth) {
            assert_eq!(disposition.outcome, Outcome::Sent);
            assert_eq!(
                (disposition.link_left, disposition.intended),
                (Some(at(truth)), Some(at(truth))),
                "{rate} bit/s"
            );
        }
    }
}

const RATES: [u64; 6] = [10_000_000, 100_000_000, 1_000_000_007, 10_000_000_000, 99_999_999_977, 100_000_000_000];

#[test]
fn departures_of_250_000_packets_are_exact_to_the_nanosecond() {
    expect_exact(250_000);
}

#[test]
#[ignore = "proof: sixty million packets"]
fn departures_of_ten_million_packets_are_exact_to_the_nanosecond() {
    expect_exact(10_000_000);
}

/// Checks the departures of `packets` packets on a link that is never idle.
fn expect_exact(packets: u64) {
    for rate in RATES {
        let mut pipe = link(rate);
        pipe.delay = Delay { constant: Nanos::millis(3), ..Delay::default() };
        let mut engine = Engine::new(&one(pipe), START).expect("holds");
        let frame = [0; 1_514];
        let (mut sent, mut last) = (0_u64, START);
        // Eight packets wait at each time, so the link is never idle.
        for round in 0..packets / 8 {
            let due = START + Nanos((u128::from(round) * 8 * 12_112 * 1_000_000_000 / u128::from(rate)) as i64);
            (0..8).for_each(|_| drive::keep(&mut engine, &frame, due));
            while let Some(departure) = engine.due(due) {
                engine.departed(departure, departure.intended);
                (sent, last) = (sent + 1, departure.intended);
            }
        }
        while engine.next() < Time::NEVER {
            engine.advance(engine.next());
            while let Some(departure) = engine.due(engine.next()) {
                engine.departed(departure, departure.intended);
                (sent, last) = (sent + 1, departure.intended);
            }
        }
        assert_eq!(sent, packets);
        let truth = u128::from(packets) * 12_112 * 1_000_000_000 / u128::from(rate) + 3_000_000;
        assert_eq!((last - START).0 as u128, truth, "{rate} bit/s");
        assert_eq!(engine.report().pipes[0].counts.sent, packets);
    }
}

#[test]
fn pipe_for_both_directions_is_one_shared_link() {
    let mut engine = Engine::new(&one(link(8_000_000)), START).expect("holds");
    engine.arrive(Direction::Forward, &[0; 1_000], START);
    engine.arrive(Direction::Backward, &[0; 1_000], START);
    engine.advance(at(2_000_000));
    let left: Vec<_> = std::iter::from_fn(|| engine.due(at(2_000_000))).collect();
    let left: Vec<_> = left.iter().map(|departure| (departure.direction, (departure.intended - START).0)).collect();
    assert_eq!(left, [(Direction::Forward, 1_000_000), (Direction::Backward, 2_000_000)]);
}

#[test]
fn times_at_the_limits_of_the_representable_range_never_panic() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..300 {
        let mut config = drive::any::config(&mut random);
        // Otherwise the engine would process every opportunity until then.
        config.pipes.iter_mut().for_each(|pipe| pipe.link.trace = None);
        let Ok(mut engine) = Engine::new(&config, START) else { continue };
        engine.keep_dispositions(true);
        let ends = [i64::MIN, i64::MIN + 1, -1, 0, START.0 - 1, START.0, i64::MAX - 1, i64::MAX];
        for at in ends {
            (0..5).for_each(|flow| {
                engine.arrive(Direction::Forward, &udp(60, flow), Time(at));
            });
            while let Some(departure) = engine.due(Time(at)) {
                engine.departed(departure, Time(at));
            }
        }
        engine.end();
        assert!(engine.dispositions().count() >= 5 * ends.len(), "nobody is forgotten");
    }
}
