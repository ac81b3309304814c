//! The requests: each type is both a command line and a JSON request.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use clap::Args;
use serde::Deserialize;
use sojourn_time::Nanos;
use sojourn_time::text::time;

use crate::{TcpError, socket};

const DEFAULT_DURATION: Nanos = Nanos::seconds(10);
const DEFAULT_MESSAGE_BYTES: u32 = 64 << 10;
const MOST_MESSAGE_BYTES: u32 = 16 << 20;
const MOST_CONNECTIONS: u32 = 1000;
const MAX_DSCP: u8 = 63;
/// The largest number of a header, in the largest unit (RFC 7323).
const MOST_WINDOW_BYTES: u32 = 65_535 << 14;

/// Connections to make, and what to send on each.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// To whom: 10.0.0.2:5201, [fd00::2]:5201
    #[arg(value_name = "ADDRESS:PORT")]
    pub to: SocketAddr,
    /// From this address of ours
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// For how long to send [default: 10s]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    #[serde(rename = "duration_ns")]
    pub duration: Option<Nanos>,
    /// How many bytes to send on each connection, instead of how long
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub bytes: Option<u64>,
    /// Bytes of each send call; with --interval: the size of a message
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MESSAGE_BYTES)]
    #[serde(default = "default_message_bytes")]
    pub message_bytes: u32,
    /// Send one message each interval, instead of as fast as possible: message k is due k intervals after the start, however late
    /// those before it were
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(rename = "interval_ns")]
    pub interval: Option<Nanos>,
    /// Parallel connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[serde(default = "one")]
    pub connections: u32,
    /// Mark packets with this DSCP (0 to 63); of several ("0,8,40,46") each connection has the next
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    #[serde(default)]
    pub dscp: Vec<u8>,
    /// From these ports of ours, one for each connection
    #[arg(long, value_name = "PORT,…", value_delimiter = ',')]
    #[serde(default)]
    pub from_ports: Vec<u16>,
    #[command(flatten)]
    #[serde(flatten)]
    #[expect(missing_docs, reason = "it would become the help's")]
    pub sockets: Sockets,
    /// Read TCP_INFO immediately before each send call
    #[arg(long)]
    #[serde(default)]
    pub read_before_send: bool,
    /// End a segment with each send call (MSG_EOR): the kernel appends nothing to it. With --no-delay and messages that are no
    /// longer than the maximum segment size, each message is one segment
    #[arg(long = "eor")]
    #[serde(default)]
    pub is_eor: bool,
    /// Make these connections anew this often, each for `bytes`, until the duration is over; each begins with its handshake.
    #[arg(skip)]
    #[serde(default, rename = "again_every_ns")]
    pub again_every: Option<Nanos>,
    /// Whether the outcome has when each message was due and written; with an interval only.
    #[arg(skip)]
    #[serde(default)]
    pub keep_calls: bool,
}

/// Connections to accept and read to their ends.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Where to listen: 5201, 10.0.0.2:5201, [fd00::2]:5201
    #[arg(value_name = "[ADDRESS:]PORT")]
    pub at: Listen,
    /// How many connections to take; it ends when the last of them does
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[serde(default = "one")]
    pub connections: u32,
    #[command(flatten)]
    #[serde(flatten)]
    #[expect(missing_docs, reason = "it would become the help's")]
    pub sockets: Sockets,
}

/// What either end gets to know about its sockets.
#[derive(Clone, Debug, Args, Deserialize)]
pub struct Sockets {
    /// The block that they belong to; by hand 0.
    #[arg(skip)]
    pub block: u32,
    #[command(flatten)]
    #[serde(default)]
    #[expect(missing_docs, reason = "it would become the help's")]
    pub settings: Settings,
    /// Read TCP_INFO this often, beside at the beginning and the end
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(rename = "read_every_ns")]
    pub read_every: Option<Nanos>,
}

/// Options of a socket; what is not named is the kernel's choice.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Congestion control: reno, cubic, bbr, …
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Send buffer; the kernel doubles it for its overhead
    #[arg(long = "sndbuf", value_name = "BYTES")]
    pub sndbuf_bytes: Option<usize>,
    /// Receive buffer; the kernel doubles it for its overhead
    #[arg(long = "rcvbuf", value_name = "BYTES")]
    pub rcvbuf_bytes: Option<usize>,
    /// Largest window offered to the peer, of whole segments (TCP_WINDOW_CLAMP)
    #[arg(long = "window", value_name = "BYTES")]
    pub window_bytes: Option<u32>,
    /// Maximum segment size
    #[arg(long = "mss", value_name = "BYTES")]
    pub mss_bytes: Option<u16>,
    /// Send small messages at once (TCP_NODELAY)
    #[arg(long = "no-delay")]
    pub is_nodelay: bool,
}

