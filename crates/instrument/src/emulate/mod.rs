//! `emulate`: a bridge that emulates links, and measures its own accuracy.
//!
//! The engine and its driver are in `sojourn-emulate`. This module has the ports, the scheduling, the control socket and the log.

pub mod arguments;
mod asked;
mod bridge;
mod bridged;
mod client;
pub mod compensate;
mod events;
mod explain;
mod idle;
mod kernel;
pub mod live;
mod log;
pub mod netem_record;
mod offline;
mod pipe_options;
pub mod qdiscs;
pub mod replay;
pub mod show;

use sojourn_emulate::driver::Driver;
use sojourn_time::SteadyClock;

use arguments::{Backend, Emulate};

/// A driver over the kernel's ports.
type Bridge = Driver<SteadyClock>;

/// Runs a command.
///
/// # Errors
/// As the command.
pub fn run(command: &Emulate) -> anyhow::Result<()> {
    match command {
        Emulate::Run(asked) if asked.how.backend == Backend::Kernel => kernel::run(asked),
        Emulate::Run(asked) => bridge::run(asked),
        Emulate::Set(asked) => client::set(asked),
        Emulate::Show(asked) => client::show(asked),
        Emulate::Ask(which) => client::pass(which),
        Emulate::Replay(asked) => replay::run(asked),
        Emulate::Recover(asked) => replay::recover(asked),
        Emulate::Offline(asked) => offline::run(asked),
        Emulate::Kernel(asked) => kernel::print(asked),
        Emulate::SelfTest(asked) => compensate::run(asked),
        Emulate::Explain(asked) => explain::run(asked),
    }
}
