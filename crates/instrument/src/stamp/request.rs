//! The command line of `stamp`. A session is a [`Request`] of kind `stamp`, whose options are declared there.

use clap::{Args, Subcommand};
use sojourn_probe::{Kind, Peer, Request, Shape, Stamp as Session, Timestamps, To, Udp};
use sojourn_wire::stamp::{BASE_BYTES, PORT};

use crate::arguments::AnswerArguments;
use crate::probe::request::Output;

/// Which end of a session.
#[derive(Debug, Subcommand)]
pub enum Stamp {
    /// Be a session-sender: send test packets to a reflector, and time what comes back
    ///
    /// Reports round trips and losses as `probe udp` does, and those of each direction where clocks and sequence numbers allow
    /// it. Needs no rights. Example: sojourn stamp send 10.0.0.2 -c 1000 -i 10ms --stateful
    Send(SendArguments),
    /// Be a session-reflector, until SIGINT or SIGTERM
    ///
    /// Answers each test packet with one of the same length. Example: sojourn stamp reflect --stateful --allow 10.0.0.0/8
    Reflect(Reflect),
}

#[derive(Debug, Args)]
pub struct SendArguments {
    /// The reflector, and its port where it is not 862: 10.0.0.2, 10.0.0.2:9000, fd00::2, [fd00::2]:9000
    #[arg(value_name = "ADDR[:PORT]", value_parser = peer)]
    peer: Peer,
    /// Bind to this interface
    #[arg(long, value_name = "D")]
    dev: Option<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    session: Session,
    /// Bytes of each packet, after the UDP header, there and back: with extra padding from 45 on [default: 44; 112 with --key,
    /// which is then the only length]
    #[arg(long, value_name = "N")]
    payload_bytes: Option<usize>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct Reflect {
    /// Answer on this UDP port, over IPv4 and IPv6; may be repeated [default: 862, which needs CAP_NET_BIND_SERVICE]
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,
    /// Number the received packets of each session (stateful), so that the sender can distinguish loss on the way there from
    /// loss on the way back
    #[arg(long)]
    pub stateful: bool,
    /// Format of our timestamps
    #[arg(long, value_name = "FORMAT", default_value = "ntp")]
    pub timestamps: Timestamps,
    #[command(flatten)]
    pub answer: AnswerArguments,
}

impl SendArguments {
    /// Returns the block of probes that is asked for.
    pub fn request(&self) -> Request {
        let to = To::Udp(Udp { peer: self.peer, dev: self.dev.clone(), dscp: None });
        let payload_bytes = self.payload_bytes.unwrap_or(BASE_BYTES[usize::from(self.output.key.is_some())]);
        let request = Request::new(0, to, Kind::Stamp, payload_bytes, self.shape.clone());
        Request { stamp: self.session.clone(), ..request }
    }
}

impl Reflect {
    /// Returns the ports that are asked for.
    pub fn ports(&self) -> &[u16] {
        if self.port.is_empty() { &[PORT] } else { &self.port }
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    Peer::parse(text, PORT)
}
