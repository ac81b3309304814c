//! `tcp`: a plain application that sends or receives over TCP and reads TCP_INFO: what the logger is held against.

pub mod arguments;
mod info;
mod receiving;
mod sending;
mod serve;
mod single;
mod socket;
mod sys;
mod waiting;

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

fn settle(place: &Spot) -> anyhow::Result<()> {
    place::stay(place.cpu, place.die_with_parent)
}
