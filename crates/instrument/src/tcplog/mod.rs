//! `tcplog`: logs the state of TCP at every packet, by programs in the kernel, and counts every packet that was not logged.
//!
//! The programs, the records and the packet accounting are in `sojourn-tcplog`. This module has the control socket, the
//! start and end of a log, and the output.

pub mod answer;
pub mod arguments;
pub mod asked;
mod child;
pub mod client;
mod close;
mod drain;
mod export;
pub mod folder;
mod log_options;
mod logger;
mod open;
mod parts;
mod programs;
mod receive;
mod recorder;
pub mod recover;
mod run;

mod senders;
pub mod serve;
mod show;
mod simulated;
mod sys;
mod watch;

pub use folder::write_whole;

use arguments::Tcplog;

/// Runs a command.
///
/// # Errors
/// As the command.
pub fn run(command: &Tcplog) -> anyhow::Result<()> {
    match command {
        Tcplog::Run(asked) => run::run(asked),
        Tcplog::Status(asked) => client::status(asked),
        Tcplog::Set(asked) => client::set(asked),
        Tcplog::Watch(asked) => watch::run(asked),
        Tcplog::Serve(asked) => serve::run(asked),
        Tcplog::Recover(asked) => recover::run(asked),
        Tcplog::Receive(asked) => receive::run(asked),
    }
}
