//! The link: the time that each packet takes on it, in integer arithmetic whose remainders are carried over.
//!
//! A packet leaves at max(its arrival, departure of the previous packet) + bits / rate. This is exact; it is rounded
//! down to a nanosecond only when returned. The link knows nothing of queues: it computes when a packet put on it now
//! will have left.

mod opportunities;
mod rates;

use rand::Rng;
use sojourn_time::{Nanos, Time};

use crate::config::{self, Cell, Profile};
use crate::random::{Origin, Random};

use opportunities::Opportunities;
use rates::Rates;

/// A bit in nanobits: a nanobit is what 1 bit/s carries in a nanosecond.
const NANOBITS: u64 = 1_000_000_000;
/// Ethernet's header, which mahimahi's opportunities do not count.
const ETHERNET: i64 = 14;

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    overhead: i64,
    cell: Option<Cell>,
    /// Token bucket size, in nanobits.
    burst: u128,
    credit: u128,
    profile: Option<Profile>,
    random: Random,
    rates: Rates,
    opportunities: Option<Opportunities>,
    /// When the last packet left, rounded down, and the remainder of its work in nanobits.
    free_at: Time,
    debt: u128,
}

/// A packet on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ride {
    /// When it leaves the link; [`Time::NEVER`] while that is unknown, as with opportunities.
    pub done: Time,
    /// Whether it is lost when it leaves.
    pub is_lost: bool,
    /// Whether its departure was announced to the stages after the link.
    pub is_told: bool,
    /// When it was put on the link, or when its parameters last changed.
    pub since: Time,
    /// Remaining work at that time, in nanobits.
    left: u128,
    /// Extra time for medium access.
    extra: Nanos,
    debt: u128,
}

impl Link {
    /// Makes an idle link; traces and outages begin at `start`.
    pub fn new(link: &config::Link, start: Time, origin: Origin<'_>) -> Self {
        Self {
            overhead: i64::from(link.overhead_bytes),
            cell: link.cell,
            burst: u128::from(link.burst_bytes) * 8 * u128::from(NANOBITS),
            credit: 0,
            profile: link.profile.clone().filter(|profile| !profile.samples.is_empty()),
            random: origin.stream("link/profile"),
            rates: Rates::new(link, start),
            opportunities: Opportunities::of(link, start),
            free_at: start,
            debt: 0,
        }
    }

    /// Changes the parameters at `now`; a packet on the link continues with the new ones.
    pub fn set(&mut self, link: &config::Link, start: Time, now: Time, ride: Option<&mut Ride>) {
        if let Some(ride) = ride {
            self.hold(ride, now);
            self.change(link, start, now);
            self.resume(ride, now);
        } else {
            self.change(link, start, now);
        }
    }

    /// Returns whether packets never take time on the link.
    pub fn is_instant(&self) -> bool {
        self.opportunities.is_none() && self.profile.is_none() && self.rates.is_instant()
    }

    /// Returns whether the link sends by opportunities.
    pub fn has_opportunities(&self) -> bool {
        self.opportunities.is_some()
    }

    /// Returns the delay and the loss that a trace gives at a time.
    pub fn traced(&self, at: Time) -> (Option<Nanos>, Option<f64>) {
        self.rates.point(at).map_or((None, None), |point| (point.delay, point.loss))
    }

    /// Puts a packet on the idle link.
    pub fn begin(&mut self, bytes: u32, now: Time) -> Ride {
        let (extra, is_lost) = self.access();
        let work = u128::from(self.bits(bytes)) * u128::from(NANOBITS);
        let mut ride = Ride { done: Time::NEVER, is_lost, is_told: false, since: now, left: work, extra, debt: 0 };
        if self.opportunities.is_none() {
            self.rest(now);
            let work = work + self.debt;
            let paid = self.credit.min(work);
            self.credit -= paid;
            ride.left = work - paid;
            self.resume(&mut ride, now);
        }
        ride
    }

    /// Returns the time of the next opportunity, if the link has any.
    pub fn next_opportunity(&self) -> Time {
        let next = self.opportunities.as_ref().map_or(Time::NEVER, Opportunities::next);
        if self.rates.is_over(next) { Time::NEVER } else { next }
    }

