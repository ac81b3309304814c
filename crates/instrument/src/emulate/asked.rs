//! From a command line to a configuration: options are words, and words make pipes.

use sojourn_emulate::config::{Action, Match, Rule, pipe_from_words};
use sojourn_emulate::{Config, ConfigError, Direction, Pipe, config};

use super::arguments::Asked;
use crate::failure::WrongRequest;

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// Returns what is asked.
///
/// # Errors
/// Says what of it is not understood or contradicts itself.
pub fn config(asked: &Asked) -> anyhow::Result<Config> {
    let mut config = match &asked.config {
        Some(_) if is_any_pipe(asked) => {
            let problem = "--config beside options for packets: give the pipes in one of both places";
            return Err(WrongRequest(problem.to_owned()).into());
        }
        Some(path) => config::load(path)?,
        None => from_options(asked)?,
    };
    config.seed = asked.seed.unwrap_or(config.seed);
    config.memory_bytes = asked.memory.unwrap_or(config.memory_bytes);
    config.budget = asked.budget.unwrap_or(config.budget);
    config::check(&config)?;
    Ok(config)
}

/// Makes a pipe and a rule for each direction that anything is asked of.
fn from_options(asked: &Asked) -> Result<Config, ConfigError> {
    let both = words(asked);
    let mut config = Config::default();
    for direction in DIRECTIONS {
        let own = match direction {
            Direction::Forward => &asked.forward,
            Direction::Backward => &asked.backward,
        };
        if both.is_empty() && own.is_none() {
            continue;
        }
        let name = direction.name().to_owned();
        let idle = Pipe { name: name.clone(), ..Pipe::default() };
        let pipe = pipe_from_words(&both, &idle)?;
        config.pipes.push(pipe_from_words(own.as_deref().unwrap_or_default(), &pipe)?);
        let on = Match { direction: Some(direction), ..Match::default() };
        let number = 100 * (direction.index() as u32 + 1);
        config.rules.push(Rule { number, on, action: Action::Pipe { pipe: name, class: None } });
    }
    Ok(config)
}

fn is_any_pipe(asked: &Asked) -> bool {
    asked.forward.is_some() || asked.backward.is_some() || !words(asked).is_empty()
}

/// Writes options as words. What is behind the link comes after what is before it, and the queue last, for words behind a
/// class are the class's.
fn words(asked: &Asked) -> String {
    let mut words = Vec::new();
    let mut say = |word: &str, value: Option<&String>| {
        words.extend(value.map(|value| format!("{word} {value}").trim().to_owned()));
    };
    say("mask", asked.mask.as_ref());
    asked.loss.iter().for_each(|loss| say("loss", Some(loss)));
    say("corrupt", asked.corrupt.as_ref());
    say("ber", asked.ber.as_ref());
    say("duplicate", asked.duplicate.as_ref());
    say("rate", asked.rate.as_ref());
    say("overhead", asked.overhead.as_ref());
    say("burst", asked.burst.as_ref());
    say("trace", asked.trace.as_ref());
    say("outage", asked.outage.as_ref());
    say("delay", asked.delay.as_ref());
    say("jitter", asked.jitter.as_ref());
    say("distribution", asked.distribution.as_ref());
    say("half-life", asked.half_life.as_ref());
    say("order", asked.order.as_ref());
    say("reorder", asked.reorder.as_ref());
    asked.loss_after.iter().for_each(|loss| say("after loss", Some(loss)));
    if !asked.loss_after.is_empty() {
        say("before", Some(&String::new()));
    }
    say("queue", asked.queue.as_ref());
    say("", asked.aqm.as_ref());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use sojourn_emulate::config::{Limit, Loss};
    use sojourn_time::Nanos;

    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn options_hold_for_both_directions_and_words_for_one() {
        let asked = Asked { delay: some("20ms"), loss: vec!["1%".to_owned()], ..Asked::default() };
        let asked =
            Asked { backward: some("delay 5ms rate 1Mbit/s queue 7"), loss_after: vec!["2%".to_owned()], ..asked };
        let config = config(&asked).unwrap();
        let [forward, backward] = &config.pipes[..] else { panic!("{config:?}") };
        assert_eq!((forward.delay.constant, backward.delay.constant), (Nanos::millis(20), Nanos::millis(5)));
        for pipe in [forward, backward] {
            assert_eq!(pipe.before.loss, [Loss::Independent { probability: 0.01 }]);
            assert_eq!(pipe.after.loss, [Loss::Independent { probability: 0.02 }]);
        }
        assert_eq!(backward.queue.limit, Limit { slots: Some(7), bytes: None });
        assert_eq!(config.rules.len(), 2);
    }

    #[test]
    fn without_anything_it_is_a_bridge_and_with_empty_words_an_idle_pipe() {
        assert!(config(&Asked::default()).unwrap().pipes.is_empty());
        let idle = config(&Asked { forward: some(""), seed: Some(9), ..Asked::default() }).unwrap();
        assert_eq!(idle.pipes, [Pipe { name: "forward".to_owned(), ..Pipe::default() }]);
        assert_eq!((idle.rules.len(), idle.seed), (1, 9));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told = |asked: Asked| config(&asked).unwrap_err().to_string();
        let told_delay = told(Asked { delay: some("20"), ..Asked::default() });
        assert!(told_delay.starts_with("pipe forward: delay: "), "{told_delay}");
        let both = Asked { config: Some("x.toml".into()), delay: some("20ms"), ..Asked::default() };
        assert!(told(both).starts_with("--config beside options"));
    }
}
