//! `stream recv`: receives flows at one or more interfaces, until their senders announce the end.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::{Value, json};
use sojourn_record::stream::Stream as Row;
use sojourn_record::{Finding, StreamFolder};
use sojourn_stream::{End, FlowReceived, Senders, Unexpected};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};
use sojourn_wire::{PeerAddress, Peers};

use super::arguments::ReceiveByHand;
use super::{add_times, names, print, sources, times};
use crate::failure::{NotTrusted, WrongRequest};
use crate::numbers;
use crate::place::{self, Fifo, Place};
use crate::secret;
use crate::serve;
use crate::stream::findings::{self, Findings};
use crate::stream::kept::Kept;
use crate::stream::one_way::OneWay;
use crate::stream::receive::{self, Received, Reception};
use crate::stream::request::{Head, Receive, ReceiveOptions, ReceivePort, SentCount};
use crate::stream::to::Via;
use crate::sys::STOP;

/// The wait after the last announced end, for frames that the announcement overtook (the residue of RFC 2544).
const RESIDUE: Nanos = Nanos::millis(100);

/// The maximum number of frames recorded individually; beyond it, only histograms are kept.
const MOST_KEPT: usize = 2_000_000;

/// Receives until all senders have ended, the time is over, or a signal arrives; reports the results.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, records cannot be written, nothing arrived, or the
/// results must not be used.
pub fn run(arguments: &ReceiveByHand) -> anyhow::Result<()> {
    let asked = request(arguments)?;
    let signal = place::stop_signal()?;
    let place = Place::take(&arguments.run.place, Fifo::Required)?;
    let folder = arguments.run.record.as_deref();
    let mut records = folder.map(|folder| StreamFolder::create(folder, "b", 0, &crate::origin(false))).transpose()?;
    let mut kept = Kept::default();
    let mut reception = Reception::open(&asked, &place, &mut kept)?;
    // What follows works on what is open: messages, maps and test runs of programs, and the end of their links.
    arguments.port.via().rights().confine()?;
    // On standard error: a program may read it to learn when to send.
    eprintln!("receiving; a sender that is done, or Ctrl-C, ends it");
    let mut until = Until { flows: asked.flows.clone(), deadline: HostClock.now() + arguments.listen, heard: None };
    reception.run(&STOP, &[signal], &mut |receiver| until.is_over(receiver))?;
    let ends: Vec<(u16, Option<End>)> =
        asked.flows.iter().map(|flow| (*flow, reception.receiver().end(*flow))).collect();
    let engines = reception.engines();
    let senders: Vec<(u16, PeerAddress)> =
        asked.flows.iter().filter_map(|flow| Some((*flow, reception.receiver().sender(*flow)?))).collect();
    let count = |(flow, end): &(u16, Option<End>)| {
        end.map(|End { sent, next, .. }| SentCount { flow: *flow, sent, next, port: None })
    };
    let sent: Vec<SentCount> = ends.iter().filter_map(count).collect();
    let received = reception.finish(&sent, &mut kept)?;
    let recorded =
        records.as_mut().map_or(Ok(()), |folder| folder.write(&received.rows).and_then(|()| folder.finish()));
    refuse_silence(arguments, &received)?;
    let told = Told { asked: &asked, received: &received, ends: &ends, senders: &senders, engines: &engines };
    let found = told.findings();
    let text = if arguments.run.json { format!("{:#}\n", told.json(&place, &found)) } else { told.text(&found) };
    print(&text);
    recorded?;
    Ok(found.refuse_useless()?)
}

fn request(arguments: &ReceiveByHand) -> anyhow::Result<Receive> {
    let ReceiveByHand { dev, port, flow, allowed, options, .. } = arguments;
    if port.via() != Via::Udp && dev.is_empty() {
        return Err(WrongRequest("name an interface with --dev, or receive UDP with --udp".to_owned()).into());
    }
    if let Some(nobody) = allowed.iter().find(|peers| !can_send(**peers, port.via())) {
        let kind = if port.via() == Via::Udp { "IP" } else { "MAC" };
        return Err(WrongRequest(format!("--allow {nobody}: nobody sends from there; name {kind} addresses")).into());
    }
    Ok(Receive {
        head: Head::default(),
        senders: Senders::Greeting { secret: secret::random_bytes()? },
        auth: secret::auth(arguments.key.as_deref())?,
        allowed: allowed.clone(),
        ports: ports(arguments),
        flows: flow.clone(),
        options: ReceiveOptions { room: MOST_KEPT, ..*options },
        stay_open: false,
    })
}

/// Returns the ports, one per named interface.
fn ports(ReceiveByHand { dev, port, address, ipv6, .. }: &ReceiveByHand) -> Vec<ReceivePort> {
    let address = address.or_else(|| ipv6.then_some(Ipv6Addr::UNSPECIFIED.into()));
    let devices: Vec<Option<String>> =
        if dev.is_empty() { vec![None] } else { dev.iter().cloned().map(Some).collect() };
    let of_device = |(number, dev)| {
        let port = port.clone();
        ReceivePort { port: u16::try_from(number).unwrap_or(u16::MAX), dev, address, ..port }
    };
    devices.into_iter().enumerate().map(of_device).collect()
}

