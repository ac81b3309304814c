//! A request and its reply, with four timestamps.

use serde::{Deserialize, Serialize};
use sojourn_time::{Nanos, Source, Time};

/// A request and its reply. `t1` and `t4` are on our clock, `t2` and `t3` on the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Departure of the request, on our clock.
    pub t1: Time,
    /// Arrival of the request, on the remote clock.
    pub t2: Time,
    /// Departure of the reply, on the remote clock.
    pub t3: Time,
    /// Arrival of the reply, on our clock.
    pub t4: Time,
    /// The sources of these timestamps.
    pub sources: Sources,
}

/// The sources of timestamps: the less accurate one of each end's two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// Our end.
    pub local: Source,
    /// The remote end, as far as it reports it; otherwise [`Source::User`].
    pub remote: Source,
}

/// Variation of software timestamps with previous CPU activity, in one direction only: up to 0.25 µs was
/// seen between ends that share one clock (`tests/net/test_stream_clocks.py`).
const SOFTWARE_NS: f64 = 500.0;

/// Returns the size up to which a change of one direction's delays is not evidence of a change of clocks or path.
pub(crate) fn unsteady_ns(exchanges: &[Exchange]) -> f64 {
    let worst = exchanges.iter().map(|exchange| exchange.sources.local.max(exchange.sources.remote)).max();
    if matches!(worst, Some(Source::Kernel | Source::User)) { SOFTWARE_NS } else { 0.0 }
}

impl Exchange {
    /// Returns the round-trip time, without the remote host's processing time.
    pub fn round_trip(&self) -> Nanos {
        (self.t4 - self.t1) - (self.t3 - self.t2)
    }

    /// Returns the upper bound of the offset, from the request.
    pub fn most(&self) -> Nanos {
        self.t2 - self.t1
    }

    /// Returns the lower bound of the offset, from the reply.
    pub fn least(&self) -> Nanos {
        self.t3 - self.t4
    }
}
