//! Requests of `stream serve`, in JSON. The commands by hand build the same requests: structs with options are also
//! parsed from the command line, so that each option is declared once.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sojourn_stream::{Auth, FlowRequest, Senders};
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::size::SizeError;
use sojourn_wire::stream::HEADER_BYTES;
use sojourn_wire::{Peers, SessionKey, Size};

use super::shape::Shape;
use super::to::{To, Via};

/// A request of `serve`.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Asked {
    /// Open ports and receive until told to finish.
    Receive(Receive),
    /// Tell how many packets have arrived up to now.
    Count(Count),
    /// End a reception.
    Finish(Finish),
    /// Send.
    Send(Send),
    /// End what is being sent.
    Stop,
    /// Send and receive over a simulated path.
    Simulate(Simulate),
}

/// What a block is part of; by hand nothing.
#[derive(Clone, Debug, Deserialize)]
pub struct Head {
    pub block: u32,
    #[serde(default)]
    pub device: String,
    #[serde(default)]
    pub round: i32,
    #[serde(default)]
    pub visit: i32,
    #[serde(default)]
    pub cell: i32,
    #[serde(default = "measure")]
    pub purpose: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { block: 0, device: String::new(), round: 0, visit: 0, cell: 0, purpose: measure() }
    }
}

/// Flows to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    #[serde(flatten)]
    pub head: Head,
    /// The key of all flows, as 16 hexadecimal digits: random, and told to the receivers too.
    #[serde(deserialize_with = "session_key")]
    pub key: SessionKey,
    /// What the receivers know beforehand: by hand.
    #[serde(skip)]
    pub auth: Auth,
    pub flows: Vec<Flow>,
    #[serde(flatten)]
    pub options: SendOptions,
    /// Leave ports and programs where they are when all is sent, for the next request that asks the same.
    #[serde(default)]
    pub stay_open: bool,
}

/// What holds for all flows of a sender.
#[derive(Clone, Copy, Debug, Default, Args, Deserialize)]
#[serde(default)]
pub struct SendOptions {
    /// How the receiver's clock is compared with ours
    #[arg(long, value_name = "HOW", default_value = "exchange")]
    pub clock: ClockAsked,
    #[arg(skip)]
    pub keep: Keep,
    #[arg(skip)]
    pub stamps: StampsAsked,
    #[arg(skip)]
    #[serde(rename = "at_most_ns", deserialize_with = "some_nanos")]
    pub at_most: Option<Nanos>,
    #[arg(skip)]
    #[serde(rename = "start_in_ns", deserialize_with = "some_nanos")]
    pub start_in: Option<Nanos>,
    /// Answers come back to the ports that send, and count as late after so long: UDP, whose answers reach nobody else.
    #[arg(skip)]
    #[serde(rename = "answers_late_after_ns", deserialize_with = "some_nanos")]
    pub answers_late_after: Option<Nanos>,
}

/// One flow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub flow: u16,
    #[serde(default)]
    pub to: To,
    #[serde(flatten)]
    pub shape: Shape,
}

/// Ports to receive at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    #[serde(flatten)]
    pub head: Head,
    /// Whose frames are counted: in JSON, `key`, those with the key that the sender gets too.
    #[serde(rename = "key", deserialize_with = "known_senders")]
    pub senders: Senders,
    /// What the senders know beforehand: by hand.
    #[serde(skip)]
    pub auth: Auth,
    /// Whose greetings are believed: by hand.
    #[serde(skip)]
    pub allowed: Vec<Peers>,
    pub ports: Vec<ReceivePort>,
    pub flows: Vec<u16>,
    #[serde(flatten)]
    pub options: ReceiveOptions,
    /// Leave ports and programs where they are when the reception is over, for the next one that asks the same.
    #[serde(default)]
    pub stay_open: bool,
}

/// A port to receive at.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivePort {
    /// Its number in records.
    #[arg(skip)]
    pub port: u16,
    #[arg(skip)]
    #[serde(default)]
    pub dev: Option<String>,
    /// Receive UDP on this port
    #[arg(long = "udp", id = "udp", value_name = "PORT", num_args = 0..=1, default_missing_value = "7708")]
    #[serde(default)]
    pub udp_port: Option<u16>,
    /// Join this group, a multicast MAC or IP address; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    #[serde(default)]
    pub groups: Vec<String>,
    /// The kernel interface that moves frames; without it: UDP with --udp, else packet
    #[arg(long = "engine", value_name = "ENGINE", conflicts_with = "udp")]
    pub via: Option<Via>,
    /// UDP: where to listen; on all addresses of a family where it is not said.
    #[arg(skip)]
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Send frames of the stream back to their sender, marked with this number
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u8).range(1..))]
    #[serde(default)]
    pub answer: Option<u8>,
    /// Ask for a receive buffer of so many bytes [default: 16 MiB]
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub buffer_bytes: Option<usize>,
}

