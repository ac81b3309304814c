//! What is asked of an emulator: pipes, and the rules that send packets into them.
//!
//! Plain values, already checked for what a type can hold; [`check`] finds what contradicts itself. Where they come from
//! (TOML, dummynet's words, netem's words) is in the modules below; nothing here moves a packet.

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

/// Everything that an emulator is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What all randomness is made from: the same seed and the same arrivals give the same dispositions.
    pub seed: u64,
    /// How many bytes of frames may be held at once, in all pipes together.
    pub memory_bytes: u64,
    /// How far behind its intended time a packet may leave before it counts as late.
    pub budget: Nanos,
    /// By name, unique.
    pub pipes: Vec<Pipe>,
    /// Tried in order; what none selects is bridged unchanged.
    pub rules: Vec<Rule>,
}

/// One path: what happens to a packet that a rule sends into it, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pipe {
    /// What rules, `set` and `show` call it.
    pub name: String,
    /// Where given, each flow (packets that are equal under the mask) has a pipe of its own.
    pub mask: Option<Mask>,
    /// Impairments before the queue: what they lose uses no bandwidth.
    pub before: Impairments,
    /// The bottleneck's queue; only a link with a rate ever fills it.
    pub queue: Queue,
    /// The bottleneck itself.
    pub link: Link,
    /// Impairments behind the link: what they lose has used bandwidth.
    pub after: Impairments,
    /// The delay line.
    pub delay: Delay,
}

impl Default for Config {
    fn default() -> Self {
        Self { seed: 1, memory_bytes: 256 << 20, budget: Nanos::micros(100), pipes: Vec::new(), rules: Vec::new() }
    }
}
