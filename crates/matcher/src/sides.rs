//! Infer the direction of packets, where it is not given, from the side of the box on which their sender is.
//!
//! An endpoint is on one side of the box; the tap of that side sees its packets first. With two clocks it is unknown
//! which tap was first. But of two endpoints that answer each other, the packets of one appear to take longer than
//! those of the other, by the sum of both delays; this shows on which side each is.

use std::collections::HashMap;

use crate::Way;
use crate::offset::{common, median};

/// A packet at the beginning of a tap's capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The timestamp, ns.
    pub time: i64,
    /// The digest that identifies the packet.
    pub digest: u64,
    /// Source and destination, as numbers that are the same at both taps.
    pub endpoints: (u64, u64),
}

/// Timestamps of the second tap minus those of the first, by source and destination.
type Flows = HashMap<(u64, u64), Vec<i64>>;

/// The sides of endpoints, as addressed at one tap.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    of: HashMap<u64, Way>,
}

impl Sides {
    /// Infer the sides from packets that each tap saw once; for the endpoints of each tap, because a box may translate
    /// addresses.
    pub fn of(first: &[Seen], second: &[Seen], is_one_clock: bool) -> [Self; 2] {
        let (mut of_first, mut of_second) = (Flows::new(), Flows::new());
        for (one, other) in common(first, second) {
            let difference = other.time - one.time;
            of_first.entry(one.endpoints).or_default().push(difference);
            of_second.entry(other.endpoints).or_default().push(difference);
        }
        [of_first, of_second].map(|flows| Self::learn(flows, is_one_clock))
    }

    fn learn(mut flows: Flows, is_one_clock: bool) -> Self {
        let medians: HashMap<(u64, u64), i64> =
            flows.iter_mut().map(|(flow, differences)| (*flow, median(differences))).collect();
        let Some(between) = (if is_one_clock { Some(0) } else { threshold(&medians) }) else {
            return Self::default();
        };
        // If an endpoint has several flows, the sum over their packets decides.
        let mut sums: HashMap<u64, i64> = HashMap::new();
        for ((from, to), middle) in &medians {
            let count = flows[&(*from, *to)].len() as i64;
            let side = if *middle >= between { count } else { -count };
            *sums.entry(*from).or_default() += side;
            *sums.entry(*to).or_default() -= side;
        }
        let of = sums.into_iter().filter(|(_, sum)| *sum != 0);
        Self { of: of.map(|(endpoint, sum)| (endpoint, if sum > 0 { Way::Forward } else { Way::Backward })).collect() }
    }

    /// Return the direction of a packet from one endpoint to another, if the side of either is known.
    pub fn known(&self, (from, to): (u64, u64)) -> Option<Way> {
        let opposite = |way: &Way| if *way == Way::Forward { Way::Backward } else { Way::Forward };
        self.of.get(&from).copied().or_else(|| self.of.get(&to).map(opposite))
    }
}

/// Return a threshold between the differences of forward and of backward flows, from endpoints that answer each other;
/// `None` if none do.
fn threshold(medians: &HashMap<(u64, u64), i64>) -> Option<i64> {
    let answered = |((from, to), there): (&(u64, u64), &i64)| {
        let back = medians.get(&(*to, *from)).filter(|_| from < to)?;
        Some((*there.min(back), *there.max(back)))
    };
    let pairs: Vec<(i64, i64)> = medians.iter().filter_map(answered).collect();
    let (low, high) = (pairs.iter().map(|pair| pair.0).max()?, pairs.iter().map(|pair| pair.1).min()?);
    if low <= high {
        return Some(middle(low, high));
    }
    let mut middles: Vec<i64> = pairs.iter().map(|(low, high)| middle(*low, *high)).collect();
    Some(median(&mut middles))
}

