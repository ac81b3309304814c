//! By how much another host's clock differs from ours, and how sure that is.
//!
//! [`Exchange`]s in, [`Line`]s out. An exchange shows two things without any assumption: the offset of the remote clock is
//! at most `t2 - t1`, for no request arrives before it left, and at least `t3 - t4`, for no reply does. What lies between
//! is the *maximum error*; it needs nothing but [`Limits`] on how fast a clock runs away by itself, and while it
//! is slewed. By how much the least delays of
//! the two directions differ cannot be seen in any exchange: the *95 % error* assumes a limit on it, and it alone does.
//!
//! Pure: it sends nothing, reads no clock, and steers none.

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
