//! Checks a configuration for contradictions.
//!
//! The engine relies on these checks and repeats none of them. Each refusal is one sentence that names the place and the remedy.

mod delay;
mod impair;
mod link;
mod queue;
mod rule;

use std::collections::BTreeSet;

use sojourn_time::Nanos;

use super::units::{rate_text, size_text, time_text};
use super::{Config, Pipe};

/// An error in a configuration: one sentence, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// The place: a file with its line, an option, a pipe.
    pub place: String,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl ConfigError {
    /// Makes an error.
    pub fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into() }
    }
}

/// A refusal without its pipe or rule, which the caller adds.
type Refused = Result<(), String>;

/// The maximum delay, a week: a longer one is probably a mistake.
const LONGEST: Nanos = Nanos::seconds(7 * 86_400);

/// The maximum number of pipes: their numbers are 16 bits in the log.
const MOST_PIPES: usize = 65_535;

/// Returns the first contradiction.
///
/// # Errors
/// Names the contradiction in one sentence.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    whole(config).map_err(|problem| ConfigError::new("emulator", problem))?;
    names(config)?;
    for pipe in &config.pipes {
        check_pipe(pipe)?;
    }
    rule::rules(config)?;
    memory(config)
}

/// Returns the first contradiction within a pipe.
///
/// # Errors
/// Names the contradiction in one sentence.
pub fn check_pipe(pipe: &Pipe) -> Result<(), ConfigError> {
    pipe_parts(pipe).map_err(|problem| ConfigError::new(format!("pipe {}", pipe.name), problem))
}

fn pipe_parts(pipe: &Pipe) -> Refused {
    name(&pipe.name, "it")?;
    if let Some(mask) = &pipe.mask {
        rule::mask(mask)?;
    }
    impair::stage(&pipe.before, "")?;
    impair::stage(&pipe.after, "after the link: ")?;
    link::link(&pipe.link)?;
    queue::queue(pipe)?;
    delay::delay(pipe)
}

fn whole(config: &Config) -> Refused {
    ensure(config.memory_bytes >= 1 << 16, || {
        format!("a memory of {} holds no full frame for long; give 64KB or more", size_text(config.memory_bytes))
    })?;
    ensure(config.budget >= Nanos::ZERO, || "the budget is below zero; give a time such as 100us".to_owned())?;
    ensure(config.pipes.len() <= MOST_PIPES, || format!("more than {MOST_PIPES} pipes; use a mask for pipes of flows"))
}

fn names(config: &Config) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    match config.pipes.iter().find(|pipe| !seen.insert(&pipe.name)) {
        None => Ok(()),
        Some(pipe) => {
            Err(ConfigError::new(format!("pipe {}", pipe.name), "its name is given twice; give each pipe its own"))
        }
    }
}

/// Checks that the bandwidth-delay products of all pipes fit into memory; a pipe without a rate or a delay adds nothing.
fn memory(config: &Config) -> Result<(), ConfigError> {
    let mut sum = 0_u128;
    for pipe in &config.pipes {
        let (Some(rate), delay) = (pipe.link.largest_rate(), pipe.largest_delay()) else { continue };
        let bytes = u128::from(rate) * u128::from(delay.0.unsigned_abs()) / 8_000_000_000;
        sum += bytes;
        if sum > u128::from(config.memory_bytes) {
            let needed = u64::try_from(sum).unwrap_or(u64::MAX).div_ceil(1 << 20);
            let problem = format!(
                "{} × {} of delay are {} MB on their way (with the pipes before it {needed} MB), more than the memory of {}; give more with --memory {needed}MB (memory = \"{needed}MB\" in a file), or less of either",
                rate_text(rate),
                time_text(delay),
                bytes.div_ceil(1 << 20),
                size_text(config.memory_bytes),
            );
            return Err(ConfigError::new(format!("pipe {}", pipe.name), problem));
        }
    }
    Ok(())
}

fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Refused {
    if holds { Ok(()) } else { Err(sentence()) }
}

/// Refuses names that cannot be written as words again.
fn name(name: &str, whose: &str) -> Refused {
    ensure(!name.is_empty(), || format!("{whose} has no name; give it one"))?;
    ensure(!name.contains(|c: char| c == '"' || c.is_control()), || {
        format!("the name {name:?} has a quote or a control character in it; leave it out")
    })
}

/// Refuses values outside 0 to 1, and NaN.
fn probability(value: f64, what: &str) -> Refused {
    ensure((0.0..=1.0).contains(&value), || format!("{what} is {value}, and not from 0 to 1 (0% to 100%)"))
}

/// Refuses times that are not positive, or longer than the maximum.
fn span(value: Nanos, what: &str) -> Refused {
    ensure(value > Nanos::ZERO, || format!("{what} is {}; it must be above 0", time_text(value)))?;
    not_too_long(value, what)
}

fn not_too_long(value: Nanos, what: &str) -> Refused {
    ensure(value <= LONGEST, || {
        format!("{what} is {}; the longest is a week ({})", time_text(value), time_text(LONGEST))
    })
}

/// Refuses numbers that are not positive and finite.
fn positive(value: f64, what: &str) -> Refused {
    ensure(value.is_finite() && value > 0.0, || format!("{what} is {value}; it must be above 0"))
}

#[cfg(test)]
mod tests;
