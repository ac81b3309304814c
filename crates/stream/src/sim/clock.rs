//! A clock with offset, skew, drift and steps.

use super::Skewed;

const NANOS_PER_SECOND: f64 = 1e9;
const PPM: f64 = 1e-6;

/// A clock drifts for this long; then its skew is constant, so that no clock runs backwards.
const DRIFTS_S: f64 = 86_400.0;

/// How often a reading is corrected by its error when the time of a reading is searched: each correction reduces the
/// error to a hundredth or less, except for clocks that have drifted far.
const CORRECTIONS: usize = 6;

impl Skewed {
    /// Returns the reading of this clock at a true time since the start.
    pub fn reading(&self, truth_ns: i64) -> i64 {
        let step = self.step.filter(|step| truth_ns >= step.at_ns).map_or(0, |step| step.by_ns);
        self.unstepped(truth_ns).saturating_add(step)
    }

    /// Returns the first true time, from `truth_ns` on, at which this clock reads `reading_ns` or more.
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
        let drifts = seconds.clamp(0.0, DRIFTS_S);
        let drifted = self.drift_ppm_per_s * drifts * (seconds - drifts / 2.0);
        let mut gained_s = PPM * (self.skew_ppm * seconds + drifted);
        if let Some(swing) = self.temperature {
            let turn = std::f64::consts::TAU / swing.period_s;
            gained_s += PPM * swing.amplitude_ppm * (1.0 - (turn * seconds).cos()) / turn;
        }
        truth_ns.saturating_add(self.offset_ns).saturating_add((gained_s * NANOS_PER_SECOND).round() as i64)
    }

    /// Returns the first true time at which the clock, without its step, reads `reading_ns` or more.
    fn invert(&self, reading_ns: i64) -> i64 {
        let mut near_ns = reading_ns.saturating_sub(self.offset_ns);
        for _ in 0..CORRECTIONS {
            near_ns = near_ns.saturating_add(reading_ns.saturating_sub(self.unstepped(near_ns)));
        }
        let shows = |truth_ns: i64| self.unstepped(truth_ns) >= reading_ns;
        let mut step_ns = 1_i64;
        while near_ns < i64::MAX && !shows(near_ns) {
            near_ns = near_ns.saturating_add(step_ns);
            step_ns = step_ns.saturating_mul(2);
        }
        let (mut before_ns, mut there_ns) = (near_ns.saturating_sub(step_ns), near_ns);
        while before_ns > i64::MIN && shows(before_ns) {
            there_ns = before_ns;
            before_ns = before_ns.saturating_sub(step_ns);
            step_ns = step_ns.saturating_mul(2);
        }
        while i128::from(there_ns) - i128::from(before_ns) > 1 {
            let middle_ns = (before_ns / 2 + there_ns / 2) + (before_ns % 2 + there_ns % 2) / 2;
            if shows(middle_ns) { there_ns = middle_ns } else { before_ns = middle_ns }
        }
        there_ns
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
        fn first_time_at_which_the_clock_reads_a_value_is_exact(
            clock in clock(), truth in 0..30_000_000_000_i64, ahead in -1_000_000..3_000_000_000_i64,
        ) {
            let wanted = clock.reading(truth) + ahead;
            let found = clock.first_at(truth, wanted);
            prop_assert!(found >= truth);
            prop_assert!(clock.reading(found) >= wanted);
            prop_assert!(found == truth || clock.reading(found - 1) < wanted, "{} before", found);
        }

        #[test]
        fn skew_and_sinusoidal_drift_are_as_configured(
            skew_ppm in -100.0..100.0_f64, amplitude_ppm in 0.0..10.0_f64, period_s in 1.0..100.0_f64,
        ) {
            let temperature = Some(Sinusoid { amplitude_ppm, period_s });
            let clock = Skewed { skew_ppm, temperature, ..Skewed::default() };
            let period_ns = (period_s * 1e9) as i64;
            let gained = |truth: i64| (clock.reading(truth) - truth) as f64;
            // After a whole period the swing is zero; over half a period the mean skew was 2/π of the amplitude.
            prop_assert!((gained(period_ns) - skew_ppm * period_s * 1e3).abs() < 2.0);
            let half = skew_ppm / 2.0 + amplitude_ppm / std::f64::consts::PI;
            prop_assert!((gained(period_ns / 2) - half * period_s * 1e3).abs() < 2.0);
        }
    }

    proptest! {
        #[test]
        fn simulated_clocks_are_monotonic_and_searches_terminate(
            offset_ns in -32_000_000_000_000_000_i64..32_000_000_000_000_000, skew_ppm in -10_000.0..10_000.0_f64,
            drift_ppm_per_s in -10.0..10.0_f64, amplitude_ppm in -10_000.0..10_000.0_f64,
            period_s in prop_oneof![1e-12..1e-6_f64, 1.0..1e12_f64],
            at_ns: i64, by_ns in -32_000_000_000_000_000_i64..32_000_000_000_000_000,
            truth in 0..1_000_000_000_000_000_000_i64, later in 1_000_000_000..1_000_000_000_000_000_i64, wanted: i64,
        ) {
            let temperature = Some(Sinusoid { amplitude_ppm, period_s });
            let clock = Skewed { offset_ns, skew_ppm, drift_ppm_per_s, temperature, step: None };
            prop_assert!(clock.reading(truth + later) > clock.reading(truth));
            let stepped = Skewed { step: Some(ClockStep { at_ns, by_ns }), ..clock };
            prop_assert!(stepped.first_at(truth, wanted) >= truth);
        }
    }

    #[test]
    fn drift_accumulates_and_a_step_occurs_once() {
        let clock = Skewed {
            drift_ppm_per_s: 2.0,
            step: Some(ClockStep { at_ns: 5_000_000_000, by_ns: -7 }),
            ..Skewed::default()
        };
        assert_eq!(clock.reading(4_000_000_000), 4_000_000_000 + 16_000);
        assert_eq!(clock.reading(10_000_000_000), 10_000_000_000 + 100_000 - 7);
    }
}
