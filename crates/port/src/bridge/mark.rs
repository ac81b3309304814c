//! The mark of an emulator at an interface: a packet socket that is bound to it under a protocol that no frame has.
//!
//! It hears nothing. Who has CAP_NET_RAW in the network namespace can set one, and everybody there sees it. Decides nothing: what
//! comes of another's mark is for who asks.

use std::fs;
use std::io;

use crate::kernel::Socket;
use crate::packet::{bind, open};
use crate::{PortError, Stamps};

/// No frame has it: what the kernel takes from a frame is at least 0x0600, and what it makes up (`if_ether.h`) is less than 0x0100.
const PROTOCOL: u16 = 0x05F7;
/// All packet sockets of this thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/packet";

/// A mark of this process.
#[derive(Debug)]
pub struct Mark {
    socket: Socket,
}

/// Somebody else's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Whose it is, as this user namespace has it.
    pub user: u32,
    /// The process that holds it, where we may see that.
    pub process: Option<u32>,
}

/// A line of [`SOCKETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    protocol: u16,
    index: u32,
    user: u32,
    inode: u64,
}

impl Mark {
    /// Sets one; `None` without CAP_NET_RAW.
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

    /// Returns a mark of an interface that is not ours.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn other(index: u32, ours: Option<&Self>) -> io::Result<Option<Other>> {
        let own = ours.map(|mark| Ok::<_, io::Error>(rustix::fs::fstat(&mark.socket)?.st_ino)).transpose()?;
        let text = fs::read_to_string(SOCKETS)?;
        let marks = text.lines().filter_map(line).filter(|one| (one.protocol, one.index) == (PROTOCOL, index));
        let other = marks.into_iter().find(|one| Some(one.inode) != own);
        Ok(other.map(|one| Other { user: one.user, process: holder(one.inode) }))
    }
}

/// Reads a line; `None` of the heading.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, _, _, protocol, index, _, _, user, inode] = words[..] else { return None };
    Some(Line {
        protocol: u16::from_str_radix(protocol, 16).ok()?,
        index: index.parse().ok()?,
        user: user.parse().ok()?,
        inode: inode.parse().ok()?,
    })
}

/// Looks for the process that holds a socket, among those whose descriptors we may see.
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
    fn lines_of_the_kernel_are_read_and_others_are_not() {
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
