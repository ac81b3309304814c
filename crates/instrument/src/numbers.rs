//! Formats numbers for people.

/// Groups digits by thousands: "12,345".
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the 95 % confidence interval of the loss probability, from `lost` of `sent` packets in so many runs of
/// consecutive losses: Wilson's score interval (E. B. Wilson, JASA 22, 1927).
///
/// Consecutive losses are not independent: the effective sample size is `sent · (1 - ρ) / (1 + ρ)`, where ρ is the
/// correlation of neighbouring packets in a two-state Markov chain with so many runs (Gilbert's model).
pub fn loss_interval(lost: u64, runs: u64, sent: u64) -> Option<(f64, f64)> {
    /// The 97.5 % quantile of the standard normal distribution.
    const Z: f64 = 1.959_963_984_540_054;
    if sent == 0 {
        return None;
    }
    let (lost, runs, all) = (lost as f64, runs as f64, sent as f64);
    let after_loss = if lost > 0.0 { 1.0 - runs / lost } else { 0.0 };
    let after_arrival = if all > lost { (runs / (all - lost)).min(1.0) } else { 1.0 };
    let correlation = (after_loss - after_arrival).clamp(0.0, 0.999);
    let n = all * (1.0 - correlation) / (1.0 + correlation);
    let share = lost / all;
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(((middle - half).max(0.0), (middle + half).min(1.0)))
}

/// Formats "3 lost (0.30 %, 95 % CI 0.10–0.88 %)"; the number of decimals depends on the width of the interval.
pub fn loss(lost: u64, runs: u64, sent: u64) -> String {
    let percent = lost as f64 * 100.0 / sent.max(1) as f64;
    let Some((low, high)) = loss_interval(lost, runs, sent) else { return format!("{lost} lost ({percent:.2} %)") };
    let [low, high] = [low, high].map(|share| share * 100.0);
    let digits = (1.0 - (high - low).log10().floor()).clamp(2.0, 9.0) as usize;
    format!("{lost} lost ({percent:.digits$} %, 95 % CI {low:.digits$}–{high:.digits$} %)")
}

/// Formats a time with three digits and a suitable unit.
pub fn span(ns: i64) -> String {
    let size = ns.unsigned_abs();
    let (scale, unit) = match size {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / scale;
    let digits = if value.abs() < 9.995 { 2 } else { usize::from(value.abs() < 99.95) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_interval_has_positive_width_for_any_number_sent() {
        assert_eq!(loss(0, 0, 100), "0 lost (0.00 %, 95 % CI 0.00–3.70 %)");
        assert_eq!(loss(0, 0, 276_930), "0 lost (0.0000 %, 95 % CI 0.0000–0.0014 %)");
        assert_eq!(loss(0, 0, 0), "0 lost (0.00 %)");
    }

    #[test]
    fn loss_interval_is_the_wilson_interval_for_isolated_losses() {
        // scipy.stats.binomtest(k, n).proportion_ci(0.95, "wilson")
        let known = [
            (0, 0, 100, 0.0, 0.036_993_498_2),
            (3, 3, 1_000, 0.001_020_783_9, 0.008_783_014_1),
            (50, 50, 100, 0.403_831_530_4, 0.596_168_469_6),
            (100, 1, 100, 0.963_006_501_8, 1.0),
        ];
        for (lost, runs, sent, low, high) in known {
            let got = loss_interval(lost, runs, sent).unwrap();
            assert!((got.0 - low).abs() < 1e-9 && (got.1 - high).abs() < 1e-9, "{lost}/{sent}: {got:?}");
        }
        assert_eq!(loss_interval(0, 0, 0), None);
    }

    /// Simulates a two-state Markov chain with a known loss rate: the coverage of the intervals must match their level.
    #[test]
    fn loss_interval_has_its_coverage_also_for_burst_loss() {
        use rand::{Rng, SeedableRng};
        for (begin, end) in [(0.02, 0.98), (0.05, 0.25), (0.02, 0.1)] {
            let truth = begin / (begin + end);
            let mut random = rand::rngs::StdRng::seed_from_u64(7);
            let mut held = 0;
            for _ in 0..400 {
                let (mut is_lost, mut lost, mut runs) = (random.random_bool(truth), 0, 0);
                for _ in 0..4_000 {
                    let before = is_lost;
                    is_lost = random.random_bool(if before { 1.0 - end } else { begin });
                    lost += u64::from(is_lost);
                    runs += u64::from(is_lost && !before);
                }
                let (low, high) = loss_interval(lost, runs, 4_000).unwrap();
                held += u32::from((low..=high).contains(&truth));
            }
            assert!((370..=390).contains(&held), "{begin} {end}: {held}");
        }
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(["0", "999", "1,000", "12,345,678"], [0, 999, 1_000, 12_345_678].map(grouped)[..]);
        let told = [-40, 1_234, 99_960, -27_000, 1_500_000, 2_000_000_000].map(span);
        assert_eq!(told, ["-40 ns", "1.23 µs", "100 µs", "-27.0 µs", "1.50 ms", "2.00 s"]);
    }
}
