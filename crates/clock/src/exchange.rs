//! A request and its reply, with the four times.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Source, Time};

/// A request and its reply. `t1` and `t4` are on our clock, `t2` and `t3` on the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// When the request left us.
    pub t1: Time,
    /// When it reached the remote host.
    pub t2: Time,
    /// When the reply left the remote host.
    pub t3: Time,
    /// When it reached us.
    pub t4: Time,
    /// Who took these times.
    pub sources: Sources,
}

/// Who took the times at either end: the worse of each end's two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// At ours.
    pub local: Source,
    /// At the remote one; as far as it says so, and [`Source::User`] where it does not.
    pub remote: Source,
}

impl Exchange {
    /// Returns how long both ways took together, without the remote host's part.
    pub fn round_trip(&self) -> Nanos {
        (self.t4 - self.t1) - (self.t3 - self.t2)
    }

    /// Returns the most by which the remote clock can have been ahead at `t2`.
    pub fn most(&self) -> Nanos {
        self.t2 - self.t1
    }

    /// Returns the least by which the remote clock can have been ahead at `t3`.
    pub fn least(&self) -> Nanos {
        self.t3 - self.t4
    }
}
