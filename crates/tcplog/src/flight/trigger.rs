//! Detect the triggers of a flight recorder in a flow's samples: events, and values that cross a threshold.
//!
//! A threshold is crossed once: by the first sample beyond it after one that was not. A flow's first sample only sets
//! the initial state and is no trigger. Samples of several CPUs may arrive slightly out of order: a sample older than
//! the latest one crosses no threshold.

use std::mem::offset_of;

use sojourn_time::Nanos;

use super::{u16_at, u32_at, u64_at};
use crate::layout::{Sample, State, point};

/// The number of kinds of trigger.
pub const KINDS: usize = 6;

/// The names of the kinds, in the order of [`Triggers`].
pub const NAMES: [&str; KINDS] = ["rto", "reset", "loss", "rtt", "rtt-last", "cwnd"];

/// The triggers that are enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// A retransmission timeout.
    pub rto: bool,
    /// A reset, sent or received.
    pub reset: bool,
    /// A retransmitted segment.
    pub loss: bool,
    /// The smoothed RTT rises above this.
    pub rtt_above: Option<Nanos>,
    /// The latest RTT sample rises above this.
    pub rtt_last_above: Option<Nanos>,
    /// The congestion window falls below this many segments.
    pub cwnd_below: Option<u32>,
}

impl Triggers {
    /// All events, and no threshold.
    pub const EVENTS: Self =
        Self { rto: true, reset: true, loss: true, rtt_above: None, rtt_last_above: None, cwnd_below: None };
}

/// What a flow's samples have shown so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    highest: Option<Shown>,
}

/// The highest counters so far, and the other values of the latest sample.
#[derive(Clone, Copy, Debug)]
struct Shown {
    total_rto: u16,
    total_retrans: u32,
    /// Timeouts of the oldest unacknowledged segment, for kernels without `total_rto`.
    retransmits: u8,
    beyond: Beyond,
    time_ns: u64,
}

/// The thresholds that a sample is beyond.
#[derive(Clone, Copy, Debug)]
struct Beyond {
    rtt: bool,
    rtt_last: bool,
    cwnd: bool,
}

impl Watch {
    /// Return the kinds of trigger that this sample shows for the first time.
    pub(super) fn look(&mut self, event: &[u8], on: &Triggers) -> [bool; KINDS] {
        let at = event[offset_of!(Sample, point)];
        let now = Shown::of(event, on);
        let before = self.highest.unwrap_or(now);
        self.highest = Some(before.raised(now));
        let is_later = now.time_ns >= before.time_ns;
        // Only counters show a timeout: the state (TCP_CA_Loss) changes before them, and also without a timer (a
        // smaller path MTU, a receive window that shrank to zero).
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
    /// An RTT of 0 means no sample yet; it exceeds no threshold.
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
