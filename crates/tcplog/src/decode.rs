//! Bytes into what [`crate::layout`] declares, and back. Foreign bytes: lengths and kinds are checked, nothing panics.

use crate::layout::{Counts, Flow, Options, PrivateState, Sample, State, Totals, kind, point};

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
    match bytes.first() {
        Some(&kind::SAMPLE) => whole(bytes).and_then(sample),
        Some(&kind::PRIVATE) => whole(bytes).map(Event::Private),
        Some(&other) => Err(DecodeError::Kind(other)),
        None => Err(DecodeError::Length { expected: 1, found: 0 }),
    }
}

fn sample(sample: Sample) -> Result<Event, DecodeError> {
    if sample.point > point::DESTROY { Err(DecodeError::Point(sample.point)) } else { Ok(Event::Sample(sample)) }
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

/// Declares a structure's fields, in order; that they are all of them and leave no hole is checked when it is compiled.
macro_rules! raw {
    ($name:ident { $($field:ident),* $(,)? }) => {
        const _: () = {
            const fn bytes<T>(_: fn(&$name) -> &T) -> usize {
                size_of::<T>()
            }
            let mut at = 0;
            $(
                assert!(at == std::mem::offset_of!($name, $field));
                at += bytes(|whole: &$name| &whole.$field);
            )*
            assert!(at == size_of::<$name>());
        };

        #[cfg(test)]
        impl $name {
            /// The fields, with where each begins.
            pub(crate) const FIELDS: &[(&str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field))),*];
        }

        impl Raw for $name {
            const BYTES: usize = size_of::<$name>();

            #[inline]
            fn take(bytes: &mut &[u8]) -> Self {
                // One check of the length, so that none is left for the fields.
                const ZERO: [u8; size_of::<$name>()] = [0; size_of::<$name>()];
                let (first, rest) = bytes.split_first_chunk::<{ size_of::<$name>() }>().unwrap_or((&ZERO, &[]));
                *bytes = rest;
                let first = &mut first.as_slice();
                $(let $field = Raw::take(first);)*
                Self { $($field),* }
            }

            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)*
            }
        }
    };
}

raw!(State {
    bytes_sent,
    bytes_acked,
    bytes_received,
    bytes_retrans,
    pacing_rate,
    flags,
    snd_cwnd,
    snd_ssthresh,
    snd_cwnd_cnt,
    prior_cwnd,
    mss_cache,
    snd_wnd,
    rcv_wnd,
    rcv_ssthresh,
    snd_una,
    snd_nxt,
    write_seq,
    rcv_nxt,
    copied_seq,
    sndbuf,
    wmem_queued,
    rcvbuf,
    rmem_alloc,
    packets_out,
    sacked_out,
    lost_out,
    retrans_out,
    total_retrans,
    lost,
    delivered,
    delivered_ce,
    received_ce,
    rate_delivered,
    rate_interval_us,
    srtt_us8,
    mdev_us4,
    rttvar_us4,
    rtt_min_us,
    rtt_last_us,
    rcv_rtt_us8,
    rcv_space,
    rto_jiffies,
    chrono_start_jiffies,
    chrono_jiffies,
    segs_in,
    segs_out,
    data_segs_in,
    data_segs_out,
    reordering,
    reord_seen,
    dsack_dups,
    rcv_ooopack,
    advmss,
    total_rto,
    state,
    ca_state,
    snd_wscale,
    rcv_wscale,
    backoff,
    retransmits,
    probes_out,
    num_sacks,
    chrono,
    reserved,
});

raw!(Sample {
    kind,
    point,
    detail,
    slot,
    number,
    time_ns,
    cookie,
    packet,
    seq,
    ack,
    tcp_flags,
    window,
    packet_bytes,
    payload_bytes,
    segments,
    ip_id,
    tos,
    reserved,
    state,
});

raw!(PrivateState { kind, reserved, slot, number, time_ns, cookie, sample, algorithm, bytes });

raw!(Counts { seen, segments, ticks, jiffies, last_ns, fates, segments_of_fates, reserved });

raw!(Flow {
    cookie,
    generation,
    verdict,
    logged_ns,
    changes,
    first_ns,
    ended_ns,
    netns,
    directions,
    cgroup,
    process,
    family,
    local_port,
    remote_port,
    reserved,
    local,
    remote,
    command,
    algorithm,
    padding,
});

raw!(Totals {
    seen,
    segments,
    fates,
    segments_of_fates,
    events,
    events_full,
    privates,
    privates_full,
    number,
    position
});

raw!(Options {
    generation,
    enabled,
    ppl,
    by_segment,
    points,
    min_interval_ns,
    changes,
    private_every,
    one_in_flows,
    netns,
    cgroup,
    cgroup_level,
    process,
    ports,
    prefixes,
    port,
    algorithm,
    burn,
    reserved,
    offset_ns,
});

#[cfg(test)]
mod tests;
