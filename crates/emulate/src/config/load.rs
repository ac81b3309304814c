//! Reads a configuration file of any supported format.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Action, Config, ConfigError, Direction, Match, Rule, check, dummynet, files, toml};

/// Reads and checks a configuration. A file whose first statement is a dummynet or ipfw command is parsed as such, any
/// other file as TOML. Paths in the file are relative to its folder.
///
/// # Errors
/// Names the file, the line and the problem.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let name = path.display().to_string();
    let text = files::text(path).map_err(|problem| ConfigError::new("configuration", problem))?;
    config_from_text(&text, &name, path.parent().unwrap_or(Path::new("")))
}

/// Parses and check a configuration text.
pub(super) fn config_from_text(text: &str, name: &str, folder: &Path) -> Result<Config, ConfigError> {
    let mut config =
        if is_dummynet(text) { dummynet::parse(text, name, folder)? } else { toml::parse(text, name, folder)? };
    config.select_by_name();
    all_are_used(&config)
        .and_then(|()| check(&config))
        .map_err(|error| ConfigError::new(format!("{name}, {}", error.place), error.problem))?;
    Ok(config)
}

impl Config {
    /// Without rules, add a rule for each pipe named `forward`, `backward` (that direction) or `both` (both directions).
    pub fn select_by_name(&mut self) {
        if !self.rules.is_empty() {
            return;
        }
        let ways = [("forward", Some(Direction::Forward)), ("backward", Some(Direction::Backward)), ("both", None)];
        for (number, (name, direction)) in (100..).step_by(100).zip(ways) {
            if self.pipes.iter().any(|pipe| pipe.name == name) {
                let on = Match { direction, ..Match::default() };
                self.rules.push(Rule { number, on, action: Action::Pipe { pipe: name.to_owned(), class: None } });
            }
        }
    }
}

/// Refuses a pipe that no rule selects: its rule was probably forgotten.
fn all_are_used(config: &Config) -> Result<(), ConfigError> {
    let used: BTreeSet<&str> = config
        .rules
        .iter()
        .filter_map(|rule| match &rule.action {
            Action::Pipe { pipe, .. } => Some(pipe.as_str()),
            _ => None,
        })
        .collect();
    match config.pipes.iter().find(|pipe| !used.contains(pipe.name.as_str())) {
        None => Ok(()),
        Some(pipe) => Err(ConfigError::new(
            format!("pipe {}", pipe.name),
            "no rule sends a packet into it; add one, or call it forward, backward or both",
        )),
    }
}

/// Returns whether the first statement is a dummynet command.
fn is_dummynet(text: &str) -> bool {
    let Some((_, line)) = files::lines(text).next() else { return false };
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_word = matches!(
        first,
        "pipe"
            | "queue"
            | "sched"
            | "add"
            | "ipfw"
            | "/sbin/ipfw"
            | "dnctl"
            | "sysctl"
            | "seed"
            | "memory"
            | "budget"
            | "flush"
    );
    first.starts_with("net.inet.") || (is_word && !words.next().unwrap_or_default().starts_with('='))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Result<Config, ConfigError> {
        config_from_text(text, "f", Path::new(""))
    }

    #[test]
    fn file_format_is_detected_from_the_first_line() {
        assert!(is_dummynet("# a script\npipe 1 config bw 1M"));
        assert!(is_dummynet("net.inet.ip.fw.one_pass=0"));
        assert!(is_dummynet("seed 5"));
        assert!(!is_dummynet("seed = 5"));
        assert!(!is_dummynet("[[pipe]]\nname = \"a\""));
        assert!(!is_dummynet(""));
    }

    #[test]
    fn pipe_with_a_direction_needs_no_rule() {
        let config = of("pipe forward config delay 5\npipe backward config delay 6\n").unwrap();
        assert_eq!(
            config.rules.iter().map(|rule| rule.on.direction).collect::<Vec<_>>(),
            [Some(Direction::Forward), Some(Direction::Backward)]
        );
        assert_eq!(of("pipe both config delay 5\n").unwrap().rules[0].on, Match::default());
        assert_eq!(
            of("pipe 1 config delay 5\n").unwrap_err().to_string(),
            "f, pipe 1: no rule sends a packet into it; add one, or call it forward, backward or both"
        );
        assert_eq!(of("").unwrap(), Config::default());
    }

    #[test]
    fn error_names_the_missing_file() {
        let error = load(Path::new("/nonexistent/c.toml")).unwrap_err().to_string();
        assert!(error.starts_with("configuration: /nonexistent/c.toml cannot be read"), "{error}");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(any in ".{0,120}", text in "((\\[\\[pipe\\]\\]|\\[\\[rule\\]\\]|name|delay|loss|pipe|=| |\"1%\"|\"a\"|5|\\[|\\]|\n){0,6}){0,6}") {
            let _ = (of(&any), of(&text));
        }
    }
}
