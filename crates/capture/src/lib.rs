//! Timestamped taps: copies of the frames that pass an interface, with their time, direction and length.
//!
//! [`Tap`] is the seam: a ring of AF_PACKET ([`RingTap`]), programs of traffic control ([`BpfTap`]), or an interface of known truth
//! ([`SimulatedTap`]); [`AnyTap`] is one of the first two. [`Observer`] makes
//! of each frame what is recorded of it, and counts; [`Account`] holds the counts of a tap against those of its interface.
//! [`filter`] compiles libpcap's language. Nothing here writes a file.

mod account;
mod any;
mod bpf;
pub mod filter;
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

/// Where copies of an interface's frames come from.
pub trait Tap {
    /// Shows some of the frames that passed since the last call, in their order, and returns whether there may be more at once;
    /// never blocks.
    ///
    /// # Errors
    /// When the interface is gone.
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError>;

    /// Lets no more frames in. Those that are in are still to be taken.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn detach(&mut self) -> Result<(), PortError>;

    /// Counts, since the tap was attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn totals(&mut self) -> Result<Totals, PortError>;

    /// What can be read once there is something to take; `None`: there is nothing to wait for.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A frame that passed.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// Its bytes without FCS, as it would be on the wire, as far as they were kept.
    pub frame: &'a [u8],
    /// How long it was.
    pub length: usize,
    /// When it passed, on `CLOCK_TAI`.
    pub at: Stamp,
    /// The same on `CLOCK_REALTIME`, as capture files have it.
    pub realtime: Time,
    /// Which way it passed.
    pub direction: Direction,
    /// Whether it stands for several frames on the wire (GRO, GSO).
    pub is_super: bool,
}

/// What a tap counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Frames that its filter let through.
    pub accepted: u64,
    /// Those of them that found no room.
    pub dropped: u64,
    /// Those of them that passed in another direction than was asked for.
    pub skipped: u64,
    /// How often the ring was full.
    pub full: u64,
}

/// Which frames of an interface a tap shows.
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
    /// Returns whether frames that pass so are shown.
    pub fn has(self, direction: Direction) -> bool {
        match self {
            Self::In => direction == Direction::In,
            Self::Out => direction == Direction::Out,
            Self::Both => true,
        }
    }
}
