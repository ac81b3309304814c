//! Statistics for tests of distributions. Each test gives a p-value: the probability of the observation, or a worse
//! one, under the null hypothesis.
//!
//! P-values are compared with [`ALARM`]: with at most a hundred comparisons per test, over the choice of seeds a test
//! fails falsely less than once in a million times. With the seeds that it prints, its result is always the same.

#![allow(dead_code)]

/// A comparison fails below this p-value.
pub const ALARM: f64 = 1e-8;

/// Fails if the p-value is below [`ALARM`]; prints what was compared.
#[track_caller]
pub fn assert_likely(what: &str, p_value: f64) {
    println!("{what}: p = {p_value:.3e}");
    assert!(p_value >= ALARM, "{what}: p = {p_value:e} < {ALARM:e}");
}

/// Returns the two-sided p-value of a standard normal deviate.
pub fn normal(z: f64) -> f64 {
    libm::erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// Returns Φ(z).
pub fn normal_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Returns the two-sided p-value of a number of hits (normal approximation; exact for probabilities of 0 and 1).
pub fn share(hits: u64, of: u64, probability: f64) -> f64 {
    let sd = (of as f64 * probability * (1.0 - probability)).sqrt();
    let off = hits as f64 - of as f64 * probability;
    if sd > 0.0 { normal(off / sd) } else { f64::from(u8::from(off == 0.0)) }
}

/// Returns the p-value of Pearson's statistic; cells are merged until each expects at least 20. `fitted`: number of estimated parameters.
pub fn chi_square(observed: &[u64], expected: &[f64], fitted: u32) -> f64 {
    assert_eq!(observed.len(), expected.len());
    let (mut sum, mut cells) = (0.0, 0_u32);
    let (mut seen, mut wanted) = (0.0, 0.0);
    let total: f64 = expected.iter().sum();
    let mut done = 0.0;
    for (count, expectation) in observed.iter().zip(expected) {
        seen += *count as f64;
        wanted += expectation;
        // The last cell takes the rest, so that no cell expects too little.
        if wanted >= 20.0 && total - done - wanted >= 20.0 {
            sum += (seen - wanted).powi(2) / wanted;
            cells += 1;
            done += wanted;
            (seen, wanted) = (0.0, 0.0);
        }
    }
    sum += (seen - wanted).powi(2) / wanted;
    chi_square_above(sum, cells - fitted)
}

/// Returns P(χ² > x) for `freedom` degrees of freedom.
pub fn chi_square_above(x: f64, freedom: u32) -> f64 {
    assert!(freedom > 0, "nothing to compare");
    let (shape, x) = (f64::from(freedom) / 2.0, x / 2.0);
    if x > shape + 1.0 { gamma_above_tail(shape, x) } else { 1.0 - gamma_below(shape, x) }
}

/// Returns the regularised lower incomplete gamma function, by its series.
pub fn gamma_below(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x > shape + 1.0 {
        return 1.0 - gamma_above_tail(shape, x);
    }
    let (mut term, mut sum, mut n) = (1.0 / shape, 1.0 / shape, shape);
    while term > sum * 1e-17 {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    sum * (shape * x.ln() - x - libm::lgamma(shape)).exp()
}

/// Returns the upper one, by Legendre's continued fraction, for x > shape + 1.
fn gamma_above_tail(shape: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..100_000 {
        let a = -f64::from(n) * (f64::from(n) - shape);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction * (shape * x.ln() - x - libm::lgamma(shape)).exp()
}

/// Returns the p-value of the Anderson–Darling statistic A² of values that should be uniform: √3 erfc(√A²), the tail of
/// its limit (Zolotarev 1961), accurate to 10 % below 0.05.
pub fn anderson_darling(mut levels: Vec<f64>) -> f64 {
    levels.sort_by(f64::total_cmp);
    let n = levels.len() as f64;
    let sum: f64 = (0..levels.len())
        .map(|i| (2.0 * i as f64 + 1.0) * (levels[i].ln() + (-levels[levels.len() - 1 - i]).ln_1p()))
        .sum();
    let a2 = -n - sum / n;
    (3.0_f64.sqrt() * libm::erfc(a2.max(0.0).sqrt())).min(1.0)
}

/// Returns the p-value of the number of runs (Wald–Wolfowitz).
pub fn runs(hits: &[bool]) -> f64 {
    let n = hits.len() as f64;
    let ones = hits.iter().filter(|hit| **hit).count() as f64;
    let product = 2.0 * ones * (n - ones);
    let count = 1.0 + hits.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64;
    let mean = product / n + 1.0;
    normal((count - mean) / (product * (product - n) / (n * n * (n - 1.0))).sqrt())
}

/// Returns the p-value of the autocorrelations up to a lag together (Ljung–Box).
pub fn independent(values: &[f64], lags: usize) -> f64 {
    let n = values.len() as f64;
    let q: f64 = (1..=lags).map(|lag| autocorrelation(values, lag).powi(2) / (n - lag as f64)).sum();
    chi_square_above(n * (n + 2.0) * q, lags as u32)
}

/// Returns the autocorrelation of a series, around its own mean.
pub fn autocorrelation(values: &[f64], lag: usize) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    values.iter().zip(&values[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance
}

/// Returns the p-value of a mean of values with short-range dependence: from 500 batch means, which are nearly normal and independent.
pub fn mean(values: impl ExactSizeIterator<Item = f64>, expected: f64) -> f64 {
    const BATCHES: usize = 500;
    let size = values.len() / BATCHES;
    let mut sums = vec![0.0; BATCHES];
    for (place, value) in values.take(size * BATCHES).enumerate() {
        sums[place / size] += value / size as f64;
    }
    let mean = sums.iter().sum::<f64>() / BATCHES as f64;
    let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / (BATCHES - 1) as f64;
    println!("  mean {mean:.6e} ± {:.1e}, expected {expected:.6e}", (variance / BATCHES as f64).sqrt());
    if variance == 0.0 {
        return f64::from(u8::from(mean == expected));
    }
    let t2 = (mean - expected).powi(2) / (variance / BATCHES as f64);
    // The tail of Student's t, by Wallace's approximation.
    let freedom = (BATCHES - 1) as f64;
    normal((8.0 * freedom + 1.0) / (8.0 * freedom + 3.0) * (freedom * (t2 / freedom).ln_1p()).sqrt())
}

/// Returns the p-value of counts of 1, 2, 3, … compared with the geometric distribution with this probability to end.
pub fn geometric(lengths: &[u64], end: f64) -> f64 {
    const CELLS: usize = 5000;
    let n = lengths.len() as f64;
    if n * end * (1.0 - end) < 100.0 {
        // Nearly all lengths are 1, or there are few: only the number of ones can be tested.
        return share(lengths.iter().filter(|length| **length == 1).count() as u64, lengths.len() as u64, end);
    }
    let mut observed = vec![0_u64; CELLS];
    for length in lengths {
        observed[(*length as usize - 1).min(CELLS - 1)] += 1;
    }
    let mut expected: Vec<f64> = (0..CELLS as i32).map(|before| n * end * (1.0 - end).powi(before)).collect();
    expected[CELLS - 1] /= end;
    chi_square(&observed, &expected, 0)
}

/// Returns the lengths of complete runs of `of`: the first and the last run, which may be truncated, are left out.
pub fn run_lengths(hits: &[bool], of: bool) -> Vec<u64> {
    let lengths: Vec<(bool, u64)> = hits.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64)).collect();
    let whole = lengths.get(1..lengths.len().saturating_sub(1)).unwrap_or_default();
    whole.iter().filter(|(value, _)| *value == of).map(|(_, length)| *length).collect()
}

/// Returns the 95 % confidence interval of a probability (Clopper and Pearson 1934).
pub fn clopper_pearson(hits: u64, of: u64) -> (f64, f64) {
    let (k, n) = (hits as f64, of as f64);
    let low = if hits == 0 { 0.0 } else { root(|p| beta_below(k, n - k + 1.0, p) - 0.025) };
    let high = if hits == of { 1.0 } else { root(|p| beta_below(k + 1.0, n - k, p) - 0.975) };
    (low, high)
}

/// Returns ln of the binomial probability of exactly `hits` hits.
pub fn log_binomial(hits: u64, of: u64, probability: f64) -> f64 {
    let (k, n) = (hits as f64, of as f64);
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
        + k * probability.ln()
        + (n - k) * (-probability).ln_1p()
}

fn root(rising: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if rising(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22).
fn beta_below(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_below(b, a, 1.0 - x);
    }
    let front = (libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let (mut c, mut d) = (1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / (1.0 + term * d);
            c = 1.0 + term / c;
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}
