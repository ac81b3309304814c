//! The offset of another host's clock to ours, and its uncertainty.
//!
//! Input are [`Exchange`]s, output are [`Line`]s. An exchange bounds the offset without any assumption: the remote
//! clock minus ours is at most `t2 - t1`, because no request arrives before it left, and at least `t3 - t4`, for the
//! same reason. These bounds give the *maximum error*, which assumes nothing but [`Limits`] on the skew and drift of a
//! free-running clock and on the rate at which a clock is slewed. The difference between the minimum delays of the two
//! directions cannot be measured by exchanges: only the *95 % error* depends on it, and assumes a limit on it.
//!
//! Pure: this crate sends nothing, reads no clock, and adjusts none.

mod doubt;
mod estimate;
mod estimator;
mod exchange;
mod fit;
mod hull;
mod piece;
pub mod simulate;
mod steps;

pub use estimate::{Converted, Estimate, Finding, Found, Line, Step};
pub use estimator::{Estimator, Limits, Unsynchronised};
pub use exchange::{Exchange, Sources};
