//! Summarise many delays: a random sample in bounded memory, its percentiles and their dependence on size, each with a
//! distribution-free interval.
//!
//! Intervals of percentiles come from order statistics (H. A. David, *Order Statistics*, 7.1); the slope is Theil's
//! with Sen's interval (P. K. Sen, JASA 63, 1968). Both assume independent delays: for correlated consecutive delays
//! the true intervals are wider.

/// A delay of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// The time at the first tap, ns.
    pub first: i64,
    /// The delay as measured, ns.
    pub delay: i64,
    /// Length on the wire, without FCS. bytes.
    pub length: u32,
    /// Whether another pairing was possible.
    pub is_ambiguous: bool,
}

/// A uniform random sample of all delays, or all of them while there is room. The number of delays to skip until the
/// next one is drawn (algorithm L: K.-H. Li, ACM TOMS 20, 1994), so that most delays cost nothing.
#[derive(Clone, Debug)]
pub struct Sample {
    most: usize,
    count: u64,
    state: u64,
    /// The largest of the random keys in [0, 1) that the sampled delays would have.
    largest: f64,
    /// The index of the next delay to sample, once there is no room.
    next: u64,
    kept: Vec<Delay>,
    least: i64,
    greatest: i64,
}

impl Sample {
    /// Create an empty sample of at most `most` delays.
    pub fn new(most: usize) -> Self {
        let (kept, least, greatest) = (Vec::new(), i64::MAX, i64::MIN);
        Self { most, count: 0, state: 0x5EED, largest: 1.0, next: 0, kept, least, greatest }
    }

    /// Handle one more delay.
    #[inline]
    pub fn push(&mut self, delay: Delay) {
        self.count += 1;
        self.least = self.least.min(delay.delay);
        self.greatest = self.greatest.max(delay.delay);
        if self.kept.len() < self.most {
            self.kept.push(delay);
            if self.kept.len() == self.most {
                self.skip();
            }
        } else if self.count == self.next {
            let place = ((u128::from(random(&mut self.state)) * self.most as u128) >> 64) as usize;
            self.kept[place] = delay;
            self.skip();
        }
    }

