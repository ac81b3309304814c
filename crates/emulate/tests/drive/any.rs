//! Random configurations and arrivals of all kinds, from a seed.

use rand::{Rng, rngs::StdRng};
use sojourn_emulate::config::check::check;
use sojourn_emulate::config::{
    Action, Aqm, Codel, Config, Corruption, Delay, Distribution, DropFrom, Impairments, Limit, Link, Loss, Mask, Match,
    Order, Outage, Profile, Queue, Red, Reorder, Rule, Trace, TracePoint,
};
use sojourn_emulate::{Direction, Pipe};
use sojourn_time::Nanos;

/// Returns a configuration without contradictions.
pub fn config(random: &mut StdRng) -> Config {
    loop {
        let pipes: Vec<_> = (0..random.random_range(1..4)).map(|n| pipe(random, format!("p{n}"))).collect();
        let rules = (0..random.random_range(1..6)).map(|n| rule(random, n, pipes.len())).collect();
        let config = Config { seed: random.random(), pipes, rules, ..Config::default() };
        if check(&config).is_ok() {
            return config;
        }
    }
}

/// Returns a pipe, which may contradict itself.
pub fn pipe(random: &mut StdRng, name: String) -> Pipe {
    let link = if random.random_bool(0.7) { link(random) } else { Link::default() };
    let queue = if link.is_limiting() { queue(random) } else { Queue::default() };
    let mask =
        maybe(random, 0.3, |random| Mask { source_port: 0xFFFF, most: random.random_range(0..4), ..Mask::default() });
    Pipe { name, mask, before: stage(random), queue, link, after: stage(random), delay: delay(random) }
}

/// Returns arrivals: nanoseconds after the start, direction, frame length, flow.
pub fn arrivals(random: &mut StdRng, count: usize) -> Vec<(i64, Direction, usize, u16)> {
    let mut now = 0;
    let arrivals = (0..count).map(|_| {
        now += match random.random_range(0..100) {
            0 => 1_500_000_000,
            1..20 => 0,
            _ => random.random_range(0..300_000),
        };
        let direction = if random.random() { Direction::Forward } else { Direction::Backward };
        (now, direction, random.random_range(60..2_000), random.random_range(0..6))
    });
    arrivals.collect()
}

fn rule(random: &mut StdRng, number: u32, pipes: usize) -> Rule {
    let direction = maybe(random, 0.3, |random| if random.random() { Direction::Forward } else { Direction::Backward });
    let on = Match { direction, probability: maybe(random, 0.3, |random| random.random()), ..Match::default() };
    let action = match random.random_range(0..10) {
        0 => Action::Pass,
        1 => Action::Count,
        2 if number > 0 => Action::Drop,
        _ => Action::Pipe { pipe: format!("p{}", random.random_range(0..pipes)), class: None },
    };
    Rule { number, on, action }
}

fn stage(random: &mut StdRng) -> Impairments {
    let mut loss = Vec::new();
    if random.random_bool(0.3) {
        loss.push(Loss::Independent { probability: random.random_range(0.0..0.4) });
    }
    if random.random_bool(0.2) {
        loss.push(Loss::GilbertElliott { p: random.random_range(0.01..0.3), r: 0.3, h: 0.1, k: 1.0 });
    }
    if random.random_bool(0.1) {
        loss.push(Loss::Dwell { good: Nanos::millis(4), bad: Nanos::millis(1) });
    }
    let corruption = maybe(random, 0.2, |_| Corruption::BitErrorRate(1e-4));
    Impairments { loss, corruption, duplication: maybe(random, 0.3, |random| random.random_range(0.0..0.3)) }
}

fn queue(random: &mut StdRng) -> Queue {
    let limit = match random.random_range(0..3) {
        0 => Limit::default(),
        1 => Limit { slots: Some(random.random_range(1..30)), bytes: None },
        _ => Limit { slots: None, bytes: Some(random.random_range(2_000..40_000)) },
    };
    let aqm = match random.random_range(0..4) {
        0 => Some(Aqm::Codel(Codel { target: Nanos::micros(500), interval: Nanos::millis(2), ecn: random.random() })),
        1 => {
            let ecn = random.random();
            Some(Aqm::Red(Red { weight: 0.1, min: 3.0, max: 9.0, max_p: 0.2, gentle: true, in_bytes: false, ecn }))
        }
        _ => None,
    };
    let drop = if random.random() { DropFrom::Head } else { DropFrom::Tail };
    Queue { limit, aqm, drop, ..Queue::default() }
}

fn link(random: &mut StdRng) -> Link {
    let mut link = Link {
        rate_bps: maybe(random, 0.8, |random| random.random_range(1_000_000..200_000_000)),
        profile: maybe(random, 0.2, |random| Profile {
            name: "any".to_owned(),
            loss_level: random.random(),
            samples: (0..10).map(|n| Nanos::micros(n * 20)).collect(),
        }),
        trace: maybe(random, 0.3, trace),
        ..Link::default()
    };
    if random.random_bool(0.2) {
        let every = maybe(random, 0.5, |_| Nanos::millis(9));
        link.outages.push(Outage { at: Nanos::millis(3), lasts: Nanos::micros(2_345), every });
    }
    if matches!(link.trace, Some(Trace::Opportunities { .. })) {
        link.rate_bps = None;
    }
    if link.rate_bps.is_some() {
        link.burst_bytes = random.random_range(0..2) * 5_000;
        link.overhead_bytes = random.random_range(-14..30);
    }
    link
}

fn trace(random: &mut StdRng) -> Trace {
    let mut times: Vec<_> =
        (0..random.random_range(1..30)).map(|_| Nanos(random.random_range(1..20_000_000))).collect();
    times.sort_unstable();
    if random.random() {
        let period = times[times.len() - 1];
        return Trace::Opportunities { at: times, period, file: String::new() };
    }
    times.insert(0, Nanos::ZERO);
    times.dedup();
    let point = |at: &Nanos| TracePoint {
        at: *at,
        rate_bps: maybe(random, 0.7, |random| random.random_range(0..50_000_000)),
        delay: maybe(random, 0.3, |random| Nanos(random.random_range(0..2_000_000))),
        loss: maybe(random, 0.3, |random| random.random()),
    };
    let points: Vec<_> = times.iter().map(point).collect();
    Trace::Points { points, period: maybe(random, 0.8, |_| Nanos(20_000_001)), file: String::new() }
}

fn delay(random: &mut StdRng) -> Delay {
    let jitter = match random.random_range(0..5) {
        0 => Some(Distribution::Uniform { spread: Nanos::micros(700) }),
        1 => Some(Distribution::Normal { sd: Nanos::micros(300) }),
        2 => Some(Distribution::Exponential { mean: Nanos::micros(400) }),
        _ => None,
    };
    let half_life = jitter.as_ref().and(maybe(random, 0.4, |_| Nanos::millis(1)));
    let reorder = maybe(random, 0.2, |random| Reorder { probability: 0.2, gap: random.random_range(0..5), by: None });
    let order = if random.random_bool(0.7) { Order::Kept } else { Order::Free };
    let constant = Nanos(random.random_range(0..4_000_000));
    Delay { constant, jitter, half_life, order, reorder, ..Delay::default() }
}

fn maybe<T>(random: &mut StdRng, likely: f64, make: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    random.random_bool(likely).then(|| make(random))
}
