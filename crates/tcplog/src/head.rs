//! The common header of all records of a ring, read without decoding the rest where records are only passed on.

use std::mem::offset_of;

use crate::decode::Raw;
use crate::layout::{PrivateState, Sample, kind};

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whether the record is the private state of a congestion control instead of a sample.
    pub is_private: bool,
    /// The flow's slot in the table.
    pub slot: u32,
    /// Its number on its CPU.
    pub number: u64,
    /// The time at which it was made.
    pub time_ns: u64,
    /// The cookie of the flow's socket.
    pub cookie: u64,
}

const _: () = {
    assert!(offset_of!(Sample, kind) == 0 && offset_of!(PrivateState, kind) == 0);
    assert!(offset_of!(Sample, slot) == offset_of!(PrivateState, slot));
    assert!(offset_of!(Sample, number) == offset_of!(PrivateState, number));
    assert!(offset_of!(Sample, time_ns) == offset_of!(PrivateState, time_ns));
    assert!(offset_of!(Sample, cookie) == offset_of!(PrivateState, cookie));
};

impl Head {
    /// Read the header of a record; `None` where the bytes are too short or the kind is unknown.
    pub fn of(record: &[u8]) -> Option<Self> {
        let is_private = match *record.first()? {
            kind::SAMPLE => false,
            kind::PRIVATE => true,
            _ => return None,
        };
        Some(Self {
            is_private,
            slot: at(record, offset_of!(Sample, slot))?,
            number: at(record, offset_of!(Sample, number))?,
            time_ns: at(record, offset_of!(Sample, time_ns))?,
            cookie: at(record, offset_of!(Sample, cookie))?,
        })
    }
}

fn at<R: Raw>(record: &[u8], offset: usize) -> Option<R> {
    Some(R::take(&mut record.get(offset..offset + R::BYTES)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_head_equals_the_decoded_record() {
        let mut bytes = Vec::new();
        let sample = Sample { kind: kind::SAMPLE, slot: 7, number: 8, time_ns: 9, cookie: 10, ..zeros() };
        sample.put(&mut bytes);
        let head = Head { is_private: false, slot: 7, number: 8, time_ns: 9, cookie: 10 };
        assert_eq!(Head::of(&bytes), Some(head));
        bytes[0] = kind::PRIVATE;
        assert_eq!(Head::of(&bytes), Some(Head { is_private: true, ..head }));
        bytes[0] = 99;
        assert_eq!(Head::of(&bytes), None);
        assert_eq!(Head::of(&[kind::SAMPLE; 20]), None);
    }

    fn zeros() -> Sample {
        Sample::take(&mut [].as_slice())
    }
}
