//! Measure how many records a second one core matches, and the memory it takes: two taps, one direction, distinct
//! packets.
//!
//! `cargo run --release -p sojourn-matcher --example match_speed -- PACKETS WINDOW_US DELAY_US [AHEAD_NS]`; a packet each microsecond.

use sojourn_matcher::{Limits, Matcher, Observed, Tap, Way};
use sojourn_time::{Clock, HostClock};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<i64>().ok());
    let mut next = |otherwise| numbers.next().unwrap_or(otherwise);
    let (packets, window, delay, ahead) = (next(20_000_000), next(100_000), next(50), next(0));
    let limits = Limits { window: window * 1_000, ahead, memory: 64 << 20 };
    let mut matcher = Matcher::new(limits, 1);
    let mut matched = 0_u64;
    let mut sum = 0_i64;
    let seen = |number: i64, later: i64| Observed {
        at: number * 1_000 + later,
        time: number * 1_000 + later,
        digest: number
            .cast_unsigned()
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
            .wrapping_mul(0xBF58_476D_1CE4_E5B9),
        length: 60,
        note: 0,
    };
    let started = HostClock.now();
    let mut sink = |_: Way, outcome| {
        if let sojourn_matcher::Outcome::Matched { seen, second, .. } = outcome {
            matched += 1;
            sum += second - seen.time;
        }
    };
    for number in 0..packets + delay {
        if number < packets {
            matcher.push(Tap::First, Way::Forward, &seen(number, 0), &mut sink);
        }
        if number >= delay {
            matcher.push(Tap::Second, Way::Forward, &seen(number - delay, delay * 1_000), &mut sink);
        }
    }
    matcher.end(&mut sink);
    let took = (HostClock.now() - started).0 as f64 * 1e-9;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let rate = 2.0 * packets as f64 / took / 1e6;
    println!(
        "{rate:.1} million records/s, {matched} matched, mean delay {} ns; {peak}",
        sum / matched.max(1).cast_signed()
    );
    println!("{:?}", matcher.counts(Way::Forward));
}
