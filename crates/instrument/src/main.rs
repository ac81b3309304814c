//! The binary: arguments, rights, signals; picks the backend once. What it measures with is in `sojourn-probe`.

mod arguments;
mod clock;
mod control;
mod doctor;
mod emulate;
mod failure;
mod numbers;
mod place;
mod probe;
mod respond;
mod secret;
mod serve;
mod stream;
mod sys;
mod tcp;
mod tcplog;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use sojourn_record::Origin;

use arguments::{Arguments, Command};

/// How this binary was built.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

fn main() -> ExitCode {
    let words = emulate::arguments::complete(std::env::args_os().collect());
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {}", program(), failure::sentence(&error));
            ExitCode::from(failure::status(&error))
        }
    }
}

/// Shows the help that was asked for, or says in a sentence what is wrong with the command line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Whoever reads may have gone away.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(failure::WRONG_REQUEST)
        }
        _ => {
            eprintln!("{}: {}", program(), arguments::sentence(error));
            ExitCode::from(failure::WRONG_REQUEST)
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Probe(command) => probe::run(command),
        Command::Stream(command) => stream::run(command),
        Command::Clock(command) => clock::run(command),
        Command::Emulate(command) => emulate::run(command),
        Command::Tcp(command) => tcp::run(command),
        Command::Tcplog(command) => tcplog::run(command),
        Command::Schema => {
            println!("{:#}", sojourn_record::schema::to_json());
            Ok(())
        }
        Command::Doctor { json } => doctor::run(*json),
    }
}

/// Returns the name that this program was called by: `sojourn probe` and others become it under theirs.
fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_theirs = Path::new(&called).file_name().is_some_and(|name| name == "sojourn");
    if is_theirs { "sojourn" } else { env!("CARGO_PKG_NAME") }
}

/// Who writes records: this binary.
fn origin(is_simulated: bool) -> Origin {
    Origin { instrument: env!("CARGO_PKG_VERSION").to_owned(), profile: PROFILE.to_owned(), is_simulated }
}
