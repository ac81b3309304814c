//! Measures how many packets the engine processes per second: `cargo run --release -p sojourn-emulate --example speed`.
//!
//! Bursts of 64 frames arrive, and leave when due: no ports, one thread.

use sojourn_emulate::config::{
    Action, Config, Delay, Distribution, Impairments, Limit, Link, Loss, Match, Queue, Rule,
};
use sojourn_emulate::{Direction, Engine, Pipe};
use sojourn_time::{Clock, HostClock, Nanos, Time};

const BURST: i64 = 64;
/// A million packets per second.
const GAP: Nanos = Nanos::micros(1);

fn main() {
    let millis = |n| Delay { constant: Nanos::millis(n), ..Delay::default() };
    let lossy = Impairments { loss: vec![Loss::Independent { probability: 0.01 }], ..Impairments::default() };
    let link = Link { rate_bps: Some(10_000_000_000), ..Link::default() };
    let queue = Queue { limit: Limit { slots: Some(1_000), bytes: None }, ..Queue::default() };
    let jitter = Some(Distribution::Normal { sd: Nanos::micros(100) });
    let pipes = [
        ("idle pipe", Pipe::default()),
        ("delay 20 ms", Pipe { delay: millis(20), ..Pipe::default() }),
        ("delay 20 ms, normal jitter", Pipe { delay: Delay { jitter, ..millis(20) }, ..Pipe::default() }),
        (
            "loss 1 %, rate 10 Gbit/s, delay 1 ms",
            Pipe { before: lossy, link, queue, delay: millis(1), ..Pipe::default() },
        ),
    ];
    for (name, pipe) in pipes {
        for bytes in [60, 1_514] {
            println!("{name}, {bytes} bytes: {:.2} million packets/s", measure(&pipe, bytes) / 1e6);
        }
    }
}

/// Returns packets per second: the best of five runs.
fn measure(pipe: &Pipe, bytes: usize) -> f64 {
    let rounds = (0..5).map(|_| {
        let mut engine = engine(pipe);
        let before = HostClock.thread_time();
        let packets = run(&mut engine, bytes);
        packets as f64 / (HostClock.thread_time() - before).0 as f64 * 1e9
    });
    rounds.fold(0.0, f64::max)
}

fn engine(pipe: &Pipe) -> Engine {
    let pipe = Pipe { name: "p".to_owned(), ..pipe.clone() };
    let action = Action::Pipe { pipe: "p".to_owned(), class: None };
    let rules = vec![Rule { number: 1, on: Match::default(), action }];
    let config = Config { pipes: vec![pipe], rules, ..Config::default() };
    Engine::new(&config, Time(0)).unwrap_or_else(|error| unreachable!("{error}"))
}

fn run(engine: &mut Engine, bytes: usize) -> i64 {
    let mut frame = vec![0; bytes];
    // An IPv4 UDP datagram, like most packets.
    frame[12..24].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    let (mut now, mut seen) = (Time(0), 0);
    for _ in 0..1_000_000 / BURST {
        for _ in 0..BURST {
            now = now + GAP;
            engine.arrive(Direction::Forward, &frame, now);
        }
        engine.advance(now);
        while let Some(departure) = engine.due(now) {
            seen += u64::from(engine.frame(&departure)[0]);
            engine.departed(departure, now);
        }
    }
    std::hint::black_box(seen);
    1_000_000 / BURST * BURST
}
