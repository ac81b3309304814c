//! Bytes into what [`crate::layout`] declares, and back. Foreign bytes: lengths and kinds are checked, nothing panics.

use std::mem::offset_of;

use crate::layout::{PrivateState, Sample, kind, point};

/// A record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A sample.
    Sample(Sample),
    /// The private state of a congestion control.
    Private(PrivateState),
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No such kind.
    #[error("decode a record: no kind is called {0}")]
    Kind(u8),
    /// No such point.
    #[error("decode a record: no point is called {0}")]
    Point(u8),
    /// Too short or too long for its kind.
    #[error("decode a record: {found} bytes where {expected} make one")]
    Length {
        /// How many a record of its kind has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
}

/// Returns the record that these bytes are.
///
/// # Errors
/// When they are none.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    Ok(match check(bytes)? {
        Kind::Sample => Event::Sample(Raw::take(&mut &*bytes)),
        Kind::Private => Event::Private(Raw::take(&mut &*bytes)),
    })
}

/// What kind of record some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sample,
    Private,
}

/// Returns what kind of record these bytes are, without a copy of them.
///
/// # Errors
/// When they are none.
pub(crate) fn check(bytes: &[u8]) -> Result<Kind, DecodeError> {
    let (kind, expected) = match bytes.first() {
        Some(&kind::SAMPLE) => (Kind::Sample, Sample::BYTES),
        Some(&kind::PRIVATE) => (Kind::Private, PrivateState::BYTES),
        Some(&other) => return Err(DecodeError::Kind(other)),
        None => return Err(DecodeError::Length { expected: 1, found: 0 }),
    };
    if bytes.len() != expected {
        return Err(DecodeError::Length { expected, found: bytes.len() });
    }
    match bytes[offset_of!(Sample, point)] {
        other if kind == Kind::Sample && other > point::DESTROY => Err(DecodeError::Point(other)),
        _ => Ok(kind),
    }
}

/// Returns the value that these bytes, all of them, are.
pub(crate) fn whole<R: Raw>(bytes: &[u8]) -> Result<R, DecodeError> {
    if bytes.len() != R::BYTES {
        return Err(DecodeError::Length { expected: R::BYTES, found: bytes.len() });
    }
    Ok(R::take(&mut &*bytes))
}

/// Something that lies in memory as the kernel's programs write it.
pub trait Raw {
    /// How many bytes it takes.
    const BYTES: usize;
    /// Its fields, with where each begins; none of a number.
    const FIELDS: &[(&str, usize)] = &[];

    /// Takes it off the front of the bytes; zeros where they end.
    fn take(bytes: &mut &[u8]) -> Self;

    /// Appends it.
    fn put(&self, bytes: &mut Vec<u8>);
}

macro_rules! raw_numbers {
    ($($number:ty),*) => {$(
        impl Raw for $number {
            const BYTES: usize = size_of::<$number>();

            #[inline(always)]
            fn take(bytes: &mut &[u8]) -> Self {
                let (first, rest) = bytes.split_first_chunk().unwrap_or((&[0; size_of::<$number>()], &[]));
                *bytes = rest;
                Self::from_ne_bytes(*first)
            }

            #[inline(always)]
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

raw_numbers!(u8, u16, u32, u64);

impl<R: Raw, const N: usize> Raw for [R; N] {
    const BYTES: usize = N * R::BYTES;

    #[inline(always)]
    fn take(bytes: &mut &[u8]) -> Self {
        std::array::from_fn(|_| R::take(bytes))
    }

    #[inline(always)]
    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(bytes));
    }
}

/// Declares a structure by its fields, in order; that they leave no hole is checked when it is compiled.
macro_rules! layout {
    ($(#[$meta:meta])* pub struct $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        #[expect(missing_docs, reason = "said once, in the header")]
        pub struct $name {
            $(pub $field: $type,)*
        }

        const _: () = {
            let mut at = 0;
            $(
                assert!(at == std::mem::offset_of!($name, $field));
                at += size_of::<$type>();
            )*
            assert!(at == size_of::<$name>());
        };

        impl $crate::decode::Raw for $name {
            const BYTES: usize = size_of::<$name>();
            const FIELDS: &[(&str, usize)] = &[$((stringify!($field), std::mem::offset_of!($name, $field))),*];

            #[inline]
            fn take(bytes: &mut &[u8]) -> Self {
                // One check of the length, so that none is left for the fields.
                const ZERO: [u8; size_of::<$name>()] = [0; size_of::<$name>()];
                let (first, rest) = bytes.split_first_chunk::<{ size_of::<$name>() }>().unwrap_or((&ZERO, &[]));
                *bytes = rest;
                let first = &mut first.as_slice();
                $(let $field = $crate::decode::Raw::take(first);)*
                Self { $($field),* }
            }

            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)*
            }
        }
    };
}

pub(crate) use layout;

#[cfg(test)]
mod tests;