    /// Draw the index of the next delay to sample.
    #[inline(never)]
    fn skip(&mut self) {
        let mut uniform = || ((random(&mut self.state) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        self.largest *= (uniform().ln() / self.most as f64).exp();
        let passed = uniform().ln() / (-self.largest).ln_1p();
        // Truncated to whole delays; 2⁶³ delays are never reached.
        self.next = self.count.saturating_add(passed.min(9e18) as u64).saturating_add(1);
    }

    /// Return the number of all delays.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Return the sampled delays.
    pub fn kept(&self) -> &[Delay] {
        &self.kept
    }

    /// Return the minimum and maximum of all delays; `None` if there are none.
    pub fn range(&self) -> Option<(i64, i64)> {
        (self.count > 0).then_some((self.least, self.greatest))
    }
}

/// A percentile and its 95 % interval; a bound is missing if the sample is too small for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    /// The value at the nearest rank.
    pub value: i64,
    /// The lower bound.
    pub low: Option<i64>,
    /// The upper bound.
    pub high: Option<i64>,
}

/// Return a quantile, between 0 and 1, of values in ascending order; `None` if there are none.
pub fn percentile(sorted: &[i64], quantile: f64) -> Option<Percentile> {
    let n = sorted.len();
    let rank = ((quantile * n as f64).ceil() as usize).clamp(1, n.max(1));
    let (low, high) = ranks(n, quantile);
    let at = |rank: usize| sorted.get(rank.checked_sub(1)?).copied();
    Some(Percentile { value: at(rank)?, low: low.and_then(at), high: high.and_then(at) })
}

/// Return the ranks, from 1, that bound the quantile of `n` independent values with a probability of at least 95 %, at
/// most 2.5 % beyond each bound; `None` where even the extreme value is not far enough.
pub fn ranks(n: usize, quantile: f64) -> (Option<usize>, Option<usize>) {
    const BEYOND: f64 = 0.025;
    // The number of values below the quantile is binomial: sum its tail from where the probability vanishes.
    let tail = |share: f64| {
        let (all, mean) = (n as f64, n as f64 * share);
        let spread = (all * share * (1.0 - share)).sqrt();
        let mut at = (mean - 9.0 * spread - 30.0).floor().max(0.0);
        let odds = (share / (1.0 - share)).ln();
        let mut log = ln_binomial(all, at) + at * share.ln() + (all - at) * (1.0 - share).ln();
        let mut sum = 0.0;
        loop {
            sum += log.exp();
            if sum > BEYOND || at >= all {
                // With a probability of at most 2.5 %, fewer than that many values are below.
                return at as usize;
            }
            log += odds + ((all - at) / (at + 1.0)).ln();
            at += 1.0;
        }
    };
    if n == 0 {
        return (None, None);
    }
    let (below, above) = (tail(quantile), tail(1.0 - quantile));
    ((below > 0).then_some(below), (above > 0).then(|| n + 1 - above))
}

fn ln_binomial(n: f64, k: f64) -> f64 {
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

/// The increase of delay with length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// In ns per octet.
    pub ns_per_octet: f64,
    /// The lower bound of the 95 % interval.
    pub low: f64,
    /// The upper bound of the 95 % interval.
    pub high: f64,
    /// The number of packets used.
    pub packets: usize,
}

/// The maximum number of packets that are compared pairwise.
const COMPARED: usize = 1_000;

/// Return the median slope over all pairs of packets of different length; `None` if there are too few.
pub fn slope(delays: &[(u32, i64)]) -> Option<Slope> {
    let mut state = 0x51_09E;
    let mut drawn: Vec<(u32, i64)> = delays.to_vec();
    for place in 0..drawn.len().min(COMPARED) {
        let left = (drawn.len() - place) as u128;
        let other = place + ((u128::from(random(&mut state)) * left) >> 64) as usize;
        drawn.swap(place, other);
    }
    drawn.truncate(COMPARED);
    let mut slopes = Vec::new();
    for (place, one) in drawn.iter().enumerate() {
        let unequal = drawn[place + 1..].iter().filter(|other| other.0 != one.0);
        slopes.extend(
            unequal.map(|other| other.1.saturating_sub(one.1) as f64 / (f64::from(other.0) - f64::from(one.0))),
        );
    }
    if drawn.len() < 10 || slopes.len() < drawn.len() {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let pairs = slopes.len() as f64;
    let half = 1.959_963_985 * kendall_variance(&mut drawn).sqrt();
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    Some(Slope {
        ns_per_octet: f64::midpoint(slopes[(slopes.len() - 1) / 2], slopes[slopes.len() / 2]),
        low: at(((pairs - half) / 2.0).floor()),
        high: at(((pairs + half) / 2.0).ceil()),
        packets: drawn.len(),
    })
}

/// Return the variance of Kendall's sum, with ties among the lengths.
fn kendall_variance(drawn: &mut [(u32, i64)]) -> f64 {
    let of = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    drawn.sort_unstable();
    let ties: f64 = drawn.chunk_by(|one, other| one.0 == other.0).map(|tied| of(tied.len() as f64)).sum();
    (of(drawn.len() as f64) - ties) / 18.0
}

/// SplitMix64 with a fixed seed, so that the same delays give the same results.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        // From scipy: binom.ppf(0.025, n, q) and n + 1 - binom.ppf(0.025, n, 1 - q); 0 and n + 1 mean none.
        for (n, quantile, low, high) in [
            (1, 0.5, None, None),
            (1, 0.9, None, None),
            (1, 0.99, Some(1), None),
            (1, 0.999, Some(1), None),
            (5, 0.5, None, None),
            (5, 0.9, Some(3), None),
            (5, 0.99, Some(4), None),
            (5, 0.999, Some(5), None),
            (6, 0.5, Some(1), Some(6)),
            (6, 0.9, Some(4), None),
            (6, 0.99, Some(5), None),
            (6, 0.999, Some(6), None),
            (39, 0.5, Some(13), Some(27)),
            (39, 0.9, Some(31), Some(39)),
            (39, 0.99, Some(37), None),
            (39, 0.999, Some(38), None),
            (100, 0.5, Some(40), Some(61)),
            (100, 0.9, Some(84), Some(96)),
            (100, 0.99, Some(97), None),
            (100, 0.999, Some(99), None),
            (1_000, 0.5, Some(469), Some(532)),
            (1_000, 0.9, Some(881), Some(919)),
            (1_000, 0.99, Some(983), Some(997)),
            (1_000, 0.999, Some(997), None),
            (100_000, 0.5, Some(49_690), Some(50_311)),
            (100_000, 0.9, Some(89_814), Some(90_187)),
            (100_000, 0.99, Some(98_938), Some(99_062)),
            (100_000, 0.999, Some(99_880), Some(99_920)),
            (1_048_576, 0.5, Some(523_284), Some(525_293)),
            (1_048_576, 0.9, Some(943_116), Some(944_321)),
            (1_048_576, 0.99, Some(1_037_890), Some(1_038_290)),
            (1_048_576, 0.999, Some(1_047_464), Some(1_047_591)),
        ] {
            assert_eq!(ranks(n, quantile), (low, high), "{n} {quantile}");
        }
        assert_eq!(ranks(0, 0.5), (None, None));
    }

