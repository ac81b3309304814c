//! Rows as the instruments hold them. [`crate::schema`] tells what each field means.

use sojourn_time::{Nanos, Source, Stamp, Time};

pub mod packet;
pub mod stream;
pub mod tcp;
pub mod tcp_readings;

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Probe {
    pub seq: u32,
    pub is_warmup: bool,
    pub intended: Time,
    pub send_call: Time,
    pub departure: Stamp,
    pub reply: Option<Reply>,
    pub replies: u32,
    pub is_late: bool,
    pub is_reordered: bool,
}

/// The first reply to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Reply {
    pub arrival: Stamp,
    pub receive_call: Time,
    /// The responder's arrival and departure, where the responder is ours.
    pub responder: Option<(Time, Time)>,
}

/// One block of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Block {
    pub block: u32,
    pub device: String,
    pub round: i32,
    pub visit: i32,
    pub cell: i32,
    pub via: &'static str,
    pub kind: &'static str,
    pub schedule: &'static str,
    pub interval: Nanos,
    pub count: u32,
    pub warmup: u32,
    pub seed: u64,
    pub request_payload_bytes: usize,
    pub response_payload_bytes: usize,
    pub request_frame_bytes: usize,
    pub response_frame_bytes: usize,
    pub timeout: Nanos,
    pub started: Time,
    pub ended: Time,
    pub started_raw: Time,
    pub ended_raw: Time,
    pub clock_error: Nanos,
    pub counts: Counts,
    pub responder_kernel: bool,
    pub wait: &'static str,
    pub cpu: Option<u32>,
    pub fifo: bool,
}

/// What became of the probes of a block: `sent = received + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "said once, in the schema")]
pub struct Counts {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub foreign: u64,
    pub own_drops: u64,
}

impl Probe {
    /// Returns a probe that has just left, stamped by the program.
    pub fn new(seq: u32, is_warmup: bool, intended: Time, send_call: Time) -> Self {
        let departure = Stamp { at: send_call, source: Source::User };
        Self {
            seq,
            is_warmup,
            intended,
            send_call,
            departure,
            reply: None,
            replies: 0,
            is_late: false,
            is_reordered: false,
        }
    }

    /// Returns the time from the actual departure to the reply.
    pub fn rtt(&self) -> Option<Nanos> {
        Some(self.reply?.arrival.at - self.departure.at)
    }

    /// Returns the time from the intended departure to the reply.
    pub fn rtt_intended(&self) -> Option<Nanos> {
        Some(self.reply?.arrival.at - self.intended)
    }

    /// Returns the time that the program saw, from call to call.
    pub fn rtt_user(&self) -> Option<Nanos> {
        Some(self.reply?.receive_call - self.send_call)
    }

    /// Returns by how much it left later than intended.
    pub fn departure_error(&self) -> Nanos {
        self.departure.at - self.intended
    }
}
