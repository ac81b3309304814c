//! Readers of what other programs write for this one: requests, and files with keys. Each reads a line or a file as the program
//! does, up to what it would do next, and returns whether it makes sense. Nothing here opens a socket or a device.
//!
//! `tests/fuzz` calls them; the program itself reads with the same functions, each at its place.

use sojourn_probe::Request;

use crate::stream::request::Asked;
use crate::{emulate, failure, secret, serve, tcplog};

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

/// The bytes of a file with a key.
pub fn key(bytes: &[u8]) -> bool {
    secret::key_from(bytes).is_ok()
}

/// The refusal says why not, in a sentence.
fn makes_sense(read: anyhow::Result<()>) -> bool {
    let Err(error) = read else { return true };
    assert!(!failure::sentence(&error).is_empty() && failure::status(&error) > 0);
    false
}
