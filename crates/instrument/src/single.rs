//! `probe icmp`, `udp`, `raw`, `sim`: one block, and its summary for a person or as JSON.

use std::io::{self, Write};

use anyhow::Context;
use sojourn_probe::{Carries, Kind, Request, To};
use sojourn_record::RunFolder;
use sojourn_rights as rights;

use crate::arguments::{Icmp, Raw, Run, Sim, SimCarries, Udp};
use crate::failure::{NotTrusted, WrongRequest};
use crate::place::{self, Fifo, Place};
use crate::session::{Measured, Session, WHILE_PROBING};
use crate::summary;
use crate::sys::STOP;

/// Probes by ICMP echo.
///
/// # Errors
/// As [`run`].
pub fn icmp(arguments: &Icmp) -> anyhow::Result<()> {
    let to = To::Icmp { address: arguments.address, dev: arguments.dev.clone() };
    run(to, true, &arguments.run)
}

/// Probes over UDP.
///
/// # Errors
/// As [`run`].
pub fn udp(arguments: &Udp) -> anyhow::Result<()> {
    let to = To::Udp { address: arguments.peer.address, port: arguments.peer.port, dev: arguments.dev.clone() };
    run(to, false, &arguments.run)
}

/// Probes by Ethernet frames.
///
/// # Errors
/// As [`run`].
pub fn raw(arguments: &Raw) -> anyhow::Result<()> {
    let to = To::Packet { dev: arguments.dev.clone(), mac: arguments.to, qdisc_bypass: !arguments.through_qdisc };
    run(to, false, &arguments.run)
}

/// Probes over a simulated line.
///
/// # Errors
/// As [`run`].
pub fn sim(arguments: &Sim) -> anyhow::Result<()> {
    let carries = match arguments.carries {
        SimCarries::Icmp => Carries::Icmp,
        SimCarries::Icmp6 => Carries::Icmp6,
        SimCarries::Udp => Carries::Udp,
        SimCarries::Udp6 => Carries::Udp6,
        SimCarries::Packet => Carries::Packet,
    };
    let line = serde_json::from_str(&arguments.line).context("--line")?;
    let kernel_answers = matches!(carries, Carries::Icmp | Carries::Icmp6);
    run(To::Sim { line: Box::new(line), carries: Some(carries) }, kernel_answers, &arguments.run)
}

/// Measures, records and tells.
///
/// # Errors
/// When the request makes no sense, the machine cannot, records cannot be written, or the figures must not be used.
fn run(to: To, kernel_answers: bool, arguments: &Run) -> anyhow::Result<()> {
    let request = request(to, kernel_answers, arguments)?;
    request.check()?;
    place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::Required)?;
    let origin = crate::origin(request.to.is_simulated());
    let mut records = arguments.record.as_deref().map(|folder| RunFolder::create(folder, 0, &origin)).transpose()?;
    rights::keep_only(&WHILE_PROBING)?;
    let measured = Session::new(place).measure(&request, &STOP)?;
    let recorded = match &mut records {
        Some(folder) => folder.write(&measured.block, &measured.probes).and_then(|()| folder.finish()),
        None => Ok(()),
    };
    let found = summary::findings(&measured);
    let text = if arguments.json {
        format!("{:#}\n", summary::json(&request, &measured, &found, &place))
    } else {
        summary::text(&request, &measured, &found)
    };
    // Whoever reads may have gone away; what was measured does not depend on it.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    recorded?;
    refuse_useless(&request, &measured, &found)
}

fn request(to: To, kernel_answers: bool, arguments: &Run) -> anyhow::Result<Request> {
    let carrier = to.carrier(kernel_answers);
    let payload_bytes = carrier.payload_bytes(arguments.size.size())?;
    let (kind, response_bytes) = match (kernel_answers, arguments.response_bytes) {
        (true, None) => (Kind::Icmp, payload_bytes),
        (true, Some(_)) => {
            let problem = "--response-bytes: an ICMP echo is as long as its request; leave it out, or probe udp or raw";
            return Err(WrongRequest(problem.to_owned()).into());
        }
        (false, None) => (Kind::PingPong, payload_bytes),
        (false, Some(bytes)) => (Kind::RequestResponse, bytes),
    };
    // Two programs on one interface hear each other's replies: by the block's number each knows its own. A simulated line
    // draws by that number, and is to draw the same each time.
    let block = if to.is_simulated() { 0 } else { std::process::id() & 0x7FFF_FFFF };
    Ok(Request {
        block,
        device: String::new(),
        round: 0,
        visit: 0,
        cell: 0,
        to,
        kind,
        request_payload_bytes: payload_bytes,
        response_payload_bytes: response_bytes,
        schedule: arguments.schedule.into(),
        interval: arguments.interval,
        count: arguments.count,
        warmup: arguments.warmup,
        timeout: arguments.timeout,
        seed: arguments.seed,
    })
}

/// Ends with a sentence where the figures must not be used: nobody answered, or a finding says so.
fn refuse_useless(request: &Request, measured: &Measured, found: &[summary::Found]) -> anyhow::Result<()> {
    let counts = measured.block.counts;
    if counts.sent == 0 {
        return Err(NotTrusted("no probe was sent before it was ended".to_owned()).into());
    }
    if counts.received == 0 {
        let advice = match request.to {
            To::Icmp { .. } => "is it up, and does it answer pings (firewall, net.ipv4.icmp_echo_ignore_all)?",
            To::Udp { .. } => "does `sojourn probe respond` run there, and does a firewall let it through?",
            To::Packet { .. } => {
                "does `sojourn probe respond --raw DEV` run there, with that MAC address? No router forwards these \
                 frames: across one, use `sojourn probe udp`"
            }
            To::Sim { .. } => "the line loses them all.",
        };
        let sentence = format!("{} answered none of {} probes: {advice}", request.to, counts.sent);
        return Err(NotTrusted(sentence).into());
    }
    let invalid = found.iter().find(|found| found.finding.severity() == sojourn_record::Severity::Invalid);
    match invalid {
        Some(found) => Err(NotTrusted(format!("{}: {}", found.finding.name(), found.sentence)).into()),
        None => Ok(()),
    }
}
