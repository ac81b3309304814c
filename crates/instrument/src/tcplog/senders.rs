//! Who connects to `tcplog receive`: the first that begins a log is taken. Nobody else keeps it waiting for long, or ends it.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use sojourn_tcplog::spool::{BEGINNING, begins_a_log, greeting};
use sojourn_time::{Clock, HostClock, Nanos, Time};
use sojourn_wire::{PeerAddress, Peers};

use super::export;
use super::receive::Watch;

/// How long a sender may take, from its connection on, to send what a log begins with.
const BEGUN_WITHIN: Nanos = Nanos::seconds(10);
/// So many may have connected and said nothing yet; one more ends the oldest of the address that has most of them.
const MOST: usize = 64;
/// So many strangers are named: whoever reads what is said here must not be flooded.
const NAMED: u32 = 20;

/// Connections of which nobody knows yet what they bring.
pub struct Senders<'a> {
    listener: &'a TcpListener,
    allowed: &'a [Peers],
    connected: Vec<(Connection, SocketAddr)>,
    refused: u32,
}

/// A connection, and until when its log must have begun.
pub struct Connection {
    /// Where it comes.
    pub stream: TcpStream,
    /// Until when.
    pub until: Time,
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
        Self { listener, allowed, connected: Vec::new(), refused: 0 }
    }

    /// Returns the next connection that begins as a log does.
    ///
    /// # Errors
    /// When none came as long as it is to be waited for.
    pub fn next(&mut self, watch: &Watch) -> anyhow::Result<(Connection, SocketAddr)> {
        loop {
            if let Some(found) = self.look() {
                return Ok(found);
            }
            let earliest = self.connected.iter().map(|(one, _)| one.until).min().unwrap_or(Time::NEVER);
            let streams = self.connected.iter().map(|(one, _)| one.stream.as_fd());
            let ready = watch.wait_any(streams.chain([self.listener.as_fd()]), earliest)?;
            // Who has begun a log is not ended for the sake of one that comes.
            if let Some(found) = self.look() {
                return Ok(found);
            }
            if ready.last() == Some(&true) {
                self.accept()?;
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
            self.refuse(peer, "it is not among those that --allow names");
            return Ok(());
        }
        if self.connected.len() == MOST {
            let addresses: Vec<IpAddr> = self.connected.iter().map(|(_, peer)| peer.ip()).collect();
            let (_, ended) = self.connected.remove(most_named(&addresses));
            self.refuse(ended, "it sends nothing, and others wait");
        }
        let cookie = sockopt::socket_cookie(&stream).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // So little has room in any new connection; one that does not take it is gone.
        if send(&stream, &greeting(&export::boot(), cookie), flags).is_ok() {
            self.connected.push((Connection { stream, until: HostClock.now() + BEGUN_WITHIN }, peer));
        }
        Ok(())
    }

    /// Ends the connections that bring no log; returns the first that does.
    fn look(&mut self) -> Option<(Connection, SocketAddr)> {
        let now = HostClock.now();
        let mut index = 0;
        while let Some((one, peer)) = self.connected.get(index) {
            let (peer, is_late) = (*peer, now >= one.until);
            match begins(&one.stream) {
                Begins::WithALog => return Some(self.connected.remove(index)),
                Begins::NotYet if !is_late => index += 1,
                begins => {
                    self.connected.remove(index);
                    let is_silent = matches!(begins, Begins::NotYet);
                    self.refuse(peer, if is_silent { "it sends nothing" } else { "it sends none" });
                }
            }
        }
        None
    }

    /// Says why a connection is not taken.
    pub fn refuse(&mut self, peer: SocketAddr, why: &str) {
        self.refused = self.refused.saturating_add(1);
        if self.refused <= NAMED {
            say(&format!("no log from {peer}: {why}"));
        }
        if self.refused == NAMED {
            say("further ones are not named");
        }
    }
}

/// Where that address first stands which stands there most often; the first of several.
fn most_named(addresses: &[IpAddr]) -> usize {
    let often = |address: &IpAddr| addresses.iter().filter(|one| *one == address).count();
    let most = addresses.iter().map(often).max();
    addresses.iter().position(|address| Some(often(address)) == most).unwrap_or(0)
}

/// Tells a person; who does not listen loses nothing.
pub fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{}: {what}", crate::program());
}

/// Looks at what a connection has sent, and leaves it there.
fn begins(stream: &TcpStream) -> Begins {
    let mut bytes = [0; BEGINNING];
    match recv(stream, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // A sender's first segment holds all of this.
        Ok((length, _)) if length == BEGINNING && begins_a_log(&bytes) => Begins::WithALog,
        Err(Errno::AGAIN | Errno::INTR) => Begins::NotYet,
        _ => Begins::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::most_named;

    #[test]
    fn one_address_with_many_silent_connections_does_not_end_another_ones() {
        let of = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        assert_eq!(most_named(&[of(1), of(2), of(3), of(2)]), 1);
        assert_eq!(most_named(&[of(1), of(2), of(2), of(2)]), 1);
        assert_eq!(most_named(&[of(1), of(2)]), 0);
    }
}
