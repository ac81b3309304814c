//! Timestamped taps: copies of the frames that pass an interface, with their time, direction and length.
//!
//! [`Tap`] is the interface: an AF_PACKET ring ([`RingTap`]), tc programs ([`BpfTap`]), or a simulated interface
//! ([`SimulatedTap`]); [`AnyTap`] is one of the first two. [`Observer`] selects what is recorded of each frame, and
//! counts. [`Account`] compares the counts of a tap with those of its interface. [`filter`] compiles libpcap's filter
//! language. This crate writes no files.

mod account;
mod any;
mod bpf;
pub mod filter;
pub mod foreign;
pub mod headers;
mod observe;
mod ring;
mod simulated;
mod undone;

pub use account::Account;
pub use any::{AnyTap, Kind};
pub use bpf::BpfTap;
pub use observe::{Asked, Counts, Observer, Seen};
pub use ring::{Opening, RingTap, Wanted};
pub use simulated::{Simulated, SimulatedTap};

use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use sojourn_port::PortError;
use sojourn_port::pcap::Direction;
use sojourn_time::{Stamp, Time};

/// A source of copies of an interface's frames.
pub trait Tap {
    /// Passes some of the frames since the last call to `show`, in order, and returns whether there may be more at
    /// once; never blocks.
    ///
    /// # Errors
    /// When the interface is gone.
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError>;

    /// Stops copying frames. Frames already copied can still be taken.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn detach(&mut self) -> Result<(), PortError>;

    /// Returns the counts since the tap was attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn totals(&mut self) -> Result<Totals, PortError>;

    /// The descriptor that becomes readable when there are frames to take; `None`: there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A frame that passed the interface.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// Its bytes without FCS, as on the wire, truncated to what was copied.
    pub frame: &'a [u8],
    /// Its original length.
    pub length: usize,
    /// When it passed, on `CLOCK_TAI`.
    pub at: Stamp,
    /// The same time on `CLOCK_REALTIME`, for capture files.
    pub realtime: Time,
    /// Its direction.
    pub direction: Direction,
    /// Whether it is a super-frame, which stands for several frames on the wire (GRO, GSO).
    pub is_super: bool,
}

/// The counts of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Frames that its filter accepted.
    pub accepted: u64,
    /// Accepted frames that were dropped because the ring was full.
    pub dropped: u64,
    /// Accepted frames that passed in a direction not requested.
    pub skipped: u64,
    /// How often the ring became full.
    pub full: u64,
}

/// The directions of the frames that a tap delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Received frames (ingress).
    In,
    /// Sent frames (egress).
    Out,
    /// Both.
    #[default]
    Both,
}

impl Directions {
    /// Returns whether frames of this direction are delivered.
    pub fn has(self, direction: Direction) -> bool {
        match self {
            Self::In => direction == Direction::In,
            Self::Out => direction == Direction::Out,
            Self::Both => true,
        }
    }
}
