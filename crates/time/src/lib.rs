//! Nanoseconds, clocks and waiting.
//!
//! Every time in Sojourn is a [`Time`]: nanoseconds on one clock a host, `CLOCK_TAI`; what has deadlines to keep whoever sets
//! that takes a [`SteadyClock`]. This crate alone reads the host's clocks ([`HostClock`]) and alone sleeps; everything else
//! takes a [`Clock`] or a [`Time`]. [`pace`] decides when a driver sleeps. It does not convert between the clocks of two hosts.

mod classes;
mod host;
pub mod near;
pub mod pace;
mod simulated;
mod steady;
pub mod text;

pub use classes::classes;
pub use host::{HostClock, Reading, TaiOffset};
pub use pace::{Next, Pace, Pacer, Wait, Watch};
pub use simulated::SimulatedClock;
pub use steady::{Ahead, SteadyClock};

use std::ops::{Add, AddAssign, Neg, Sub};

use serde::{Deserialize, Serialize};

/// A signed span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Returns `n` microseconds.
    pub const fn micros(n: i64) -> Self {
        Self(n * 1_000)
    }

    /// Returns `n` milliseconds.
    pub const fn millis(n: i64) -> Self {
        Self(n * 1_000_000)
    }

    /// Returns `n` seconds.
    pub const fn seconds(n: i64) -> Self {
        Self(n * 1_000_000_000)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Nanos {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

/// An instant: nanoseconds on `CLOCK_TAI`, or since the start of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// Later than every deadline.
    pub const NEVER: Self = Self(i64::MAX);
}

impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for Time {
    type Output = Self;
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Sub for Time {
    type Output = Nanos;
    fn sub(self, other: Self) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

/// Where a timestamp was taken, best first: the stages of the latency breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// By the network interface.
    Hardware,
    /// By the kernel: the driver on the way out, the receive path on the way in.
    Kernel,
    /// By this program, beside its system call.
    User,
    /// By a simulation, where it is exact.
    Simulated,
    /// By a tap's program in the kernel: where frames enter the stack, and before the queueing discipline on the way out.
    Bpf,
}

impl Source {
    /// All.
    pub const ALL: [Self; 5] = [Self::Hardware, Self::Kernel, Self::User, Self::Simulated, Self::Bpf];

    /// Returns the name that records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Kernel => "kernel",
            Self::User => "user",
            Self::Simulated => "simulated",
            Self::Bpf => "bpf",
        }
    }
}

/// A time and where it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When.
    pub at: Time,
    /// By whom.
    pub source: Source,
}

/// Something that tells the time and can wait for it.
pub trait Clock {
    /// Returns the present time.
    fn now(&self) -> Time;

    /// Waits until `deadline`: sleeps until `spin` before it, then spins. Returns the time at which it stopped, which is
    /// before the deadline only when the clock was set back meanwhile: nobody waits hours for what was due at once.
    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time;

    /// Returns by how much this clock is ahead of one that is slewed as it is but never set: a change is a step.
    fn monotonic_offset(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Returns by how much `CLOCK_TAI` is ahead of this clock, which nobody sets: a change is a step of that.
    fn tai_ahead(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Returns how much processor time this thread has taken; where nobody knows, as much as time has passed.
    fn thread_time(&self) -> Nanos {
        self.now() - Time(0)
    }
}