/// Where to listen; without an address on all of IPv6 and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Listen {
    /// Our address.
    pub address: Option<IpAddr>,
    /// The port; 0: the kernel chooses one.
    pub port: u16,
}

/// When a connection has sent enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    After(Nanos),
    Bytes(u64),
}

impl Send {
    /// Checks the values, and that the kernel takes the settings.
    ///
    /// # Errors
    /// Says which makes no sense, or what the kernel refuses.
    pub fn check(&self) -> Result<(), TcpError> {
        self.end()?;
        socket::open(self.to.ip(), &self.sockets.settings).map(drop)
    }

    /// Returns the code point of a connection, where any is asked for.
    pub(crate) fn dscp_of(&self, connection: u32) -> Option<u8> {
        let turn = connection as usize % self.dscp.len().max(1);
        self.dscp.get(turn).copied()
    }

    /// Returns our end of a connection, where it is not the kernel's choice alone.
    pub(crate) fn own_end(&self, connection: u32) -> Option<SocketAddr> {
        let port = self.from_ports.get(connection as usize).copied();
        if self.bind.is_none() && port.is_none() {
            return None;
        }
        let any = if self.to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        Some(SocketAddr::new(self.bind.unwrap_or(any), port.unwrap_or(0)))
    }

    /// Returns how often the connections are made.
    pub(crate) fn turns(&self) -> i64 {
        let (Some(span), Some(every)) = (self.duration, self.again_every) else { return 1 };
        (span.0.max(0) as u64).div_ceil(every.0.max(1).unsigned_abs()).cast_signed()
    }

    /// Returns how many connections that makes.
    fn transfers(&self) -> i64 {
        self.turns().saturating_mul(self.connections.into())
    }

    /// Checks the values; returns when a connection has sent enough.
    pub(crate) fn end(&self) -> Result<End, TcpError> {
        check_connections(self.connections)?;
        check_time("duration_ns (--for)", self.duration)?;
        check_time("interval_ns (--interval)", self.interval)?;
        if let Some(dscp) = self.dscp.iter().find(|dscp| **dscp > MAX_DSCP) {
            return Err(wrong(format!("there is no DSCP {dscp} (--dscp); they go from 0 to {MAX_DSCP}")));
        }
        self.check_ports()?;
        self.sockets.check()?;
        if !(1..=MOST_MESSAGE_BYTES).contains(&self.message_bytes) {
            return Err(wrong(format!("a message has 1 to {MOST_MESSAGE_BYTES} bytes, not {}", self.message_bytes)));
        }
        check_time("again_every_ns", self.again_every)?;
        match (self.duration, self.bytes) {
            (Some(_), Some(bytes)) if self.again_every.is_some() => {
                check_connections(u32::try_from(self.transfers()).unwrap_or(u32::MAX))?;
                Ok(End::Bytes(bytes))
            }
            _ if self.again_every.is_some() => Err(wrong("again_every_ns: give a duration and a number of bytes")),
            (Some(_), Some(_)) => Err(wrong("give a duration or a number of bytes, not both")),
            (None, Some(bytes)) => Ok(End::Bytes(bytes)),
            (span, None) => Ok(End::After(span.unwrap_or(DEFAULT_DURATION))),
        }
    }
}

impl Send {
    fn check_ports(&self) -> Result<(), TcpError> {
        let ports = &self.from_ports;
        if ports.contains(&0) {
            return Err(wrong("port 0 (--from-ports) is the kernel's choice; leave the ports out"));
        }
        if !ports.is_empty() && self.again_every.is_some() {
            return Err(wrong("from_ports: none beside again_every_ns, for a port is not free again at once"));
        }
        let distinct: HashSet<_> = ports.iter().collect();
        if !ports.is_empty() && (ports.len() != self.connections as usize || distinct.len() != ports.len()) {
            return Err(wrong(format!(
                "{} different ports (--from-ports) for {} connections; give one for each",
                distinct.len(),
                self.connections
            )));
        }
        Ok(())
    }
}

