//! The histograms of the counting program: 64 steps per octave, so the resolution is 1.6 %.

const SUB_BITS: u32 = 6;
const SUB_STEPS: u64 = 1 << SUB_BITS;

/// The number of values in each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
}

/// One step of a histogram with its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The smallest value of the step, ns.
    pub low: i64,
    /// The largest value of the step, ns; the last step includes all larger values.
    pub high: i64,
    /// The number of values.
    pub count: u64,
}

impl Histogram {
    /// Create a histogram from the counts of its steps.
    pub(super) fn new(counts: Vec<u64>) -> Self {
        Self { counts }
    }

    /// Iterate over the steps that are not empty, in ascending order.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        (0_u64..).zip(&self.counts).filter(|(_, count)| **count > 0).map(|(index, count)| {
            let (low, width) = bounds(index);
            Step { low, high: low.saturating_add(width - 1), count: *count }
        })
    }

    /// Return the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }
}

/// Return the smallest value and the width of a step.
fn bounds(index: u64) -> (i64, i64) {
    let octave = index >> SUB_BITS;
    if octave == 0 {
        return (index.cast_signed(), 1);
    }
    let low = (SUB_STEPS + (index & (SUB_STEPS - 1))) << (octave - 1).min(56);
    (low.cast_signed(), 1 << (octave - 1).min(56))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_contiguous_and_narrow() {
        let mut next = 0;
        for index in 0..35 * SUB_STEPS {
            let (low, width) = bounds(index);
            assert_eq!(low, next);
            assert!(index < SUB_STEPS || width as f64 / low as f64 <= 1.0 / 64.0);
            next = low + width;
        }
        assert_eq!(next, 1 << 40);
    }

    #[test]
    fn only_nonempty_bins_are_reported() {
        let mut counts = vec![0; 100];
        counts[3] = 2;
        counts[70] = 1;
        let histogram = Histogram::new(counts);
        let steps: Vec<Step> = histogram.steps().collect();
        assert_eq!(steps, [Step { low: 3, high: 3, count: 2 }, Step { low: 70, high: 70, count: 1 }]);
        assert_eq!(histogram.count(), 3);
    }
}
