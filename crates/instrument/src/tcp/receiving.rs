//! Connections that are accepted: each is read to its end in a thread of its own, with readings of TCP_INFO beside.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SocketFlags, sockopt};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::arguments::{Listen, Settings};
use super::sending::Outcome;
use super::socket::{self, Connection};
use super::waiting::{Due, ready};
use crate::sys::STOP;

const BACKLOG: i32 = 1024;
const BUFFER_BYTES: usize = 256 << 10;

/// What is to be received.
#[derive(Clone, Debug)]
pub struct Reception {
    pub at: Listen,
    /// Where nothing else is said, of which family.
    pub connections: u32,
    pub settings: Settings,
    pub read_every: Option<Nanos>,
}

/// A listener under way.
pub struct Listening {
    pub at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Vec<Outcome>>>,
}

impl Listening {
    /// Begins to listen; connections are accepted from now on.
    ///
    /// # Errors
    /// When the address is taken, or a setting refused.
    pub fn begin(asked: Reception) -> anyhow::Result<Self> {
        let (listener, at) = listen(&asked)?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let run = move || accept_all(&listener, &asked, &seen);
        let thread = thread::Builder::new().name("accept".to_owned()).spawn(run).context("start a thread")?;
        Ok(Self { at, stop, thread })
    }

    /// Waits until all connections that were expected have ended, but not for long; returns what came of them.
    ///
    /// # Errors
    /// When accepting failed.
    pub fn finish(self, patience: Nanos) -> anyhow::Result<Vec<Outcome>> {
        let until = HostClock.now() + patience;
        while !self.thread.is_finished() && HostClock.now() < until {
            HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
        }
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("a receiver gave up"))?
    }
}

fn listen(asked: &Reception) -> anyhow::Result<(OwnedFd, SocketAddr)> {
    let address = asked.at.address.unwrap_or(socket::any(true));
    let name = SocketAddr::new(address, asked.at.port);
    let fd = socket::open(address, &asked.settings)?;
    sockopt::set_socket_reuseaddr(&fd, true).context("set SO_REUSEADDR")?;
    if asked.at.address.is_none() {
        sockopt::set_ipv6_v6only(&fd, false).context("listen for IPv4 too")?;
    }
    net::bind(&fd, &name).with_context(|| format!("listen at {name}"))?;
    net::listen(&fd, BACKLOG).with_context(|| format!("listen at {name}"))?;
    let at = net::getsockname(&fd).context("ask where we listen")?;
    Ok((fd, at.try_into().context("read where we listen")?))
}

fn accept_all(listener: &OwnedFd, asked: &Reception, stop: &AtomicBool) -> anyhow::Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        while threads.len() < asked.connections as usize && !is_stopped(stop) {
            if !ready(listener, PollFlags::IN, Time::NEVER)? {
                continue;
            }
            match net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    let number = u32::try_from(threads.len()).unwrap_or(u32::MAX);
                    threads.push(scope.spawn(move || receive(fd, number, asked.read_every, stop)));
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error).context("accept a connection"),
            }
        }
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a receiver gave up"))?).collect()
    })
}

/// Reads one connection to its end.
fn receive(fd: OwnedFd, number: u32, every: Option<Nanos>, stop: &AtomicBool) -> anyhow::Result<Outcome> {
    let mut connection = Connection::new(fd, number, "receive")?;
    let start = HostClock.now();
    let facts = connection.facts().context("ask what the socket is")?;
    let mut outcome =
        Outcome { facts, moved_bytes: 0, started_ns: start.0, ended_ns: start.0, problem: None, readings: Vec::new() };
    if let Err(error) = read_to_end(&mut connection, &mut outcome, Due::every(every, start), stop) {
        outcome.problem = Some(error.to_string());
    }
    outcome.ended_ns = HostClock.now().0;
    outcome.facts = connection.facts().unwrap_or(outcome.facts);
    Ok(outcome)
}

fn read_to_end(connection: &mut Connection, outcome: &mut Outcome, mut due: Due, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    outcome.readings.push(connection.read("begin", None)?);
    loop {
        if is_stopped(stop) {
            return Err(io::Error::other("told to end before the peer did"));
        }
        if due.has_come() {
            let intended = due.next();
            due.advance();
            outcome.readings.push(connection.read("time", Some(intended))?);
        }
        if !ready(&*connection, PollFlags::IN, due.next())? {
            continue;
        }
        match net::recv(&*connection, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => break,
            Ok((length, _)) => outcome.moved_bytes += length as u64,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    outcome.readings.push(connection.read("end", None)?);
    Ok(())
}

fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed) || STOP.load(Ordering::Relaxed)
}
