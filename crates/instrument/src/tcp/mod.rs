//! `tcp`: connections by hand, or as asked line by line. What they do is in `sojourn-tcp`.

pub mod arguments;
mod rows;
pub mod serve;
mod single;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::place;
use arguments::{Spot, Tcp};

/// Does what is asked.
///
/// # Errors
/// When the request makes no sense, the machine cannot, or a connection broke.
pub fn run(command: &Tcp) -> anyhow::Result<()> {
    allow_files();
    match command {
        Tcp::Send(arguments) => single::send(arguments),
        Tcp::Receive(arguments) => single::receive(arguments),
        Tcp::Serve(arguments) => serve::run(arguments),
    }
}

/// Lets this process have as many files open as it may at most: a thousand connections are more than shells allow.
fn allow_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // What cannot be raised is told where a socket is not to be had.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn apply_scheduling(place: &Spot) -> anyhow::Result<()> {
    place::stay(place.cpu, place.die_with_parent)
}
