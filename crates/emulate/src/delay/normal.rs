//! The standard normal distribution and its inverse.

use std::f64::consts::FRAC_1_SQRT_2;

/// Returns Φ(z), with full relative precision in the lower tail; for the upper tail use Φ(−z).
pub(super) fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// Returns the density at z.
pub(super) fn density(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) * 0.398_942_280_401_432_7
}

/// Returns the z with Φ(z) = p, for 0 < p < 1: Wichura 1988, algorithm AS 241 (PPND16), about 1 in 10^16.
pub(super) fn quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * ratio(&CENTRE, r);
    }
    let r = (-libm::log(p.min(1.0 - p))).sqrt();
    let size = if r <= 5.0 { ratio(&SIDE, r - 1.6) } else { ratio(&TAIL, r - 5.0) };
    size.copysign(q)
}

type Polynomials = [[f64; 8]; 2];

fn ratio(polynomials: &Polynomials, x: f64) -> f64 {
    let [above, below] = polynomials.each_ref().map(|terms| terms.iter().rev().fold(0.0, |sum, term| sum * x + term));
    above / below
}

const CENTRE: Polynomials = [
    [
        3.387_132_872_796_366_5,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_3e3,
        1.373_169_376_550_946e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
];

const SIDE: Polynomials = [
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_4e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
];

const TAIL: Polynomials = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_an_independent_implementation() {
        for (p, expected) in EXPECTED {
            assert!((quantile(p) - expected).abs() <= 2e-15 * expected.abs(), "{p}: {}, not {expected}", quantile(p));
        }
    }

    #[test]
    fn quantile_inverts_the_distribution_in_both_tails() {
        for step in -820..=820 {
            let z = f64::from(step) / 100.0;
            let back = if z < 0.0 { quantile(below(z)) } else { -quantile(below(-z)) };
            assert!((back - z).abs() < 4e-15 * z.abs().max(1.0), "{z}: {back}");
        }
    }

    /// Probability and quantile: scipy 1.17, `ndtri`.
    const EXPECTED: [(f64, f64); 8] = [
        (1e-15, -7.941345326170998),
        (1e-09, -5.9978070150076865),
        (0.0001, -3.7190164854556804),
        (0.02, -2.053748910631823),
        (0.3, -0.5244005127080409),
        (0.5, 0.0),
        (0.77, 0.7388468491852137),
        (0.999, 3.090232306167813),
    ];
}
