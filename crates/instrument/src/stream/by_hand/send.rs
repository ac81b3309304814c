//! `stream send`: sends one flow, and reports the sender's results as text or JSON.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sojourn_record::StreamFolder;
use sojourn_stream::{End, EndLine, Ended, FlowSent, Greeting, Pattern};
use sojourn_time::{HostClock, Nanos, Source};
use sojourn_wire::SessionKey;
use sojourn_wire::stream::GreetingWord;

use super::arguments::SendByHand;
use super::{names, print, rates, sources};
use crate::failure::{NotTrusted, WrongRequest};
use crate::place::{self, Fifo, Place};
use crate::secret;
use crate::serve;
use crate::stream::clocks::Known;
use crate::stream::findings::{self, Findings};
use crate::stream::kept::Kept;
use crate::stream::quantiles::{self, Quantiles};
use crate::stream::request::{Flow, Head, Keep, Send, SendOptions, StampsAsked};
use crate::stream::send::{self, Sending, Sent};
use crate::stream::to::Via;
use crate::sys::STOP;

/// The timeout for the receiver to acknowledge the end.
const PATIENCE: Nanos = Nanos::millis(200);

/// The timeout for a receiver to acknowledge the greeting.
const GREETING_PATIENCE: Nanos = Nanos::seconds(2);

/// The maximum number of frames recorded individually; beyond it, only histograms are kept.
const MOST_KEPT: u64 = 4_000_000;

/// Sends a stream, announces the end to its receiver, and reports what was sent.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, records cannot be written, or the results must not be used.
pub fn run(arguments: &SendByHand) -> anyhow::Result<()> {
    let asked = request(arguments)?;
    if arguments.run.place.fifo && arguments.to.via() == Via::Live {
        let problem = "--fifo: the kernel makes the frames of --engine live without a rest, and under SCHED_FIFO nothing else \
                       would run on that CPU; leave --fifo out";
        return Err(WrongRequest(problem.to_owned()).into());
    }
    place::stop_signal()?;
    let place = Place::take(&arguments.run.place, Fifo::Required)?;
    let folder = arguments.run.record.as_deref();
    let mut records = folder.map(|folder| StreamFolder::create(folder, "a", 0, &crate::origin(false))).transpose()?;
    let mut sending = Sending::open(&asked, &place, &mut Kept::default())?;
    // What follows works on what is open: messages, maps and test runs of programs, and the end of their links.
    arguments.to.via().rights().confine()?;
    let receivers = greet(&mut sending, &asked)?;
    if receivers == 0 {
        sending.compare_no_clocks();
    }
    let sent = sending.run(&STOP)?;
    let is_heard = receivers > 0 && conclude(&mut sending, &sent, &asked)?;
    let recorded = records.as_mut().map_or(Ok(()), |folder| folder.write(&sent.rows).and_then(|()| folder.finish()));
    let found = findings(&sending, &sent);
    let told = Told { asked: &asked, sending: &sending, sent: &sent, is_heard, found: &found };
    let text = if arguments.run.json { format!("{:#}\n", told.json(&place)) } else { told.text() };
    print(&text);
    recorded?;
    if sent.outcome.flows.iter().all(|flow| flow.counts.sent == 0) {
        return Err(NotTrusted("no frame was sent before it was ended".to_owned()).into());
    }
    Ok(found.refuse_useless()?)
}

fn request(arguments: &SendByHand) -> anyhow::Result<Send> {
    let SendByHand { to, flow, shape, options, .. } = arguments;
    let flow = Flow { flow: *flow, to: to.clone(), shape: shape.clone() };
    shape.check_rate()?;
    let schedule = flow.request()?.schedule;
    let is_flood = schedule.pattern == Pattern::Flood;
    let options = SendOptions {
        keep: if schedule.count <= MOST_KEPT { Keep::Packets } else { Keep::Histograms },
        stamps: if is_flood { StampsAsked::None } else { StampsAsked::Departure },
        ..*options
    };
    let (key, auth) = (SessionKey(secret::random()?), secret::auth(arguments.key.as_deref())?);
    Ok(Send { head: Head::default(), key, auth, flows: vec![flow], options, stay_open: false })
}