impl Receive {
    /// Checks the values, and that the kernel takes the settings.
    ///
    /// # Errors
    /// Says which makes no sense, or what the kernel refuses.
    pub fn check(&self) -> Result<(), TcpError> {
        check_connections(self.connections)?;
        self.sockets.check()?;
        socket::open(self.at.own_address(), &self.sockets.settings).map(drop)
    }
}

impl Sockets {
    fn check(&self) -> Result<(), TcpError> {
        check_time("read_every_ns (--read-every)", self.read_every)?;
        match self.settings.window_bytes {
            Some(bytes) if !(1..=MOST_WINDOW_BYTES).contains(&bytes) => {
                Err(wrong(format!("window_bytes (--window) is {bytes}; it must be 1 to {MOST_WINDOW_BYTES}")))
            }
            _ => Ok(()),
        }
    }
}

fn check_connections(connections: u32) -> Result<(), TcpError> {
    match connections {
        1..=MOST_CONNECTIONS => Ok(()),
        _ => Err(wrong(format!("there are 1 to {MOST_CONNECTIONS} connections, not {connections}"))),
    }
}

fn check_time(name: &str, time: Option<Nanos>) -> Result<(), TcpError> {
    match time {
        Some(time) if time <= Nanos::ZERO => Err(wrong(format!("{name} is {} ns; it must be above 0", time.0))),
        _ => Ok(()),
    }
}

fn wrong(problem: impl Into<String>) -> TcpError {
    TcpError::Wrong(problem.into())
}