/// What holds for all flows of a receiver.
#[derive(Clone, Copy, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiveOptions {
    /// After how long a frame counts as late
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = time)]
    #[serde(rename = "late_after_ns", deserialize_with = "nanos")]
    pub late_after: Nanos,
    #[arg(skip)]
    pub keep: Keep,
    /// For how many frames to have room; what comes beyond is counted and kept in histograms only.
    #[arg(skip = ROOM)]
    pub room: usize,
    /// User data of an answer; as long as that of the frames that will come where it is not said, else as short as can be.
    #[arg(skip)]
    pub answer_payload_bytes: Option<usize>,
    /// User data of the frames that will come, where it is known: for the record.
    #[arg(skip)]
    pub payload_bytes: Option<usize>,
}

const ROOM: usize = 1_000_000;

impl Default for ReceiveOptions {
    fn default() -> Self {
        let (keep, answer_payload_bytes, payload_bytes) = Default::default();
        Self { late_after: Nanos::seconds(1), keep, room: ROOM, answer_payload_bytes, payload_bytes }
    }
}

/// A look at a reception.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    pub block: u32,
}

/// The end of a reception.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finish {
    pub block: u32,
    #[serde(default)]
    pub sent: Vec<SentCount>,
}

/// How many frames of a flow were sent to a port; to each port where it is not said.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentCount {
    pub flow: u16,
    pub sent: u64,
    /// The number after the highest that was given; as many as were sent where it is not said.
    #[serde(default)]
    pub next: Option<u64>,
    #[serde(default)]
    pub port: Option<u16>,
}

/// Both ends over a simulated path.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulate {
    #[serde(flatten)]
    pub head: Head,
    pub path: Value,
    pub flows: Vec<Flow>,
    pub receive: ReceiveOptions,
    #[serde(flatten)]
    pub options: SendOptions,
}

/// What is kept of single frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// A row for each.
    #[default]
    Packets,
    /// Histograms and counts only.
    Histograms,
}

/// Which stamps of the kernel are wanted of what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StampsAsked {
    /// None: cheapest.
    None,
    /// As it leaves.
    #[default]
    Departure,
    /// As it enters the queueing discipline, too.
    All,
}

/// How the receiver's clock is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockAsked {
    /// By exchanges with the receiver; where both ends are one host, they have one clock
    #[value(alias = "auto")]
    Exchange,
    /// Not compared: you assert that both ends have one clock
    #[default]
    Shared,
    /// Not compared: no one-way delays are reported
    None,
}

/// Reads a name that can stand in a file's name.
pub fn name(text: &str) -> Result<String, String> {
    let is_plain = !text.is_empty() && text.len() <= 16 && text.chars().all(|c| c.is_ascii_alphanumeric());
    if is_plain { Ok(text.to_owned()) } else { Err("expected 1 to 16 letters and digits".to_owned()) }
}

impl ReceivePort {
    /// Returns the means.
    pub fn via(&self) -> Via {
        self.via.unwrap_or(if self.udp_port.is_some() { Via::Udp } else { Via::Packet })
    }
}

impl SendOptions {
    /// Returns for how long at most these flows are sent: as is said, and no longer than the longest flood that time ends.
    pub fn at_most(&self, flows: &[Flow]) -> Option<Nanos> {
        let flood = flows.iter().filter_map(|flow| flow.shape.at_most()).max();
        [self.at_most, flood].into_iter().flatten().min()
    }
}

impl Flow {
    /// Returns it as the engine is asked for it; its port and what stands before its user data are set where ports are open.
    ///
    /// # Errors
    /// When it contradicts itself, or asks for what cannot be.
    pub fn request(&self) -> anyhow::Result<FlowRequest> {
        self.shape.check()?;
        let payload_bytes = self.payload_bytes()?;
        let schedule = self.shape.departures(self.to.carrier().frame_bytes(payload_bytes) + self.to.tag_bytes())?;
        Ok(FlowRequest { flow: self.flow, port: 0, head: sojourn_stream::Head::Udp, payload_bytes, schedule })
    }

