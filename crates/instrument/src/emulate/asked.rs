//! Builds a configuration from a command line.

use sojourn_emulate::config::{
    Action, Match, Rule, is_word, nearest_word, pipe_from_options, pipe_from_words, pipe_options,
};
use sojourn_emulate::{Config, ConfigError, Direction, Pipe, config};
use sojourn_port::kernel::Interface;

use super::arguments::Asked;
use crate::caller;
use crate::failure::WrongRequest;

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// Refuses two ports that no bridge can have: words of the configuration, for which an option was meant, and one port twice.
///
/// # Errors
/// Says which, and what to write instead.
pub fn check_ports(ports: &[&str]) -> Result<(), WrongRequest> {
    for (at, &port) in ports.iter().enumerate() {
        if !is_word(port) || is_interface(port) {
            continue;
        }
        let words = ports[at..].join(" ");
        let option =
            pipe_options().find(|option| option.word == port).map_or(String::new(), |_| format!("--{words}, or "));
        return Err(WrongRequest(format!(
            "{port} is a word of the configuration, and no interface has that name: did you mean {option}--forward {words:?}?"
        )));
    }
    match ports {
        [left, right] if left == right => {
            Err(WrongRequest(format!("{left} {right}: that is one port twice; a bridge has two different ones")))
        }
        _ => Ok(()),
    }
}

/// Refuses what is not two ports where two may be left out: one alone, and a mistyped word of the configuration with its value.
///
/// # Errors
/// Says which, and what to write instead.
pub fn check_both(ports: &[&str]) -> Result<(), WrongRequest> {
    let (first, value) = match ports {
        [] => return Ok(()),
        [first] => (first, ""),
        [first, value, ..] if value.starts_with(|c: char| c.is_ascii_digit()) => (first, *value),
        _ => return Ok(()),
    };
    let sentence = match nearest_word(first).filter(|_| !is_interface(first)) {
        Some(near) => {
            let words = format!("{near} {value}");
            format!(
                "{first} is neither an interface nor a word of the configuration: did you mean --forward {:?}?",
                words.trim_end()
            )
        }
        None if value.is_empty() => {
            format!("{first}: that is one port; give two, as in emulate explain {first} OTHER, or none")
        }
        None => return Ok(()),
    };
    Err(WrongRequest(sentence))
}

/// Whether this network namespace has an interface of that name.
pub fn is_interface(name: &str) -> bool {
    Interface::named(name).is_ok()
}

/// Returns what is asked. Below sudo the caller reads the files that are named: errors quote their lines.
///
/// # Errors
/// Says what of it is not understood or contradicts itself.
pub fn config(asked: &Asked) -> anyhow::Result<Config> {
    caller::as_caller(|| read(asked))?
}

fn read(asked: &Asked) -> anyhow::Result<Config> {
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
    let mut config = Config::default();
    for direction in DIRECTIONS {
        let own = match direction {
            Direction::Forward => &asked.forward,
            Direction::Backward => &asked.backward,
        };
        if asked.pipe.is_empty() && own.is_none() {
            continue;
        }
        let name = direction.name().to_owned();
        let idle = Pipe { name: name.clone(), ..Pipe::default() };
        let pipe = pipe_from_options(asked.pipe.iter(), &idle)?;
        config.pipes.push(pipe_from_words(own.as_deref().unwrap_or_default(), &pipe)?);
        let on = Match { direction: Some(direction), ..Match::default() };
        let number = 100 * (direction.index() as u32 + 1);
        config.rules.push(Rule { number, on, action: Action::Pipe { pipe: name, class: None } });
    }
    Ok(config)
}

fn is_any_pipe(asked: &Asked) -> bool {
    asked.forward.is_some() || asked.backward.is_some() || !asked.pipe.is_empty()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sojourn_emulate::config::{Limit, Loss};
    use sojourn_time::Nanos;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    fn asked(words: &[&str]) -> Asked {
        Line::try_parse_from(["x"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}")).asked
    }

    #[test]
    fn options_apply_to_both_directions_and_configuration_strings_to_one() {
        let backward = "delay 5ms rate 1Mbit/s queue 7";
        let asked = asked(&["--delay", "20ms", "--loss-after", "2%", "--loss", "1%", "--backward", backward]);
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

    /// However they are given, an option that says more of what another one also sets holds.
    #[test]
    fn options_are_applied_in_the_order_of_their_table() {
        let pipe = |words: &[&str]| from_options(&asked(words)).unwrap().pipes.remove(0);
        for (one, other) in [
            (["--jitter", "5ms"], ["--delay", "20ms 2ms"]),
            (["--half-life", "5ms"], ["--jitter", "1ms"]),
            (["--ber", "1e-6"], ["--corrupt", "1%"]),
            (["--overhead", "24"], ["--rate", "1Mbit/s 20"]),
            (["--aqm", "codel class web weight 3"], ["--queue", "9"]),
        ] {
            let (first, last) = (pipe(&[one, other].concat()), pipe(&[other, one].concat()));
            assert_eq!(first, last, "{one:?} {other:?}");
            let words = [other, one].concat().join(" ").replace("--aqm ", "").replace("--", "");
            assert_eq!(last, pipe_from_words(&words, &Pipe { name: "forward".to_owned(), ..Pipe::default() }).unwrap());
        }
    }

    #[test]
    fn aqm_is_set_with_its_parameters_and_removed() {
        let pipe = |aqm: &str| config(&asked(&["--rate", "1Mbit/s", "--aqm", aqm])).unwrap().pipes.remove(0);
        assert_eq!(
            pipe("codel target 3ms").queue.aqm,
            pipe_from_words("codel target 3ms", &Pipe::default()).unwrap().queue.aqm
        );
        assert_eq!(pipe("none"), Pipe { queue: Pipe::default().queue, ..pipe("codel") });
    }

    #[test]
    fn no_options_make_a_bridge_and_an_empty_configuration_string_an_idle_pipe() {
        assert!(config(&Asked::default()).unwrap().pipes.is_empty());
        let idle = config(&asked(&["--forward", "", "--seed", "9"])).unwrap();
        assert_eq!(idle.pipes, [Pipe { name: "forward".to_owned(), ..Pipe::default() }]);
        assert_eq!((idle.rules.len(), idle.seed), (1, 9));
    }

    #[test]
    fn wrong_options_are_reported() {
        for (words, sentence) in [
            (["--loss", "2"], "pipe forward: loss: 2 has no percent sign: write 2%"),
            (["--delay", "-5ms"], "pipe forward: delay: -5ms: a time cannot be below zero; write it as 5ms"),
            (["--queue", "50 codel"], "pipe forward: queue: \"codel\" is more than it takes"),
            (
                ["--delay", "20"],
                "pipe forward: delay: 20 has no unit that I know; write 20ms, 20us, 20ns, 20s, 20min or 20h",
            ),
        ] {
            assert_eq!(config(&asked(&words)).unwrap_err().to_string(), sentence);
        }
        let both = config(&asked(&["--config", "x.toml", "--delay", "20ms"])).unwrap_err().to_string();
        assert!(both.starts_with("--config beside options"), "{both}");
    }
}
