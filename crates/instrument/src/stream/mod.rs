//! `stream`: sends streams of frames, receives them, and simulates both. What it does them with is in `sojourn-stream`.

pub mod arguments;
mod clocks;
mod host;
mod ports;
mod rate;
mod receiving;
mod request;
mod rows;
mod sending;
mod serve;
mod simulating;

use sojourn_port::rights::Right;

use arguments::Stream;

/// What streams still need once their files are open: sockets, buffers in them that hold what comes after a stall, programs
/// in the kernel, and memory beyond the limit.
const RIGHTS: [Right; 4] = [Right::NetRaw, Right::NetAdmin, Right::Bpf, Right::IpcLock];

/// Does what is asked.
///
/// # Errors
/// When the request makes no sense, the machine cannot, or the figures must not be trusted.
pub fn run(command: &Stream) -> anyhow::Result<()> {
    match command {
        Stream::Send(_) | Stream::Recv(_) | Stream::Sim(_) => anyhow::bail!("not yet"),
        Stream::Serve(arguments) => serve::run(arguments),
    }
}
