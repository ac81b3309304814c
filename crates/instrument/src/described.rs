//! `commands`: lists every command with its options, as the source of man pages and shell completion.
//!
//! Reads the same declaration as the help, so that they cannot differ. Does no formatting.

use clap::{Arg, Command, CommandFactory, ValueHint};
use serde_json::{Value, json};

use crate::arguments::Arguments;

/// The tree of commands that are not hidden.
pub fn commands() -> Value {
    let mut root = Arguments::command();
    root.build();
    command(&root)
}

fn command(of: &Command) -> Value {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let options = of.get_arguments().filter(|argument| !argument.is_hide_set());
    let inside = of.get_subcommands().filter(|command| !command.is_hide_set());
    json!({
        "name": of.get_name(),
        "about": text(of.get_about()),
        "help": text(of.get_long_about().or(of.get_about())),
        "after": text(of.get_after_long_help().or(of.get_after_help())),
        "arguments": options.map(argument).collect::<Vec<_>>(),
        "commands": inside.map(command).collect::<Vec<_>>(),
    })
}

fn argument(of: &Arg) -> Value {
    let short = of.get_short().map(|letter| format!("-{letter}"));
    let long = of.get_long().map(|word| format!("--{word}"));
    let takes_value = of.get_action().takes_values();
    let names = of.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    let choices = of.get_possible_values().into_iter().filter(|value| takes_value && !value.is_hide_set());
    let help = of.get_long_help().or(of.get_help()).map(ToString::to_string).unwrap_or_default();
    let defaults = of.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let path = [ValueHint::AnyPath, ValueHint::FilePath, ValueHint::DirPath];
    json!({
        "options": short.into_iter().chain(long).collect::<Vec<_>>(),
        "values": names.filter(|_| takes_value).collect::<Vec<_>>(),
        "help": help,
        "default": defaults.filter(|_| takes_value).collect::<Vec<_>>().join(","),
        "choices": choices.map(|value| value.get_name().to_owned()).collect::<Vec<_>>(),
        "is_path": path.contains(&of.get_value_hint()),
        "is_required": of.is_required_set(),
        "is_repeated": of.get_num_args().is_some_and(|count| count.max_values() > 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside<'a>(of: &'a Value, name: &str) -> &'a Value {
        of["commands"].as_array().unwrap().iter().find(|command| command["name"] == name).unwrap()
    }

    fn option<'a>(of: &'a Value, name: &str) -> &'a Value {
        let has = |argument: &&Value| argument["options"].as_array().unwrap().contains(&json!(name));
        of["arguments"].as_array().unwrap().iter().find(has).unwrap()
    }

    #[test]
    fn options_are_described_as_they_are_declared() {
        let all = commands();
        let run = inside(inside(&all, "emulate"), "run");
        assert_eq!(option(run, "--delay")["values"], json!(["SPAN"]));
        assert_eq!(option(run, "--backend")["choices"], json!(["user", "kernel"]));
        assert_eq!(option(run, "--json")["values"], json!([]));
        assert!(option(run, "--delay")["help"].as_str().unwrap().len() > 10);
        let capture = inside(&all, "capture");
        assert_eq!(option(capture, "--out")["is_path"], json!(true));
        assert_eq!(option(capture, "-o"), option(capture, "--out"));
    }

    #[test]
    fn hidden_options_are_not_described() {
        let all = commands();
        let names: Vec<_> =
            all["commands"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert!(
            names.contains(&"tcplog") && !names.contains(&"commands") && !names.contains(&"match-slice"),
            "{names:?}"
        );
    }
}
