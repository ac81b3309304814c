//! The queue before the link: its limit, its management, its scheduler.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

use super::Pipe;

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// How much it holds; without any limit it is sized from rate × delay (at least 50 full frames).
    pub limit: Limit,
    /// Which end loses when it is full.
    pub drop: DropFrom,
    /// What loses or marks before it is full.
    pub aqm: Option<Aqm>,
    /// Who is next.
    pub scheduler: Scheduler,
    /// Flows with weights, named by rules; for WF2Q+ and DRR.
    pub classes: Vec<Class>,
}

/// How much a queue holds: each limit that is given holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// Packets.
    pub slots: Option<u64>,
    /// Bytes of frames without FCS; a packet that would exceed it does not fit.
    pub bytes: Option<u64>,
}

/// A full frame without FCS, in bytes.
const FULL_FRAME: u64 = 1514;

/// Returns the limit that a pipe's queue really has: its own, else rate × delay in bytes and at least 50 full frames.
///
/// The rate and the constant delay are the largest that the pipe ever has, traces included. Without a rate nothing waits, and
/// the limit is of no account.
pub fn effective_limit(pipe: &Pipe) -> Limit {
    if pipe.queue.limit != Limit::default() {
        return pipe.queue.limit;
    }
    let (rate_bps, delay) = (pipe.link.largest_rate().unwrap_or(0), pipe.largest_delay());
    let product = u128::from(rate_bps) * u128::from(delay.0.unsigned_abs()) / 8_000_000_000;
    let bytes = u64::try_from(product).unwrap_or(u64::MAX).max(50 * FULL_FRAME);
    Limit { slots: None, bytes: Some(bytes) }
}

/// Which packet goes when there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropFrom {
    /// The one that comes.
    #[default]
    Tail,
    /// The one that has waited longest.
    Head,
}

/// Active queue management of a FIFO, or of each class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Aqm {
    /// Random early detection (Floyd and Jacobson 1993), gentle or not, in packets or bytes.
    Red(Red),
    /// RFC 8289.
    Codel(Codel),
    /// RFC 8033.
    Pie(Pie),
}

/// RED, in the unit of the thresholds (slots, or bytes where `in_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Red {
    /// Weight of a new sample in the average.
    pub weight: f64,
    /// Below it nothing is lost.
    pub min: f64,
    /// At it `max_p` is lost, above it all (GRED: up to twice it, rising to all).
    pub max: f64,
    /// Probability at `max`.
    pub max_p: f64,
    /// GRED: between `max` and twice `max` the probability rises from `max_p` to 1.
    #[serde(default)]
    pub gentle: bool,
    /// Thresholds are bytes.
    #[serde(default)]
    pub in_bytes: bool,
    /// Marks ECN-capable packets instead of losing them.
    #[serde(default)]
    pub ecn: bool,
}

/// CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Codel {
    /// Acceptable standing delay.
    pub target: Nanos,
    /// Over which it must be seen.
    pub interval: Nanos,
    /// Marks ECN-capable packets instead of losing them.
    pub ecn: bool,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target: Nanos::millis(5), interval: Nanos::millis(100), ecn: false }
    }
}

/// PIE, with the defaults of RFC 8033.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pie {
    /// Wanted delay.
    pub target: Nanos,
    /// How often the probability is worked out.
    pub update: Nanos,
    /// Gain on the deviation, per second.
    pub alpha: f64,
    /// Gain on the change, per second.
    pub beta: f64,
    /// Nothing is lost for so long after an idle time.
    pub max_burst: Nanos,
    /// Above this probability ECN-capable packets are lost, too.
    pub max_ecn: f64,
    /// Marks ECN-capable packets instead of losing them.
    pub ecn: bool,
}

impl Default for Pie {
    fn default() -> Self {
        Self {
            target: Nanos::millis(15),
            update: Nanos::millis(15),
            alpha: 0.125,
            beta: 1.25,
            max_burst: Nanos::millis(150),
            max_ecn: 0.1,
            ecn: false,
        }
    }
}

/// Who is next on the link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fifo,
    /// WF2Q+ (Bennett and Zhang 1997) over classes, or over flows of equal weight where there are none.
    Wf2q,
    /// Deficit round robin (Shreedhar and Varghese 1995); a quantum is `weight` × this many bytes.
    Drr {
        /// Bytes of a visit, times the weight.
        quantum: u32,
    },
    /// RFC 8290.
    FqCodel(FqCodel),
    /// The dual queue of RFC 9332, with PI2.
    DualPi2 {
        /// Wanted delay of the classic queue.
        target: Nanos,
        /// Packets of the low-latency queue that waited longer are marked.
        step: Nanos,
        /// What the low-latency probability is times the classic one's root.
        coupling: f64,
    },
}

/// FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodel {
    /// Queues that flows are hashed into.
    pub flows: u32,
    /// Bytes of a visit.
    pub quantum: u32,
    /// Packets in all of them.
    pub limit: u32,
    /// Of each.
    pub codel: Codel,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self { flows: 1024, quantum: 1514, limit: 10_240, codel: Codel { ecn: true, ..Codel::default() } }
    }
}

/// A flow with a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// What rules call it.
    pub name: String,
    /// Its share, relative to the others'.
    pub weight: u32,
    /// Of its own; else the queue's.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// Of its own; else the queue's.
    #[serde(default)]
    pub aqm: Option<Aqm>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Trace, TracePoint, pipe_from_words};

    fn limit_of(words: &str) -> Limit {
        effective_limit(&pipe_from_words(words, &Pipe::default()).unwrap())
    }

    #[test]
    fn a_queue_is_sized_from_rate_and_delay() {
        let bytes = |bytes| Limit { slots: None, bytes: Some(bytes) };
        assert_eq!(limit_of("rate 100Mbit/s delay 100ms"), bytes(1_250_000));
        assert_eq!(limit_of("rate 1Mbit/s delay 1ms"), bytes(75_700), "50 full frames at least");
        assert_eq!(limit_of("rate 1Mbit/s"), bytes(75_700));
        assert_eq!(limit_of("rate 1Mbit/s queue 7"), Limit { slots: Some(7), bytes: None });
        assert_eq!(limit_of("rate 1Mbit/s queue 7/30KB"), Limit { slots: Some(7), bytes: Some(30_720) });
    }

    #[test]
    fn a_trace_sizes_it_by_its_largest() {
        let point = |rate, delay| TracePoint { rate_bps: rate, delay, ..TracePoint::default() };
        let points = vec![point(None, None), point(Some(80_000_000), None), point(Some(0), Some(Nanos::millis(500)))];
        let trace = Some(Trace::Points { points, period: None, file: String::new() });
        let mut pipe = pipe_from_words("rate 1Mbit/s delay 1ms", &Pipe::default()).unwrap();
        pipe.link.trace = trace;
        assert_eq!(effective_limit(&pipe).bytes, Some(5_000_000));
        // 1000 opportunities of 1500 bytes a second are 12 Mbit/s.
        let at = (1..=1000).map(Nanos::millis).collect();
        pipe.link = crate::config::Link {
            trace: Some(Trace::Opportunities { at, period: Nanos::seconds(1), file: String::new() }),
            ..crate::config::Link::default()
        };
        pipe.delay.constant = Nanos::seconds(1);
        assert_eq!(effective_limit(&pipe).bytes, Some(1_500_000));
    }
}
