//! RED (Floyd and Jacobson 1993), optionally gentle (Floyd 2000): drops at random before the queue is full.

use rand::Rng;
use sojourn_time::{Nanos, Time};

use super::store::List;
use super::{Verdict, Waiting};
use crate::config;
use crate::random::Random;

/// Bytes of a typical packet: while idle, the average decays as if packets of this size had been sent (dummynet's value).
const TYPICAL: f64 = 512.0;
/// Bytes of a full Ethernet frame without FCS. In byte mode the drop probability is scaled by the packet's length over this.
const FULL: f64 = 1514.0;
/// Weight of a new gap between departures, if the rate is not known.
const GAP_WEIGHT: f64 = 1.0 / 16.0;

/// The state.
#[derive(Debug)]
pub(super) struct Red {
    parameters: config::Red,
    /// Transmission time of a typical packet, in nanoseconds; measured if there is no constant rate.
    typical: Option<f64>,
    measured: f64,
    average: f64,
    /// Packets since the last drop or mark.
    count: u64,
    idle_since: Option<Time>,
    last_departure: Option<Time>,
}

impl Red {
    pub(super) fn new(parameters: config::Red, rate_bps: Option<u64>) -> Self {
        Self {
            parameters,
            typical: typical(rate_bps),
            measured: 0.0,
            average: 0.0,
            count: 0,
            idle_since: None,
            last_departure: None,
        }
    }

    /// Changes the parameters; the average stays, unless its unit changes.
    pub(super) fn set(&mut self, parameters: config::Red, rate_bps: Option<u64>) {
        if parameters.in_bytes != self.parameters.in_bytes {
            self.average = 0.0;
        }
        self.parameters = parameters;
        self.typical = typical(rate_bps);
    }

    /// Decides on an arriving packet.
    pub(super) fn arrive(&mut self, packet: &Waiting, list: &List, now: Time, random: &mut Random) -> Verdict {
        self.update(list, now);
        let Some(curve) = self.probability() else {
            self.count = 0;
            return Verdict::Take;
        };
        if curve >= 1.0 {
            self.count = 0;
            return Verdict::Lose;
        }
        let scale = if self.parameters.in_bytes { f64::from(packet.bytes) / FULL } else { 1.0 };
        if !self.strikes(curve * scale, random) {
            return Verdict::Take;
        }
        if self.parameters.ecn { Verdict::Mark } else { Verdict::Lose }
    }

    /// Notes a departing packet.
    pub(super) fn depart(&mut self, list: &List, now: Time) {
        if let Some(last) = self.last_departure.replace(now) {
            let gap = (now - last).0 as f64;
            self.measured += if self.measured > 0.0 { GAP_WEIGHT * (gap - self.measured) } else { gap };
        }
        if list.is_empty() {
            self.idle_since = Some(now);
            // The gap after an idle period does not measure the link.
            self.last_departure = None;
        }
    }

    /// Updates the average before the packet is enqueued; after an idle period, it decays first.
    fn update(&mut self, list: &List, now: Time) {
        if let Some(since) = self.idle_since.take() {
            let passed = (now - since).max(Nanos::ZERO).0 as f64;
            let typical = self.typical.unwrap_or(self.measured);
            if typical > 0.0 {
                self.average *= libm::pow(1.0 - self.parameters.weight, passed / typical);
            }
        }
        let length = if self.parameters.in_bytes { list.bytes() } else { list.slots() };
        self.average += self.parameters.weight * (length as f64 - self.average);
    }

    /// Returns the drop probability by the average; `None`: below `min`; 1: all are dropped, ECN-capable or not (RFC 3168 §7).
    fn probability(&self) -> Option<f64> {
        let config::Red { min, max, max_p, gentle, .. } = self.parameters;
        if self.average < min {
            None
        } else if self.average < max {
            Some(max_p * (self.average - min) / (max - min))
        } else if gentle && self.average < 2.0 * max {
            Some(max_p + (1.0 - max_p) * (self.average - max) / max)
        } else {
            Some(1.0)
        }
    }

    /// Spreads drops: with a constant `p`, the distance between drops is uniform on 1 … 1/p.
    fn strikes(&mut self, p: f64, random: &mut Random) -> bool {
        let left = 1.0 - self.count as f64 * p;
        self.count += 1;
        let is_struck = left <= p || random.random::<f64>() * left < p;
        if is_struck {
            self.count = 0;
        }
        is_struck && p > 0.0
    }
}

fn typical(rate_bps: Option<u64>) -> Option<f64> {
    rate_bps.filter(|rate| *rate > 0).map(|rate| TYPICAL * 8e9 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::store::Store;
    use crate::select::Ecn;
    use rand::SeedableRng;

    fn red(rate_bps: Option<u64>) -> Red {
        let (min, max) = (5.0, 15.0);
        let parameters = config::Red { weight: 0.01, min, max, max_p: 0.1, gentle: true, in_bytes: false, ecn: false };
        Red::new(parameters, rate_bps)
    }

    fn packet() -> Waiting {
        Waiting { slot: 0, bytes: 512, since: Time(0), flow: 0, class: 0, ecn: Ecn::NotCapable, is_marked: false }
    }

    #[test]
    fn averages_over_arrivals_and_decays_while_idle() {
        // 4,096 ns is the transmission time of a typical packet at 1 Gbit/s.
        let (mut red, mut random) = (red(Some(1_000_000_000)), Random::seed_from_u64(1));
        let (mut store, mut list) = (Store::default(), List::default());
        (0..4).for_each(|_| store.push(&mut list, packet()));
        let mut average = 0.0;
        for now in 0..50 {
            assert_eq!(red.arrive(&packet(), &list, Time(now), &mut random), Verdict::Take);
            average += 0.01 * (4.0 - average);
            assert!((red.average - average).abs() < 1e-12);
        }
        while store.pop(&mut list).is_some() {
            red.depart(&list, Time(1000));
        }
        red.arrive(&packet(), &list, Time(1000 + 100 * 4096), &mut random);
        let expected = average * 0.99_f64.powi(100) * 0.99;
        assert!((red.average - expected).abs() < 1e-9, "{} {expected}", red.average);
    }

    #[test]
    fn measures_the_packet_time_if_no_rate_is_configured() {
        let (mut red, mut store, mut list) = (red(None), Store::default(), List::default());
        (0..100).for_each(|_| store.push(&mut list, packet()));
        for number in 0..100 {
            store.pop(&mut list);
            red.depart(&list, Time(number * 7_000));
        }
        assert!((red.measured - 7_000.0).abs() < 1e-9, "{}", red.measured);
    }

    #[test]
    fn drop_probability_follows_the_red_curve() {
        let mut red = red(None);
        for (average, gentle, expected) in [
            (4.9, true, None),
            (5.0, true, Some(0.0)),
            (10.0, true, Some(0.05)),
            (15.0, true, Some(0.1)),
            (22.5, true, Some(0.55)),
            (30.0, true, Some(1.0)),
            (15.0, false, Some(1.0)),
        ] {
            (red.average, red.parameters.gentle) = (average, gentle);
            let curve = red.probability();
            assert_eq!(curve.is_some(), expected.is_some());
            assert!((curve.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-12, "{average}: {curve:?}");
        }
    }
}
