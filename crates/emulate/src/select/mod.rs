//! Classification of packets: header fields, rules, masks.

mod hash;
mod key;
pub mod mask;
pub mod rules;

pub use key::{Ecn, Key};
pub use mask::flow_of;
pub use rules::{RuleCounter, Rules, Selected};
