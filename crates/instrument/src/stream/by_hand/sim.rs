//! `stream sim`: simulates both ends over a simulated path, and reports as `send` and `recv` do.

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_record::StreamFolder;
use sojourn_stream::{FlowReceived, FlowRequest, FlowSent, Pattern};
use sojourn_wire::Carrier;

use super::arguments::SimulateByHand;
use super::{add_times, print, rates, times};
use crate::failure::NotTrusted;
use crate::numbers;
use crate::place;
use crate::stream::clocks::Known;
use crate::stream::findings::Findings;
use crate::stream::one_way::OneWay;
use crate::stream::request::{ClockAsked, Flow, Head, ReceiveOptions, SendOptions, Simulate};
use crate::stream::simulate::{self, Simulated};
use crate::stream::to::To;
use crate::stream::{receive, send};
use crate::sys::STOP;

/// Simulates a stream, and reports what was sent and received.
///
/// # Errors
/// If the request is invalid, records cannot be written, or nothing arrived.
pub fn run(arguments: &SimulateByHand) -> anyhow::Result<()> {
    let flow = Flow { flow: 1, to: To::default(), shape: arguments.shape.clone() };
    arguments.shape.check_rate()?;
    let request = flow.request()?;
    let room = usize::try_from(request.schedule.count).unwrap_or(usize::MAX);
    let payload_bytes = request.payload_bytes;
    let asked = Simulate {
        head: Head::default(),
        path: serde_json::from_str(&arguments.path).context("--path")?,
        flows: vec![flow],
        receive: ReceiveOptions { room, payload_bytes: Some(payload_bytes), ..arguments.receive },
        options: SendOptions { clock: ClockAsked::Exchange, ..SendOptions::default() },
    };
    place::stop_signal()?;
    let origin = crate::origin(true);
    let folder = arguments.run.record.as_deref();
    let mut records = folder.map(|folder| StreamFolder::create(folder, "sim", 0, &origin)).transpose()?;
    let simulated = simulate::run(&asked, &STOP)?;
    let recorded =
        records.as_mut().map_or(Ok(()), |folder| folder.write(&simulated.rows).and_then(|()| folder.finish()));
    let told = Told { asked: &asked, request: &request, simulated: &simulated };
    let found = told.findings();
    let text = if arguments.run.json { format!("{:#}\n", told.json(&found)) } else { told.text(&found) };
    print(&text);
    recorded?;
    if simulated.received.flows.iter().all(|flow| flow.counts.first == 0) {
        return Err(NotTrusted("no frame of a stream arrived: the path loses them all".to_owned()).into());
    }
    Ok(())
}

struct Told<'a> {
    asked: &'a Simulate,
    request: &'a FlowRequest,
    simulated: &'a Simulated,
}

impl Told<'_> {
    fn frame_bytes(&self) -> usize {
        Carrier::Ethernet.frame_bytes(self.request.payload_bytes)
    }

    fn one_way(&self, flow: &FlowReceived) -> Option<OneWay> {
        let known = self.simulated.clocks.iter().find(|known| known.flow == flow.flow)?;
        let line = known.end_line((self.simulated.sent.started, self.simulated.sent.ended));
        OneWay::of(flow, &self.simulated.received, line, None)
    }

    fn findings(&self) -> Findings {
        let mut found = Findings::new(true);
        self.simulated.sent.flows.iter().for_each(|flow| found.of_sender(flow, &self.request.schedule));
        if self.request.schedule.pattern == Pattern::Poisson {
            let fits: Vec<_> = self.simulated.sent.flows.iter().filter_map(|flow| flow.fit).collect();
            found.of_departures(&fits);
        }
        self.simulated.clocks.iter().for_each(|known| found.of_clock(known));
        for flow in &self.simulated.received.flows {
            let one_way = self.one_way(flow);
            found.of_receiver(flow, one_way.as_ref().is_some_and(|one_way| one_way.line.shared));
            if let Some(sentence) = one_way.and_then(|one_way| one_way.impossible()) {
                found.add(sojourn_record::Finding::NegativeDelay, sentence);
            }
        }
        found
    }

    fn json(&self, found: &Findings) -> Value {
        let sent: Vec<Value> = self.simulated.sent.flows.iter().map(send::flow_json).collect();
        let received: Vec<Value> = self.simulated.received.flows.iter().map(|flow| self.received(flow)).collect();
        json!({
            "instrument": { "version": env!("CARGO_PKG_VERSION"), "profile": crate::PROFILE },
            "frame_bytes": self.frame_bytes(),
            "sent": sent,
            "received": received,
            "clock": self.simulated.clocks.iter().map(Known::json).collect::<Vec<_>>(),
            "findings": found.json(),
        })
    }

    fn received(&self, flow: &FlowReceived) -> Value {
        let mut told = receive::flow_json(flow, 0, self.frame_bytes());
        add_times(&mut told, flow, self.one_way(flow).as_ref());
        told
    }

    fn text(&self, found: &Findings) -> String {
        let sent = self.simulated.sent.flows.iter().map(|flow| self.sent_text(flow));
        let received = self.simulated.received.flows.iter().map(|flow| self.received_text(flow));
        sent.chain(received).collect::<String>() + &found.text()
    }

    fn sent_text(&self, flow: &FlowSent) -> String {
        let counts = flow.counts;
        let schedule = self.asked.flows[0].shape.schedule();
        let rates = rates(flow, self.frame_bytes());
        format!(
            "simulated stream: {} byte frames, {schedule} schedule\n{} asked, {} sent, {} refused, {} unsent\n{rates}\n",
            self.frame_bytes(),
            counts.asked,
            counts.sent,
            counts.refused,
            counts.unsent
        )
    }

    fn received_text(&self, flow: &FlowReceived) -> String {
        let counts = flow.counts;
        format!(
            "{} received, {}, {} duplicated, {} reordered, {} late, {} corrupted, {} local drops\n\n{}",
            counts.first,
            numbers::loss(counts.lost, flow.loss_run.count(), counts.packets()),
            counts.duplicated,
            counts.reordered,
            counts.late,
            counts.corrupted,
            counts.local_drops,
            times(flow, self.one_way(flow))
        )
    }
}