    #[test]
    fn intervals_have_their_stated_coverage() {
        let mut state = 7;
        for quantile in [0.5, 0.9, 0.99] {
            let mut held = 0;
            for _ in 0..2_000 {
                let mut values: Vec<i64> = (0..600).map(|_| (random(&mut state) >> 40) as i64).collect();
                values.sort_unstable();
                let found = percentile(&values, quantile).unwrap();
                let truth = (quantile * f64::from(1 << 24)) as i64;
                held +=
                    u32::from(found.low.is_none_or(|low| low <= truth) && found.high.is_none_or(|high| truth <= high));
            }
            assert!((1_895..2_000).contains(&held), "{quantile}: {held}");
        }
    }

    #[test]
    fn sample_keeps_all_of_few_and_a_uniform_subset_of_many() {
        let mut sample = Sample::new(1_000);
        let delay = |delay| Delay { delay, ..Delay::default() };
        (0..1_000).for_each(|number| sample.push(delay(number)));
        assert!(sample.kept().iter().map(|kept| kept.delay).eq(0..1_000));
        (1_000..100_000).for_each(|number| sample.push(delay(number)));
        assert_eq!((sample.count(), sample.kept().len(), sample.range()), (100_000, 1_000, Some((0, 99_999))));
        let mean = sample.kept().iter().map(|kept| kept.delay).sum::<i64>() as f64 / 1e3;
        // A tolerance of six standard errors.
        assert!((mean - 50_000.0).abs() < 6.0 * 28_868.0 / 1_000_f64.sqrt(), "{mean}");
    }

    #[test]
    fn the_slope_is_the_true_one_within_its_interval() {
        let mut state = 11;
        let mut held = 0;
        for _ in 0..100 {
            let delays: Vec<(u32, i64)> = (0..400)
                .map(|_| {
                    let length = 60 + (random(&mut state) % 4) as u32 * 450;
                    // Skewed noise, and 8 ns per octet.
                    let noise = (random(&mut state) % 1_000) as i64
                        * (1 + i64::from(random(&mut state).is_multiple_of(20)) * 50);
                    (length, 5_000 + 8 * i64::from(length) + noise)
                })
                .collect();
            let found = slope(&delays).unwrap();
            assert!((found.ns_per_octet - 8.0).abs() < 0.3, "{found:?}");
            held += u32::from(found.low <= 8.0 && 8.0 <= found.high);
        }
        assert!(held >= 88, "{held}");
        assert_eq!(slope(&[(60, 1); 500]), None);
        assert_eq!(slope(&[(60, 1), (61, 2)]), None);
    }
}
