//! Decode bytes into the structures of [`crate::layout`], and encode them. Input is untrusted: lengths and kinds are
//! checked, and nothing panics.

use std::mem::offset_of;

use crate::layout::{PrivateState, Sample, kind, point};

/// A record from a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A sample.
    Sample(Sample),
    /// The private state of a congestion control.
    Private(PrivateState),
}

/// Why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The kind is unknown.
    #[error("decode a record: no kind is called {0}")]
    Kind(u8),
    /// The point is unknown.
    #[error("decode a record: no point is called {0}")]
    Point(u8),
    /// Too short or too long for its kind.
    #[error("decode a record: {found} bytes where {expected} make one")]
    Length {
        /// The length of a record of this kind.
        expected: usize,
        /// The actual length.
        found: usize,
    },
}

/// Decode the record in these bytes.
///
/// # Errors
/// When they are not a valid record.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    Ok(match check(bytes)? {
        Kind::Sample => Event::Sample(Raw::take(&mut &*bytes)),
        Kind::Private => Event::Private(Raw::take(&mut &*bytes)),
    })
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sample,
    Private,
}

/// Check that these bytes are a record, without copying them; return its kind.
///
/// # Errors
/// When they are not a valid record.
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

/// Decode a value from these bytes, which it must use up exactly.
pub(crate) fn whole<R: Raw>(bytes: &[u8]) -> Result<R, DecodeError> {
    if bytes.len() != R::BYTES {
        return Err(DecodeError::Length { expected: R::BYTES, found: bytes.len() });
    }
    Ok(R::take(&mut &*bytes))
}

/// A value in the memory layout of the kernel's programs.
pub trait Raw {
    /// The size in bytes.
    const BYTES: usize;
    /// The fields with their offsets; empty for a number.
    const FIELDS: &[(&str, usize)] = &[];

    /// Decode the value from the front of the bytes and advance them; zeros where they are too short.
    fn take(bytes: &mut &[u8]) -> Self;

    /// Append the value's bytes.
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

/// Declare a structure by its fields, in order; a hole between fields is a compile error.
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
                // A single length check, so that the fields need none.
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
