//! The options of a pipe on a command line, from the table of pipe parameters.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use sojourn_emulate::config::{PipeOption, pipe_options};

use super::arguments::PIPES;

/// The options that are given, each a word and its value, in the order of the table.
#[derive(Clone, Debug, Default)]
pub struct PipeOptions(Vec<(&'static str, String)>);

impl PipeOptions {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(word, value)| (*word, value.as_str()))
    }
}

impl Args for PipeOptions {
    fn augment_args(command: Command) -> Command {
        command.args(pipe_options().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PipeOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |word| matches.get_many::<String>(word).into_iter().flatten().cloned();
        Ok(Self(pipe_options().flat_map(|option| values(option.word).map(move |value| (option.word, value))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(option: PipeOption) -> Arg {
    Arg::new(option.word)
        .long(option.word)
        .value_name(option.value_name)
        .help(option.help)
        .help_heading(PIPES)
        .allow_hyphen_values(option.takes_hyphen)
        .action(if option.is_repeated { ArgAction::Append } else { ArgAction::Set })
}
