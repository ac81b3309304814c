//! Accept connections; each is read to its end in a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SocketFlags, sockopt};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use crate::observed::{Observed, Outcome};
use crate::request::{Receive, Sockets};
use crate::socket::{self, Connection};
use crate::wait::ready;
use crate::{TcpError, failed};

const BACKLOG: i32 = 1024;
const BUFFER_BYTES: usize = 256 << 10;

/// An open socket that listens, and accepts nothing yet: whoever needs a right for the socket can give it up before.
pub struct Listener {
    fd: OwnedFd,
    at: SocketAddr,
    request: Receive,
}

/// A running listener.
pub struct Listening {
    /// The address.
    pub at: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Outcome>, TcpError>>,
}

/// The conditions that end all connections early: the program's stop flag, or the end of this listener.
#[derive(Clone)]
struct Stop(&'static AtomicBool, Arc<AtomicBool>);

impl Stop {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) || self.1.load(Ordering::Relaxed)
    }
}

impl Listener {
    /// Open the socket; the kernel accepts connections from now on.
    ///
    /// # Errors
    /// When the request is invalid, the address is in use, or a setting is refused.
    pub fn open(request: Receive) -> Result<Self, TcpError> {
        request.check()?;
        let (fd, at) = listen(&request)?;
        Ok(Self { fd, at, request })
    }

    /// The address.
    pub const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Take connections, in threads that have the rights of this one, until `stop` is set.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn accept(self, stop: &'static AtomicBool) -> Result<Listening, TcpError> {
        let Self { fd, at, request } = self;
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Stop(stop, Arc::clone(&is_over));
        let run = move || accept_all(&fd, &request, &stop);
        let thread = thread::Builder::new().name("accept".to_owned()).spawn(run).map_err(failed("start a thread"))?;
        Ok(Listening { at, is_over, thread })
    }
}

impl Listening {
    /// Start listening; connections are accepted until `stop` is set.
    ///
    /// # Errors
    /// As [`Listener::open`] and [`Listener::accept`].
    pub fn begin(request: Receive, stop: &'static AtomicBool) -> Result<Self, TcpError> {
        Listener::open(request)?.accept(stop)
    }

    /// Wait until all expected connections have ended, at most for `timeout`; return their outcomes.
    ///
    /// # Errors
    /// When accepting failed.
    pub fn finish(self, timeout: Nanos) -> Result<Vec<Outcome>, TcpError> {
        let until = HostClock.now() + timeout;
        while !self.thread.is_finished() && HostClock.now() < until {
            HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| TcpError::Panicked)?
    }
}

fn listen(request: &Receive) -> Result<(OwnedFd, SocketAddr), TcpError> {
    let address = request.at.own_address();
    let name = SocketAddr::new(address, request.at.port);
    let fd = socket::open(address, &request.sockets.settings)?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("set SO_REUSEADDR"))?;
    if request.at.address.is_none() {
        sockopt::set_ipv6_v6only(&fd, false).map_err(failed("listen for IPv4 too"))?;
    }
    let operation = format!("listen at {name}");
    net::bind(&fd, &name).and_then(|()| net::listen(&fd, BACKLOG)).map_err(failed(operation))?;
    let at = net::getsockname(&fd).and_then(SocketAddr::try_from).map_err(failed("ask where we listen"))?;
    Ok((fd, at))
}

fn accept_all(listener: &OwnedFd, request: &Receive, stop: &Stop) -> Result<Vec<Outcome>, TcpError> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        while threads.len() < request.connections as usize && !stop.is_set() {
            if !ready(listener, PollFlags::IN, Time::NEVER).map_err(failed("wait for a connection"))? {
                continue;
            }
            match net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    let number = u32::try_from(threads.len()).unwrap_or(u32::MAX);
                    match Connection::new(fd, number, "receive") {
                        Ok(connection) => {
                            threads.push(scope.spawn(move || receive(connection, &request.sockets, stop)));
                        }
                        // Its peer has reset it already.
                        Err(error) if error.is_not_connected() => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(failed("accept a connection")(error)),
            }
        }
        threads.into_iter().map(|thread| thread.join().map_err(|_| TcpError::Panicked)?).collect()
    })
}

fn receive(connection: Connection, asked: &Sockets, stop: &Stop) -> Result<Outcome, TcpError> {
    let observed = Observed::new(connection, asked.read_every, HostClock.now())?;
    Ok(observed.run(|observed| read_to_end(observed, asked.settings.window_bytes, stop)))
}

fn read_to_end(observed: &mut Observed, window_bytes: Option<u32>, stop: &Stop) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    while !stop.is_set() {
        let next_reading = observed.read_when_due()?;
        if !ready(&observed.connection, PollFlags::IN, next_reading)? {
            continue;
        }
        match net::recv(&observed.connection, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(()),
            Ok((length, _)) => {
                observed.moved(length, HostClock.now());
                if let Some(bytes) = window_bytes {
                    socket::limit_window(&observed.connection, bytes)?;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("stopped before the peer closed the connection"))
}
