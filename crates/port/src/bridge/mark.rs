//! The mark of an emulator on an interface: a packet socket bound to it under a protocol that no frame has.
//!
//! It receives nothing. A process with CAP_NET_RAW in the network namespace can set one, and every process there sees
//! it. Makes no decision: the caller decides what another's mark means.

use std::fs;
use std::io;

use crate::kernel::Socket;
use crate::packet::{bind, open};
use crate::{PortError, Stamps};

/// No frame has it: EtherTypes of frames are at least 0x0600, and the kernel's own (`if_ether.h`) are less than 0x0100.
const PROTOCOL: u16 = 0x05F7;
/// Lists all packet sockets of this thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/packet";

/// A mark of this process.
#[derive(Debug)]
pub struct Mark {
    socket: Socket,
}

/// A mark of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// The socket's user ID, in this user namespace.
    pub user: u32,
    /// The PID of its holder, where it is visible.
    pub process: Option<u32>,
}

/// A line of [`SOCKETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    protocol: u16,
    index: u32,
    user: u32,
    inode: u64,
}

impl Mark {
    /// Sets a mark; `None` without CAP_NET_RAW.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn set(index: u32) -> Result<Option<Self>, PortError> {
        let socket = match open("the mark of an emulator", None, Stamps::None) {
            Err(PortError::Denied { .. }) => return Ok(None),
            socket => socket?,
        };
        bind(&socket, index, PROTOCOL)?;
        Ok(Some(Self { socket }))
    }

    /// Returns another process's mark on an interface, if there is one.
    ///
    /// # Errors
    /// When the kernel does not list the sockets.
    pub fn other(index: u32, ours: Option<&Self>) -> io::Result<Option<Other>> {
        let own = ours.map(|mark| Ok::<_, io::Error>(rustix::fs::fstat(&mark.socket)?.st_ino)).transpose()?;
        let text = fs::read_to_string(SOCKETS)?;
        let marks = text.lines().filter_map(line).filter(|one| (one.protocol, one.index) == (PROTOCOL, index));
        let other = marks.into_iter().find(|one| Some(one.inode) != own);
        Ok(other.map(|one| Other { user: one.user, process: holder(one.inode) }))
    }
}

/// Parses a line; `None` for the heading.
pub(crate) fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, _, _, protocol, index, _, _, user, inode] = words[..] else { return None };
    Some(Line {
        protocol: u16::from_str_radix(protocol, 16).ok()?,
        index: index.parse().ok()?,
        user: user.parse().ok()?,
        inode: inode.parse().ok()?,
    })
}

/// Searches for the process that holds a socket, among those whose descriptors are visible.
fn holder(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let numbers = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|process: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        descriptors
            .into_iter()
            .any(|one| fs::read_link(one.path()).is_ok_and(|leads| leads.as_os_str() == wanted.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_in_the_format_of_the_kernel_are_parsed() {
        let heading = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode";
        let socket = "0000000000000000 3      3    05f7   11    1 0      64001  52134 ";
        assert_eq!(line(heading), None);
        assert_eq!(line(socket), Some(Line { protocol: 0x05F7, index: 11, user: 64_001, inode: 52_134 }));
        for damaged in
            ["", "0 3 3 zz 11 1 0 0 5", "0 3 3 05f7 11 1 0 0", "0 3 3 05f7 11 1 0 -1 5", "0 3 3 05f7 11 1 0 0 5 6"]
        {
            assert_eq!(line(damaged), None, "{damaged}");
        }
    }
}
