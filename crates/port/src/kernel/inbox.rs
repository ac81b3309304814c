//! Where the messages of one call go: room that is used again, with what the kernel says beside each.

use sojourn_time::Time;

use super::control::ControlBuffer;
use super::name::Name;
use super::sys::{self, Message, Places};

const CACHE_LINE: usize = 64;

/// Room for the messages of one [`Socket::receive_batch`](super::Socket::receive_batch), used again for the next.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    stride: usize,
    headroom: usize,
    from: Vec<Name>,
    control: Vec<ControlBuffer>,
    messages: Vec<Message>,
    most: usize,
    count: usize,
    returned: Time,
}

impl Inbox {
    /// Room for messages of at most `longest` bytes (longer ones are cut), with `headroom` bytes free before each.
    pub fn new(longest: usize, headroom: usize) -> Self {
        // An odd number of cache lines apart, so that messages do not all fall into the same sets of the cache.
        let stride = ((longest + headroom).div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
        Self {
            bytes: vec![0; stride * sys::MOST_AT_ONCE],
            stride,
            headroom,
            from: vec![Name::default(); sys::MOST_AT_ONCE],
            control: vec![ControlBuffer::default(); sys::MOST_AT_ONCE],
            messages: vec![Message::default(); sys::MOST_AT_ONCE],
            most: sys::MOST_AT_ONCE,
            count: 0,
            returned: Time(0),
        }
    }

    /// The headroom and the bytes of the `nth` message of the last call.
    pub fn message(&mut self, nth: usize) -> &mut [u8] {
        let start = nth * self.stride;
        let end = start + (self.headroom + self.messages[nth].length).min(self.stride);
        &mut self.bytes[start..end]
    }

    /// Whom the `nth` message of the last call came from; `None` where there were fewer.
    pub fn from(&self, nth: usize) -> Option<&Name> {
        self.from[..self.count].get(nth)
    }

    /// How many messages the last call took.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Lets the next calls take at most so many messages each.
    pub fn take_at_most(&mut self, messages: usize) {
        self.most = messages.min(sys::MOST_AT_ONCE);
    }

    /// How long the `nth` message is.
    pub(super) fn length(&self, nth: usize) -> usize {
        self.messages[nth].length
    }

    /// What the kernel said beside the `nth` message, and how many bytes of it.
    pub(super) fn control(&self, nth: usize) -> (&ControlBuffer, usize) {
        (&self.control[nth], self.messages[nth].control_length)
    }

    /// When the last call returned.
    pub(super) fn returned(&self) -> Time {
        self.returned
    }

    /// Notes that a call took so many messages.
    pub(super) fn fill(&mut self, count: usize, returned: Time) {
        (self.count, self.returned) = (count, returned);
    }

    /// Where the next messages go.
    pub(super) fn places(&mut self) -> Places<'_> {
        Places {
            bytes: &mut self.bytes,
            stride: self.stride,
            headroom: self.headroom,
            from: &mut self.from,
            control: &mut self.control,
            messages: &mut self.messages[..self.most],
        }
    }
}
