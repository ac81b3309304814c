//! Match the packets of two taps: compute each packet's delay, and detect loss, duplication and reordering.
//!
//! A [`Matcher`] takes the packets of both taps in order of time, and reports each packet's outcome once it is final.
//! Packets are identified by their digests. Packets with equal digests are matched in order, each at most once, and are
//! marked as ambiguous, because another pairing was possible. Memory is bounded for any input.
//!
//! Pure: it opens nothing and reads no clock.

mod arrivals;
mod direction;
mod matcher;
mod offset;
pub mod sample;
mod sides;
mod slice;
mod table;

pub use arrivals::Reordering;
pub use direction::{Counts, Limits};
pub use matcher::{Matcher, Observed, Outcome, Tap, Way};
pub use offset::offset_between;
pub use sides::{Seen, Sides};
pub use slice::{Arrival, Ends, Slice};
