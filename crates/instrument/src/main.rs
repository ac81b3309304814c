//! The binary: arguments, rights, signals; picks the backend once. What it measures with is in `sojourn-probe`.

mod arguments;
mod blocks;
mod doctor;
mod failure;
mod open;
mod place;
mod respond;
mod session;
mod single;
mod summary;
mod sys;

use std::process::ExitCode;

use clap::Parser;
use sojourn_record::Origin;

use arguments::{Arguments, Command, Probe};

/// How this binary was built.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sojourn-instrument: {}", failure::sentence(&error));
            ExitCode::from(failure::status(&error))
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Probe(Probe::Icmp(arguments)) => single::icmp(arguments),
        Command::Probe(Probe::Udp(arguments)) => single::udp(arguments),
        Command::Probe(Probe::Raw(arguments)) => single::raw(arguments),
        Command::Probe(Probe::Sim(arguments)) => single::sim(arguments),
        Command::Probe(Probe::Blocks(arguments)) => blocks::run(arguments),
        Command::Probe(Probe::Respond(arguments)) => respond::run(arguments),
        Command::Schema => {
            println!("{:#}", sojourn_record::schema::to_json());
            Ok(())
        }
        Command::Doctor { json } => doctor::run(*json),
    }
}

/// Who writes records: this binary.
fn origin(is_simulated: bool) -> Origin {
    Origin { instrument: env!("CARGO_PKG_VERSION").to_owned(), profile: PROFILE.to_owned(), is_simulated }
}
