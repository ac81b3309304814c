//! `emulate`: a bridge that does to packets what is asked, and proves how exactly.
//!
//! The engine and its driver are in `sojourn-emulate`; here are its ports, its place on the machine, who may ask it, and what it
//! writes down.

pub mod arguments;
mod asked;
mod bridge;
mod client;
mod compensate;
mod events;
mod explain;
mod idle;
mod kernel;
pub mod live;
mod log;
mod netem_record;
mod offline;
mod pipe_options;
mod qdiscs;
pub mod replay;
mod show;

use sojourn_emulate::driver::Driver;
use sojourn_time::SteadyClock;

use arguments::{Backend, Emulate};

/// A driver over the kernel's ports.
type Bridge = Driver<SteadyClock>;

/// Carries out a command.
///
/// # Errors
/// As each of them.
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
