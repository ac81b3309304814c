//! A clock that does not keep true time.

use super::Skewed;

const NANOS_PER_SECOND: f64 = 1e9;
const PPM: f64 = 1e-6;

/// How often a reading is corrected by its error when a time is looked for: each makes it a thousandth at most.
const CORRECTIONS: usize = 6;

impl Skewed {
    /// Returns what this clock shows at a true time since the start.
    pub fn reading(&self, truth_ns: i64) -> i64 {
        let step = self.step.filter(|step| truth_ns >= step.at_ns).map_or(0, |step| step.by_ns);
        self.unstepped(truth_ns).saturating_add(step)
    }

    /// Returns the first true time, from `truth_ns` on, at which this clock shows `reading_ns` or more.
    pub fn first_at(&self, truth_ns: i64, reading_ns: i64) -> i64 {
        let Some(step) = self.step.filter(|step| truth_ns < step.at_ns) else {
            let by_ns = self.step.map_or(0, |step| step.by_ns);
            return self.invert(reading_ns.saturating_sub(by_ns)).max(truth_ns);
        };
        let before = self.invert(reading_ns);
        if before < step.at_ns {
            return before.max(truth_ns);
        }
        self.invert(reading_ns.saturating_sub(step.by_ns)).max(step.at_ns)
    }

    fn unstepped(&self, truth_ns: i64) -> i64 {
        let seconds = truth_ns as f64 / NANOS_PER_SECOND;
        let mut gained_s = PPM * (self.skew_ppm * seconds + self.drift_ppm_per_s * seconds * seconds / 2.0);
        if let Some(swing) = self.temperature {
            let turn = std::f64::consts::TAU / swing.period_s;
            gained_s += PPM * swing.amplitude_ppm * (1.0 - (turn * seconds).cos()) / turn;
        }
        truth_ns.saturating_add(self.offset_ns).saturating_add((gained_s * NANOS_PER_SECOND).round() as i64)
    }

    /// Returns the first true time at which the clock, without its step, shows `reading_ns` or more.
    fn invert(&self, reading_ns: i64) -> i64 {
        let mut truth_ns = reading_ns.saturating_sub(self.offset_ns);
        for _ in 0..CORRECTIONS {
            truth_ns = truth_ns.saturating_add(reading_ns.saturating_sub(self.unstepped(truth_ns)));
        }
        while self.unstepped(truth_ns) < reading_ns {
            truth_ns += 1;
        }
        while self.unstepped(truth_ns - 1) >= reading_ns {
            truth_ns -= 1;
        }
        truth_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_port::sim::ClockStep;

    use super::super::Sinusoid;
    use super::*;

    prop_compose! {
        fn clock()(
            offset_ns in -5_000_000_000_i64..5_000_000_000, skew_ppm in -100.0..100.0_f64,
            drift_ppm_per_s in -0.1..0.1_f64,
            amplitude_ppm in 0.0..5.0_f64, period_s in 1.0..1_000.0_f64, swings: bool, steps: bool,
            at_ns in 0..20_000_000_000_i64, by_ns in -2_000_000_000..2_000_000_000_i64,
        ) -> Skewed {
            Skewed {
                offset_ns, skew_ppm, drift_ppm_per_s,
                temperature: swings.then_some(Sinusoid { amplitude_ppm, period_s }),
                step: steps.then_some(ClockStep { at_ns, by_ns }),
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_time_is_the_first(
            clock in clock(), truth in 0..30_000_000_000_i64, ahead in -1_000_000..3_000_000_000_i64,
        ) {
            let wanted = clock.reading(truth) + ahead;
            let found = clock.first_at(truth, wanted);
            prop_assert!(found >= truth);
            prop_assert!(clock.reading(found) >= wanted);
            prop_assert!(found == truth || clock.reading(found - 1) < wanted, "{} before", found);
        }

        #[test]
        fn skew_and_swing_are_as_said(
            skew_ppm in -100.0..100.0_f64, amplitude_ppm in 0.0..10.0_f64, period_s in 1.0..100.0_f64,
        ) {
            let temperature = Some(Sinusoid { amplitude_ppm, period_s });
            let clock = Skewed { skew_ppm, temperature, ..Skewed::default() };
            let period_ns = (period_s * 1e9) as i64;
            let gained = |truth: i64| (clock.reading(truth) - truth) as f64;
            // A whole swing comes back; at its half the skew was the amplitude's 2/π on average.
            prop_assert!((gained(period_ns) - skew_ppm * period_s * 1e3).abs() < 2.0);
            let half = skew_ppm / 2.0 + amplitude_ppm / std::f64::consts::PI;
            prop_assert!((gained(period_ns / 2) - half * period_s * 1e3).abs() < 2.0);
        }
    }

    #[test]
    fn drift_adds_up_and_a_step_comes_once() {
        let clock = Skewed {
            drift_ppm_per_s: 2.0,
            step: Some(ClockStep { at_ns: 5_000_000_000, by_ns: -7 }),
            ..Skewed::default()
        };
        assert_eq!(clock.reading(4_000_000_000), 4_000_000_000 + 16_000);
        assert_eq!(clock.reading(10_000_000_000), 10_000_000_000 + 100_000 - 7);
    }
}
