//! Who connects to `tcplog receive`: the first that begins a log is taken. Nobody else keeps it waiting, or ends it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use sojourn_tcplog::spool::{BEGINNING, begins_a_log, greeting};
use sojourn_time::{Clock, HostClock, Nanos, Time};
use sojourn_wire::{PeerAddress, Peers};

use super::export;
use super::receive::Watch;

/// How long a sender may take to send what a log begins with.
pub const BEGUN_WITHIN: Nanos = Nanos::seconds(10);
/// So many may have connected and said nothing yet; one more ends the oldest.
const MOST: usize = 8;

/// Connections of which nobody knows yet what they bring.
pub struct Senders<'a> {
    listener: &'a TcpListener,
    allowed: &'a [Peers],
    connected: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    until: Time,
}

/// What a connection has sent so far.
enum Begins {
    WithALog,
    Otherwise,
    NotYet,
}

impl<'a> Senders<'a> {
    /// Those that connect to a listener and are among the allowed; all, if none is named.
    pub const fn new(listener: &'a TcpListener, allowed: &'a [Peers]) -> Self {
        Self { listener, allowed, connected: Vec::new() }
    }

    /// Returns the next connection that begins as a log does.
    ///
    /// # Errors
    /// When none came as long as it is to be waited for.
    pub fn next(&mut self, watch: &Watch) -> anyhow::Result<(TcpStream, SocketAddr)> {
        loop {
            let earliest = self.connected.iter().map(|one| one.until).min().unwrap_or(Time::NEVER);
            let streams = self.connected.iter().map(|one| one.stream.as_fd());
            let ready = watch.wait_any(streams.chain([self.listener.as_fd()]), earliest)?;
            if ready.last() == Some(&true) {
                self.accept()?;
            }
            if let Some(found) = self.look()? {
                return Ok(found);
            }
        }
    }

    /// Takes a connection, greets it, and waits for what it brings.
    fn accept(&mut self) -> anyhow::Result<()> {
        let (stream, peer) = match self.listener.accept() {
            Ok(one) => one,
            // It has gone before it was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(()),
            Err(error) => return Err(error).context("accept a connection"),
        };
        let may = |peers: &Peers| peers.have(PeerAddress::Internet(SocketAddr::new(peer.ip().to_canonical(), 0)));
        if !self.allowed.is_empty() && !self.allowed.iter().any(may) {
            eprintln!("{}: {peer} is not among those that --allow names", crate::program());
            return Ok(());
        }
        if self.connected.len() == MOST {
            refuse(&self.connected.remove(0), "others wait");
        }
        let cookie = sockopt::socket_cookie(&stream).unwrap_or_default();
        // So little has room in any new connection; one that takes nothing is gone.
        if rustix::io::write(&stream, &greeting(&export::boot(), cookie)).is_ok() {
            self.connected.push(Connection { stream, peer, until: HostClock.now() + BEGUN_WITHIN });
        }
        Ok(())
    }

    /// Ends the connections that bring no log; returns the first that does.
    fn look(&mut self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let mut index = 0;
        while let Some(one) = self.connected.get(index) {
            let begins = begins(&one.stream)?;
            match begins {
                Begins::WithALog => {
                    let found = self.connected.remove(index);
                    return Ok(Some((found.stream, found.peer)));
                }
                Begins::Otherwise => refuse(&self.connected.remove(index), "it sends none"),
                Begins::NotYet if HostClock.now() >= one.until => {
                    refuse(&self.connected.remove(index), "it sends nothing");
                }
                Begins::NotYet => index += 1,
            }
        }
        Ok(None)
    }
}

/// Says why a connection is not taken, which ends it.
fn refuse(one: &Connection, why: &str) {
    eprintln!("{}: no log from {}: {why}", crate::program(), one.peer);
}

/// Looks at what a connection has sent, and leaves it there.
fn begins(stream: &TcpStream) -> io::Result<Begins> {
    let mut bytes = [0; BEGINNING];
    match recv(stream, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // A sender's first segment holds all of this.
        Ok((length, _)) if length == BEGINNING && begins_a_log(&bytes) => Ok(Begins::WithALog),
        Ok(_) => Ok(Begins::Otherwise),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Begins::NotYet),
        Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => Ok(Begins::Otherwise),
        Err(error) => Err(error.into()),
    }
}