    fn payload_bytes(&self) -> Result<usize, SizeError> {
        let carrier = self.to.carrier();
        match (self.shape.frame_bytes, self.shape.payload_bytes) {
            (Some(bytes), _) => carrier.payload_bytes(Size::Frame(bytes.saturating_sub(self.to.tag_bytes()))),
            (None, Some(bytes)) => carrier.payload_bytes(Size::Payload(bytes)),
            (None, None) => Ok(carrier.least_payload_bytes().max(HEADER_BYTES)),
        }
    }
}

fn session_key<'de, D: Deserializer<'de>>(from: D) -> Result<SessionKey, D::Error> {
    let wrong = || D::Error::custom("key: expected 16 hexadecimal digits");
    let text = String::deserialize(from).map_err(|_| wrong())?;
    let key = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16 && !text.starts_with('+'));
    key.map(SessionKey).ok_or_else(wrong)
}

fn known_senders<'de, D: Deserializer<'de>>(from: D) -> Result<Senders, D::Error> {
    session_key(from).map(Senders::Known)
}

/// Reads a span in ns that may be written with a fraction or an exponent, as 1e9.
fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    some_nanos(from)?.ok_or_else(|| D::Error::custom("expected a number of ns"))
}

pub fn some_nanos<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Nanos>, D::Error> {
    // Saturates at both ends; NaN becomes 0.
    Ok(Option::<f64>::deserialize(from)?.map(|ns| Nanos(ns.round() as i64)))
}

