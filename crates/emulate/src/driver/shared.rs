//! Whether arrivals of both directions must be processed in order.

use crate::config::{Action, Config, Direction};

/// Returns whether packets of both directions meet in one pipe. Live changes do not affect rules, so this holds for the whole run.
pub fn is_shared(config: &Config) -> bool {
    let into = |pipe: &str, direction| {
        config.rules.iter().any(|rule| {
            let is_open = rule.on.direction.is_none_or(|only| only == direction);
            is_open && matches!(&rule.action, Action::Pipe { pipe: to, .. } if to == pipe)
        })
    };
    let has_both = |pipe: &str| into(pipe, Direction::Forward) && into(pipe, Direction::Backward);
    config.pipes.iter().any(|pipe| has_both(&pipe.name))
}
