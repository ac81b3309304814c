//! Nanoseconds, clocks and waiting.
//!
//! Every time in Sojourn is a [`Time`]: nanoseconds on one clock per host, `CLOCK_TAI`. Code with deadlines uses a
//! [`SteadyClock`], which is not affected when that clock is set. Only this crate reads the host's clocks
//! ([`HostClock`]) and sleeps; all other code takes a [`Clock`] or a [`Time`]. [`pace`] decides when a driver sleeps.
//! It does not convert between the clocks of two hosts.

mod classes;
mod host;
pub mod near;
pub mod pace;
mod simulated;
mod steady;
pub mod text;

pub use classes::classes;
pub use host::{HostClock, Reading, TaiOffset};
pub use pace::{Next, Pace, Pacer, Rests, Seconds, Wait, Watch};
pub use simulated::SimulatedClock;
pub use steady::{Ahead, SteadyClock, monotonic_offset};

use std::ops::{Add, AddAssign, Neg, Sub};

use serde::{Deserialize, Serialize};

/// A signed span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Zero.
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

/// The source of a timestamp, best first: a stage of the latency breakdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The network interface.
    Hardware,
    /// The kernel: in the driver when sending, in the receive path when receiving.
    Kernel,
    /// This program, next to its system call.
    User,
    /// A simulation, which is exact.
    Simulated,
    /// A tap's BPF program: at ingress of the stack, or before the queueing discipline at egress.
    Bpf,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 5] = [Self::Hardware, Self::Kernel, Self::User, Self::Simulated, Self::Bpf];

    /// Returns the name used in records.
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

/// A timestamp and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The time.
    pub at: Time,
    /// The source.
    pub source: Source,
}

/// A clock that can be read and waited for.
pub trait Clock {
    /// Returns the present time.
    fn now(&self) -> Time;

    /// Waits until `deadline`: sleeps until `spin` before it, then spins. Returns the time when it stopped. That is
    /// before the deadline only if the clock was set back meanwhile: an imminent deadline must not become a wait of
    /// hours.
    fn wait_until(&self, deadline: Time, spin: Nanos) -> Time;

    /// Returns this clock minus one that is slewed equally but never set: a change is a step.
    fn monotonic_offset(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Returns `CLOCK_TAI` minus this clock, which is never set: a change is a step of `CLOCK_TAI`.
    fn tai_ahead(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Returns the CPU time of this thread; the elapsed time where that is unknown.
    fn thread_time(&self) -> Nanos {
        self.now() - Time(0)
    }
}
