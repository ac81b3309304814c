//! Open connections and send data: each in a thread of its own, in bulk or message by message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, Shutdown, sockopt};
use sojourn_time::{Clock, HostClock, Nanos, Next, Pace, Pacer, Time, Wait};

use crate::observed::{Observed, Outcome};
use crate::request::{End, Send};
use crate::schedule::Schedule;
use crate::socket::{self, Connection};
use crate::wait::ready;
use crate::{TcpError, failed};

/// The timeout for the peer to accept.
const CONNECT_TIMEOUT: Nanos = Nanos::seconds(10);
/// The maximum number of simultaneous connection attempts, so that their handshakes do not fill a queue.
const MOST_CONNECTING: usize = 16;
/// The timeout for the last acknowledgements, and after the end for buffer space for the rest of a message.
const DRAIN_TIMEOUT: Nanos = Nanos::seconds(60);
/// The maximum number of CPUs that all connections together may spin on while they wait for departures; beyond it, they
/// sleep.
const MOST_SPIN_PROCESSORS: f64 = 1.0;
/// The interval at which the stop flag is checked while no connections are due.
const LOOK: Nanos = Nanos::millis(50);
/// The time from the last connection's establishment to the first message, in which the threads start.
const LEAD: Nanos = Nanos::millis(1);

/// Connect, send, wait until all data is acknowledged, and close. Ends early once `stop` is set.
///
/// # Errors
/// When a setting is refused or the peer does not answer. Later failures are in the outcome.
pub fn send(request: &Send, stop: &AtomicBool) -> Result<Vec<Outcome>, TcpError> {
    if let Some(every) = request.again_every {
        return send_again(request, (every, request.end()?), stop);
    }
    Connected::open(request, stop)?.send(stop)
}

/// The connections of a request, on which nothing has been sent: whoever needs a right to make them can give it up
/// before it sends.
pub struct Connected<'a> {
    request: &'a Send,
    end: End,
    connections: Vec<Connection>,
}

impl<'a> Connected<'a> {
    /// Connect, once, also where the request asks for it repeatedly.
    ///
    /// # Errors
    /// When a setting is refused or the peer does not answer.
    pub fn open(request: &'a Send, stop: &AtomicBool) -> Result<Self, TcpError> {
        let end = request.end()?;
        Ok(Self { request, end, connections: connect_all(request, stop)? })
    }

    /// Send, each connection in a thread that has the rights of this one; wait until all data is acknowledged, and close.
    ///
    /// # Errors
    /// When a thread panicked. Other failures are in the outcome.
    pub fn send(self, stop: &AtomicBool) -> Result<Vec<Outcome>, TcpError> {
        let Self { request, end, connections } = self;
        let start = HostClock.now() + if request.interval.is_some() { LEAD } else { Nanos::ZERO };
        let begin = |connection| run(connection, request, (start, end), stop);
        thread::scope(|scope| {
            let threads: Vec<_> =
                connections.into_iter().map(|connection| scope.spawn(move || begin(connection))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| TcpError::Panicked)?).collect()
        })
    }
}

/// Connect and send repeatedly at a fixed interval, independent of earlier transfers. Each transfer has a connection
/// and a thread of its own, and includes the handshake.
fn send_again(request: &Send, (every, end): (Nanos, End), stop: &AtomicBool) -> Result<Vec<Outcome>, TcpError> {
    let start = HostClock.now();
    let transfer = |number| {
        let begun = HostClock.now();
        run(connect(request, number, stop)?, request, (begun, end), stop)
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for turn in 0..request.turns() {
            let due = start + Nanos(every.0.saturating_mul(turn));
            while HostClock.now() < due && !stop.load(Ordering::Relaxed) {
                HostClock.wait_until(due.min(HostClock.now() + LOOK), Nanos::ZERO);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let first = u32::try_from(threads.len()).unwrap_or(u32::MAX);
            threads
                .extend((0..request.connections).map(|one| scope.spawn(move || transfer(first.saturating_add(one)))));
        }
        threads.into_iter().map(|thread| thread.join().map_err(|_| TcpError::Panicked)?).collect()
    })
}

/// Send on a connection from `start` on until its end condition is met.
fn run(
    connection: Connection,
    request: &Send,
    (start, end): (Time, End),
    stop: &AtomicBool,
) -> Result<Outcome, TcpError> {
    let observed = Observed::new(connection, request.sockets.read_every, start)?;
    let mut sender = Sender {
        request,
        stop,
        end,
        data: vec![0x5a; request.message_bytes as usize],
        paced: request.interval.map(|interval| Paced::new(start, interval, request)),
        pending: 0,
        over_at: match end {
            End::After(span) => start + span,
            End::Bytes(_) => Time::NEVER,
        },
    };
    Ok(observed.run(|observed| sender.run(observed)))
}

/// Open one connection.
fn connect(request: &Send, number: u32, stop: &AtomicBool) -> Result<Connection, TcpError> {
    connected(request, number, begin(request, number)?, HostClock.now() + CONNECT_TIMEOUT, stop)
}