/// Whether a peer in this set can send over this backend.
const fn can_send(peers: Peers, via: Via) -> bool {
    match peers {
        Peers::Any => true,
        Peers::Prefix(..) => matches!(via, Via::Udp),
        Peers::Ethernet(_) => !matches!(via, Via::Udp),
    }
}

/// The condition of the end.
struct Until {
    flows: Vec<u16>,
    deadline: Time,
    /// The time at which all senders had announced their end.
    heard: Option<Time>,
}

impl Until {
    fn is_over(&mut self, receiver: &sojourn_stream::Receiver) -> bool {
        let now = HostClock.now();
        if self.heard.is_none() && self.flows.iter().all(|flow| receiver.end(*flow).is_some()) {
            self.heard = Some(now);
        }
        now >= self.deadline || self.heard.is_some_and(|heard| now >= heard + RESIDUE)
    }
}

/// Sums the unexpected frames of all ports.
fn unexpected(received: &Received) -> Unexpected {
    received.outcome.ports.iter().fold(Unexpected::default(), |all, port| all + port.unexpected)
}

/// Returns an error if nothing arrived.
fn refuse_silence(arguments: &ReceiveByHand, received: &Received) -> Result<(), NotTrusted> {
    let arrived = received.outcome.flows.iter().any(|flow| flow.counts.frames() > flow.counts.unexpected.total());
    if arrived {
        return Ok(());
    }
    let unexpected = unexpected(received);
    let advice = match (unexpected.total(), arguments.port.groups.is_empty(), arguments.port.udp_port) {
        (1.., ..) => format!(
            "{} came; start the receiver before the sender, with the same key or none, name the sender's flow with --flow, \
             and let --allow have the sender's address where it is given",
            findings::unexpected_of(unexpected)
        ),
        (0, true, Some(port)) => {
            let at = arguments.address.map_or_else(String::new, |address| format!(" of {address}"));
            format!(
                "is it sent to UDP port {port}{at}, and does a firewall let it through? A group must be joined: --group",
            )
        }
        (0, true, None) => {
            "is it sent to this interface's MAC address (`ip link`)? A group must be joined: --group. No router forwards \
             these frames: across one, use --udp at both ends"
                .to_owned()
        }
        (0, false, _) => "is it sent to this group, and does the network between forward it?".to_owned(),
    };
    Err(NotTrusted(format!("no frame of a stream arrived: {advice}")))
}

/// The data to report.
struct Told<'a> {
    asked: &'a Receive,
    received: &'a Received,
    ends: &'a [(u16, Option<End>)],
    /// The address from which each flow's sender greeted.
    senders: &'a [(u16, PeerAddress)],
    engines: &'a [String],
}

