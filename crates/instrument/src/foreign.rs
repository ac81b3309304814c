//! Readers of what other programs write for this one: requests, and files with keys. Each reads a line or a file as the program
//! does, up to what it would do next, and returns whether it makes sense. Nothing here opens a socket or a device.
//!
//! `tests/fuzz` calls them; the program itself reads with the same functions, each at its place.

use sojourn_probe::Request;
use sojourn_record::Packet;
use sojourn_stream::Schedule;

use crate::failure::WrongRequest;
use crate::stream::request::Asked;
use crate::stream::shape::offsets_of;
use crate::{capture, emulate, failure, matching, secret, serve, tcp, tcplog};

/// A block of probes, as `probe blocks` is asked for it.
pub fn block_of_probes(line: &[u8]) -> bool {
    makes_sense(serve::parse(line).and_then(|request: Request| Ok(request.check()?)))
}

/// What ends of streams are asked, as `stream serve` is.
pub fn streams(line: &[u8]) -> bool {
    let check = |asked: Asked| {
        let (flows, options) = match &asked {
            Asked::Send(send) => (send.flows.as_slice(), send.options),
            Asked::Simulate(simulate) => (simulate.flows.as_slice(), simulate.options),
            Asked::Receive(_) | Asked::Count(_) | Asked::Finish(_) | Asked::Stop => return Ok(()),
        };
        options.at_most(flows);
        flows.iter().try_for_each(|flow| flow.request().map(drop))
    };
    makes_sense(serve::parse(line).and_then(check))
}

/// What a running emulator is asked.
pub fn emulator(line: &[u8]) -> bool {
    makes_sense(emulate::live::understood(line))
}

/// What a running log of TCP is asked; what it would set is worked out.
pub fn log_of_tcp(line: &[u8]) -> bool {
    makes_sense(tcplog::answer::understood(line))
}

/// What taps for the trials of a study are asked, as `capture serve` is.
pub fn taps(line: &[u8]) -> bool {
    makes_sense(capture::serve::understood(line))
}

/// What a log of each block of a study is asked, as `tcplog serve` is.
pub fn logs_of_blocks(line: &[u8]) -> bool {
    makes_sense(tcplog::serve::understood(line))
}

/// What ends of TCP connections are asked, as `tcp serve` is.
pub fn ends_of_tcp(line: &[u8]) -> bool {
    makes_sense(tcp::serve::understood(line))
}

/// The terms of `match-slice` and the packets that it is given. Returns what it writes, where it takes both.
pub fn slice(terms: &[u8], packets: &[u8]) -> Option<Vec<u8>> {
    let mut written = Vec::new();
    let read = matching::slice::Terms::read(terms);
    let is_matched = makes_sense(read.and_then(|terms| matching::slice::matched(&terms, packets, &mut written)));
    is_matched.then_some(written)
}

/// The events of an emulator's log, with the rows of its packets; it is replayed.
pub fn emulation_log(events: &[u8], rows: &[Packet]) -> bool {
    makes_sense(emulate::replay::understood(events, rows))
}

/// The bytes of a file with a key.
pub fn key(bytes: &[u8]) -> bool {
    secret::key_from(bytes).is_ok()
}

/// The bytes of a file of departures, as `stream send --schedule replay:FILE` has it.
pub fn departures(bytes: &[u8]) -> bool {
    /// An Ethernet frame of the least length.
    const FRAME_BYTES: usize = 64;
    let schedule = offsets_of(bytes).map(Schedule::replay).map_err(WrongRequest);
    makes_sense(schedule.map_err(Into::into).and_then(|schedule| {
        schedule.check(FRAME_BYTES, None).map_err(|error| WrongRequest(error.to_string()))?;
        assert!(schedule.mean_pps() >= 0.0 && schedule.departures().is_sorted());
        Ok(())
    }))
}

/// The bytes of a header of a log of TCP's state, or of a footer: both are told as those of a log that has ended.
pub fn ends_of_log(bytes: &[u8]) -> bool {
    makes_sense(tcplog::folder::value_of(bytes).map_err(WrongRequest).map_err(Into::into).map(|told| {
        assert!(!tcplog::client::shown(&told).is_empty());
        tcplog::recover::began(&told, 0);
    }))
}

/// The refusal says why not, in a sentence.
fn makes_sense(read: anyhow::Result<()>) -> bool {
    let Err(error) = read else { return true };
    assert!(!failure::sentence(&error).is_empty() && failure::status(&error) > 0);
    false
}
