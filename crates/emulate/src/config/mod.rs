//! The configuration of an emulator: pipes, and the rules that send packets into them.
//!
//! Plain values, already checked for what a type can hold; [`check`] finds contradictions between them. The modules
//! below parse the input formats (TOML, dummynet, netem); nothing here moves a packet.

pub mod check;
pub mod delay;
pub mod dummynet;
pub mod files;
pub mod impair;
pub mod link;
mod load;
pub mod queue;
pub mod rule;
mod rule_words;
mod selection;
mod toml;
pub mod units;
pub mod words;

pub use check::{ConfigError, check, check_pipe};
pub use delay::{Delay, Distribution, Order, PortDelay, Reorder};
pub use dummynet::config_from_dummynet;
pub use impair::{Corruption, Impairments, Loss};
pub use link::{Cell, Link, Outage, Profile, Trace, TracePoint};
pub use load::load;
pub use queue::{Aqm, Class, Codel, DropFrom, FqCodel, Limit, Pie, Queue, Red, Scheduler};
pub use rule::{Action, Direction, Mask, Match, Prefix, Rule};
pub use words::{
    PipeOption, is_word, nearest_word, pipe_from_options, pipe_from_words, pipe_options, to_stages, to_words,
};

use serde::{Deserialize, Serialize};
use sojourn_time::Nanos;

/// The whole configuration of an emulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The seed of all randomness: the same seed and the same arrivals give the same dispositions.
    pub seed: u64,
    /// The maximum number of bytes of frames held at once, over all pipes.
    pub memory_bytes: u64,
    /// The maximum emulation error: a packet that leaves later than this after its intended departure counts as late.
    pub budget: Nanos,
    /// Pipes; names are unique.
    pub pipes: Vec<Pipe>,
    /// Rules in the order in which they are tried. A packet that no rule selects is bridged unchanged.
    pub rules: Vec<Rule>,
}

/// One pipe: the stages that a packet passes, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pipe {
    /// The name by which rules, `set` and `show` refer to it.
    pub name: String,
    /// With a mask, each flow (packets that are equal under the mask) has its own instance of the pipe.
    pub mask: Option<Mask>,
    /// Impairments before the queue: packets lost here use no bandwidth.
    pub before: Impairments,
    /// The queue of the bottleneck; it fills only if the link limits.
    pub queue: Queue,
    /// The bottleneck link.
    pub link: Link,
    /// Impairments after the link: packets lost here have used bandwidth.
    pub after: Impairments,
    /// The delay line.
    pub delay: Delay,
}

impl Default for Config {
    fn default() -> Self {
        Self { seed: 1, memory_bytes: 256 << 20, budget: Nanos::micros(100), pipes: Vec::new(), rules: Vec::new() }
    }
}