/// Open all connections, up to `MOST_CONNECTING` at a time: sequentially, each would take a round trip.
fn connect_all(request: &Send, stop: &AtomicBool) -> Result<Vec<Connection>, TcpError> {
    let mut connections = Vec::with_capacity(request.connections as usize);
    let mut begun = VecDeque::new();
    let mut numbers = 0..request.connections;
    while connections.len() < request.connections as usize {
        let room = MOST_CONNECTING - begun.len();
        for number in numbers.by_ref().take(room) {
            begun.push_back((number, begin(request, number)?, HostClock.now() + CONNECT_TIMEOUT));
        }
        let Some((number, fd, until)) = begun.pop_front() else { break };
        connections.push(connected(request, number, fd, until, stop)?);
    }
    Ok(connections)
}

/// Start connecting.
fn begin(request: &Send, number: u32) -> Result<OwnedFd, TcpError> {
    let fd = socket::open(request.to.ip(), &request.sockets.settings)?;
    if let Some(own) = request.own_end(number) {
        // The port may be in TIME_WAIT from an earlier connection to another address.
        sockopt::set_socket_reuseaddr(&fd, true)
            .and_then(|()| net::bind(&fd, &own))
            .map_err(failed(format!("bind to {own}")))?;
    }
    if let Some(dscp) = request.dscp_of(number) {
        socket::mark(&fd, request.to.ip(), dscp).map_err(failed("set the DSCP"))?;
    }
    match net::connect(&fd, &request.to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(failed(format!("connect to {}", request.to))(error)),
    }
}

/// Wait until the peer has accepted.
fn connected(request: &Send, number: u32, fd: OwnedFd, until: Time, stop: &AtomicBool) -> Result<Connection, TcpError> {
    let operation = format!("connect to {}", request.to);
    while !ready(&fd, PollFlags::OUT, until).map_err(failed(&*operation))? {
        if HostClock.now() >= until || stop.load(Ordering::Relaxed) {
            return Err(TcpError::NoAnswer { to: request.to, seconds: CONNECT_TIMEOUT.0 / 1_000_000_000 });
        }
    }
    sockopt::socket_error(&fd).and_then(|result| result).map_err(failed(operation))?;
    Connection::new(fd, number, "send")
}

/// The state of one connection's sender.
struct Sender<'a> {
    request: &'a Send,
    stop: &'a AtomicBool,
    end: End,
    data: Vec<u8>,
    /// The pacing of messages; `None`: bulk.
    paced: Option<Paced>,
    /// The remaining bytes of the current message.
    pending: usize,
    over_at: Time,
}

/// The schedule of messages and its pacer.
struct Paced {
    schedule: Schedule,
    pacer: Pacer,
}

impl Paced {
    fn new(start: Time, interval: Nanos, request: &Send) -> Self {
        let schedule = Schedule::new(start, interval);
        Self {
            schedule: if request.keep_calls { schedule.keeping_calls() } else { schedule },
            pacer: pacer(request.connections, interval),
        }
    }

    /// Return whether the next message is due; if not, sleep until then or until `wake_at`. A message due at `over_at`
    /// or later is not sent.
    fn has_come(&self, wake_at: Time, over_at: Time) -> bool {
        let due = self.schedule.due();
        let next = self.pacer.next(HostClock.now(), due);
        if let Next::Sleep(until) = next {
            HostClock.wait_until(until.min(wake_at), Nanos::ZERO);
        }
        next == Next::Depart && due < over_at
    }
}

/// Return until when to wait for buffer space or a departure: at most the end. After the end only the rest of a
/// message remains, which waits for buffer space alone.
fn wake_at(is_pending: bool, now: Time, over_at: Time, next_reading: Time) -> Time {
    let is_rest = is_pending && now >= over_at;
    if is_rest { next_reading } else { next_reading.min(over_at.max(now)) }
}

/// Return the pacer of one of `connections` connections that send at this interval; it decides when to sleep and when
/// to spin.
fn pacer(connections: u32, interval: Nanos) -> Pacer {
    let pacer = |wait| Pacer::new(Pace { wait, is_real_time: false }, interval, Nanos::ZERO, &HostClock);
    let spinning = pacer(Wait::SleepThenSpin);
    let spin_share = spinning.wake.min(interval).0 as f64 / interval.0.max(1) as f64;
    let is_too_much = connections > 1 && f64::from(connections) * spin_share > MOST_SPIN_PROCESSORS;
    if is_too_much { pacer(Wait::Sleep) } else { spinning }
}

