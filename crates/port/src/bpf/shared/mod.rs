//! Shared memory of BPF maps, which programs in the kernel write while this process reads it.

mod sys;

pub use sys::{Numbers, Records};