impl Listen {
    /// Returns our address; without one all of IPv6 and IPv4.
    pub(crate) fn own_address(&self) -> IpAddr {
        self.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse() {
            return Ok(Self { address: None, port });
        }
        let at: SocketAddr = text.parse().map_err(|_| "expected 5201, 10.0.0.2:5201 or [fd00::2]:5201".to_owned())?;
        Ok(Self { address: Some(at.ip()), port: at.port() })
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn one() -> u32 {
    1
}

fn default_message_bytes() -> u32 {
    DEFAULT_MESSAGE_BYTES
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        send: Send,
    }

    fn of_line(line: &str) -> Send {
        Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{error}")).send
    }

    fn of_json(text: &str) -> Send {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn listen_address_has_one_syntax_on_the_command_line_and_in_json() {
        let of_json =
            |at: &str| serde_json::from_str::<Receive>(&format!(r#"{{"block":0,"at":"{at}"}}"#)).map(|asked| asked.at);
        for (at, expected) in [
            ("5201", Listen { address: None, port: 5201 }),
            ("10.0.0.2:9", Listen { address: "10.0.0.2".parse().ok(), port: 9 }),
            ("[fd00::2]:9", Listen { address: "fd00::2".parse().ok(), port: 9 }),
        ] {
            assert_eq!(at.parse(), Ok(expected));
            assert_eq!(of_json(at).ok(), Some(expected));
        }
        assert!(of_json("65536").is_err());
    }

    #[test]
    fn a_command_line_and_json_ask_for_the_same() {
        for (line, json) in [
            ("x 10.0.0.2:9", r#"{"block":0,"to":"10.0.0.2:9"}"#),
            (
                "x 10.0.0.2:9 --for 2s --interval 1ms --read-every 10ms --read-before-send --connections 3 --mss 900 \
                 --congestion reno --message-bytes 99 --window 20272 --dscp 0,46",
                r#"{"block":0,"to":"10.0.0.2:9","duration_ns":2000000000,"interval_ns":1000000,"read_every_ns":10000000,
                    "read_before_send":true,"connections":3,"settings":{"mss_bytes":900,"congestion":"reno","window_bytes":20272},
                    "message_bytes":99,"dscp":[0,46]}"#,
            ),
            ("x [::1]:9 --bytes 7 --bind ::1", r#"{"block":0,"to":"[::1]:9","bytes":7,"bind":"::1"}"#),
            (
                "x 10.0.0.2:9 --connections 2 --from-ports 7,8",
                r#"{"block":0,"to":"10.0.0.2:9","connections":2,"from_ports":[7,8]}"#,
            ),
        ] {
            let (line, json) = (of_line(line), of_json(json));
            assert_eq!(format!("{line:?}"), format!("{json:?}"));
            assert!(line.end().is_ok());
        }
        assert_eq!(of_line("x 10.0.0.2:9").end().ok(), Some(End::After(DEFAULT_DURATION)));
    }

    #[test]
    fn each_connection_has_the_next_code_point() {
        let marks = |dscp: &str| {
            let asked = of_line(&format!("x 10.0.0.2:9 {dscp}"));
            [0, 1, 2, 3].map(|number| asked.dscp_of(number))
        };
        assert_eq!(marks("--dscp 0,8,46"), [Some(0), Some(8), Some(46), Some(0)]);
        assert_eq!(marks("--bytes 1"), [None; 4]);
    }

    #[test]
    fn local_address_and_port_are_those_requested() {
        let own_end = |line: &str, connection| of_line(line).own_end(connection).map(|end| end.to_string());
        assert_eq!(own_end("x 10.0.0.2:9", 0), None);
        assert_eq!(own_end("x 10.0.0.2:9 --connections 2 --from-ports 7,8", 1).as_deref(), Some("0.0.0.0:8"));
        assert_eq!(own_end("x [::1]:9 --bind ::1 --from-ports 7", 0).as_deref(), Some("[::1]:7"));
        assert_eq!(own_end("x [::1]:9 --bind ::1", 0).as_deref(), Some("[::1]:0"));
    }

    #[test]
    fn connections_are_repeated_until_the_duration_ends() {
        let asked = |every: i64| {
            let text = format!(
                r#"{{"block":0,"to":"10.0.0.2:9","bytes":7,"duration_ns":1000,"connections":3,"again_every_ns":{every}}}"#
            );
            of_json(&text)
        };
        assert_eq!([250, 300, 1000, 2000].map(|every| asked(every).turns()), [4, 4, 1, 1]);
        assert_eq!((asked(300).transfers(), asked(300).end().ok()), (12, Some(End::Bytes(7))));
        assert_eq!(of_line("x 10.0.0.2:9").turns(), 1);
    }

    #[test]
    fn invalid_requests_are_refused() {
        for (text, named) in [
            (r#"{"block":0,"to":"10.0.0.2:9","duration_ns":1,"bytes":1}"#, "duration"),
            (r#"{"block":0,"to":"10.0.0.2:9","duration_ns":0}"#, "duration_ns"),
            (r#"{"block":0,"to":"10.0.0.2:9","interval_ns":0}"#, "interval_ns"),
            (r#"{"block":0,"to":"10.0.0.2:9","read_every_ns":-1}"#, "read_every_ns"),
            (r#"{"block":0,"to":"10.0.0.2:9","settings":{"window_bytes":0}}"#, "window_bytes"),
            (r#"{"block":0,"to":"10.0.0.2:9","settings":{"window_bytes":1073725441}}"#, "window_bytes"),
            (r#"{"block":0,"to":"10.0.0.2:9","message_bytes":0}"#, "message"),
            (r#"{"block":0,"to":"10.0.0.2:9","message_bytes":16777217}"#, "message"),
            (r#"{"block":0,"to":"10.0.0.2:9","dscp":[46,64]}"#, "DSCP 64"),
            (r#"{"block":0,"to":"10.0.0.2:9","connections":0}"#, "connections"),
            (r#"{"block":0,"to":"10.0.0.2:9","from_ports":[7,8]}"#, "2 different ports"),
            (r#"{"block":0,"to":"10.0.0.2:9","connections":2,"from_ports":[7,7]}"#, "1 different ports"),
            (r#"{"block":0,"to":"10.0.0.2:9","from_ports":[0]}"#, "port 0"),
            (
                r#"{"block":0,"to":"10.0.0.2:9","from_ports":[7],"again_every_ns":1,"bytes":1,"duration_ns":1}"#,
                "from_ports",
            ),
            (r#"{"block":0,"to":"10.0.0.2:9","connections":1001}"#, "connections"),
            (r#"{"block":0,"to":"10.0.0.2:9","again_every_ns":1000}"#, "again_every_ns"),
            (r#"{"block":0,"to":"10.0.0.2:9","again_every_ns":0,"bytes":1,"duration_ns":1}"#, "again_every_ns"),
            (r#"{"block":0,"to":"10.0.0.2:9","again_every_ns":1,"bytes":1,"duration_ns":1001}"#, "connections"),
        ] {
            assert!(matches!(of_json(text).check(), Err(TcpError::Wrong(why)) if why.contains(named)), "{text}");
        }
    }
}