/// Sends the key of the stream to the receivers, and returns how many will count it.
///
/// # Errors
/// If the port fails, or no receiver counts the stream and one states the reason.
fn greet(sending: &mut Sending<'_>, asked: &Send) -> anyhow::Result<usize> {
    let (to, is_group) = (&asked.flows[0].to, asked.flows[0].to.is_group());
    let key = asked.key;
    let (port, request) = sending.flow(0);
    let greeting = Greeting { head: request.head, key, flow: request.flow, auth: &asked.auth, is_group };
    let greeted = sojourn_stream::greet(port, &HostClock, greeting, GREETING_PATIENCE, &STOP)?;
    let flow = request.flow;
    let problem = match greeted.refusal {
        Some(GreetingWord::NoSuchFlow) => format!("the receiver does not count flow {flow}; name it there with --flow"),
        Some(GreetingWord::Keyed) => {
            "the receiver counts only senders that have its key; give the same file with --key at both ends".to_owned()
        }
        Some(_) => format!(
            "the receiver counts another sender's frames as flow {flow}; take another flow with --flow at both ends, or wait \
             until that one is done and the receiver is started anew"
        ),
        None if greeted.receivers() == 0 && asked.auth.bytes() > 0 && !STOP.load(Ordering::Relaxed) => {
            "no receiver answered that has this key and allows this host; give the same file with --key at both ends, or none"
                .to_owned()
        }
        None => return Ok(greeted.receivers()),
    };
    if greeted.receivers() > 0 { Ok(greeted.receivers()) } else { Err(NotTrusted(format!("{to}: {problem}")).into()) }
}

/// Announces the number of frames sent, and the receiver's clock offset from this host's.
fn conclude(sending: &mut Sending<'_>, sent: &Sent, asked: &Send) -> anyhow::Result<bool> {
    let Some(flow) = sent.outcome.flows.first() else { return Ok(false) };
    let (key, auth) = (asked.key, &asked.auth);
    let (port, request) = sending.flow(0);
    let ended = Ended { head: request.head, key, flow: request.flow, auth };
    let mut is_heard = false;
    for (of, clock) in lines(sent) {
        let next = Some(flow.next).filter(|next| *next > flow.counts.sent);
        let end = End { sent: flow.counts.sent, next, clock, pacing_error_ns: pacing_error(sent), of };
        is_heard |= sojourn_stream::conclude(port, &HostClock, ended, &end, PATIENCE)?;
    }
    Ok(is_heard)
}

/// Returns the mean pacing error by timestamps of the kernel or the interface; `None` if fewer than nine in ten frames have one.
fn pacing_error(sent: &Sent) -> Option<f64> {
    let rows = &sent.outcome.rows;
    let stamped = rows.iter().filter(|row| row.departure.source < Source::User);
    let spans: Vec<f64> = stamped.map(|row| (row.departure.at - row.intended).0 as f64).collect();
    let is_enough = !spans.is_empty() && spans.len() * 10 >= rows.len() * 9;
    is_enough.then(|| spans.iter().sum::<f64>() / spans.len() as f64)
}

/// Returns the clock reports: in a group each receiver gets its own, and a receiver that did not answer gets none.
fn lines(sent: &Sent) -> Vec<(Option<u64>, Option<EndLine>)> {
    let line = |known: &Known| known.end_line((sent.outcome.started, sent.outcome.ended));
    match sent.clocks.as_slice() {
        [] => vec![(None, None)],
        [one] => vec![(None, line(one))],
        several => several.iter().map(|known| (Some(known.clock), line(known))).chain([(None, None)]).collect(),
    }
}

fn findings(sending: &Sending<'_>, sent: &Sent) -> Findings {
    let mut found = Findings::new(false);
    found.of_host(&sent.took);
    for (place, flow) in sent.outcome.flows.iter().enumerate() {
        found.of_sender(flow, sending.schedule(place));
    }
    let is_poisson = |place: &usize| sending.schedule(*place).pattern == Pattern::Poisson;
    let flows = &sent.outcome.flows;
    let fits: Vec<_> = (0..flows.len()).filter(is_poisson).filter_map(|place| flows[place].fit).collect();
    found.of_departures(&fits);
    found.of_unexpected(sent.outcome.unexpected);
    // If no receiver answered, there is no clock to know.
    if !sent.outcome.exchanges.is_empty() {
        sent.clocks.iter().for_each(|known| found.of_clock(known));
    }
    found
}

