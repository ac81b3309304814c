//! Losses, corruption, duplication.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

/// What happens to single packets, in this order: loss, corruption, duplication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairments {
    /// Each is asked for every packet; one that loses it is enough.
    pub loss: Vec<Loss>,
    /// Flipped bits.
    pub corruption: Option<Corruption>,
    /// The probability that a packet is followed by a copy of itself.
    pub duplication: Option<f64>,
}

/// Which packets are lost. Probabilities are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Each by itself.
    Independent {
        /// How likely.
        probability: f64,
    },
    /// Gilbert–Elliott, by packets: from good to bad with `p`, back with `r`; delivered with `k` in good, `h` in bad.
    GilbertElliott {
        /// Good to bad.
        p: f64,
        /// Bad to good.
        r: f64,
        /// Delivered in the bad state (netem's `1-h` is what is lost).
        h: f64,
        /// Delivered in the good state.
        k: f64,
    },
    /// The same by time: exponential dwell in each state; a good state loses nothing, a bad one everything.
    Dwell {
        /// Mean time in the good state.
        good: Nanos,
        /// Mean time in the bad state.
        bad: Nanos,
    },
    /// Four states after Salsano et al.: 1 good, 2 received within a burst, 3 lost within a burst, 4 lost alone.
    FourState {
        /// From good to burst loss.
        p13: f64,
        /// From burst loss to good.
        p31: f64,
        /// From received within a burst to burst loss.
        p23: f64,
        /// From burst loss to received within a burst.
        p32: f64,
        /// From good to a loss alone.
        p14: f64,
    },
    /// Every `every`-th packet, the first of them number `first` (from 1).
    Every {
        /// The period.
        every: u64,
        /// The first that is lost, from 1.
        first: u64,
    },
    /// One letter a packet, again from the start at its end: whether it is lost.
    Pattern {
        /// True: lost.
        lost: Vec<bool>,
        /// Where it was read from, for `show`.
        file: String,
    },
    /// One letter a millisecond since the pipe's first packet, again from the start at its end.
    TimePattern {
        /// True: lost.
        lost: Vec<bool>,
        /// Where it was read from.
        file: String,
    },
    /// TCP segments with SYN and without ACK: the first `count` of each flow.
    Syn {
        /// How many of each flow.
        count: u32,
    },
    /// The `index`-th TCP segment with data of each flow (from 1), and its next `retransmissions`.
    Segment {
        /// Which, from 1, counted by new sequence numbers.
        index: u64,
        /// How many retransmissions of it are lost as well.
        retransmissions: u32,
    },
}

/// How bits are damaged. The Ethernet header (14 bytes, tags too) is left alone, so that frames still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Corruption {
    /// Each bit by itself, with this probability.
    BitErrorRate(f64),
    /// One bit of a packet, in so many packets (netem's).
    OneBit(f64),
}
