//! Generate and count frames in the kernel, for rates that no socket reaches.
//!
//! [`LiveSender`] runs a program that numbers frames, adds timestamps and redirects the frames to a device.
//! [`LiveCounter`] attaches a program to the receiving device that counts them by flow. No frame reaches user space. A
//! veth accepts redirected frames only if its peer uses NAPI: with generic receive offload enabled there (`ethtool -K
//! PEER gro on`), or an XDP program, such as a counter. The header is that of `sojourn_wire::stream`, with kind `Live`.

mod counter;
mod histogram;
mod sender;

pub use counter::{FlowCount, LiveCounter, OtherCount};
pub use histogram::{Histogram, Step};
pub use sender::{LiveSender, LiveSent, LiveStream};