    /// Discards the opportunities that are not after `now`.
    pub fn pass_opportunities(&mut self, now: Time) {
        if let Some(opportunities) = &mut self.opportunities {
            opportunities.pass(now);
        }
    }

    /// Uses the next opportunity; returns how many bytes it carries.
    pub fn use_opportunity(&mut self) -> u32 {
        let Some(opportunities) = &mut self.opportunities else { return 0 };
        let at = opportunities.next();
        opportunities.use_one();
        if self.rates.is_out(at) { 0 } else { opportunities::BYTES }
    }

    /// Carries up to `bytes` bytes of a packet; returns how many bytes are left over if the packet is complete.
    pub fn carry(&self, ride: &mut Ride, bytes: u32) -> Option<u32> {
        let bit = u128::from(NANOBITS) * 8;
        let needed = ride.left.div_ceil(bit);
        let used = needed.min(u128::from(bytes));
        ride.left -= (used * bit).min(ride.left);
        (ride.left == 0).then_some(bytes - used as u32)
    }

    /// Returns the bits that a frame takes on the link.
    fn bits(&self, bytes: u32) -> u64 {
        let counted = if self.opportunities.is_some() { i64::from(bytes) - ETHERNET } else { i64::from(bytes) };
        let bytes = (counted + self.overhead).max(0) as u64;
        let on_link = match self.cell {
            Some(cell) => {
                let cells = bytes.div_ceil(u64::from(cell.bytes.max(1)));
                cells * (u64::from(cell.bytes) + u64::from(cell.overhead_bytes))
            }
            None => bytes,
        };
        on_link * 8
    }

    /// Draws the extra time for medium access, and whether the packet is lost at its end.
    fn access(&mut self) -> (Nanos, bool) {
        let Some(profile) = &self.profile else { return (Nanos::ZERO, false) };
        let samples = profile.samples.len();
        let index = self.random.random_range(0..samples);
        let level = (profile.loss_level * samples as f64).round();
        (profile.samples[index], index as f64 >= level)
    }

    /// Adds credit for idle time, less the remainder of the last packet.
    fn rest(&mut self, now: Time) {
        if now <= self.free_at {
            return;
        }
        if self.burst > 0 {
            let earned = self.rates.carried(self.free_at, now, self.burst.saturating_add(self.debt));
            self.credit = self.burst.min(self.credit + earned.saturating_sub(self.debt));
        }
        self.debt = 0;
        self.free_at = now;
    }

    /// Computes when a packet leaves.
    fn resume(&mut self, ride: &mut Ride, now: Time) {
        ride.since = now;
        if self.opportunities.is_some() {
            (ride.done, self.free_at) = (Time::NEVER, now);
            return;
        }
        let (through, debt) = self.rates.finish(now, ride.left);
        ride.done = through + ride.extra;
        ride.debt = debt;
        (self.free_at, self.debt) = (ride.done, debt);
    }

    /// Computes the remaining work of a packet.
    fn hold(&mut self, ride: &mut Ride, now: Time) {
        if self.opportunities.is_some() {
            return;
        }
        let (through, _) = self.rates.finish(ride.since, ride.left);
        if now < through {
            ride.left -= self.rates.carried(ride.since, now, ride.left);
        } else {
            ride.left = ride.debt;
            ride.extra = ride.done - now;
        }
    }

    fn change(&mut self, link: &config::Link, start: Time, now: Time) {
        if self.opportunities.is_some() {
            // Later than `now` if a packet sent at the previous rate still occupies the link.
            (self.free_at, self.debt) = (self.free_at.max(now), 0);
        }
        self.rest(now);
        self.overhead = i64::from(link.overhead_bytes);
        self.cell = link.cell;
        self.burst = u128::from(link.burst_bytes) * 8 * u128::from(NANOBITS);
        self.credit = self.credit.min(self.burst);
        self.profile = link.profile.clone().filter(|profile| !profile.samples.is_empty());
        self.rates = Rates::new(link, start);
        self.opportunities = Opportunities::of(link, start);
        self.pass_opportunities(now);
    }
}
