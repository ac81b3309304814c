//! `stream`: sends streams of frames, receives them, and simulates both. What it does them with is in `sojourn-stream`.

pub mod clocks;
mod findings;
pub mod host;
mod live;
mod one_way;
mod ports;
mod quantiles;
mod rate;
mod receiving;
mod recv;
pub mod request;
mod rows;
mod send;
mod sending;
mod serve;
mod sim;
mod simulating;

use std::collections::BTreeMap;

use sojourn_rights::Right;
use sojourn_stream::FlowSent;
use sojourn_time::Source;

use request::Stream;

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
        Stream::Send(arguments) => send::run(arguments),
        Stream::Recv(arguments) => recv::run(arguments),
        Stream::Sim(arguments) => sim::run(arguments),
        Stream::Serve(arguments) => serve::run(arguments),
    }
}

/// Counts how many stamps each source took.
fn sources(of: impl Iterator<Item = Source>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for source in of {
        *counts.entry(source.name()).or_insert(0) += 1;
    }
    counts
}

fn names(sources: &BTreeMap<&'static str, u64>) -> String {
    if sources.is_empty() {
        return "not kept".to_owned();
    }
    sources.keys().copied().collect::<Vec<_>>().join(" and ")
}

/// Returns what was asked, intended and achieved of a flow, for a person.
fn rates(flow: &FlowSent, frame_bytes: usize) -> String {
    let asked = match flow.asked_pps {
        0.0 => "as many as can be".to_owned(),
        pps => format!("{pps:.1} frames a second"),
    };
    let bps = flow.achieved_pps * (frame_bytes * 8) as f64 / 1e6;
    let intended = match flow.intended_pps {
        0.0 => String::new(),
        pps => format!(", {pps:.1} intended"),
    };
    format!("{asked} asked{intended}, {:.1} achieved ({bps:.3} Mbit/s)", flow.achieved_pps)
}
