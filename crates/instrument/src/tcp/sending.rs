//! Connections that send: each in a thread of its own, in bulk or message by message, with readings of TCP_INFO beside.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, anyhow};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown, sockopt};
use serde::Serialize;
use sojourn_record::tcp_readings::Reading;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::arguments::{Moments, Settings};
use super::socket::{self, Connection, Facts};
use super::waiting::{Due, ready};
use crate::sys::STOP;

/// A peer that does not answer for so long is not there.
const CONNECT_PATIENCE: Nanos = Nanos::seconds(10);
/// What was sent has so long to be acknowledged in the end.
const DRAIN_PATIENCE: Nanos = Nanos::seconds(60);

/// What is to be sent, and what is read meanwhile.
#[derive(Clone, Debug)]
pub struct Task {
    pub to: SocketAddr,
    pub bind: Option<std::net::IpAddr>,
    pub end: End,
    pub message_bytes: usize,
    /// `None`: as much as goes.
    pub interval: Option<Nanos>,
    pub connections: u32,
    pub settings: Settings,
    pub moments: Moments,
}

/// When a connection has sent enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    After(Nanos),
    Bytes(u64),
}

/// What came of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub facts: Facts,
    /// User data that the kernel took, or gave.
    pub moved_bytes: u64,
    pub started_ns: i64,
    pub ended_ns: i64,
    /// Why it ended before it should.
    pub problem: Option<String>,
    #[serde(skip)]
    pub readings: Vec<Reading>,
}

/// Connects, sends, waits until everything has been acknowledged, and closes.
///
/// # Errors
/// When a setting is refused or the peer is not there. What fails later is told by the outcome.
pub fn send(task: &Task) -> anyhow::Result<Vec<Outcome>> {
    let connections: Vec<Connection> =
        (0..task.connections).map(|number| connect(task, number)).collect::<Result<_, _>>()?;
    let start = HostClock.now();
    thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || Sender::new(task, connection, start)?.run()))
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a sender gave up"))?).collect()
    })
}

fn connect(task: &Task, number: u32) -> anyhow::Result<Connection> {
    let fd = socket::open(task.to.ip(), &task.settings)?;
    if let Some(address) = task.bind {
        net::bind(&fd, &SocketAddr::new(address, 0)).with_context(|| format!("bind to {address}"))?;
    }
    let refusal = || format!("connect to {}", task.to);
    match net::connect(&fd, &task.to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error).with_context(refusal),
    }
    let patience = HostClock.now() + CONNECT_PATIENCE;
    while !ready(&fd, PollFlags::OUT, patience)? {
        if HostClock.now() >= patience || STOP.load(Ordering::Relaxed) {
            return Err(anyhow!("connect to {}: no answer for {} s", task.to, CONNECT_PATIENCE.0 / 1_000_000_000));
        }
    }
    sockopt::socket_error(&fd)
        .context("ask how the connection went")?
        .map_err(io::Error::from)
        .with_context(refusal)?;
    Connection::new(fd, number, "send")
}

/// One connection under way.
struct Sender<'a> {
    task: &'a Task,
    connection: Connection,
    outcome: Outcome,
    data: Vec<u8>,
    reading: Due,
    message: Due,
    /// What is left of the message under way.
    pending: usize,
    over_at: Time,
}

impl<'a> Sender<'a> {
    fn new(task: &'a Task, connection: Connection, start: Time) -> anyhow::Result<Self> {
        let facts = connection.facts().context("ask what the socket is")?;
        let outcome = Outcome {
            facts,
            moved_bytes: 0,
            started_ns: start.0,
            ended_ns: start.0,
            problem: None,
            readings: Vec::new(),
        };
        Ok(Self {
            task,
            connection,
            outcome,
            data: vec![0x5a; task.message_bytes],
            reading: Due::every(task.moments.read_every, start),
            message: Due::at_and_every(task.interval, start),
            pending: 0,
            over_at: match task.end {
                End::After(span) => start + span,
                End::Bytes(_) => Time::NEVER,
            },
        })
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        if let Err(error) = self.send_and_drain() {
            self.outcome.problem = Some(error.to_string());
        }
        self.outcome.ended_ns = HostClock.now().0;
        // What this connection really was at its end: buffers grow by themselves.
        self.outcome.facts = self.connection.facts().unwrap_or(self.outcome.facts);
        Ok(self.outcome)
    }

    fn send_and_drain(&mut self) -> io::Result<()> {
        self.read("begin", None)?;
        while !self.is_over() {
            self.read_when_due()?;
            self.step()?;
        }
        net::shutdown(&self.connection, Shutdown::Write)?;
        self.drain()?;
        self.read("end", None)
    }

    /// Hands data over where it is time and there is room; waits for either otherwise.
    fn step(&mut self) -> io::Result<()> {
        if self.pending == 0 {
            if self.task.interval.is_some() && !self.message.has_come() {
                HostClock.wait_until(self.wake_at(self.message.next()), Nanos::ZERO);
                return Ok(());
            }
            self.message.advance();
            self.pending = self.next_length();
        }
        if ready(&self.connection, PollFlags::OUT, self.wake_at(Time::NEVER))? {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let mut reading = match self.task.moments.read_before_send {
            true => Some(self.connection.read("send", None)?),
            false => None,
        };
        let taken = net::send(&self.connection, &self.data[..self.pending], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let at = HostClock.now();
        let taken = match taken {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if let Some(reading) = &mut reading {
            reading.handed = Some((at, taken));
        }
        self.outcome.readings.extend(reading);
        self.outcome.moved_bytes += taken as u64;
        self.pending -= taken;
        Ok(())
    }

    /// Waits for the peer to close, too: then it has all.
    fn drain(&mut self) -> io::Result<()> {
        let patience = HostClock.now() + DRAIN_PATIENCE;
        while !STOP.load(Ordering::Relaxed) {
            self.read_when_due()?;
            if ready(&self.connection, PollFlags::IN, self.reading.next().min(patience))? {
                let mut bytes = [0; 64];
                match net::recv(&self.connection, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Ok(()),
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if HostClock.now() > patience {
                return Err(io::Error::other("the peer has not acknowledged everything"));
            }
        }
        Err(io::Error::from(io::ErrorKind::Interrupted))
    }

    fn read_when_due(&mut self) -> io::Result<()> {
        if self.reading.has_come() {
            let due = self.reading.next();
            self.reading.advance();
            self.read("time", Some(due))?;
        }
        Ok(())
    }

    fn read(&mut self, why: &'static str, due: Option<Time>) -> io::Result<()> {
        let reading = self.connection.read(why, due)?;
        self.outcome.readings.push(reading);
        Ok(())
    }

    fn next_length(&self) -> usize {
        match self.task.end {
            End::Bytes(bytes) => (bytes - self.outcome.moved_bytes).min(self.task.message_bytes as u64) as usize,
            End::After(_) => self.task.message_bytes,
        }
    }

    fn is_over(&self) -> bool {
        let is_enough = match self.task.end {
            End::Bytes(bytes) => self.outcome.moved_bytes >= bytes,
            // A message is not cut in half where messages are counted.
            End::After(_) => HostClock.now() >= self.over_at && (self.pending == 0 || self.task.interval.is_none()),
        };
        is_enough || STOP.load(Ordering::Relaxed)
    }

    fn wake_at(&self, at: Time) -> Time {
        at.min(self.reading.next()).min(self.over_at.max(HostClock.now()))
    }
}
