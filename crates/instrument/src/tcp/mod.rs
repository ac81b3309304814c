//! `tcp`: connections by hand, or as asked line by line. What they do is in `sojourn-tcp`.

pub mod arguments;
mod rows;
mod serve;
mod single;

use crate::place;
use arguments::{Spot, Tcp};

/// Does what is asked.
///
/// # Errors
/// When the request makes no sense, the machine cannot, or a connection broke.
pub fn run(command: &Tcp) -> anyhow::Result<()> {
    match command {
        Tcp::Send(arguments) => single::send(arguments),
        Tcp::Receive(arguments) => single::receive(arguments),
        Tcp::Serve(arguments) => serve::run(arguments),
    }
}

fn apply_scheduling(place: &Spot) -> anyhow::Result<()> {
    place::stay(place.cpu, place.die_with_parent)
}
