//! Connections to `tcplog receive`: the first that starts with a log is accepted. No other connection can delay it for
//! long, or end it.

use std::io;
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
use crate::aside::say;

/// The time limit, from the connection on, for the first bytes of a log.
const BEGUN_WITHIN: Nanos = Nanos::seconds(10);
/// The time limit, from its first bytes on, for its header, which a sender writes at once. Others wait meanwhile.
const HEADER_WITHIN: Nanos = Nanos::seconds(3);
/// The maximum number of connections without data; one more closes the oldest one of the address that has most of them.
const MOST: usize = 64;
/// The maximum number of refused peers that are reported, so that they cannot flood the output.
const NAMED: u32 = 20;

/// Connections that have not sent a header yet.
pub struct Senders<'a> {
    listener: &'a TcpListener,
    allowed: &'a [Peers],
    connected: Vec<(Connection, SocketAddr)>,
    refused: u32,
}

/// A connection, and a time limit.
pub struct Connection {
    /// The connection.
    pub stream: TcpStream,
    /// The time limit for its first bytes, and once these are there for its header.
    pub until: Time,
}

/// What a connection has sent so far.
enum Begins {
    WithALog,
    Otherwise,
    NotYet,
}

impl<'a> Senders<'a> {
    /// Accepts the connections to a listener from allowed peers; from all peers if none is named.
    pub const fn new(listener: &'a TcpListener, allowed: &'a [Peers]) -> Self {
        Self { listener, allowed, connected: Vec::new(), refused: 0 }
    }

    /// Returns the next connection that starts with a log.
    ///
    /// # Errors
    /// If there is none within the time limit.
    pub fn next(&mut self, watch: &Watch) -> anyhow::Result<(Connection, SocketAddr)> {
        loop {
            if let Some(found) = self.look() {
                return Ok(found);
            }
            let earliest = self.connected.iter().map(|(one, _)| one.until).min().unwrap_or(Time::NEVER);
            let streams = self.connected.iter().map(|(one, _)| one.stream.as_fd());
            let ready = watch.wait_any(streams.chain([self.listener.as_fd()]), earliest)?;
            // Check again: accepting a new connection could otherwise close one that has just started a log.
            if let Some(found) = self.look() {
                return Ok(found);
            }
            if ready.last() == Some(&true) {
                self.accept()?;
            }
        }
    }

    /// Accepts a connection, and sends the greeting.
    fn accept(&mut self) -> anyhow::Result<()> {
        let (stream, peer) = match self.listener.accept() {
            Ok(one) => one,
            // The connection was closed before it was accepted.
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
        // The greeting fits the send buffer of a new connection; a failure means that the connection is closed.
        if send(&stream, &greeting(&export::boot(), cookie), flags).is_ok() {
            self.connected.push((Connection { stream, until: HostClock.now() + BEGUN_WITHIN }, peer));
        }
        Ok(())
    }

    /// Closes the connections that do not start with a log; returns the first that does.
    fn look(&mut self) -> Option<(Connection, SocketAddr)> {
        let now = HostClock.now();
        let mut index = 0;
        while let Some((one, peer)) = self.connected.get(index) {
            let (peer, is_late) = (*peer, now >= one.until);
            match begins(&one.stream) {
                Begins::WithALog => {
                    let (begun, _) = self.connected.remove(index);
                    let until = now + HEADER_WITHIN;
                    return Some((Connection { until, ..begun }, peer));
                }
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

    /// Reports why a connection is refused.
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

/// Returns the first index of the most frequent address; of several, the first.
fn most_named(addresses: &[IpAddr]) -> usize {
    let often = |address: &IpAddr| addresses.iter().filter(|one| *one == address).count();
    let most = addresses.iter().map(often).max();
    addresses.iter().position(|address| Some(often(address)) == most).unwrap_or(0)
}

/// Peeks at the first bytes of a connection.
fn begins(stream: &TcpStream) -> Begins {
    let mut bytes = [0; BEGINNING];
    match recv(stream, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // The first segment of a sender contains all of these bytes.
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
    fn silent_connections_of_one_address_do_not_displace_those_of_another() {
        let of = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        assert_eq!(most_named(&[of(1), of(2), of(3), of(2)]), 1);
        assert_eq!(most_named(&[of(1), of(2), of(2), of(2)]), 1);
        assert_eq!(most_named(&[of(1), of(2)]), 0);
    }
}