fn measure() -> String {
    "measure".to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::stream::by_hand::arguments::SendByHand;

    #[derive(Parser)]
    struct ByHand {
        #[command(flatten)]
        send: SendByHand,
    }

    #[test]
    fn command_line_and_json_describe_the_same_flow() {
        let by_hand = |line: &str| {
            let SendByHand { to, flow, shape, .. } = ByHand::parse_from(line.split(' ')).send;
            Flow { flow, to, shape }
        };
        let in_json = |value| serde_json::from_value::<Flow>(value).expect("a flow");
        let cases = [
            (
                "x --dev a --to 02:77:00:00:00:01 --vlan 7 --size 100 --rate 2kpps --count 9 --flow 3 --seed 5",
                json!({ "flow": 3, "to": { "via": "packet", "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 7 },
                    "schedule": "regular", "frame_bytes": 100, "rate_pps": 2000, "count": 9, "seed": 5 }),
            ),
            (
                "x --udp [fd00::2]:9 --dscp 46 --schedule burst:4 --payload-bytes 200 --rate 8Mbit/s --duration 2s",
                json!({ "flow": 1, "to": { "via": "udp", "address": "[fd00::2]:9", "dscp": 46 },
                    "schedule": "burst:4", "payload_bytes": 200, "rate_pps": "8Mbit/s", "duration_ns": 2e9 }),
            ),
        ];
        for (line, value) in cases {
            let (one, other) = (by_hand(line), in_json(value));
            assert_eq!(one.request().unwrap(), other.request().unwrap(), "{line}");
            assert_eq!((one.to.via(), &one.to.udp, &one.to.mac), (other.to.via(), &other.to.udp, &other.to.mac));
            assert!(one.to.qdisc_bypass && other.to.qdisc_bypass);
        }
    }

    #[test]
    fn unknown_json_key_is_refused_by_name() {
        let flow = json!({ "flow": 1, "to": { "dev": "a", "mac": "02:77:00:00:00:01" }, "schedule": "regular",
            "rate_pps": 10, "count": 3, "payload_bytes": 46, "seed": 2 });
        let send = json!({ "do": "send", "block": 1, "key": "00000000000000ff", "device": "x", "flows": [flow], "keep": "histograms",
            "stamps": "none", "clock": "shared", "start_in_ns": 2_000_000, "at_most_ns": 5,
            "answers_late_after_ns": 1e9 });
        let simulate = json!({ "do": "simulate", "block": 1, "path": {}, "flows": [flow], "clock": "shared",
            "receive": { "keep": "packets", "late_after_ns": 1e9, "room": 1000 } });
        let receive = json!({ "do": "receive", "block": 1, "key": "00000000000000ff", "flows": [1], "late_after_ns": 5, "room": 0,
            "keep": "packets", "payload_bytes": 46, "answer_payload_bytes": 46,
            "ports": [{ "port": 0, "via": "udp", "dev": "a", "groups": [], "udp_port": 7708, "address": "::", "answer": null }] });
        let finish = json!({ "do": "finish", "block": 1, "sent": [{ "flow": 1, "sent": 3, "port": 0 }] });
        for (whole, places) in [
            (send, &["", "/flows/0", "/flows/0/to"][..]),
            (simulate, &["", "/flows/0", "/flows/0/to", "/receive"]),
            (receive, &["", "/ports/0"]),
            (finish, &["", "/sent/0"]),
        ] {
            serde_json::from_value::<Asked>(whole.clone()).unwrap_or_else(|error| panic!("{whole}: {error}"));
            for place in places {
                let mut wrong = whole.clone();
                wrong.pointer_mut(place).unwrap()["conut"] = json!(1);
                let error = serde_json::from_value::<Asked>(wrong).expect_err(place);
                assert!(error.to_string().contains("`conut`"), "{place}: {error}");
            }
        }
        let apart = json!({ "via": "udp", "address": "10.0.0.1", "port": 9000 });
        assert!(serde_json::from_value::<To>(apart).unwrap_err().to_string().contains("`port`"));
    }

    #[test]
    fn session_key_has_16_hexadecimal_digits() {
        let receive = |key: Value| {
            let mut asked = json!({ "do": "receive", "block": 1, "flows": [1], "ports": [] });
            if !key.is_null() {
                asked["key"] = key;
            }
            serde_json::from_value::<Asked>(asked)
        };
        let Asked::Receive(asked) = receive(json!("0123456789abcdef")).unwrap() else { panic!("no reception") };
        assert_eq!(asked.senders, Senders::Known(SessionKey(0x0123_4567_89AB_CDEF)));
        for wrong in
            [json!(null), json!(""), json!("1"), json!("+123456789abcdef"), json!("0123456789abcdeg"), json!(5)]
        {
            assert!(receive(wrong.clone()).unwrap_err().to_string().contains("key"), "{wrong}");
        }
    }

    #[test]
    fn what_the_command_line_refuses_is_refused_in_json_too() {
        for to in [
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "dscp": 1 }),
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 4095 }),
            json!({ "dev": "a", "mac": "02:77:00:00:00:01", "pcp": 8 }),
            json!({ "via": "packet", "dev": "a", "mac": "02:77:00:00:00:01", "address": "10.0.0.1" }),
            json!({ "via": "live", "dev": "a", "mac": "02:77:00:00:00:01", "vlan": 7 }),
            json!({ "via": "udp", "address": "10.0.0.1", "vlan": 7 }),
            json!({ "via": "udp", "address": "10.0.0.1", "dscp": 64 }),
            json!({ "via": "udp", "address": "10.0.0.1", "mac": "02:77:00:00:00:01" }),
        ] {
            assert!(serde_json::from_value::<To>(to.clone()).unwrap().check().is_err(), "{to}");
        }
        for shape in [
            json!({ "schedule": "regular", "count": 1, "duration_ns": 1e9 }),
            json!({ "schedule": "regular", "frame_bytes": 64, "payload_bytes": 46 }),
            json!({ "schedule": "regular", "offsets_ns": [1, 2] }),
        ] {
            let mut flow = shape.clone();
            flow["flow"] = json!(1);
            assert!(serde_json::from_value::<Flow>(flow).unwrap().request().is_err(), "{shape}");
        }
        let file = json!({ "flow": 1, "schedule": "replay:/etc/hostname" });
        assert!(serde_json::from_value::<Flow>(file).unwrap_err().to_string().contains("offsets_ns"));
    }

    #[test]
    fn maximum_rate_stream_ends_after_its_duration() {
        let flow = |shape: Value| {
            let mut flow = shape;
            flow["flow"] = json!(1);
            serde_json::from_value::<Flow>(flow).unwrap()
        };
        let flood = flow(json!({ "schedule": "flood", "duration_ns": 2e9 }));
        let forever = flow(json!({ "schedule": "flood" }));
        let counted = flow(json!({ "schedule": "flood", "count": 5 }));
        let at_most = |at_most, flow: &Flow| {
            SendOptions { at_most, ..SendOptions::default() }.at_most(std::slice::from_ref(flow))
        };
        assert_eq!(at_most(None, &flood), Some(Nanos::seconds(2)));
        assert_eq!(at_most(Some(Nanos::seconds(1)), &flood), Some(Nanos::seconds(1)));
        assert_eq!(at_most(None, &forever), Some(Nanos::seconds(10)));
        assert_eq!(at_most(None, &counted), None);
    }
}
