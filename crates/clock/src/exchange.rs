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

/// By how much stamps in software move with what the processor did before, in one direction and not the other: up to 0.25 us
/// was seen between ends that share one clock (`tests/net/test_stream_clocks.py`).
const SOFTWARE_NS: f64 = 500.0;

/// Returns below which size a move of one direction's delays tells neither of clocks nor of the path.
pub(crate) fn unsteady_ns(exchanges: &[Exchange]) -> f64 {
    let worst = exchanges.iter().map(|exchange| exchange.sources.local.max(exchange.sources.remote)).max();
    if matches!(worst, Some(Source::Kernel | Source::User)) { SOFTWARE_NS } else { 0.0 }
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
