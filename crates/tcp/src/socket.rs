//! Sockets with the requested settings, the values that the kernel set, and TCP_INFO readings.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use serde::Serialize;
use sojourn_record::tcp_readings::{Reading, Socket};
use sojourn_time::{Clock, HostClock, Time};

use crate::info::{self, ROOM_BYTES};
use crate::request::Settings;
use crate::{TcpError, failed, sys};

const TCP_INFO: sys::Name = (libc::IPPROTO_TCP, libc::TCP_INFO);
const TCP_WINDOW_CLAMP: sys::Name = (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP);
const TCP_MAXSEG: sys::Name = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
const SO_NETNS_COOKIE: sys::Name = (libc::SOL_SOCKET, 71);

/// The properties of a socket.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The number of the connection in its request, from 0.
    pub connection: u32,
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The socket cookie, unique until the next boot.
    pub socket_cookie: u64,
    /// The cookie of its network namespace.
    pub netns_cookie: Option<u64>,
    /// The congestion control algorithm.
    pub congestion: String,
    /// The send buffer as the kernel reports it: twice the requested size.
    pub sndbuf_bytes: usize,
    /// The receive buffer, likewise.
    pub rcvbuf_bytes: usize,
    /// Maximum segment size.
    pub mss_bytes: Option<u32>,
    /// Whether TCP_NODELAY is set.
    pub is_nodelay: bool,
}

/// A connected socket with the number of its readings.
pub struct Connection {
    fd: OwnedFd,
    whose: Arc<Socket>,
    readings: u64,
}

/// Open a socket with the settings that must be set before it is connected.
///
/// # Errors
/// When the kernel refuses a setting, which the error names.
pub fn open(family: IpAddr, settings: &Settings) -> Result<OwnedFd, TcpError> {
    let family = if family.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed("open a TCP socket"))?;
    if let Some(name) = &settings.congestion {
        let set = sockopt::set_tcp_congestion(&fd, name);
        set.map_err(|error| TcpError::Wrong(format!("congestion control {name}: {error}; {}", offered())))?;
    }
    if let Some(bytes) = settings.sndbuf_bytes {
        sockopt::set_socket_send_buffer_size(&fd, bytes).map_err(failed("set the send buffer"))?;
    }
    if let Some(bytes) = settings.rcvbuf_bytes {
        sockopt::set_socket_recv_buffer_size(&fd, bytes).map_err(failed("set the receive buffer"))?;
    }
    if let Some(bytes) = settings.mss_bytes {
        let set = sys::set_option(&fd, TCP_MAXSEG, i32::from(bytes));
        set.map_err(|error| TcpError::Wrong(format!("MSS of {bytes} bytes: {error}")))?;
    }
    if let Some(bytes) = settings.window_bytes {
        limit_window(&fd, bytes).map_err(failed("limit the window"))?;
    }
    if settings.is_nodelay {
        sockopt::set_tcp_nodelay(&fd, true).map_err(failed("set TCP_NODELAY"))?;
    }
    Ok(fd)
}

/// Limit the receive window that a socket advertises.
///
/// Linux recomputes the limit from the receive buffer when the size of received segments changes (since 6.6), and
/// discards this one: a receiver must set it again.
///
/// # Errors
/// When the kernel refuses.
pub fn limit_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    sys::set_option(socket, TCP_WINDOW_CLAMP, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// Set the DSCP of the packets that a socket sends.
///
/// # Errors
/// When the kernel refuses.
pub fn mark(fd: &OwnedFd, peer: IpAddr, dscp: u8) -> io::Result<()> {
    let traffic_class = dscp << 2;
    match peer {
        IpAddr::V4(_) => sockopt::set_ip_tos(fd, traffic_class)?,
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(fd, traffic_class.into())?,
    }
    Ok(())
}

fn offered() -> String {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    format!("this kernel offers {}", names.split_whitespace().collect::<Vec<_>>().join(", "))
}

impl Connection {
    /// Wrap a connected socket.
    ///
    /// # Errors
    /// When the kernel does not report its addresses or cookies.
    pub fn new(fd: OwnedFd, connection: u32, role: &'static str) -> Result<Self, TcpError> {
        let local = net::getsockname(&fd).and_then(SocketAddr::try_from).map_err(failed("ask for our address"))?;
        let remote = net::getpeername(&fd).and_then(|peer| peer.ok_or(Errno::NOTCONN)?.try_into());
        let remote = remote.map_err(failed("ask for the peer's address"))?;
        let whose = Socket {
            connection,
            role,
            cookie: sockopt::socket_cookie(&fd).map_err(failed("ask for the socket's cookie"))?,
            netns: netns_cookie(fd.as_fd()),
            local: plain(local),
            remote: plain(remote),
        };
        Ok(Self { fd, whose: Arc::new(whose), readings: 0 })
    }

    /// Return the socket's current properties.
    ///
    /// # Errors
    /// When the kernel does not report them.
    pub fn facts(&self) -> io::Result<Facts> {
        let mut mss = [0; 4];
        let has_mss = sys::option(&self.fd, TCP_MAXSEG, &mut mss).is_ok();
        Ok(Facts {
            connection: self.whose.connection,
            local: self.whose.local,
            remote: self.whose.remote,
            socket_cookie: self.whose.cookie,
            netns_cookie: self.whose.netns,
            congestion: sockopt::tcp_congestion(&self.fd)?,
            sndbuf_bytes: sockopt::socket_send_buffer_size(&self.fd)?,
            rcvbuf_bytes: sockopt::socket_recv_buffer_size(&self.fd)?,
            mss_bytes: has_mss.then(|| u32::from_ne_bytes(mss)),
            is_nodelay: sockopt::tcp_nodelay(&self.fd)?,
        })
    }

    /// Read TCP_INFO; the reading was due at `intended`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn read(&mut self, why: &'static str, intended: Option<Time>) -> io::Result<Reading> {
        let mut bytes = [0_u8; ROOM_BYTES];
        let before = HostClock.now();
        let length = sys::option(&self.fd, TCP_INFO, &mut bytes)?;
        let after = HostClock.now();
        let number = self.readings;
        self.readings += 1;
        Ok(Reading {
            socket: Arc::clone(&self.whose),
            why,
            number,
            intended: intended.unwrap_or(before),
            before,
            after,
            handed: None,
            info_bytes: length,
            info: info::decode(&bytes[..length.min(ROOM_BYTES)]),
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn netns_cookie(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut value = [0; 8];
    let length = sys::option(fd, SO_NETNS_COOKIE, &mut value).ok()?;
    (length == value.len()).then(|| u64::from_ne_bytes(value))
}

/// Convert an IPv4-mapped IPv6 address to IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
