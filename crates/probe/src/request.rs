//! The request of one block of probes: one line of `probe blocks`, or one run of the other commands. Fields that both
//! have are declared once, as an option of the command line and a key of JSON.

use clap::{Args, ValueEnum};
use serde::Deserialize;
use sojourn_time::Nanos;
use sojourn_time::text::time;
use sojourn_wire::Carrier;
use sojourn_wire::probe::AUTHENTICATED_BYTES;
use sojourn_wire::size::SizeError;
use sojourn_wire::stamp::{BASE_BYTES, Format};

use crate::To;
use crate::to::Simulated;

/// The most probes in a block: all of them are kept in memory.
pub const MOST_PROBES: u32 = 10_000_000;

/// The longest interval and timeout.
pub const LONGEST: Nanos = Nanos::seconds(3_600);

/// One block of probes, as asked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What it is part of.
    #[serde(flatten)]
    pub head: Head,
    /// Whom to probe, and through what.
    pub to: To,
    /// How the peer answers.
    pub kind: Kind,
    /// User data of each request.
    pub request_payload_bytes: usize,
    /// User data of each reply.
    pub response_payload_bytes: usize,
    /// Of a STAMP session: what its packets say.
    #[serde(default)]
    pub stamp: Stamp,
    /// How many probes, and when.
    #[serde(flatten)]
    pub shape: Shape,
}

/// What a block is part of; by hand nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// Its number.
    pub block: u32,
    /// The device under test, by its name in the plan.
    #[serde(default)]
    pub device: String,
    /// The round.
    #[serde(default)]
    pub round: i32,
    /// 0 on the way there, 1 on the mirrored way back.
    #[serde(default)]
    pub visit: i32,
    /// The cell of the plan's matrix.
    #[serde(default)]
    pub cell: i32,
}

/// How many probes, and when: of a request in JSON and on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize)]
pub struct Shape {
    /// How many probes to send, warm-up included
    #[arg(short, long, default_value_t = 100)]
    pub count: u32,
    /// The interval between intended departures (the mean one for poisson, the least one for closed-loop): 10ms, 500us, 1s
    #[arg(short, long, default_value = "10ms", value_parser = time)]
    #[serde(rename = "interval_ns")]
    pub interval: Nanos,
    /// When probes leave
    #[arg(long, default_value = "regular")]
    pub schedule: Schedule,
    /// A reply that takes longer is late; the run also waits this long for the last reply
    #[arg(long, default_value = "1s", value_parser = time)]
    #[serde(rename = "timeout_ns")]
    pub timeout: Nanos,
    /// How many of the first probes only warm up the path: they are recorded, but left out of the summary
    #[arg(long, default_value_t = 0)]
    #[serde(default)]
    pub warmup: u32,
    /// Seed of the poisson schedule
    #[arg(long, default_value_t = 1)]
    #[serde(default)]
    pub seed: u64,
    /// Take no TX timestamps: departures are then the times of the calls, and the kernel does not make a timestamp on each
    /// probe's way out
    #[arg(long)]
    #[serde(default)]
    pub no_tx_timestamps: bool,
}

/// What the packets of a STAMP session say beside times: of a request in JSON and on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// The session's identifier (RFC 8972) [default: random]
    #[arg(long, value_name = "N")]
    #[serde(default)]
    pub ssid: Option<u16>,
    /// Format of our timestamps
    #[arg(long, value_name = "FORMAT", default_value = "ntp")]
    #[serde(default)]
    pub timestamps: Timestamps,
    /// The reflector numbers the packets that it receives (stateful), which distinguishes loss on the way there from loss on the
    /// way back
    #[arg(long)]
    #[serde(default)]
    pub stateful: bool,
    /// Both ends have one clock: then delays of each direction are reported, as they are where both say that they are synchronised
    #[arg(long)]
    #[serde(default)]
    pub shared_clock: bool,
}

/// How a STAMP packet has its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// As NTP: UTC since 1900
    #[default]
    Ntp,
    /// As PTP: TAI since 1970
    Ptp,
}

impl From<Timestamps> for Format {
    fn from(timestamps: Timestamps) -> Self {
        match timestamps {
            Timestamps::Ntp => Self::Ntp,
            Timestamps::Ptp => Self::Ptp,
        }
    }
}

