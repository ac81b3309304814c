//! A connection with its TCP_INFO readings and its outcome; the same for sender and receiver.

use std::io;

use serde::Serialize;
use sojourn_record::tcp_readings::Reading;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use crate::schedule::{Call, Pacing};
use crate::socket::{Connection, Facts};
use crate::wait::Due;
use crate::{TcpError, failed};

/// The outcome of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The properties of the socket at the end.
    #[serde(flatten)]
    pub facts: Facts,
    /// Bytes of user data that the kernel accepted or delivered.
    pub moved_bytes: u64,
    /// The start, in CLOCK_TAI.
    pub started_ns: i64,
    /// The end.
    pub ended_ns: i64,
    /// The time before the first send call that accepted data, or after the first receive call that returned data, if
    /// any.
    pub first_moved_ns: Option<i64>,
    /// The same for the last such call.
    pub last_moved_ns: Option<i64>,
    /// The pacing of messages at a fixed rate; absent in bulk mode and for a receiver.
    pub pacing: Option<Pacing>,
    /// The error that ended it early.
    pub problem: Option<String>,
    /// The TCP_INFO readings.
    #[serde(skip)]
    pub readings: Vec<Reading>,
    /// The due time and the send time of each message, if requested.
    #[serde(skip)]
    pub calls: Vec<Call>,
}

/// An open connection.
pub struct Observed {
    pub connection: Connection,
    pub outcome: Outcome,
    due: Due,
}

impl Observed {
    /// Read TCP_INFO at this interval from `start` on.
    pub fn new(connection: Connection, every: Option<Nanos>, start: Time) -> Result<Self, TcpError> {
        let facts = connection.facts().map_err(failed("ask what the socket is"))?;
        let outcome = Outcome {
            facts,
            moved_bytes: 0,
            started_ns: start.0,
            ended_ns: start.0,
            first_moved_ns: None,
            last_moved_ns: None,
            pacing: None,
            problem: None,
            readings: Vec::new(),
            calls: Vec::new(),
        };
        Ok(Self { connection, outcome, due: Due::every(every, start) })
    }

    /// Transfer data with `act`, with readings before and after; return the outcome.
    pub fn run(mut self, act: impl FnOnce(&mut Self) -> io::Result<()>) -> Outcome {
        let moved = self.read("begin", None).and_then(|()| act(&mut self)).and_then(|()| self.read("end", None));
        self.outcome.problem = moved.err().map(|error| error.to_string());
        self.outcome.ended_ns = HostClock.now().0;
        // Buffer sizes change by autotuning.
        self.outcome.facts = self.connection.facts().unwrap_or(self.outcome.facts);
        self.outcome
    }

    /// Read TCP_INFO if a reading is due; return when the next one is.
    pub fn read_when_due(&mut self) -> io::Result<Time> {
        if self.due.has_come() {
            let due = self.due.next();
            self.due.advance();
            self.read("time", Some(due))?;
        }
        Ok(self.due.next())
    }

    /// Count the bytes that a call transferred; do nothing for 0.
    pub fn moved(&mut self, bytes: usize, at: Time) {
        if bytes > 0 {
            self.outcome.moved_bytes += bytes as u64;
            self.outcome.first_moved_ns.get_or_insert(at.0);
            self.outcome.last_moved_ns = Some(at.0);
        }
    }

    fn read(&mut self, why: &'static str, due: Option<Time>) -> io::Result<()> {
        let reading = self.connection.read(why, due)?;
        self.outcome.readings.push(reading);
        Ok(())
    }
}
