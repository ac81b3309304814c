//! Memory that programs in the kernel write while we read it.

mod sys;

pub use sys::{Numbers, Records};
