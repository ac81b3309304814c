//! Rows of an emulator's log. [`crate::schema::PACKETS`] tells what each field means.

use sojourn_time::{Nanos, Stamp, Time};

/// How much of a frame a row can hold.
pub const HEAD_BYTES: usize = 128;
/// The names that `direction` may have.
pub const DIRECTIONS: [&str; 2] = ["forward", "backward"];
/// The names that `fate` may have.
pub const FATES: [&str; 3] = ["untouched", "sent", "lost"];
/// The names that `cause` may have; the first: it is not lost.
pub const CAUSES: [&str; 10] = ["", "before", "full", "managed", "after", "profile", "rule", "memory", "port", "ended"];

/// One packet that came to an emulator, or a copy that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Packet {
    pub block: i32,
    pub number: u64,
    pub copy_of: Option<u64>,
    /// One of [`DIRECTIONS`].
    pub direction: &'static str,
    /// The place of the pipe among the log's; `None`: untouched.
    pub pipe: Option<u16>,
    pub flow: u64,
    /// With FCS.
    pub frame_bytes: u32,
    pub head: [u8; HEAD_BYTES],
    /// How much of `head` there is.
    pub head_bytes: u8,
    pub arrival: Stamp,
    pub entered: Time,
    /// One of [`FATES`].
    pub fate: &'static str,
    /// One of [`CAUSES`].
    pub cause: &'static str,
    pub drawn: Option<Nanos>,
    pub link_left: Option<Time>,
    pub intended: Option<Time>,
    pub departure: Option<Time>,
    pub is_marked: bool,
    pub flipped: u32,
    pub is_reordered: bool,
    pub queue_slots: u32,
    pub queue_bytes: u64,
    pub lane: u64,
}
