//! Losses, corruption, duplication.

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

/// Impairments of single packets, applied in this order: loss, corruption, duplication.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairments {
    /// Loss models. Each is evaluated for every packet; the packet is lost if any of them loses it.
    pub loss: Vec<Loss>,
    /// Bit errors.
    pub corruption: Option<Corruption>,
    /// The probability that a packet is duplicated.
    pub duplication: Option<f64>,
}

/// A loss model. Probabilities are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Independent losses.
    Independent {
        /// The loss probability.
        probability: f64,
    },
    /// Gilbert–Elliott, one transition per packet: good to bad with `p`, bad to good with `r`; delivery probability `k` in good, `h` in bad.
    GilbertElliott {
        /// Transition probability from good to bad.
        p: f64,
        /// Transition probability from bad to good.
        r: f64,
        /// Delivery probability in the bad state (netem's `1-h` is the loss probability).
        h: f64,
        /// Delivery probability in the good state.
        k: f64,
    },
    /// Two states in time, with exponential dwell times; a good state loses no packet, a bad one every packet.
    Dwell {
        /// Mean time in the good state.
        good: Nanos,
        /// Mean time in the bad state.
        bad: Nanos,
    },
    /// Four states after Salsano et al.: 1 good, 2 received within a burst, 3 lost within a burst, 4 isolated loss.
    FourState {
        /// From good to burst loss.
        p13: f64,
        /// From burst loss to good.
        p31: f64,
        /// From received within a burst to burst loss.
        p23: f64,
        /// From burst loss to received within a burst.
        p32: f64,
        /// From good to isolated loss.
        p14: f64,
    },
    /// Loses every `every`-th packet, starting with packet number `first` (from 1).
    Every {
        /// The period.
        every: u64,
        /// The first packet that is lost, from 1.
        first: u64,
    },
    /// A pattern with one entry per packet, repeated at its end.
    Pattern {
        /// Whether the packet is lost.
        lost: Vec<bool>,
        /// The file it was read from, for `show`.
        file: String,
    },
    /// A pattern with one entry per millisecond since the pipe's first packet, repeated at its end.
    TimePattern {
        /// Whether packets in this millisecond are lost.
        lost: Vec<bool>,
        /// The file it was read from.
        file: String,
    },
    /// Loses the first `count` TCP segments with SYN and without ACK of each flow.
    Syn {
        /// Number of losses per flow.
        count: u32,
    },
    /// Loses the `index`-th TCP segment with data of each flow (from 1), and its next `retransmissions`.
    Segment {
        /// The segment's index, from 1, counted by new sequence numbers.
        index: u64,
        /// The number of its retransmissions that are lost as well.
        retransmissions: u32,
    },
}

/// A corruption model. The Ethernet header (14 bytes and VLAN tags) is not damaged, so that frames still reach their destination.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Corruption {
    /// Independent bit errors with this probability.
    BitErrorRate(f64),
    /// Flips one bit of a packet, with this probability per packet (netem's `corrupt`).
    OneBit(f64),
}
