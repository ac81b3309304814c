//! What all backends over kernel sockets have in common.
//!
//! [`Socket`] sends, receives, stamps and waits; [`Interface`] is what the kernel says of a network interface. The rest is
//! the spelling of system calls (`sys`, the one place of this crate with unsafe code), names and control messages.

mod control;
mod hardware;
mod interface;
mod name;
mod socket;
mod sys;

pub use control::Local;
pub use interface::{HardwareStamping, Interface};
pub use name::Name;

pub(crate) use socket::{Arrival, Opening, Socket};
pub(crate) use sys::FilterStep;

use crate::PortError;

/// The error of a socket that wants CAP_NET_RAW; `other_way` is a command that does without it.
pub(crate) fn denied_raw(operation: &'static str, object: &str, other_way: Option<&str>) -> PortError {
    let program = std::env::current_exe().map_or_else(|_| "the program".to_owned(), |path| path.display().to_string());
    let mut mend = format!("run it as root, or once `sudo setcap cap_net_raw+ep {program}`");
    if let Some(other_way) = other_way {
        mend.push_str(", or ");
        mend.push_str(other_way);
    }
    PortError::Denied { operation, object: object.to_owned(), right: "CAP_NET_RAW", mend }
}
