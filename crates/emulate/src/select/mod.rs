//! Which packets go where: what a packet is, rules, masks.

mod hash;
mod key;
pub mod mask;
pub mod rules;

pub use key::{Ecn, Key};
pub use mask::flow_of;
pub use rules::{RuleCounter, Rules, Selected};