/// The data to report.
struct Told<'a> {
    asked: &'a Send,
    sending: &'a Sending<'a>,
    sent: &'a Sent,
    is_heard: bool,
    found: &'a Findings,
}

impl Told<'_> {
    fn json(&self, place: &Place) -> Value {
        let flows: Vec<Value> =
            self.sent.outcome.flows.iter().enumerate().map(|(at, flow)| self.flow(at, flow)).collect();
        let clock: Vec<Value> = self.sent.clocks.iter().map(Known::json).collect();
        let mut told = json!({
            "instrument": { "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE },
            "flows": flows,
            "receiver_heard_the_end": self.is_heard,
            "clock": clock,
            "started_ns": self.sent.outcome.started,
            "ended_ns": self.sent.outcome.ended,
            "processor_time_ns": self.sent.took.processor,
            "departure_sources": sources(self.sent.outcome.rows.iter().map(|row| row.departure.source)),
            "unexpected": self.sent.outcome.unexpected.total(),
            "unexpected_of": self.sent.outcome.unexpected,
            "findings": self.found.json(),
        });
        serve::add(&mut told, place.json());
        told
    }

    fn flow(&self, at: usize, flow: &FlowSent) -> Value {
        let asked = &self.asked.flows[at];
        let mut told = send::flow_json(flow);
        told["to"] = json!(asked.to.to_string());
        told["engine"] = json!(self.sending.engines()[at]);
        told["schedule"] = json!(asked.shape.schedule());
        told["frame_bytes"] = json!(self.sending.frame_bytes(at));
        told["payload_bytes"] = json!(self.sending.payload_bytes(at));
        let spread = |spread| Quantiles::of(spread, 0).map(|quantiles| quantiles.json());
        told["pacing_error"] = json!(spread(&flow.pacing_error));
        told["inter_departure"] = json!(spread(&flow.inter_departure));
        told
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (at, flow) in self.sent.outcome.flows.iter().enumerate() {
            text += &self.flow_text(at, flow);
        }
        let sources = sources(self.sent.outcome.rows.iter().map(|row| row.departure.source));
        let _ = writeln!(text, "timestamps: departures {}", names(&sources));
        let receiver = match (self.is_heard, self.sent.clocks.as_slice()) {
            (false, _) => "no receiver answered that allows this host: only the sender's side is known".to_owned(),
            (true, []) => "the receiver knows of the end".to_owned(),
            (true, [known]) => format!("the receiver knows of the end; {}", known.sentence()),
            (true, several) => {
                let each = several.iter().map(|known| format!("\n{}: {}", known.peer, known.sentence()));
                format!("the receivers know of the end{}", each.collect::<String>())
            }
        };
        let _ = writeln!(text, "{receiver}");
        if self.sent.outcome.unexpected.total() > 0 {
            let _ = writeln!(text, "{}", findings::unexpected_of(self.sent.outcome.unexpected));
        }
        text + &self.found.text()
    }

    fn flow_text(&self, at: usize, flow: &FlowSent) -> String {
        let asked = &self.asked.flows[at];
        let to = &asked.to;
        let bytes = self.sending.frame_bytes(at);
        let engine = &self.sending.engines()[at];
        let counts = flow.counts;
        let mut text = format!("stream to {to} ({engine}): {bytes} byte frames, {} schedule\n", asked.shape.schedule());
        let _ = writeln!(
            text,
            "{} asked, {} sent, {} refused by this machine, {} unsent",
            counts.asked, counts.sent, counts.refused, counts.unsent
        );
        let _ = writeln!(text, "{}", rates(flow, bytes));
        if flow.pacing_error.count() > 0 {
            let (one, ten) = (flow.within_1us * 100.0, flow.within_10us * 100.0);
            let _ = writeln!(text, "departures within 1 µs of intended: {one:.2} %, within 10 µs: {ten:.2} %");
        }
        if let Some(fit) = flow.fit {
            let _ = writeln!(text, "{}", findings::gaps(fit));
        }
        let table = quantiles::table(&[
            ("pacing error", Quantiles::of(&flow.pacing_error, 0)),
            ("inter-departure time", Quantiles::of(&flow.inter_departure, 0)),
        ]);
        text + "\n" + &table + "\n\n"
    }
}
