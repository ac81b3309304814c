//! A connection with its readings of TCP_INFO, and what came of it: the same for a sender and a receiver.

use std::io;

use serde::Serialize;
use sojourn_record::tcp_readings::Reading;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use crate::schedule::{Call, Pacing};
use crate::socket::{Connection, Facts};
use crate::wait::Due;
use crate::{TcpError, failed};

/// What came of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What the socket was at the end.
    #[serde(flatten)]
    pub facts: Facts,
    /// User data that the kernel took, or gave.
    pub moved_bytes: u64,
    /// When it began; CLOCK_TAI.
    pub started_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Before the first send call that took data, or after the first receive call that gave some; absent where none did.
    pub first_moved_ns: Option<i64>,
    /// The same of the last such call.
    pub last_moved_ns: Option<i64>,
    /// How messages at a fixed rate kept their schedule; absent in bulk, and of a receiver.
    pub pacing: Option<Pacing>,
    /// Why it ended early.
    pub problem: Option<String>,
    /// The readings of TCP_INFO.
    #[serde(skip)]
    pub readings: Vec<Reading>,
    /// When each message was due and written, where that was to be kept.
    #[serde(skip)]
    pub calls: Vec<Call>,
}

/// A connection under way.
pub struct Observed {
    pub connection: Connection,
    pub outcome: Outcome,
    due: Due,
}

impl Observed {
    /// Reads TCP_INFO this often from `start`.
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

    /// Moves data by `act`, with readings before and after; says what came of it.
    pub fn run(mut self, act: impl FnOnce(&mut Self) -> io::Result<()>) -> Outcome {
        let moved = self.read("begin", None).and_then(|()| act(&mut self)).and_then(|()| self.read("end", None));
        self.outcome.problem = moved.err().map(|error| error.to_string());
        self.outcome.ended_ns = HostClock.now().0;
        // Buffers grow by themselves.
        self.outcome.facts = self.connection.facts().unwrap_or(self.outcome.facts);
        self.outcome
    }

    /// Reads TCP_INFO if it is time; returns when it will be next.
    pub fn read_when_due(&mut self) -> io::Result<Time> {
        if self.due.has_come() {
            let due = self.due.next();
            self.due.advance();
            self.read("time", Some(due))?;
        }
        Ok(self.due.next())
    }

    /// Counts what a call moved; nothing where it moved nothing.
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
