//! `probe`: one block by hand, or blocks that a program requests line by line; each is measured, recorded and reported.

use std::io::{self, Write};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sojourn_probe::{Kind, Request, Summary, To};
use sojourn_record::RunFolder;
use sojourn_rights::table::{PROBE, PROBE_BLOCKS};
use sojourn_time::classes;

use super::measure::{Measured, Session};
use super::render;
use super::request::{Blocks, Output, Probe};
use crate::failure::NotTrusted;
use crate::place::{self, Fifo, Place};
use crate::respond;
use crate::secret;
use crate::serve::{self, Records};
use crate::sys::STOP;

/// Sends probes, or answers them.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, records cannot be written, or the results must not be used.
pub fn run(command: &Probe) -> anyhow::Result<()> {
    match command {
        Probe::Icmp(asked) => single(&asked.request(To::Icmp)?, &asked.run.output),
        Probe::Udp(asked) => single(&asked.request(To::Udp)?, &asked.run.output),
        Probe::Raw(asked) => single(&asked.request(To::Ethernet)?, &asked.run.output),
        Probe::Sim(asked) => single(&asked.request(To::Sim)?, &asked.run.output),
        Probe::Blocks(asked) => blocks(asked),
        Probe::Respond(asked) => respond::run(asked),
    }
}

/// Measures, records and reports.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, records cannot be written, or the results must not be used.
pub fn single(request: &Request, arguments: &Output) -> anyhow::Result<()> {
    request.check()?;
    let key = secret::key_of(arguments.key.as_deref())?;
    place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::Required)?;
    sojourn_port::kernel::open_clocks();
    let origin = crate::origin(request.to.is_simulated());
    let mut records = arguments.record.as_deref().map(|folder| RunFolder::create(folder, 0, &origin)).transpose()?;
    let mut session = Session::new(place, key);
    session.open(request)?;
    PROBE.confine()?;
    let measured = session.measure(request, &STOP)?;
    let recorded = match &mut records {
        Some(folder) => folder.write(&measured.block, &measured.probes).and_then(|()| folder.finish()),
        None => Ok(()),
    };
    let found = render::findings(request, &measured);
    let text = if arguments.json {
        format!("{:#}\n", render::json(request, &measured, &found, &place))
    } else {
        render::text(request, &measured, &found)
    };
    // The reader of standard output may have closed it; that must not change the result.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    recorded?;
    refuse_useless(request, &measured, &found)
}

/// Returns an error if the results must not be used: there was no reply, or a finding says so.
fn refuse_useless(request: &Request, measured: &Measured, found: &[render::Found]) -> anyhow::Result<()> {
    let counts = measured.block.counts;
    if counts.sent == 0 {
        return Err(NotTrusted("no probe was sent before it was ended".to_owned()).into());
    }
    if counts.received == 0 {
        let advice = match request.to {
            To::Icmp(_) => "is it up, and does it answer pings (firewall, net.ipv4.icmp_echo_ignore_all)?",
            To::Udp(_) if request.kind == Kind::Stamp => {
                "does a STAMP session-reflector listen there, with the same key or none, and does a firewall let it through?"
            }
            To::Udp(_) => {
                "does `sojourn probe respond` run there, with the same key or none, and does a firewall let it through?"
            }
            To::Ethernet(_) => {
                "does `sojourn probe respond --raw DEV` run there, with that MAC address, and the same key or none? No router forwards these \
                 frames: across one, use `sojourn probe udp`"
            }
            To::Sim(_) => "the line loses them all.",
        };
        let is_longer = request.response_payload_bytes > request.request_payload_bytes;
        let more =
            if is_longer { ". A responder gives longer answers only to whom --allow-amplification names" } else { "" };
        let sentence = format!("{} answered none of {} probes: {advice}{more}", request.to, counts.sent);
        return Err(NotTrusted(sentence).into());
    }
    let invalid = found.iter().find(|found| found.finding.severity() == sojourn_record::Severity::Invalid);
    match invalid {
        Some(found) => Err(NotTrusted(format!("{}: {}", found.finding.name(), found.sentence)).into()),
        None => Ok(()),
    }
}

/// Answers requests until the input ends or a signal arrives.
///
/// # Errors
/// If the machine refuses a basic setting, or records can no longer be written.
fn blocks(arguments: &Blocks) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::IfPermitted)?;
    sojourn_port::kernel::open_clocks();
    let key = secret::key_of(arguments.key.as_deref())?;
    let (folder, part, origin) = (&arguments.record, arguments.part, crate::origin(arguments.simulated));
    let folder = match &arguments.name {
        Some(name) => RunFolder::create_of(folder, name, part, &origin)?,
        None => RunFolder::create(folder, part, &origin)?,
    };
    let mut records = Records::new(folder, arguments.simulated);
    let mut session = Session::new(place, key);
    // Priority is set and files are open; only sockets remain to be opened.
    PROBE_BLOCKS.confine()?;
    serve::say(&serve::ready(Some(&place), Value::Null))?;
    serve::serve(signal, |request: Request| {
        request.check()?;
        let folder = records.folder(request.to.is_simulated())?;
        let measured = session.measure(&request, &STOP)?;
        if STOP.load(Ordering::Relaxed) && measured.block.counts.sent < u64::from(request.shape.count) {
            return Ok(None);
        }
        folder.write(&measured.block, &measured.probes)?;
        Ok(Some(answer(&measured)))
    })?;
    Ok(records.into_folder().finish()?)
}

fn answer(Measured { block, probes, .. }: &Measured) -> Value {
    let counts = block.counts;
    let rtts = || probes.iter().filter(|probe| !probe.is_warmup).filter_map(sojourn_record::Probe::rtt);
    let arrivals = || probes.iter().filter_map(|probe| probe.reply.map(|reply| reply.arrival.at));
    json!({
        "event": "block",
        "block": block.block,
        "sent": counts.sent,
        "received": counts.received,
        "lost": counts.lost,
        "late": counts.late,
        "duplicated": counts.duplicated,
        "reordered": counts.reordered,
        "unexpected": counts.unexpected,
        "local_drops": counts.local_drops,
        "rtt": Summary::of(rtts()),
        "rtt_classes": classes(rtts().map(|rtt| (rtt.0, 1))),
        "elapsed_ns": (block.ended_raw - block.started_raw).0,
        "first_arrival_ns": arrivals().min(),
        "last_arrival_ns": arrivals().max(),
    })
}
