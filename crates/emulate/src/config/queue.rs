//! The queue in front of the link: its limit, its active queue management, its scheduler.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

use super::Pipe;

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// The limit; without one, rate × delay (at least 50 full frames).
    pub limit: Limit,
    /// Which end drops when the queue is full.
    pub drop: DropFrom,
    /// Active queue management: drops or marks before the queue is full.
    pub aqm: Option<Aqm>,
    /// How the next packet is selected.
    pub scheduler: Scheduler,
    /// Weighted classes, referenced by rules; for WF2Q+ and DRR.
    pub classes: Vec<Class>,
}

/// The limit of a queue. All limits that are given apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// In packets.
    pub slots: Option<u64>,
    /// In bytes of frames without FCS; a packet that would exceed it does not fit.
    pub bytes: Option<u64>,
}

/// A full frame without FCS, in bytes.
const FULL_FRAME: u64 = 1514;

/// Returns the effective limit of a pipe's queue: the configured one, else rate × delay in bytes and at least 50 full frames.
///
/// The rate and the constant delay are the maxima over time, traces included. Where no rate is configured (an outage or
/// a profile alone limits), the limit is 50 full frames.
pub fn effective_limit(pipe: &Pipe) -> Limit {
    if pipe.queue.limit != Limit::default() {
        return pipe.queue.limit;
    }
    let (rate_bps, delay) = (pipe.link.largest_rate().unwrap_or(0), pipe.largest_delay());
    let product = u128::from(rate_bps) * u128::from(delay.0.unsigned_abs()) / 8_000_000_000;
    let bytes = u64::try_from(product).unwrap_or(u64::MAX).max(50 * FULL_FRAME);
    Limit { slots: None, bytes: Some(bytes) }
}

/// Which packet is dropped when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropFrom {
    /// The arriving packet (tail drop).
    #[default]
    Tail,
    /// The packet at the head (head drop).
    Head,
}

/// Active queue management of a FIFO, or of each class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Aqm {
    /// Random early detection (Floyd and Jacobson 1993), optionally gentle; in packets or bytes.
    Red(Red),
    /// CoDel (RFC 8289).
    Codel(Codel),
    /// PIE (RFC 8033).
    Pie(Pie),
}

/// RED. Thresholds are in slots, or in bytes with `in_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Red {
    /// The weight of a new sample in the average (EWMA).
    pub weight: f64,
    /// The minimum threshold: below it no packet is dropped.
    pub min: f64,
    /// The maximum threshold: the drop probability is `max_p` at it and 1 above it (GRED: rises to 1 at twice this value).
    pub max: f64,
    /// The drop probability at `max`.
    pub max_p: f64,
    /// Gentle RED: between `max` and twice `max` the probability rises from `max_p` to 1.
    #[serde(default)]
    pub gentle: bool,
    /// Whether thresholds are in bytes.
    #[serde(default)]
    pub in_bytes: bool,
    /// Whether ECN-capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
}

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Codel {
    /// The acceptable standing queue delay.
    pub target: Nanos,
    /// The sliding window over which the minimum delay must exceed `target`.
    pub interval: Nanos,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target: Nanos::millis(5), interval: Nanos::millis(100), ecn: false }
    }
}

/// Parameters of PIE, with the defaults of RFC 8033.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pie {
    /// The target queue delay.
    pub target: Nanos,
    /// The update period of the drop probability.
    pub update: Nanos,
    /// The gain on the deviation from the target, per second.
    pub alpha: f64,
    /// The gain on the change of the delay, per second.
    pub beta: f64,
    /// The burst allowance: no drops for this long after the queue was idle.
    pub max_burst: Nanos,
    /// Above this probability ECN-capable packets are dropped, too.
    pub max_ecn: f64,
    /// Whether ECN-capable packets are marked instead of dropped.
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

/// The packet scheduler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scheduler {
    /// First in, first out.
    #[default]
    Fifo,
    /// WF2Q+ (Bennett and Zhang 1997) over classes; without classes, over flows of equal weight.
    Wf2q,
    /// Deficit round robin (Shreedhar and Varghese 1995).
    Drr {
        /// Bytes per visit and unit of weight.
        quantum: u32,
    },
    /// FQ-CoDel (RFC 8290).
    FqCodel(FqCodel),
    /// The dual queue of RFC 9332, with PI2.
    DualPi2 {
        /// The target delay of the classic queue.
        target: Nanos,
        /// Packets that waited longer than this in the low-latency queue are marked.
        step: Nanos,
        /// The coupling factor: the low-latency probability divided by the square root of the classic one.
        coupling: f64,
    },
}

/// Parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodel {
    /// The number of queues that flows are hashed into.
    pub flows: u32,
    /// Bytes per visit.
    pub quantum: u32,
    /// Limit on packets in all queues together.
    pub limit: u32,
    /// CoDel parameters of each queue.
    pub codel: Codel,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self { flows: 1024, quantum: 1514, limit: 10_240, codel: Codel { ecn: true, ..Codel::default() } }
    }
}

/// A class with a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The name by which rules refer to it.
    pub name: String,
    /// Its share relative to the weights of the other classes.
    pub weight: u32,
    /// The limit of this class; `None`: the queue's.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// The active queue management of this class; `None`: the queue's.
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
    fn default_queue_size_follows_from_rate_and_delay() {
        let bytes = |bytes| Limit { slots: None, bytes: Some(bytes) };
        assert_eq!(limit_of("rate 100Mbit/s delay 100ms"), bytes(1_250_000));
        assert_eq!(limit_of("rate 1Mbit/s delay 1ms"), bytes(75_700), "50 full frames at least");
        assert_eq!(limit_of("rate 1Mbit/s"), bytes(75_700));
        assert_eq!(limit_of("rate 1Mbit/s queue 7"), Limit { slots: Some(7), bytes: None });
        assert_eq!(limit_of("rate 1Mbit/s queue 7/30KB"), Limit { slots: Some(7), bytes: Some(30_720) });
    }

    #[test]
    fn default_queue_size_follows_from_the_highest_rate_of_a_trace() {
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