impl Sender<'_> {
    fn run(&mut self, observed: &mut Observed) -> io::Result<()> {
        let sent = self.send_all(observed);
        let end = HostClock.now().min(self.over_at);
        observed.outcome.pacing = self.paced.as_ref().map(|paced| match self.end {
            End::After(_) => paced.schedule.pacing(end),
            End::Bytes(bytes) => {
                let messages = bytes.div_ceil(self.data.len().max(1) as u64);
                paced.schedule.pacing(paced.schedule.due_of(messages).min(end))
            }
        });
        if let Some(paced) = &mut self.paced {
            observed.outcome.calls = paced.schedule.take_calls();
        }
        sent?;
        net::shutdown(&observed.connection, Shutdown::Write)?;
        self.drain(observed)
    }

    fn send_all(&mut self, observed: &mut Observed) -> io::Result<()> {
        while !self.is_over(observed.outcome.moved_bytes) {
            let next_reading = observed.read_when_due()?;
            self.step(observed, next_reading)?;
        }
        Ok(())
    }

    /// Send if data is due and there is buffer space; otherwise wait for either.
    fn step(&mut self, observed: &mut Observed, next_reading: Time) -> io::Result<()> {
        let now = HostClock.now();
        if now >= self.over_at && now - self.over_at > DRAIN_TIMEOUT {
            return Err(io::Error::other("the peer has no room for the rest of a message"));
        }
        let wake_at = wake_at(self.pending > 0, now, self.over_at, next_reading);
        if self.pending == 0 {
            if let Some(paced) = &mut self.paced {
                if !paced.has_come(wake_at, self.over_at) {
                    return Ok(());
                }
                paced.schedule.begin();
            }
            self.pending = self.next_length(observed.outcome.moved_bytes);
            if self.paced.is_some() {
                // The kernel reports a socket as writable only when a third of its buffer is free, so a due message is
                // tried at once.
                return self.send_pending(observed);
            }
        }
        if ready(&observed.connection, PollFlags::OUT, wake_at)? {
            self.send_pending(observed)?;
        }
        Ok(())
    }

    fn send_pending(&mut self, observed: &mut Observed) -> io::Result<()> {
        let mut reading = match self.request.read_before_send {
            true => Some(observed.connection.read("send", None)?),
            false => None,
        };
        let own = if self.request.is_eor { SendFlags::EOR } else { SendFlags::empty() };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | own;
        let before = HostClock.now();
        let taken = net::send(&observed.connection, &self.data[..self.pending], flags);
        let at = HostClock.now();
        let taken = match taken {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if let Some(reading) = &mut reading {
            reading.handed = Some((at, taken));
        }
        observed.outcome.readings.extend(reading);
        observed.moved(taken, before);
        if let Some(paced) = &mut self.paced {
            paced.schedule.sent(before, self.pending, self.pending - taken);
        }
        self.pending -= taken;
        Ok(())
    }

    /// Wait until the peer closes too: then it has received everything.
    fn drain(&self, observed: &mut Observed) -> io::Result<()> {
        let until = HostClock.now() + DRAIN_TIMEOUT;
        while !self.stop.load(Ordering::Relaxed) {
            let next_reading = observed.read_when_due()?;
            if ready(&observed.connection, PollFlags::IN, next_reading.min(until))? {
                let mut bytes = [0; 64];
                match net::recv(&observed.connection, &mut bytes, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Ok(()),
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if HostClock.now() > until {
                return Err(io::Error::other("the peer has not acknowledged everything"));
            }
        }
        Err(io::Error::from(io::ErrorKind::Interrupted))
    }

    fn next_length(&self, moved_bytes: u64) -> usize {
        match self.end {
            End::Bytes(bytes) => (bytes - moved_bytes).min(self.data.len() as u64) as usize,
            End::After(_) => self.data.len(),
        }
    }

    fn is_over(&self, moved_bytes: u64) -> bool {
        let is_enough = match self.end {
            End::Bytes(bytes) => moved_bytes >= bytes,
            // Paced messages are not truncated.
            End::After(_) => HostClock.now() >= self.over_at && (self.pending == 0 || self.request.interval.is_none()),
        };
        is_enough || self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_message_is_waited_for_and_not_polled() {
        let (end, reading) = (Time(1_000), Time(5_000));
        assert_eq!(wake_at(true, Time(1_200), end, Time::NEVER), Time::NEVER, "a peer has no room until it reads");
        assert_eq!(wake_at(true, Time(1_200), end, reading), reading);
        assert_eq!(wake_at(true, Time(900), end, reading), end);
        assert_eq!(wake_at(false, Time(1_200), end, reading), Time(1_200), "nothing is left: it is over");
    }

    #[test]
    fn many_connections_together_spin_on_a_processor_at_most() {
        let spin = |connections, interval_us| pacer(connections, Nanos::micros(interval_us)).wake;
        assert!(spin(1, 10) > Nanos::ZERO, "one may: its departures are what is asked for");
        assert_eq!(spin(10, 1_000), spin(1, 1_000), "a processor's time, all together");
        assert_eq!(spin(11, 1_000), Nanos::ZERO);
        assert_eq!(spin(2, 50), Nanos::ZERO, "each would spin all the time");
    }
}
