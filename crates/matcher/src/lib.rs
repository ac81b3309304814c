//! Packets of two taps brought together: each packet's delay, and what was lost, duplicated, reordered.
//!
//! A [`Matcher`] takes what both taps saw, in the order of their times, and says of each packet what became of it once nothing
//! can change that any more. Packets are known by their digests. Those that are alike are matched in order and never twice, and
//! are called ambiguous: another pairing was possible. Memory is bounded, whatever comes.
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
