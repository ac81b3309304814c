//! Simulates both ends of a stream over a simulated path, in simulated time; the request contains the true parameters.

use std::sync::atomic::AtomicBool;

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_port::Framing;
use sojourn_record::stream::{Role, StreamBlock};
use sojourn_stream::sim::{Clocks, Path};
use sojourn_stream::{FlowRequest, Head, PortRequest, ReceiveOutcome, SendOutcome, SendRequest, Senders, Unexpected};
use sojourn_time::{Nanos, Reading};
use sojourn_wire::stream::Link;
use sojourn_wire::{Carrier, MacAddress, SessionKey, stream as wire};

use super::clocks::{self, Known};
use super::host::Took;
use super::receive;
use super::request::{ClockAsked, Flow, SendOptions, Simulate};
use super::rows::{self, Common, What};
use super::send;
use crate::failure::WrongRequest;

/// The only port at either end.
const PORT: u16 = 0;
const ENGINE: &str = "simulated";

/// The results of a simulation.
#[derive(Debug)]
pub struct Simulated {
    /// The sender's results.
    pub sent: SendOutcome,
    /// The receiver's results.
    pub received: ReceiveOutcome,
    /// The estimates of the receiver's clock.
    pub clocks: Vec<Known>,
    /// All rows for the records.
    pub rows: StreamBlock,
}

/// Simulates, and returns the rows and the answer.
///
/// # Errors
/// If the request is invalid.
pub fn simulate(asked: &Simulate, halt: &AtomicBool) -> anyhow::Result<(StreamBlock, Value)> {
    let simulated = run(asked, halt)?;
    let answer = answer(asked, &simulated);
    Ok((simulated.rows, answer))
}

/// Simulates a request.
///
/// # Errors
/// If the request is invalid.
pub fn run(asked: &Simulate, halt: &AtomicBool) -> anyhow::Result<Simulated> {
    let path: Path = serde_json::from_value(asked.path.clone()).context("path")?;
    let asked = &asked.with_clock_of(&path);
    let flow = |flow: &Flow| Ok(FlowRequest { head: head(), ..flow.request()? });
    let flows = asked.flows.iter().map(flow).collect::<anyhow::Result<_>>()?;
    let at_most = asked.options.at_most(&asked.flows);
    let options = SendOptions { keep: asked.receive.keep, at_most, ..asked.options };
    let key = SessionKey(asked.head.block.into());
    let request = send::send_request((asked.head.block, key), &options, flows);
    let port =
        PortRequest { framing: Framing::Ethernet, mac: MacAddress::default(), answer: None, tx_timestamps: true };
    let numbers: Vec<u16> = asked.flows.iter().map(|flow| flow.flow).collect();
    let receive = receive::receive_request(Senders::Known(key), &numbers, &asked.receive, vec![port]);
    let (sent, received) =
        sojourn_stream::simulate(&path, &request, &receive, halt).map_err(|error| WrongRequest(error.to_string()))?;
    let of_flow = |flow: &Flow| match asked.options.clock {
        ClockAsked::Shared => vec![clocks::asserted(flow.flow, ENGINE, request.clock)],
        // Both ends have the same clock ID if the path shares a clock.
        ClockAsked::Exchange => clocks::learn(flow.flow, ENGINE, &sent.exchanges, request.clock),
        ClockAsked::None => Vec::new(),
    };
    let clocks: Vec<Known> = asked.flows.iter().flat_map(of_flow).collect();
    let rows = rows_of(asked, &request, &sent, &received, &clocks);
    Ok(Simulated { sent, received, clocks, rows })
}

impl Simulate {
    /// Replaces an asserted shared clock by exchanges if the path's clocks differ.
    fn with_clock_of(&self, path: &Path) -> Self {
        let is_one = path.clocks.shared || path.clocks == Clocks::default();
        let clock = self.options.clock;
        let clock = if clock == ClockAsked::Shared && !is_one { ClockAsked::Exchange } else { clock };
        Self { options: SendOptions { clock, ..self.options }, ..self.clone() }
    }
}

fn head() -> Head {
    Head::Link(Link {
        destination: MacAddress([2, 0x77, 0, 0, 0, 2]),
        source: MacAddress([2, 0x77, 0, 0, 0, 1]),
        tag: None,
    })
}

fn rows_of(
    asked: &Simulate,
    request: &SendRequest,
    sent: &SendOutcome,
    received: &ReceiveOutcome,
    clocks: &[Known],
) -> StreamBlock {
    let at = |tai| Reading { tai, monotonic_raw: tai, error: Nanos::ZERO };
    let took = Took { started: at(sent.started), ended: at(sent.ended), processor: Nanos::ZERO };
    let common = Common { head: &asked.head, took: &took, place: None, clock_id: 0 };
    let what = |role, payload_bytes| What {
        role,
        port: PORT,
        via: "sim",
        engine: ENGINE,
        frame_bytes: Carrier::Ethernet.frame_bytes(payload_bytes),
        payload_bytes,
    };
    let of_sender = sent.flows.iter().zip(request.flows.iter().zip(&asked.flows)).map(|(flow, (of, asked))| {
        rows::sent(common, &what(Role::Send, of.payload_bytes), asked.shape.schedule(), (flow, Unexpected::default()))
    });
    let of_receiver = received.flows.iter().map(|flow| {
        rows::received(common, &what(receive::role(flow), receive::payload_of(flow, asked.receive.payload_bytes)), flow)
    });
    let block = asked.head.block;
    let there = send::block_of_sender(block, sent, clocks, of_sender.collect());
    let here = receive::block_of_receiver(block, received, &[PORT], of_receiver.collect());
    StreamBlock {
        arrivals: here.arrivals,
        streams: [there.streams, here.streams].concat(),
        histograms: [there.histograms, here.histograms].concat(),
        ..there
    }
}

fn answer(asked: &Simulate, simulated: &Simulated) -> Value {
    let of_flow = |flow: &sojourn_stream::FlowReceived| {
        let payload = receive::payload_of(flow, asked.receive.payload_bytes).max(wire::HEADER_BYTES);
        receive::flow_json(flow, PORT, Carrier::Ethernet.frame_bytes(payload))
    };
    let clock: Vec<Value> = simulated.clocks.iter().map(Known::json).collect();
    json!({
        "event": "simulated",
        "block": asked.head.block,
        "sent": simulated.sent.flows.iter().map(send::flow_json).collect::<Vec<_>>(),
        "received": simulated.received.flows.iter().map(of_flow).collect::<Vec<_>>(),
        "clock": if clock.is_empty() { Value::Null } else { json!(clock) },
        "stepped": false,
    })
}
