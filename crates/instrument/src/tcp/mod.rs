//! `tcp`: connections by hand, or driven by requests on standard input. The implementation is in `sojourn-tcp`.

pub mod arguments;
mod rows;
pub mod serve;
mod single;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::place;
use arguments::{Spot, Tcp};

/// Runs a command.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, or a connection broke.
pub fn run(command: &Tcp) -> anyhow::Result<()> {
    allow_files();
    match command {
        Tcp::Send(arguments) => single::send(arguments),
        Tcp::Receive(arguments) => single::receive(arguments),
        Tcp::Serve(arguments) => serve::run(arguments),
    }
}

/// Raises the limit of open files to its maximum: a thousand connections exceed the usual soft limit.
fn allow_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If this fails, opening a socket reports the error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn apply_scheduling(place: &Spot) -> anyhow::Result<()> {
    place::stay(place.cpu, place.die_with_parent)
}
