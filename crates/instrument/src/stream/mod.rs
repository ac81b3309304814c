//! `stream`: sends streams of frames, receives them, and simulates both. The implementation is in `sojourn-stream`.

mod by_hand;
pub mod clocks;
pub mod findings;
pub mod host;
mod kept;
mod live;
mod one_way;
mod ports;
mod quantiles;
mod rate;
mod receive;
pub mod request;
pub mod rows;
mod send;
mod serve;
pub mod shape;
mod simulate;
mod to;

pub use by_hand::arguments::Stream;

/// Runs a command.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, or the results must not be trusted.
pub fn run(command: &Stream) -> anyhow::Result<()> {
    match command {
        Stream::Send(arguments) => by_hand::send::run(arguments),
        Stream::Recv(arguments) => by_hand::recv::run(arguments),
        Stream::Sim(arguments) => by_hand::sim::run(arguments),
        Stream::Serve(arguments) => serve::run(arguments),
    }
}