impl Told<'_> {
    fn flows(&self) -> impl Iterator<Item = (&FlowReceived, &Row)> {
        let flows = self.received.outcome.flows.iter().zip(&self.received.rows.streams);
        flows.filter(|(flow, _)| flow.counts.frames() > 0 || flow.counts.packets() > 0)
    }

    fn end(&self, flow: u16) -> Option<&End> {
        self.ends.iter().find(|(number, _)| *number == flow)?.1.as_ref()
    }

    fn sender(&self, flow: u16) -> Option<PeerAddress> {
        self.senders.iter().find(|(number, _)| *number == flow).map(|(_, peer)| *peer)
    }

    fn one_way(&self, flow: &FlowReceived) -> Option<OneWay> {
        let end = self.end(flow.flow)?;
        OneWay::of(flow, &self.received.outcome, end.clock, end.pacing_error_ns)
    }

    fn findings(&self) -> Findings {
        let mut found = Findings::new(false);
        found.of_host(&self.received.took);
        for (port, asked) in self.received.outcome.ports.iter().zip(&self.asked.ports) {
            found.of_local_drops(port.local_drops, asked.via().name());
        }
        found.of_unexpected(unexpected(self.received));
        for (flow, _) in self.flows() {
            let is_one_clock = self.one_way(flow).is_some_and(|one_way| one_way.line.shared);
            found.of_receiver(flow, is_one_clock);
            match (self.end(flow.flow), self.one_way(flow)) {
                (_, Some(one_way)) => {
                    if let Some(sentence) = one_way.implausible(flow.span()) {
                        found.add(Finding::ImplausibleDelay, sentence);
                    } else if let Some(sentence) = one_way.impossible() {
                        found.add(Finding::NegativeDelay, sentence);
                    }
                }
                (Some(_), None) if flow.counts.first > 0 => found.add(Finding::ClockUnsynchronised, {
                    "the sender does not know how our clock stands to its own: no one-way delays".to_owned()
                }),
                (None, _) => found.add(Finding::Incomplete, {
                    format!("the sender of flow {} did not say that it was done: what it sent is not known", flow.flow)
                }),
                _ => {}
            }
        }
        let sources = sources(self.sources());
        if let Some(user) = sources.get(Source::User.name()) {
            found.add(Finding::UserTimestamps, format!("{user} frames were stamped by the program, not the kernel"));
        }
        if sources.len() > 1 {
            found.add(Finding::MixedTimestamps, format!("arrivals are stamped by {}", names(&sources)));
        }
        found
    }

    fn sources(&self) -> impl Iterator<Item = Source> {
        self.received.outcome.rows.iter().map(|row| row.arrival.source)
    }

    fn json(&self, place: &Place, found: &Findings) -> Value {
        let numbers: Vec<u16> = self.asked.ports.iter().map(|port| port.port).collect();
        let flows: Vec<Value> = self.flows().map(|(flow, row)| self.flow(flow, row, numbers[flow.port])).collect();
        let took = &self.received.took;
        let mut told = json!({
            "instrument": { "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE },
            "engines": self.engines,
            "flows": flows,
            "ports": receive::ports_json(&self.received.outcome, &numbers),
            "not_kept": self.received.outcome.not_kept,
            "started_ns": took.started.tai,
            "ended_ns": took.ended.tai,
            "processor_time_ns": took.processor,
            "arrival_sources": sources(self.sources()),
            "findings": found.json(),
        });
        serve::add(&mut told, place.json());
        told
    }

    fn flow(&self, flow: &FlowReceived, row: &Row, port: u16) -> Value {
        let all = flow.counts.packets();
        let mut told = receive::flow_json(flow, port, row.frame_bytes);
        told["dev"] = json!(self.asked.ports[flow.port].dev);
        told["from"] = json!(self.sender(flow.flow).map(|peer| peer.to_string()));
        told["sent"] = json!(self.end(flow.flow).map(|end| end.sent));
        told["frame_bytes"] = json!(row.frame_bytes);
        told["payload_bytes"] = json!(row.payload_bytes);
        add_times(&mut told, flow, self.one_way(flow).as_ref());
        told["loss_runs"] = runs(&flow.loss_run.cells());
        told["gap_runs"] = runs(&flow.gap_run.cells());
        told["loss_ratio"] = json!((all > 0).then(|| flow.counts.lost as f64 / all as f64));
        told
    }

    fn text(&self, found: &Findings) -> String {
        let mut text: String = self.flows().map(|(flow, row)| self.flow_text(flow, row)).collect();
        let arrivals = names(&sources(self.sources()));
        let _ = writeln!(text, "timestamps: arrivals {arrivals}; engine: {}", self.engines.join(", "));
        let unexpected = unexpected(self.received);
        if unexpected.total() > 0 {
            let _ = writeln!(text, "{}", findings::unexpected_of(unexpected));
        }
        let unanswered: u64 = self.received.outcome.ports.iter().map(|port| port.unanswered).sum();
        if unanswered > 0 {
            let _ = writeln!(
                text,
                "{unanswered} packets not answered: from another address than the sender's, shorter than the answer, or \
                 beyond the rate limit"
            );
        }
        text + &found.text()
    }

    fn flow_text(&self, flow: &FlowReceived, row: &Row) -> String {
        let dev = self.asked.ports[flow.port].dev.as_deref().unwrap_or("UDP");
        let node = if flow.node == 0 { String::new() } else { format!(", answers of node {}", flow.node) };
        let from = self.sender(flow.flow).map_or_else(String::new, |peer| format!(" from {peer}"));
        let mut text = format!("flow {}{from} at {dev}{node}: {} byte frames\n", flow.flow, row.frame_bytes);
        let _ = writeln!(text, "{}", self.counts(flow));
        let bps = flow.achieved_pps() * (row.frame_bytes * 8) as f64;
        let _ = writeln!(text, "arrived at {:.1} frames a second, {:.3} Mbit/s", flow.achieved_pps(), bps / 1e6);
        if flow.loss_run.count() > 0 {
            let (runs, most) = (flow.loss_run.count(), flow.loss_run.max().unwrap_or(0));
            let mean = flow.loss_run.mean().unwrap_or(0.0);
            let _ = writeln!(text, "lost in {runs} runs of {mean:.1} frames on average, {most} at most");
        }
        text + "\n" + &times(flow, self.one_way(flow)) + "\n"
    }

    fn counts(&self, flow: &FlowReceived) -> String {
        let counts = flow.counts;
        let sent = self.end(flow.flow).map_or_else(|| "unknown how many".to_owned(), |end| end.sent.to_string());
        let lost = numbers::loss(counts.lost, flow.loss_run.count(), counts.packets());
        let mut parts = vec![format!("{sent} sent, {} received, {lost}", counts.first)];
        let others = [
            (counts.local_drops, "dropped by this machine"),
            (counts.corrupted, "corrupted"),
            (counts.duplicated, "duplicated"),
            (counts.reordered, "reordered"),
            (counts.late, "late"),
            (counts.unexpected.total(), "unexpected"),
        ];
        parts.extend(others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        parts.join(", ")
    }
}

/// Returns a histogram of run lengths as JSON.
fn runs(cells: &[sojourn_stream::Cell]) -> Value {
    let cell = |cell: &sojourn_stream::Cell| json!({ "least": cell.low, "most": cell.high, "count": cell.count });
    cells.iter().map(cell).collect()
}
