//! Two ports with a bridge in user space between them: all frames of an interface in and out, of any protocol.
//!
//! [`BridgePort::receive`] yields frames as on a wire: checksums are complete, super-frames are segmented, VLAN tags
//! are in place. Hides the I/O backend: AF_XDP (`Means::Xdp`), where frames never reach the kernel's stack, or
//! AF_PACKET (`Means::Packet`), where the stack gets copies of them; where the bridge needs to see no frame, BPF
//! programs forward them in the kernel. Does not know what a bridge does with frames.
//!
//! Everything ends with the value or with the process, however it ends: programs are attached by BPF links, nothing is
//! pinned. A [`Watch`] monitors ports while they are bridged, and reports changes to them.

#[cfg(feature = "bpf")]
mod claim;
#[cfg(feature = "bpf")]
mod detour;
#[cfg(feature = "bpf")]
pub(crate) mod lock;
#[cfg(feature = "bpf")]
pub(crate) mod mark;
#[cfg(feature = "bpf")]
mod neighbours;
#[cfg(feature = "bpf")]
mod open;
#[cfg(feature = "bpf")]
pub(crate) mod packet;
#[cfg(feature = "bpf")]
mod redirect;
#[cfg(feature = "bpf")]
mod straight;
#[cfg(feature = "bpf")]
mod watch;
#[cfg(feature = "bpf")]
pub(crate) mod xdp;

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

/// Frames that the kernel forwarded from one port to the other since both were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames received.
    pub received: u64,
    /// Frames that the other port started to send.
    pub sent: u64,
}

impl Passed {
    /// Frames that the other port did not accept: it was down, or they exceeded its MTU.
    pub fn lost(&self) -> u64 {
        self.received.saturating_sub(self.sent)
    }
}

/// One side of a bridge.
pub trait BridgePort {
    /// Passes the waiting frames, at most `most`, oldest first, to `each`, and returns how many. Never blocks; 0 while
    /// the interface is down. A super-frame yields several frames, which may exceed `most`.
    ///
    /// # Errors
    /// `TakenAway` when the interface can no longer be bridged; else when the kernel refuses.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError>;

    /// Queues a copy of a frame for [`Self::flush`]. `false`: there is no room now (or the interface is down, or the
    /// frame is longer than [`Self::longest`] and never fits).
    ///
    /// # Errors
    /// When the kernel refuses.
    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError>;

    /// Makes the kernel send the queued frames. Returns when it has accepted all that it accepts now.
    ///
    /// # Errors
    /// `TakenAway` when the interface can no longer be bridged; else when the kernel refuses.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Becomes readable when a frame can be received. It does not when the interface disappears: call [`Self::receive`]
    /// or [`Self::news`] at intervals.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Names the I/O backend: "AF_XDP copy, native XDP".
    fn engine(&self) -> &str;

    /// Counts the frames lost here since the port was opened: because a ring or buffer was full, or because the peer of
    /// a veth had no room for a sent frame.
    /// Call it every few minutes at least: the kernel's counter has 32 bits, and is extended when it is read.
    fn local_drops(&mut self) -> u64;

    /// Whether [`Self::receive`] ever yields frames.
    fn shows_frames(&self) -> bool {
        true
    }

    /// Counts the frames received here that [`Self::receive`] never yields.
    fn passed(&self) -> Passed {
        Passed::default()
    }

    /// Returns the longest frame that it carries, without FCS.
    fn longest(&self) -> usize;

    /// Returns the interface's name.
    fn name(&self) -> &str;

    /// Returns the next message for the user since it was opened or last called, one sentence.
    ///
    /// # Errors
    /// `TakenAway` when the interface can no longer be bridged.
    fn news(&mut self) -> Result<Option<String>, PortError> {
        Ok(None)
    }

    /// Has the next call of [`Self::news`] look at everything, because it is the last.
    fn end(&mut self) {}

    /// Returns what a watch monitors; `None` where nothing needs it.
    #[cfg(feature = "bpf")]
    fn guard(&self) -> Option<Guard> {
        None
    }
}
