//! The common part of all backends over kernel sockets.
//!
//! [`Socket`] sends, receives, timestamps and waits; [`Interface`] holds the properties of a network interface. The
//! rest is system calls (`sys`, which holds unsafe code), socket names and control messages.

mod control;
mod ethtool;
mod hardware;
mod inbox;
mod interface;
mod name;
mod netlink;
mod qdisc;
mod socket;
mod sys;

#[cfg(feature = "bpf")]
pub(crate) use ethtool::reply as ethtool_reply;
#[cfg(feature = "bpf")]
pub(crate) use netlink::reply as netlink_reply;

pub use control::{Control, Local, write_traffic_class};
pub use ethtool::{About, Answer, Ethtool, Feature, Number};
pub use hardware::{HardwareClock, open_clocks};
pub use inbox::Inbox;
pub use interface::{Counters, HardwareStamping, Interface};
pub use name::{Link, Name};
pub use netlink::{LinkState, Netlink, Said};
pub use qdisc::Qdisc;
pub use socket::{Arrival, Opening, Socket, mark};
pub use sys::FilterStep;

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sojourn_rights::{Right, for_a_group};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use crate::PortError;

/// Tries to open a socket of this family, type and protocol.
///
/// # Errors
/// When it does not.
pub fn try_socket([family, kind, protocol]: [i32; 3]) -> std::io::Result<()> {
    sys::socket(family, kind, protocol).map(drop)
}

/// Lists the interfaces of this network namespace.
///
/// # Errors
/// When the kernel refuses, or an interface disappears meanwhile.
pub fn interfaces() -> Result<Vec<Interface>, PortError> {
    let names = sys::interface_names().map_err(|source| PortError::System {
        operation: "list",
        object: "interfaces".to_owned(),
        source,
    })?;
    names.iter().map(|name| Interface::named(name)).collect()
}

/// The most descriptors that [`wait_for_any`] polls.
const MOST_WAITED_FOR: usize = 8;

/// Sleeps until one of `descriptors` (8 at most, or none) is readable, a signal arrives, or `longest` has passed.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn wait_for_any<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>, longest: Nanos) -> Result<(), PortError> {
    let descriptors = descriptors.take(MOST_WAITED_FOR);
    let mut polled: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timespec(longest))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => {
            Err(PortError::System { operation: "wait for", object: "requests".to_owned(), source: error.into() })
        }
    }
}

/// Sleeps until a descriptor is readable or until `deadline`.
pub(crate) fn wait_until_readable(descriptor: BorrowedFd<'_>, deadline: Time) -> std::io::Result<()> {
    let left = deadline - HostClock.now();
    if left <= Nanos::ZERO {
        return Ok(());
    }
    match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timespec(left))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(span: Nanos) -> Timespec {
    Timespec { tv_sec: span.0 / 1_000_000_000, tv_nsec: span.0 % 1_000_000_000 }
}

/// The error of a socket that needs CAP_NET_RAW; `other_way` is a command that works without it.
pub fn denied_raw(operation: &'static str, object: &str, other_way: Option<&str>) -> PortError {
    let mut fix = format!("run it as root, or {}", for_a_group(&[Right::NetRaw]));
    if let Some(other_way) = other_way {
        fix.push_str(", or ");
        fix.push_str(other_way);
    }
    PortError::Denied { operation, object: object.to_owned(), right: "CAP_NET_RAW", fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_no_descriptor_sleeps() {
        let start = HostClock.now();
        wait_for_any(std::iter::empty(), Nanos::millis(5)).expect("waits");
        assert!(HostClock.now() - start >= Nanos::millis(4));
    }
}
