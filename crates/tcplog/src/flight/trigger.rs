//! What a flight recorder waits for: events, and values that cross a threshold. Tells of each sample of a flow which of them it is
//! the first to show.
//!
//! A threshold is crossed once: by the first sample beyond it after one that was not. What a flow's first sample shows was there
//! before us and is no trigger. Samples of several CPUs may come a little out of their order in time: a value of before the
//! latest sample crosses nothing.

use std::mem::offset_of;

use sojourn_time::Nanos;

use super::{u16_at, u32_at, u64_at};
use crate::layout::{Sample, State, point};

/// How many kinds of trigger there are.
pub const KINDS: usize = 6;

/// Their names, in the order of [`Triggers`].
pub const NAMES: [&str; KINDS] = ["rto", "reset", "loss", "rtt", "rtt-last", "cwnd"];

/// What makes a flow's samples go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// A retransmission timeout.
    pub rto: bool,
    /// A reset, ours or the peer's.
    pub reset: bool,
    /// A segment sent again.
    pub loss: bool,
    /// The smoothed RTT becomes larger than this.
    pub rtt_above: Option<Nanos>,
    /// The RTT measured last becomes larger than this.
    pub rtt_last_above: Option<Nanos>,
    /// The congestion window becomes smaller than so many segments.
    pub cwnd_below: Option<u32>,
}

impl Triggers {
    /// Every event, and no threshold.
    pub const EVENTS: Self =
        Self { rto: true, reset: true, loss: true, rtt_above: None, rtt_last_above: None, cwnd_below: None };
}

/// What a flow's samples have shown so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    highest: Option<Shown>,
}

/// Counters at their highest, and the rest as the latest sample has it.
#[derive(Clone, Copy, Debug)]
struct Shown {
    total_rto: u16,
    total_retrans: u32,
    /// Timeouts of the segment that waits, for kernels without the total.
    retransmits: u8,
    beyond: Beyond,
    time_ns: u64,
}

/// Which thresholds a sample is beyond.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    rtt: bool,
    rtt_last: bool,
    cwnd: bool,
}

impl Watch {
    /// Returns which kinds of trigger this sample shows that were not there before.
    pub(super) fn look(&mut self, event: &[u8], on: &Triggers) -> [bool; KINDS] {
        let at = event[offset_of!(Sample, point)];
        let now = Shown::of(event, on);
        let before = self.highest.unwrap_or(now);
        self.highest = Some(before.raised(now));
        let is_later = now.time_ns >= before.time_ns;
        // By counters alone: the state (TCP_CA_Loss) changes before them, and also where no timer expired (a smaller path MTU, a
        // window that shrank to nothing).
        let is_rto = now.total_rto > before.total_rto || is_later && now.retransmits > before.retransmits;
        [
            on.rto && is_rto,
            on.reset && matches!(at, point::RESET_IN | point::RESET_OUT),
            on.loss && (now.total_retrans > before.total_retrans || at == point::RETRANSMIT),
            is_later && now.beyond.rtt && !before.beyond.rtt,
            is_later && now.beyond.rtt_last && !before.beyond.rtt_last,
            is_later && now.beyond.cwnd && !before.beyond.cwnd,
        ]
    }
}

impl Shown {
    fn of(event: &[u8], on: &Triggers) -> Self {
        let state = offset_of!(Sample, state);
        Self {
            total_rto: u16_at(event, state + offset_of!(State, total_rto)),
            total_retrans: u32_at(event, state + offset_of!(State, total_retrans)),
            retransmits: event[state + offset_of!(State, retransmits)],
            beyond: Beyond::of(event, on),
            time_ns: u64_at(event, offset_of!(Sample, time_ns)),
        }
    }

    fn raised(self, now: Self) -> Self {
        let latest = if now.time_ns >= self.time_ns { now } else { self };
        Self {
            total_rto: self.total_rto.max(now.total_rto),
            total_retrans: self.total_retrans.max(now.total_retrans),
            ..latest
        }
    }
}

impl Beyond {
    /// An RTT of 0 is none yet, and above nothing.
    fn of(event: &[u8], on: &Triggers) -> Self {
        let field = |at: usize| i64::from(u32_at(event, offset_of!(Sample, state) + at));
        let srtt_ns_8 = field(offset_of!(State, srtt_us8)) * 1_000;
        let rtt_last_ns = field(offset_of!(State, rtt_last_us)) * 1_000;
        let cwnd = field(offset_of!(State, snd_cwnd));
        Self {
            rtt: on.rtt_above.is_some_and(|above| srtt_ns_8 > above.0.saturating_mul(8)),
            rtt_last: on.rtt_last_above.is_some_and(|above| rtt_last_ns > above.0),
            cwnd: on.cwnd_below.is_some_and(|below| cwnd < i64::from(below)),
        }
    }
}
