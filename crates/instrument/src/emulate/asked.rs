//! From a command line to a configuration.

use sojourn_emulate::config::{Action, Match, Rule, pipe_from_options, pipe_from_words};
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
    let both = options(asked);
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
        let pipe = pipe_from_options(both.iter().copied(), &idle)?;
        config.pipes.push(pipe_from_words(own.as_deref().unwrap_or_default(), &pipe)?);
        let on = Match { direction: Some(direction), ..Match::default() };
        let number = 100 * (direction.index() as u32 + 1);
        config.rules.push(Rule { number, on, action: Action::Pipe { pipe: name, class: None } });
    }
    Ok(config)
}

fn is_any_pipe(asked: &Asked) -> bool {
    asked.forward.is_some() || asked.backward.is_some() || !options(asked).is_empty()
}

/// The options that are given, each as a word and its value. What is behind the link comes after what is before it, and the
/// queue last: what it holds may depend on the others.
fn options(asked: &Asked) -> Vec<(&'static str, &str)> {
    let after = asked.loss_after.iter().map(|loss| ("loss", loss.as_str()));
    let mut options: Vec<_> = one("mask", &asked.mask).into_iter().collect();
    options.extend(asked.loss.iter().map(|loss| ("loss", loss.as_str())));
    options.extend(
        [
            one("corrupt", &asked.corrupt),
            one("ber", &asked.ber),
            one("duplicate", &asked.duplicate),
            one("rate", &asked.rate),
            one("overhead", &asked.overhead),
            one("burst", &asked.burst),
            one("trace", &asked.trace),
            one("outage", &asked.outage),
            one("delay", &asked.delay),
            one("jitter", &asked.jitter),
            one("distribution", &asked.distribution),
            one("half-life", &asked.half_life),
            one("order", &asked.order),
            one("reorder", &asked.reorder),
        ]
        .into_iter()
        .flatten(),
    );
    if !asked.loss_after.is_empty() {
        options.push(("after", ""));
        options.extend(after);
        options.push(("before", ""));
    }
    options.extend(one("queue", &asked.queue).into_iter().chain(one("aqm", &asked.aqm)));
    options
}

fn one<'a>(word: &'static str, value: &'a Option<String>) -> Option<(&'static str, &'a str)> {
    value.as_deref().map(|value| (word, value))
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
    fn an_aqm_is_taken_with_its_parameters_and_taken_away() {
        let pipe = |aqm: &str| {
            let asked = Asked { rate: some("1Mbit/s"), aqm: some(aqm), ..Asked::default() };
            config(&asked).unwrap().pipes.remove(0)
        };
        assert_eq!(
            pipe("codel target 3ms").queue.aqm,
            pipe_from_words("codel target 3ms", &Pipe::default()).unwrap().queue.aqm
        );
        assert_eq!(pipe("none"), Pipe { queue: Pipe::default().queue, ..pipe("codel") });
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
        let told_share = told(Asked { loss: vec!["2".to_owned()], ..Asked::default() });
        assert_eq!(told_share, "pipe forward: loss: 2 has no percent sign: write 2%");
        let told_negative = told(Asked { delay: some("-5ms"), ..Asked::default() });
        assert_eq!(told_negative, "pipe forward: delay: -5ms: a time cannot be below zero; write it as 5ms");
        let told_more = told(Asked { queue: some("50 codel"), ..Asked::default() });
        assert_eq!(told_more, "pipe forward: queue: \"codel\" is more than it takes");
        let both = Asked { config: Some("x.toml".into()), delay: some("20ms"), ..Asked::default() };
        assert!(told(both).starts_with("--config beside options"));
    }
}