/// How the peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its kernel echoes.
    Icmp,
    /// A responder of ours answers with as much as each request asks for.
    RequestResponse,
    /// A responder of ours answers with as much as it got.
    PingPong,
    /// A STAMP session-reflector (RFC 8762) answers, anybody's.
    Stamp,
}

/// When probes leave: in requests, and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// At equal intervals, answered or not (open loop).
    Regular,
    /// At exponential intervals, answered or not (open loop).
    Poisson,
    /// When the probe before it was answered or timed out, and the interval has passed (closed loop)
    ClosedLoop,
}

/// A request that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct RequestError {
    key: &'static str,
    problem: String,
}

impl Request {
    /// Returns a request that is part of no plan, whose replies are as long as the requests.
    pub fn new(block: u32, to: To, kind: Kind, payload_bytes: usize, shape: Shape) -> Self {
        let head = Head { block, ..Head::default() };
        let (request_payload_bytes, response_payload_bytes) = (payload_bytes, payload_bytes);
        Self { head, to, kind, request_payload_bytes, response_payload_bytes, stamp: Stamp::default(), shape }
    }

    /// Returns what carries the user data.
    pub const fn carrier(&self) -> Carrier {
        self.to.carrier(self.kernel_answers())
    }

    /// Returns whether the peer's kernel answers.
    pub const fn kernel_answers(&self) -> bool {
        matches!(self.kind, Kind::Icmp)
    }

    /// Checks that it can be done at all.
    ///
    /// # Errors
    /// On the first thing that cannot, by its key.
    pub fn check(&self) -> Result<(), RequestError> {
        self.check_sizes()?;
        self.shape.check()?;
        require("block", i32::try_from(self.head.block).is_ok(), "expected at most 2,147,483,647")?;
        if let To::Sim(Simulated { line, .. }) = &self.to {
            line.check().map_err(|error| RequestError { key: "to", problem: error.to_string() })?;
        }
        Ok(())
    }

    /// Checks that its packets have room for what authenticates them, or, without a key, for what a STAMP packet has.
    ///
    /// # Errors
    /// When they have not.
    pub fn check_key(&self, is_keyed: bool) -> Result<(), RequestError> {
        let bytes = self.request_payload_bytes.min(self.response_payload_bytes);
        let [open, authenticated] = BASE_BYTES;
        let key = "request_payload_bytes";
        require("to", !(is_keyed && self.to.is_simulated()), "a simulated line has no key")?;
        match self.kind {
            Kind::Icmp => {
                require("kind", !is_keyed, "the kernel that answers an ICMP echo has no key; probe udp or raw")
            }
            Kind::Stamp if is_keyed => {
                require(key, bytes == authenticated, "expected 112, the length of an authenticated STAMP packet")
            }
            Kind::Stamp => require(key, bytes >= open, "expected at least 44, the length of a STAMP packet"),
            Kind::RequestResponse | Kind::PingPong => {
                let has_room = !is_keyed || bytes >= AUTHENTICATED_BYTES;
                require(key, has_room, "expected at least 56 with a key, there and back")
            }
        }
    }

    fn check_sizes(&self) -> Result<(), RequestError> {
        let by_udp = matches!(self.to, To::Udp(_));
        require("kind", by_udp || self.kind != Kind::Stamp, "stamp goes with via udp alone")?;
        let icmp_carrier = matches!(self.carrier(), Carrier::Icmp4 | Carrier::Icmp6);
        require("kind", icmp_carrier == self.kernel_answers(), "icmp goes with via icmp or sim, the others do not")?;
        let refuse = |key| move |error: SizeError| RequestError { key, problem: error.to_string() };
        self.carrier().check(self.request_payload_bytes).map_err(refuse("request_payload_bytes"))?;
        self.carrier().check(self.response_payload_bytes).map_err(refuse("response_payload_bytes"))?;
        let alike = self.kind == Kind::RequestResponse || self.request_payload_bytes == self.response_payload_bytes;
        require("response_payload_bytes", alike, "expected request_payload_bytes, but for request-response")
    }
}

impl Shape {
    /// Returns probes at equal intervals, none of which is for the warm-up.
    pub const fn regular(count: u32, interval: Nanos, timeout: Nanos) -> Self {
        Self { count, interval, schedule: Schedule::Regular, timeout, warmup: 0, seed: 1, no_tx_timestamps: false }
    }

