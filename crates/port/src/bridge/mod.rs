//! Two ports that a bridge in user space stands between: all frames of an interface in and out, whatever they carry.
//!
//! What [`BridgePort::receive`] shows is what a wire would carry: checksums are complete, super-frames are split, VLAN
//! tags are where they belong. Hides how: AF_XDP (`Means::Xdp`), where frames never reach the kernel's stack, or
//! AF_PACKET (`Means::Packet`), where the stack sees copies of them; where nobody wants to see any frame, programs in the kernel
//! send them on. Does not know what a bridge does with frames.
//!
//! Everything ends with the value or with the process, however it ends: programs hang on links, nothing is pinned. A
//! [`Watch`] looks after ports while they are bridged, and tells them what becomes of them.

#[cfg(feature = "bpf")]
mod claim;
#[cfg(feature = "bpf")]
mod detour;
#[cfg(feature = "bpf")]
mod lock;
#[cfg(feature = "bpf")]
mod mark;
#[cfg(feature = "bpf")]
mod neighbours;
#[cfg(feature = "bpf")]
mod open;
#[cfg(feature = "bpf")]
mod packet;
#[cfg(feature = "bpf")]
mod redirect;
#[cfg(feature = "bpf")]
mod straight;
#[cfg(feature = "bpf")]
mod watch;
#[cfg(feature = "bpf")]
mod xdp;

#[cfg(feature = "bpf")]
pub use claim::reserve;
#[cfg(feature = "bpf")]
pub use detour::Detour;
#[cfg(feature = "bpf")]
pub use lock::{Lock, lock_folder, network_namespace};
#[cfg(feature = "bpf")]
pub use open::{How, Means, Opened, Wanted, open};
#[cfg(feature = "bpf")]
pub use watch::{Guard, Watch};

use std::os::fd::BorrowedFd;

use crate::{PortError, Received};

/// Frames that came in at a port and went to the other one within the kernel, since both were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames that came in.
    pub received: u64,
    /// Those of them that the other port began to send.
    pub sent: u64,
}

impl Passed {
    /// Frames that the other port did not take: it was down, or they were too long for it.
    pub fn lost(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// One side of a bridge.
pub trait BridgePort {
    /// Shows each frame that is there, `most` at most, oldest first, and returns how many. Never blocks; 0 while the
    /// interface is down. A super-frame shows as several, and may so exceed `most`.
    ///
    /// # Errors
    /// `TakenAway` when the interface cannot be bridged any more; else when the kernel refuses.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError>;

    /// Puts a copy of a frame where [`Self::flush`] sends it from. `false`: there is no room now (or the interface is
    /// down, or the frame is longer than [`Self::longest`], which never has room).
    ///
    /// # Errors
    /// When the kernel refuses.
    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError>;

    /// Makes the kernel send what was put. Returns when it has taken all that it takes now.
    ///
    /// # Errors
    /// `TakenAway` when the interface cannot be bridged any more; else when the kernel refuses.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Becomes readable when a frame can be received. That an interface has vanished wakes nobody who waits for it: look by
    /// [`Self::receive`] or [`Self::news`] now and then.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Says by what means of the kernel frames move: "AF_XDP copy, native XDP".
    fn engine(&self) -> &str;

    /// Counts the frames that were lost here since the port was opened: for want of room in a ring or a buffer, or
    /// because the far end of a veth had no room for one that was sent.
    fn local_drops(&mut self) -> u64;

    /// Whether [`Self::receive`] will ever show a frame.
    fn shows_frames(&self) -> bool {
        true
    }

    /// Counts the frames that came in here and that [`Self::receive`] never shows.
    fn passed(&self) -> Passed {
        Passed::default()
    }

    /// Returns the longest frame that it carries, without FCS.
    fn longest(&self) -> usize;

    /// Returns the interface's name.
    fn name(&self) -> &str;

    /// Takes what a person should know that has come up since it was opened or asked last, a sentence.
    ///
    /// # Errors
    /// `TakenAway` when the interface cannot be bridged any more.
    fn news(&mut self) -> Result<Option<String>, PortError> {
        Ok(None)
    }

    /// Returns what a watch is to look after; none where nothing can happen to it.
    #[cfg(feature = "bpf")]
    fn guard(&self) -> Option<Guard> {
        None
    }
}
