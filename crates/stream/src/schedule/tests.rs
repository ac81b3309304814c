//! Departures follow their pattern, and invalid schedules are refused.

use proptest::prelude::*;
use sojourn_time::Nanos;

use super::*;
use crate::goodness;

fn offsets(pattern: Pattern, rate_pps: f64, count: u64) -> Vec<i64> {
    Schedule::new(pattern, rate_pps, count, 1).departures().map(|offset| offset.0).collect()
}

fn gaps(schedule: &Schedule) -> Vec<f64> {
    let offsets: Vec<_> = schedule.departures().collect();
    offsets.windows(2).map(|pair| (pair[1] - pair[0]).0 as f64).collect()
}

proptest! {
    #[test]
    fn a_regular_rate_is_exact_over_the_run(rate_pps in 0.01..1e7_f64, count in 2..20_000_u64) {
        let all = offsets(Pattern::Regular, rate_pps, count);
        let truth = (count - 1) as f64 * 1e9 / rate_pps;
        let last = *all.last().unwrap() as f64;
        // Half a nanosecond of rounding, and the precision of a float of that size.
        prop_assert!((last - truth).abs() <= 0.5 + truth * 1e-15, "{last} {truth}");
        let gap = 1e9 / rate_pps;
        prop_assert!(all.windows(2).all(|pair| ((pair[1] - pair[0]) as f64 - gap).abs() <= 1.0 + gap * 1e-12));
    }

    #[test]
    fn departures_are_ascending_and_as_many_as_requested(
        pattern in prop_oneof![
            Just(Pattern::Regular), Just(Pattern::Poisson), Just(Pattern::Flood),
            (1..100_u32).prop_map(|size| Pattern::Burst { size }),
            (0.0..1e5_f64, 1.0..1e5_f64).prop_map(|(from_pps, to_pps)| Pattern::Ramp { from_pps, to_pps }),
        ],
        rate_pps in 1.0..1e6_f64, count in 1..2_000_u64,
    ) {
        let schedule = Schedule::new(pattern, rate_pps, count, 5);
        prop_assert_eq!(schedule.check(64, None), Ok(()));
        let all = offsets(pattern, rate_pps, count);
        prop_assert_eq!(all.len() as u64, count);
        prop_assert_eq!(all[0], 0);
        prop_assert!(all.is_sorted());
    }

    #[test]
    fn patterns_round_trip_as_text(size in 1..u32::MAX, from_pps in 0.0..1e7_f64, to_pps in 0.0..1e7_f64) {
        for pattern in [Pattern::Regular, Pattern::Poisson, Pattern::Flood, Pattern::Replay, Pattern::Burst { size },
            Pattern::Ramp { from_pps, to_pps }]
        {
            prop_assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text: String) {
        let _ = text.parse::<Pattern>();
        let _ = format!("ramp:{text}").parse::<Pattern>();
    }

    #[test]
    fn a_ramp_has_sent_the_integral_of_its_rate(from_pps in 0.0..1e4_f64, to_pps in 1.0..1e4_f64) {
        let count = 5_000;
        let growth = (to_pps - from_pps) / (count as f64 / f64::midpoint(from_pps, to_pps));
        for (number, offset) in offsets(Pattern::Ramp { from_pps, to_pps }, 0.0, count).into_iter().enumerate() {
            let seconds = offset as f64 / 1e9;
            let due = from_pps * seconds + growth * seconds * seconds / 2.0;
            prop_assert!((due - number as f64).abs() < 1e-4, "{number}: {due}");
        }
    }
}

#[test]
fn a_poisson_stream_has_its_rate_and_no_drift() {
    let n = 200_000;
    let last = offsets(Pattern::Poisson, 10_000.0, n).last().copied().unwrap() as f64;
    let truth = (n - 1) as f64 * 1e5;
    assert!((last - truth).abs() < 5.0 * 1e5 * (n as f64).sqrt(), "{last}");
}

#[test]
fn poisson_gaps_fit_and_regular_ones_do_not() {
    let p = |seed| {
        let schedule = Schedule::new(Pattern::Poisson, 10_000.0, 1_001, seed);
        goodness::exponential(&mut gaps(&schedule)).unwrap().p
    };
    let mut values: Vec<f64> = (0..500).map(p).collect();
    values.sort_unstable_by(f64::total_cmp);
    let steps = values.iter().enumerate();
    let distance =
        steps.map(|(place, p)| ((place as f64 + 0.5) / 500.0 - p).abs()).fold(0.0, f64::max) * 500_f64.sqrt();
    assert!(distance < 1.95, "p-values are not uniform: {distance}");
    let regular = Schedule::new(Pattern::Regular, 10_000.0, 1_001, 1);
    assert!(goodness::exponential(&mut gaps(&regular)).unwrap().p < 1e-6);
}

#[test]
fn the_same_seed_gives_the_same_departures() {
    let gaps_of = |seed| gaps(&Schedule::new(Pattern::Poisson, 1e4, 10, seed));
    assert_eq!(gaps_of(7), gaps_of(7));
    assert_ne!(gaps_of(7), gaps_of(8));
}

#[test]
fn bursts_leave_back_to_back_at_the_mean_rate() {
    assert_eq!(offsets(Pattern::Burst { size: 3 }, 3_000.0, 7), [0, 0, 0, 1_000_000, 1_000_000, 1_000_000, 2_000_000]);
}

#[test]
fn a_replay_leaves_at_the_given_times() {
    let replay = |times: &[i64]| Schedule::replay(times.iter().map(|ns| Nanos(*ns)).collect());
    let schedule = replay(&[0, 5, 5, 1_000_000_000]);
    assert_eq!(schedule.departures().map(|offset| offset.0).collect::<Vec<_>>(), [0, 5, 5, 1_000_000_000]);
    assert_eq!(schedule.check(64, None), Ok(()));
    assert!((schedule.mean_pps() - 3.0).abs() < 1e-9);
    assert_eq!(replay(&[5, 4]).check(64, None), Err(ScheduleError::Unsorted(1)));
    assert_eq!(replay(&[-1]).check(64, None), Err(ScheduleError::Unsorted(0)));
    assert_eq!(replay(&[]).check(64, None), Err(ScheduleError::NoPackets));
    let on_the_calendar = 1_795_312_800_000_000_000;
    assert_eq!(replay(&[0, on_the_calendar]).check(64, None), Err(ScheduleError::TooLate(1)));
    assert_eq!(replay(&[0, 31_536_000_000_000_000]).check(64, None), Ok(()), "a year");
}

#[test]
fn rate_above_the_link_rate_is_refused_in_one_sentence() {
    let gigabit = Some(1_000_000_000);
    let at = |rate| Schedule::new(Pattern::Regular, rate, 10, 0);
    assert_eq!(at(1_488_095.0).check(64, gigabit), Ok(()));
    assert_eq!(at(1_488_096.0).check(60, gigabit), Ok(()), "rounding up the last digit is no crime");
    let error = at(1.5e6).check(64, gigabit).unwrap_err();
    assert_eq!(
        error.to_string(),
        "1500000 frames of 64 bytes a second are more than the 1488095 that a link of 1000000000 bit/s carries; \
         ask for less, or shorter frames"
    );
    assert!(Schedule::new(Pattern::Ramp { from_pps: 1.0, to_pps: 1e6 }, 0.0, 10, 0).check(1518, gigabit).is_err());
    assert_eq!(Schedule::new(Pattern::Flood, 0.0, 10, 0).check(1518, gigabit), Ok(()));
}

#[test]
fn impossible_schedules_are_refused() {
    let shape = |pattern, rate, count| Schedule::new(pattern, rate, count, 0).check(64, None);
    assert_eq!(shape(Pattern::Regular, 0.0, 1), Err(ScheduleError::NoRate(0.0)));
    assert!(matches!(shape(Pattern::Poisson, f64::NAN, 1), Err(ScheduleError::NoRate(_))));
    assert_eq!(shape(Pattern::Flood, 0.0, 0), Err(ScheduleError::NoPackets));
    assert_eq!(shape(Pattern::Burst { size: 0 }, 1.0, 1), Err(ScheduleError::EmptyBurst));
    assert!(matches!(shape(Pattern::Regular, 1e-3, 1_000_000), Err(ScheduleError::TooLong { .. })));
    assert!(matches!(shape(Pattern::Ramp { from_pps: 0.0, to_pps: 0.0 }, 0.0, 1), Err(ScheduleError::NoRate(_))));
    for (text, near) in [("poison", "poisson"), ("brust:8", "burst"), ("rampe:1-2", "ramp")] {
        let told = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(told.ends_with(&format!("(did you mean {near:?}?)")), "{told}");
    }
    for text in ["", "burst", "burst:x", "ramp:1", "ramp:-1-2", "regular:1", "ramp:infpps-1"] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
    assert_eq!("ramp:1kpps-0.5Mpps".parse(), Ok(Pattern::Ramp { from_pps: 1e3, to_pps: 5e5 }));
}
