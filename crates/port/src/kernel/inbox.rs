//! Reusable buffers for the messages of one recvmmsg(2) call, with their control messages.

use sojourn_time::Time;

use super::control::ControlBuffer;
use super::name::Name;
use super::sys::{self, Message, Places};

const CACHE_LINE: usize = 64;

/// The buffers of one [`Socket::receive_batch`](super::Socket::receive_batch), reused by the next.
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
    /// Allocates buffers for messages of at most `longest` bytes (longer ones are truncated), with `headroom` free
    /// bytes before each.
    pub fn new(longest: usize, headroom: usize) -> Self {
        // The stride is an odd number of cache lines, so that messages do not all map to the same cache sets.
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

    /// The sender of the `nth` message of the last call; `None` beyond the last message.
    pub fn from(&self, nth: usize) -> Option<&Name> {
        self.from[..self.count].get(nth)
    }

    /// The number of messages that the last call received.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Limits the messages that the next calls receive.
    pub fn take_at_most(&mut self, messages: usize) {
        self.most = messages.min(sys::MOST_AT_ONCE);
    }

    /// The length of the `nth` message.
    pub(super) fn length(&self, nth: usize) -> usize {
        self.messages[nth].length
    }

    /// The control messages of the `nth` message, and their length in bytes.
    pub(super) fn control(&self, nth: usize) -> (&ControlBuffer, usize) {
        (&self.control[nth], self.messages[nth].control_length)
    }

    /// When the last call returned.
    pub(super) fn returned(&self) -> Time {
        self.returned
    }

    /// Records the number of messages that a call received, and when it returned.
    pub(super) fn fill(&mut self, count: usize, returned: Time) {
        (self.count, self.returned) = (count, returned);
    }

    /// The buffers for the next call.
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
