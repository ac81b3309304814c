//! Frames that the kernel makes and the kernel counts, for rates that no socket reaches.
//!
//! [`LiveSender`] runs a program that numbers and stamps frames and redirects them to a device; [`LiveCounter`] hangs one on
//! the device where they arrive, which counts them flow by flow. Frame by frame nothing comes to user space. A veth takes
//! redirected frames only where its other end has NAPI of its own: generic receive offload switched on there (`ethtool -K
//! PEER gro on`), or an XDP program, as a counter is. The header is that of `sojourn_wire::stream`, its kind `Live`.

mod counter;
mod histogram;
mod sender;

pub use counter::{FlowCount, LiveCounter, OtherCount};
pub use histogram::{Histogram, Step};
pub use sender::{LiveSender, LiveSent, LiveStream};