    fn check(&self) -> Result<(), RequestError> {
        let spans = Nanos(1)..=LONGEST;
        let closed = self.schedule == Schedule::ClosedLoop;
        require(
            "interval_ns",
            spans.contains(&self.interval) || (closed && self.interval == Nanos::ZERO),
            "expected more than 0 and at most an hour (0 only with closed-loop)",
        )?;
        require("timeout_ns", spans.contains(&self.timeout), "expected more than 0 and at most an hour")?;
        require("count", (1..=MOST_PROBES).contains(&self.count), "expected 1 to 10,000,000")?;
        require("warmup", self.warmup <= self.count, "expected no more than count, which includes it")
    }
}

impl Kind {
    /// Returns the name that requests and records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::RequestResponse => "request-response",
            Self::PingPong => "ping-pong",
            Self::Stamp => "stamp",
        }
    }
}

impl Schedule {
    /// Returns the name that requests and records carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Poisson => "poisson",
            Self::ClosedLoop => "closed-loop",
        }
    }
}

fn require(key: &'static str, holds: bool, problem: &str) -> Result<(), RequestError> {
    if holds { Ok(()) } else { Err(RequestError { key, problem: problem.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"{"block":12,"device":"bridge","round":3,"visit":0,"cell":1,
        "to":{"via":"packet","dev":"a-direct","mac":"02:77:00:00:01:02","qdisc_bypass":true},
        "kind":"ping-pong","request_payload_bytes":56,"response_payload_bytes":56,"schedule":"closed-loop",
        "interval_ns":1000000,"count":44,"warmup":4,"timeout_ns":200000000,"seed":42}"#;

    #[test]
    fn requests_are_parsed() {
        let request: Request = serde_json::from_str(LINE).unwrap();
        assert_eq!(request.check(), Ok(()));
        assert_eq!((request.kind, request.shape.schedule), (Kind::PingPong, Schedule::ClosedLoop));
        assert_eq!(request.carrier(), Carrier::Ethernet);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let refusal = |from: &str, to: &str| {
            let request: Result<Request, _> = serde_json::from_str(&LINE.replace(from, to));
            match request {
                Ok(request) => request.check().expect_err(to).to_string(),
                Err(error) => error.to_string(),
            }
        };
        assert!(refusal("\"count\":44", "\"count\":0").starts_with("count: "));
        assert!(refusal("\"warmup\":4", "\"warmup\":45").starts_with("warmup: "));
        assert!(refusal("\"interval_ns\":1000000", "\"interval_ns\":-1").starts_with("interval_ns: "));
        assert!(refusal("\"kind\":\"ping-pong\"", "\"kind\":\"icmp\"").starts_with("kind: "));
        assert!(refusal("\"response_payload_bytes\":56", "\"response_payload_bytes\":57").contains("expected"));
        assert!(refusal("_payload_bytes\":56", "_payload_bytes\":45").contains("fewer than the 46"));
        assert!(refusal("\"seed\"", "\"sead\"").contains("unknown field `sead`"));
        assert!(refusal("\"qdisc_bypass\"", "\"qdisc\"").contains("unknown field `qdisc`"));
        assert!(refusal("02:77:00:00:01:02", "nonsense").contains("not a MAC address"));
    }

    #[test]
    fn a_command_line_and_json_ask_for_the_same() {
        #[derive(clap::Parser)]
        struct ByHand {
            #[command(flatten)]
            to: crate::Ethernet,
            #[command(flatten)]
            shape: Shape,
        }
        let line = "x --dev a-direct --to 02:77:00:00:01:02 --schedule closed-loop -i 1ms -c 44 --warmup 4 --timeout 200ms --seed 42";
        let by_hand = <ByHand as clap::Parser>::parse_from(line.split(' '));
        let in_json: Request = serde_json::from_str(LINE).unwrap();
        assert_eq!((To::Ethernet(by_hand.to), by_hand.shape), (in_json.to, in_json.shape));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = serde_json::from_str::<Request>(&text);
        }

        #[test]
        fn damaged_requests_never_panic(at in 0..LINE.len(), byte in 32..127_u8) {
            let mut text = LINE.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(request) = serde_json::from_slice::<Request>(&text) {
                let _ = request.check();
            }
        }
    }
}
