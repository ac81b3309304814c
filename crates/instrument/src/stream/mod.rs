//! `stream`: sends streams of frames, receives them, and simulates both. What it does them with is in `sojourn-stream`.

mod by_hand;
pub mod clocks;
mod findings;
pub mod host;
mod live;
mod one_way;
mod ports;
mod quantiles;
mod rate;
mod receive;
pub mod request;
mod rows;
mod send;
mod serve;
mod shape;
mod simulate;
mod to;

use sojourn_rights::Right;

pub use by_hand::arguments::Stream;

/// What streams still need once their files are open: sockets, buffers in them that hold what comes after a stall, programs
/// in the kernel, and memory beyond the limit.
///
/// Programs are loaded anew for each stream, so their rights are needed until the end: CAP_BPF for maps and programs,
/// CAP_NET_ADMIN to hang them on an interface, and CAP_PERFMON because `live` and `count` compute where in the kernel's memory
/// they write (histograms, live frames), which its verifier lets nobody do without it; `redirect` alone needs no more than
/// the first two. CAP_SYS_ADMIN is not needed for any.
const RIGHTS: [Right; 5] = [Right::NetRaw, Right::NetAdmin, Right::Bpf, Right::Perfmon, Right::IpcLock];

/// Does what is asked.
///
/// # Errors
/// When the request makes no sense, the machine cannot, or the figures must not be trusted.
pub fn run(command: &Stream) -> anyhow::Result<()> {
    match command {
        Stream::Send(arguments) => by_hand::send::run(arguments),
        Stream::Recv(arguments) => by_hand::recv::run(arguments),
        Stream::Sim(arguments) => by_hand::sim::run(arguments),
        Stream::Serve(arguments) => serve::run(arguments),
    }
}
