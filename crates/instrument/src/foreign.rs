//! Readers of untrusted input: requests, and files with keys. Each reads a line or a file as the program does, short of
//! acting on it, and returns whether it is valid. Nothing here opens a socket or a device.
//!
//! `tests/fuzz` calls these readers; the program calls the same functions where it reads its input.

use serde_json::Value;
use sojourn_probe::Request;
use sojourn_record::Packet;
use sojourn_stream::Schedule;

use crate::failure::WrongRequest;
use crate::stream::request::Asked;
use crate::stream::shape::offsets_of;
use crate::{capture, control, emulate, failure, matching, secret, serve, tcp, tcplog};

/// A request to `probe blocks`.
pub fn block_of_probes(line: &[u8]) -> bool {
    makes_sense(serve::parse(line).and_then(|request: Request| Ok(request.check()?)))
}

/// A request to `stream serve`.
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

/// A request to a running emulator.
pub fn emulator(line: &[u8]) -> bool {
    makes_sense(emulate::live::understood(line))
}

/// A request to a running TCP log; the settings that it would change are computed.
pub fn log_of_tcp(line: &[u8]) -> bool {
    makes_sense(tcplog::answer::understood(line))
}

/// A request to `capture serve`.
pub fn taps(line: &[u8]) -> bool {
    makes_sense(capture::serve::understood(line))
}

/// A request to `tcplog serve`.
pub fn logs_of_blocks(line: &[u8]) -> bool {
    makes_sense(tcplog::serve::understood(line))
}

/// A request to `tcp serve`.
pub fn ends_of_tcp(line: &[u8]) -> bool {
    makes_sense(tcp::serve::understood(line))
}

/// The terms and the packets of `match-slice`. Returns its output if both are valid.
pub fn slice(terms: &[u8], packets: &[u8]) -> Option<Vec<u8>> {
    let mut written = Vec::new();
    let read = matching::slice::Terms::read(terms);
    let is_matched = makes_sense(read.and_then(|terms| matching::slice::matched(&terms, packets, &mut written)));
    is_matched.then_some(written)
}

/// The events and packet rows of an emulator's log; replays them.
pub fn emulation_log(events: &[u8], rows: &[Packet]) -> bool {
    makes_sense(emulate::replay::understood(events, rows))
}

/// The bytes of a key file.
pub fn key(bytes: &[u8]) -> bool {
    secret::key_from(bytes).is_ok()
}

/// The bytes of a file of departures, as for `stream send --schedule replay:FILE`.
pub fn departures(bytes: &[u8]) -> bool {
    /// The minimum length of an Ethernet frame.
    const FRAME_BYTES: usize = 64;
    let schedule = offsets_of(bytes).map(Schedule::replay).map_err(WrongRequest);
    makes_sense(schedule.map_err(Into::into).and_then(|schedule| {
        schedule.check(FRAME_BYTES, None).map_err(|error| WrongRequest(error.to_string()))?;
        assert!(schedule.mean_pps() >= 0.0 && schedule.departures().is_sorted());
        Ok(())
    }))
}

/// The bytes of a header or footer of a TCP log; either is shown as that of a log that has ended.
pub fn ends_of_log(bytes: &[u8]) -> bool {
    makes_sense(tcplog::folder::value_of(bytes).map_err(WrongRequest).map_err(Into::into).map(|told| {
        assert!(!tcplog::client::shown(&told).is_empty());
        tcplog::recover::began(&told, 0);
    }))
}

/// The output of `tc -json qdisc show`.
pub fn qdiscs(shown: &[u8]) -> bool {
    let root = emulate::qdiscs::Root::of(shown).ok().flatten();
    root.is_some_and(|root| {
        makes_sense(root.check_default("eth1"));
        true
    })
}

/// The record of the netem at a port.
pub fn netem_record(text: &str) -> bool {
    emulate::netem_record::is_record(text)
}

/// The output of `emulate self-test`.
pub fn self_test(output: &[u8]) -> bool {
    emulate::compensate::measured(output).is_ok()
}

/// The text of modules.dep: the congestion controls in it.
pub fn modules(text: &str) -> bool {
    let names = tcplog::asked::names_in(text);
    assert!(names.len() <= text.len());
    !names.is_empty()
}

/// What a client of a control socket sends: each line is answered once, in order, up to one that is too long.
pub fn requests(sent: &[u8]) -> bool {
    let answers = control::served(sent);
    let lines = sent.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let fitting = lines.take_while(|line| line.len() <= control::LONGEST_LINE_BYTES).count();
    let said = answers.lines().take_while(|answer| answer.parse::<usize>().is_ok());
    assert!(said.clone().eq((1..=said.clone().count()).map(|number| number.to_string())));
    assert!(said.count() >= fitting);
    fitting > 0
}

/// The answer of a running instrument.
pub fn answer(sent: &[u8]) -> bool {
    /// The limit of the program is too long for a search.
    const MOST_BYTES: usize = 1 << 16;
    control::answered(sent, MOST_BYTES).is_ok()
}

/// The answers of a running emulator, as `emulate show` shows them: `ready`, `report`, `config`, and `before`.
pub fn shown(told: &[u8]) -> bool {
    use emulate::show;
    let Ok(told) = serde_json::from_slice::<Value>(told) else { return false };
    let (report, config) = (&told["report"], &told["config"]);
    let before = told["before"].is_object().then(|| &told["before"]);
    let texts = [
        show::ready(&told["ready"]),
        show::table(report, config, before),
        show::pipes_alone(report, config),
        show::marks(report).concat(),
    ];
    assert!(!texts[0].is_empty() && !texts[1].is_empty());
    report.is_object()
}

/// Returns whether input was valid; an error must have a message and a status.
fn makes_sense(read: anyhow::Result<()>) -> bool {
    let Err(error) = read else { return true };
    assert!(!failure::sentence(&error).is_empty() && failure::status(&error) > 0);
    false
}