/// Return the mean of two differences, without overflow.
fn middle(low: i64, high: i64) -> i64 {
    ((i128::from(low) + i128::from(high)) >> 1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offset_between;

    /// Return packets between endpoints 1 (left) and 2 (right), as each tap would see them.
    fn conversation(offset: i64, delays: (i64, i64)) -> (Vec<Seen>, Vec<Seen>) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for number in 0..50_i64 {
            let at = number * 1_000_000;
            let seen = |time, digest, endpoints| Seen { time, digest, endpoints };
            first.push(seen(at, number as u64, (1, 2)));
            second.push(seen(at + delays.0 + number % 7 + offset, number as u64, (1, 2)));
            let at = at + 400_000;
            second.push(seen(at + offset, 1_000 + number as u64, (2, 1)));
            first.push(seen(at + delays.1 + number % 5, 1_000 + number as u64, (2, 1)));
        }
        (first, second)
    }

    #[test]
    fn sides_of_communicating_endpoints_are_found_with_any_two_clocks() {
        for offset in [0, 5_000_000_000, -37_000_000_000] {
            for delays in [(10_000, 10_000), (5, 20_000_000), (2_000, 100)] {
                let (first, second) = conversation(offset, delays);
                for sides in Sides::of(&first, &second, false) {
                    assert_eq!((sides.known((1, 2)), sides.known((2, 1))), (Some(Way::Forward), Some(Way::Backward)));
                }
                // With the taps exchanged, the directions are reversed.
                let [sides, _] = Sides::of(&second, &first, false);
                assert_eq!((sides.known((1, 2)), sides.known((2, 1))), (Some(Way::Backward), Some(Way::Forward)));
                let off = offset_between(&first, &second).unwrap() - offset;
                assert!(off.abs() <= delays.0.max(delays.1) + 7, "{off}");
            }
        }
    }

    #[test]
    fn addresses_that_a_box_translates_are_learned_at_each_tap() {
        let (first, mut second) = conversation(7_000_000_000, (20_000, 10_000));
        // The box translates endpoint 1 to 9.
        let outside = |endpoint| if endpoint == 1 { 9 } else { endpoint };
        second.iter_mut().for_each(|seen| seen.endpoints = (outside(seen.endpoints.0), outside(seen.endpoints.1)));
        let [inside, outside] = Sides::of(&first, &second, false);
        assert_eq!((inside.known((1, 2)), inside.known((2, 1))), (Some(Way::Forward), Some(Way::Backward)));
        assert_eq!((outside.known((9, 2)), outside.known((2, 9))), (Some(Way::Forward), Some(Way::Backward)));
    }

    #[test]
    fn with_one_clock_sides_are_found_from_one_direction() {
        let (first, second) = conversation(0, (10_000, 10_000));
        let only = |all: &[Seen]| all.iter().copied().filter(|seen| seen.endpoints == (2, 1)).collect::<Vec<_>>();
        let [sides, _] = Sides::of(&only(&first), &only(&second), true);
        assert_eq!(sides.known((2, 1)), Some(Way::Backward));
        assert_eq!(sides.known((9, 2)), Some(Way::Forward));
        assert_eq!(sides.known((9, 1)), Some(Way::Backward));
        assert_eq!(sides.known((8, 9)), None);
        // With two clocks the sides are unknown.
        assert_eq!(Sides::of(&only(&first), &only(&second), false)[0].known((2, 1)), None);
    }

    #[test]
    fn identical_packets_give_no_clock_offset() {
        let same = |times: &[i64]| {
            times.iter().map(|time| Seen { time: *time, digest: 1, endpoints: (1, 2) }).collect::<Vec<_>>()
        };
        assert_eq!(offset_between(&same(&[1, 2, 3]), &same(&[5, 6, 7])), None);
        assert_eq!(offset_between(&[], &[]), None);
    }

    #[test]
    fn times_at_the_limits_of_the_range_are_compared() {
        let far = (1 << 62) - 1;
        let seen = |time: i64, is_there: bool, count: u64| {
            let endpoints = if is_there { (1, 2) } else { (2, 1) };
            (0..count).map(move |number| Seen { time, digest: number * 2 + u64::from(is_there), endpoints })
        };
        let first: Vec<Seen> = seen(-far, true, 5).chain(seen(far, false, 5)).collect();
        let second: Vec<Seen> = seen(far, true, 5).chain(seen(-far, false, 5)).collect();
        let [sides, _] = Sides::of(&first, &second, false);
        assert_eq!(sides.known((1, 2)), Some(Way::Forward));
        assert!(offset_between(&first, &second).is_some());
    }
}
