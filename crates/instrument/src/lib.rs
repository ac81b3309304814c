//! The binary's entry point: arguments, privileges, signals, choice of the backend. The measurement code is in `sojourn-probe`.

mod arguments;
mod aside;
mod bounded;
mod caller;
mod capture;
mod clock;
mod control;
mod described;
mod doctor;
mod emulate;
mod ethtool;
mod failure;
pub mod foreign;
mod matching;
mod numbers;
mod place;
mod printed;
mod probe;
mod remover;
mod respond;
mod rotation;
mod secret;
mod serve;
mod stamp;
mod stream;
mod sys;
mod tcp;
mod tcplog;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::json;
use sojourn_record::Origin;
use sojourn_rights::table;

use arguments::{Arguments, Command};
use printed::printed;

/// How this binary was built.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Does what the command line asks for. Returns the exit status.
pub fn main() -> ExitCode {
    let words = emulate::arguments::complete(ethtool::complete(std::env::args_os().collect()));
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    sys::take_file_limits_as_errors();
    let ran = run(&arguments.command);
    aside::finish();
    match ran {
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
            // The reader of the output may have closed it.
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
        Command::Stamp(command) => stamp::run(command),
        Command::Stream(command) => stream::run(command),
        Command::Clock(command) => clock::run(command),
        Command::Capture(command) => capture::run(command),
        Command::Emulate(command) => emulate::run(command),
        Command::Match(command) => matching::run(command),
        Command::MatchSlice(command) => matching::slice::run(command),
        Command::Tcp(command) => tcp::run(command),
        Command::Tcplog(command) => tcplog::run(command),
        Command::Ethtool { words } => ethtool::run(words),
        Command::RemoveSocket(asked) => remover::run(asked),
        Command::Rights => Ok(writeln!(printed(), "{:#}", rights())?),
        Command::Commands => Ok(writeln!(printed(), "{:#}", described::commands())?),
        Command::Schema => Ok(writeln!(printed(), "{:#}", sojourn_record::schema::to_json())?),
        Command::Doctor { json } => doctor::run(*json),
    }
}

/// The table of rights, of which the reference page is made.
fn rights() -> serde_json::Value {
    let kept = |kept: &table::Kept| json!({ "right": kept.right.name(), "purpose": kept.purpose, "until": kept.until });
    let dropped = |dropped: &table::Dropped| json!({ "right": dropped.right.name(), "purpose": dropped.purpose, "until": table::SET_UP });
    let row = |needs: &&table::Needs| {
        let (user, why) = match needs.user {
            table::Who::Unprivileged => ("who called sudo, else nobody", ""),
            table::Who::Caller(why) => ("who called sudo, else root without capabilities", why),
            table::Who::Owner(why) => ("the owner of a folder", why),
            table::Who::Unchanged(why) => ("root without capabilities but these", why),
        };
        json!({
            "command": needs.command, "set_up": needs.set_up, "user": user, "why": why, "writes": needs.writes,
            "rights": needs.dropped.iter().map(dropped).chain(needs.kept.iter().map(kept)).collect::<Vec<_>>(),
            "calls": needs.calls.iter().map(|calls| calls.purpose()).collect::<Vec<_>>(),
        })
    };
    table::ALL.iter().map(row).collect()
}

/// Returns the name that this program was called by: `sojourn probe` and others become it under theirs.
fn program() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_theirs = Path::new(&called).file_name().is_some_and(|name| name == "sojourn");
    if is_theirs { "sojourn" } else { env!("CARGO_PKG_NAME") }
}

/// Who writes records: this binary.
fn origin(is_simulated: bool) -> Origin {
    let (instrument, profile) = (env!("CARGO_PKG_VERSION").to_owned(), PROFILE.to_owned());
    Origin { instrument, profile, is_simulated, ..Origin::default() }
}
