//! A kernel socket that timestamps what it sends and receives.
//!
//! Hides the sources of timestamps (interface, kernel, program), the conversion of the kernel's `CLOCK_REALTIME` to
//! `CLOCK_TAI`, the numbers of TX timestamps, the error queue, and errors that only report the peer's state. Does not
//! know the format of a frame. Allocates nothing after it is opened.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use sojourn_time::{Clock, HostClock, Nanos, Source, Stamp, TaiOffset, Time};

use super::control::{Control, ControlBuffer, Transmitted};
use super::hardware::HardwareClock;
use super::inbox::Inbox;
use super::interface::Interface;
use super::name::Name;
use super::sys::{self, FilterStep};
use super::timespec;
use crate::{PortError, Sent, StampKind, Stamps, TxTimestamp};

const BUFFER_BYTES: i32 = 16 << 20;
const MODEST_BUFFER_BYTES: i32 = 4 << 20;
const STAMPS_KEPT: usize = 4096;
const OFFSET_AGE: Nanos = Nanos::millis(100);
/// The kernel enables RX timestamps in a work item, some time after the request.
const STAMPING_STARTS_WITHIN: Nanos = Nanos::millis(3);
/// A full send buffer blocks the sender for this long before it is an error.
const SEND_TIMEOUT_SECONDS: i64 = 1;
/// Each try to receive consumes one pending error.
const TRIES: usize = 4;
/// As each try to send does. More of them: whoever sends ICMP errors without end must not end a sender.
const SEND_TRIES: usize = 100;
const MAX_DSCP: u8 = 63;

/// A kernel socket that timestamps what it sends and receives.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Its description for error messages.
    object: String,
    numbers: Numbers,
    sources: Sources,
    waiting: VecDeque<TxTimestamp>,
    control: ControlBuffer,
    /// The sender of the last received message.
    from: Name,
    /// Messages dropped because the receive buffer was full, at the last reading.
    dropped: u64,
}

/// The parameters of a new socket.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The kernel's address family, socket type and protocol.
    pub kind: [i32; 3],
    /// Its description for error messages: "an ICMP socket to 10.0.0.2".
    pub object: &'a str,
    /// Which TX timestamps to request; they arrive on the error queue, which the caller must then drain.
    pub stamps: Stamps,
    /// The interface that it will use, where known: hardware timestamps are used if they are switched on.
    pub interface: Option<&'a Interface>,
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its length, over both parts of the buffer.
    pub length: usize,
    /// The best RX timestamp.
    pub arrived: Stamp,
    /// The time just after the call.
    pub returned: Time,
    /// Its control messages.
    pub control: Control,
}

impl Socket {
    /// Opens a socket with large buffers and with timestamps.
    ///
    /// # Errors
    /// The errors of `socket` and `setsockopt`; the caller knows which capability is missing.
    pub fn open(asked: Opening<'_>) -> io::Result<Self> {
        let [family, kind, protocol] = asked.kind;
        let fd = sys::socket(family, kind, protocol)?;
        grow_buffers(fd.as_fd())?;
        let timeout = [SEND_TIMEOUT_SECONDS, 0].map(i64::to_ne_bytes).concat();
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout)?;
        let sources = Sources::for_interface(asked.interface, asked.stamps);
        let socket = Self {
            fd,
            object: asked.object.to_owned(),
            numbers: Numbers::default(),
            sources,
            waiting: VecDeque::with_capacity(STAMPS_KEPT),
            control: ControlBuffer::default(),
            from: Name::default(),
            dropped: 0,
        };
        socket.ask_for_stamps()?;
        let now = HostClock.now();
        HostClock.wait_until(now + STAMPING_STARTS_WITHIN, Nanos::ZERO);
        Ok(socket)
    }

    /// Returns its descriptor and consumes the socket.
    pub fn into_descriptor(self) -> OwnedFd {
        self.fd
    }

    /// Sets an integer option.
    pub fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        self.set_bytes(level, option, &value.to_ne_bytes())
    }

    /// Sets the size of the receive buffer; it may exceed the system's limit where that is permitted.
    pub fn resize_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
    }

    /// Sets an option.
    pub fn set_bytes(&self, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
        sys::set_option(self.fd.as_fd(), level, option, value)
    }

    /// Reads an option into `value`; returns how many bytes the kernel wrote.
    pub fn option(&self, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
        sys::option(self.fd.as_fd(), level, option, value)
    }

    /// Attaches a classic BPF program; only packets that it accepts are received.
    pub fn filter(&self, program: &[FilterStep]) -> io::Result<()> {
        sys::attach_filter(self.fd.as_fd(), program)
    }

    /// Binds it to a local name.
    pub fn bind(&self, name: &Name) -> io::Result<()> {
        sys::bind(self.fd.as_fd(), name)
    }

    /// Connects it to a peer.
    pub fn connect(&self, name: &Name) -> io::Result<()> {
        sys::connect(self.fd.as_fd(), name)
    }

    /// Reads its local name.
    pub fn local_name(&self) -> io::Result<Name> {
        sys::local_name(self.fd.as_fd())
    }

    /// Sends a frame to the connected peer.
    pub fn send(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        self.send_to(frame, None, &[])
    }

    /// Sends a frame to `to`, or to the connected peer.
    pub fn send_to(&mut self, frame: &[u8], to: Option<&Name>, control: &[u8]) -> Result<Sent, PortError> {
        self.send_with(frame, to, control, 0)
    }

    /// Sends an answer to `to`, and never waits for room in the send buffer. What goes to addresses of a link that no
    /// host has stays in it until the kernel has looked for them in vain, for seconds: whoever forges such senders
    /// would have everybody else wait.
    ///
    /// # Errors
    /// A full queue ([`PortError::is_full_queue`]) where there is no room, else as any send.
    pub fn answer_to(&mut self, frame: &[u8], to: &Name, control: &[u8]) -> Result<Sent, PortError> {
        self.send_with(frame, Some(to), control, libc::MSG_DONTWAIT)
    }

    fn send_with(&mut self, frame: &[u8], to: Option<&Name>, control: &[u8], flags: i32) -> Result<Sent, PortError> {
        let mut tries = 0;
        loop {
            let called = HostClock.now();
            self.sources.last_seen = called;
            let error = match sys::send(self.fd.as_fd(), frame, to, control, flags) {
                Ok(_) => return Ok(Sent { number: self.numbers.next(), called }),
                Err(error) => error,
            };
            self.start_numbers_anew()?;
            tries += 1;
            if !told_late(&error) || tries == tries_to(to) {
                return Err(self.refused_frame(frame.len(), error));
            }
        }
    }

    /// Receives the next message, its first bytes into `head` and the others into `body`.
    pub fn receive(&mut self, head: &mut [u8], body: &mut [u8]) -> Result<Option<Arrival>, PortError> {
        for _ in 0..TRIES {
            match sys::receive(self.fd.as_fd(), [head, body], &mut self.from, &mut self.control, 0) {
                Ok(message) => {
                    let returned = HostClock.now();
                    let control = parse(&self.control, message.control_length);
                    let arrived = self.sources.best(&control, returned);
                    return Ok(Some(Arrival { length: message.length, arrived, returned, control }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_news(&error) => {}
                Err(error) => return Err(self.refused("receive from", error)),
            }
        }
        Ok(None)
    }

    /// Sends the messages of `bytes` bytes each that lie back to back in `frames` to `to`, or to the connected peer.
    /// Returns how many the kernel accepted.
    ///
    /// # Errors
    /// When it refuses the first one, unless a queue is full.
    pub fn send_batch(&mut self, frames: &[u8], bytes: usize, to: Option<&Name>) -> Result<usize, PortError> {
        let mut taken = 0;
        for some in frames.chunks(bytes.max(1) * sys::MOST_AT_ONCE) {
            let count = some.len() / bytes.max(1);
            if count == 0 {
                break;
            }
            let now = match self.send_some(some, bytes, to) {
                Ok(now) => now,
                Err(_) if taken > 0 => break,
                Err(error) if error.is_full_queue() => break,
                Err(error) => return Err(error),
            };
            taken += now;
            if now < count {
                break;
            }
        }
        Ok(taken)
    }

    /// Receives the waiting messages into `inbox` and returns how many; [`Inbox::message`] returns each.
    pub fn receive_batch(&mut self, inbox: &mut Inbox) -> Result<usize, PortError> {
        inbox.fill(0, Time(0));
        for _ in 0..TRIES {
            match sys::receive_batch(self.fd.as_fd(), inbox.places()) {
                Ok(count) => {
                    inbox.fill(count, HostClock.now());
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_news(&error) => {}
                Err(error) => return Err(self.refused("receive from", error)),
            }
        }
        Ok(inbox.count())
    }

    /// The `nth` message of the last [`Self::receive_batch`] into this inbox.
    pub fn arrival(&mut self, inbox: &Inbox, nth: usize) -> Arrival {
        let control = self.arrival_control(inbox, nth);
        let returned = inbox.returned();
        let arrived = self.sources.best(&control, returned);
        Arrival { length: inbox.length(nth), arrived, returned, control }
    }

    /// The control messages of the `nth` message of the last [`Self::receive_batch`] into this inbox.
    pub fn arrival_control(&self, inbox: &Inbox, nth: usize) -> Control {
        let (buffer, length) = inbox.control(nth);
        parse(buffer, length)
    }

    /// The sender of the last message.
    pub fn from(&self) -> &Name {
        &self.from
    }

    /// Returns the next late TX timestamp.
    pub fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        match self.waiting.pop_front() {
            Some(stamp) => Ok(Some(stamp)),
            None => self.read_error_queue(),
        }
    }

    /// Sleeps until a message can be received or until `deadline`.
    pub fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        loop {
            let left = deadline - HostClock.now();
            if left <= Nanos::ZERO {
                return Ok(());
            }
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut polled, Some(&timespec(left))) {
                // The timeout has passed, even if a clock that was set back meanwhile shows otherwise.
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // A signal: the caller handles it.
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(self.refused("wait for", error.into())),
            }
            let ready = polled[0].revents();
            if ready.contains(PollFlags::IN) {
                return Ok(());
            }
            // poll(2) reports POLLERR until the error queue is empty: without this the loop would spin.
            if ready.contains(PollFlags::ERR) && self.put_stamps_by()? == 0 {
                return Ok(());
            }
        }
    }

    /// Counts the messages dropped because the receive buffer was full.
    pub fn drops(&mut self) -> u64 {
        let mut words = [0_u8; 4 * (libc::SK_MEMINFO_DROPS as usize + 1)];
        match sys::option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words) {
            Ok(length) if length == words.len() => {
                let now = words.last_chunk().map_or(0, |drops| u32::from_ne_bytes(*drops));
                self.dropped = grown(self.dropped, now);
            }
            _ => {}
        }
        self.dropped
    }

    /// Restricts it to one interface: binds it to the device, or to the interface's address where the former is not
    /// permitted.
    pub fn keep_to(&self, interface: &Interface, peer: IpAddr) -> Result<(), PortError> {
        let error = match self.set_bytes(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.name.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let source = interface.address_like(peer).filter(|_| error.raw_os_error() == Some(libc::EPERM));
        let Some(source) = source else { return Err(self.refused("bind to its interface", error)) };
        let name = Name::internet(SocketAddr::new(source, 0), interface.index);
        self.bind(&name).map_err(|error| self.refused("bind to its interface's address", error))
    }

    /// Converts an error of a call on this socket, with advice where the cause is known.
    pub fn refused(&self, operation: &'static str, source: io::Error) -> PortError {
        let problem = match source.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                "its interface is down or gone; switch it on with `ip link`"
            }
            Some(libc::ENETUNREACH) => "there is no route to it; `ip route get` shows what the kernel would do",
            Some(libc::EHOSTUNREACH) => "it cannot be reached: nothing answers for it on its link",
            Some(libc::EADDRNOTAVAIL) => "this is no address of this host; `ip address` lists those there are",
            Some(libc::EADDRINUSE) => "the port is in use by another program; `ss -lunp` tells which",
            Some(libc::ECONNREFUSED) => return PortError::Refused(self.object.clone()),
            _ => return PortError::System { operation, object: self.object.clone(), source },
        };
        PortError::Unusable { object: self.object.clone(), problem: problem.to_owned() }
    }

    /// Refuses a frame that is longer than `max` bytes.
    pub fn check_length(&self, bytes: usize, max: usize) -> Result<(), PortError> {
        if bytes <= max {
            return Ok(());
        }
        let problem = format!("{bytes} bytes do not fit into one packet, which holds {max}; ask for less");
        Err(PortError::Wrong { object: self.object.clone(), problem })
    }

    fn refused_frame(&self, length: usize, source: io::Error) -> PortError {
        if source.raw_os_error() != Some(libc::EMSGSIZE) {
            return self.refused("send on", source);
        }
        let problem = format!("{length} bytes are too many for the MTU; ask for less, or raise the MTU");
        PortError::Wrong { object: self.object.clone(), problem }
    }

    /// Sends as many messages as one call allows.
    fn send_some(&mut self, frames: &[u8], bytes: usize, to: Option<&Name>) -> Result<usize, PortError> {
        let mut tries = 0;
        loop {
            if self.sources.transmit {
                self.sources.last_seen = HostClock.now();
            }
            let error = match sys::send_batch(self.fd.as_fd(), frames, bytes, to) {
                Ok(taken) => {
                    self.numbers.skip(taken);
                    if taken * bytes < frames.len() {
                        self.start_numbers_anew()?;
                    }
                    return Ok(taken);
                }
                Err(error) => error,
            };
            self.start_numbers_anew()?;
            tries += 1;
            if !told_late(&error) || tries == tries_to(to) {
                return Err(self.refused_frame(bytes, error));
            }
        }
    }

    fn ask_for_stamps(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, self.sources.flags as i32)
    }

    /// Makes the kernel restart its numbers at 0: it may or may not have counted a refused frame.
    fn start_numbers_anew(&mut self) -> Result<(), PortError> {
        if !self.sources.transmit {
            return Ok(());
        }
        self.put_stamps_by()?;
        let without = (self.sources.flags & !libc::SOF_TIMESTAMPING_OPT_ID) as i32;
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, without)
            .and_then(|()| self.ask_for_stamps())
            .map_err(|error| self.refused("set the stamps of", error))?;
        self.numbers.start_anew();
        Ok(())
    }

    /// Moves timestamps from the error queue to the queue of [`Self::tx_timestamp`]; returns how many there were.
    fn put_stamps_by(&mut self) -> Result<usize, PortError> {
        let mut count = 0;
        while let Some(stamp) = self.read_error_queue()? {
            if self.waiting.len() == STAMPS_KEPT {
                self.waiting.pop_front();
            }
            self.waiting.push_back(stamp);
            count += 1;
        }
        Ok(count)
    }

    fn read_error_queue(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        if !self.sources.transmit {
            return Ok(None);
        }
        loop {
            let parts: [&mut [u8]; 2] = [&mut [], &mut []];
            let flags = libc::MSG_ERRQUEUE;
            let mut name = Name::default();
            let message = match sys::receive(self.fd.as_fd(), parts, &mut name, &mut self.control, flags) {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_news(&error) => return Ok(None),
                Err(error) => return Err(self.refused("read the TX timestamps of", error)),
            };
            let control = parse(&self.control, message.control_length);
            if let Some(stamp) = self.transmitted(&control) {
                return Ok(Some(stamp));
            }
        }
    }

    fn transmitted(&mut self, control: &Control) -> Option<TxTimestamp> {
        let Transmitted { number, kind } = control.transmitted?;
        let number = self.numbers.of_kernel(number, kind)?;
        let now = self.sources.last_seen;
        let left = self.sources.best(control, now);
        (left.source != Source::User).then_some(TxTimestamp { number, left, kind })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The numbers of transmissions: ours continue, the kernel's may restart at 0.
///
/// A late timestamp of a frame sent before a restart then has the same kernel number as a later frame. Timestamps
/// arrive in the order of the frames, so the ambiguous numbers are known: a timestamp with such a number is discarded.
#[derive(Clone, Debug, Default)]
struct Numbers {
    next: u32,
    kernel_zero: u32,
    /// The kernel's number after the highest one that a timestamp had.
    stamped: u32,
    /// The kernel's numbers that may denote two frames.
    ambiguous: Range<u32>,
}

impl Numbers {
    fn next(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    fn skip(&mut self, count: usize) {
        self.next = self.next.wrapping_add(count as u32);
    }

    fn start_anew(&mut self) {
        let outstanding = self.stamped..self.next.wrapping_sub(self.kernel_zero);
        if self.ambiguous.is_empty() {
            self.ambiguous = outstanding;
        } else if !outstanding.is_empty() {
            let Range { start, end } = self.ambiguous;
            self.ambiguous = start.min(outstanding.start)..end.max(outstanding.end);
        }
        (self.kernel_zero, self.stamped) = (self.next, 0);
    }

    /// Converts the kernel's number to ours; `None` for one that was not issued, or that may belong to a frame from
    /// before a restart.
    fn of_kernel(&mut self, key: u32, kind: StampKind) -> Option<u32> {
        let given_out = self.next.wrapping_sub(self.kernel_zero);
        if key >= given_out || self.ambiguous.contains(&key) {
            return None;
        }
        if kind == StampKind::Scheduled {
            return Some(self.kernel_zero.wrapping_add(key));
        }
        self.stamped = self.stamped.max(key.saturating_add(1));
        // Timestamps arrive in order: no earlier frame is outstanding.
        if key >= self.ambiguous.end {
            self.ambiguous = 0..0;
        }
        Some(self.kernel_zero.wrapping_add(key))
    }
}

/// The timestamp sources that this socket can use, and the conversion of their timestamps to `CLOCK_TAI`.
#[derive(Debug)]
struct Sources {
    flags: u32,
    transmit: bool,
    clock: Option<HardwareClock>,
    offset: TaiOffset,
    offset_read: Time,
    last_seen: Time,
}

impl Sources {
    fn for_interface(interface: Option<&Interface>, stamps: Stamps) -> Self {
        let transmit = stamps != Stamps::None;
        let mut flags = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
        if transmit {
            flags |=
                libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        }
        flags |= if stamps == Stamps::All { libc::SOF_TIMESTAMPING_TX_SCHED } else { 0 };
        let clock = interface
            .and_then(Interface::hardware_stamping)
            .filter(|hardware| hardware.switched_on)
            .and_then(|hardware| HardwareClock::open(hardware.clock?));
        if clock.is_some() {
            flags |= libc::SOF_TIMESTAMPING_RAW_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE;
            flags |= if transmit { libc::SOF_TIMESTAMPING_TX_HARDWARE } else { 0 };
        }
        let offset_read = HostClock.now();
        Self { flags, transmit, clock, offset: HostClock.tai_offset(), offset_read, last_seen: offset_read }
    }

    /// Returns the best timestamp available; `now` is the program's own.
    fn best(&mut self, control: &Control, now: Time) -> Stamp {
        self.last_seen = now;
        if let (Some(stamp), Some(clock)) = (control.hardware, &mut self.clock) {
            return Stamp { at: clock.convert(stamp, now), source: Source::Hardware };
        }
        match control.software {
            Some(stamp) => Stamp { at: self.offset(now).convert(stamp), source: Source::Kernel },
            None => Stamp { at: now, source: Source::User },
        }
    }

    fn offset(&mut self, now: Time) -> TaiOffset {
        let age = now - self.offset_read;
        if age > OFFSET_AGE || age < Nanos::ZERO {
            self.offset = HostClock.tai_offset();
            self.offset_read = now;
        }
        self.offset
    }
}

/// Extends a 32-bit counter of the kernel, which wraps, to 64 bits.
fn grown(before: u64, now: u32) -> u64 {
    before + u64::from(now.wrapping_sub(before as u32))
}

/// Whether an error concerns the path or the peer, not this call: an ICMP message arrived for an earlier frame, and any
/// host can send one. These are the errors of `icmp_err_convert` and `icmpv6_err_convert` of Linux but for
/// `ECONNREFUSED`. If the call itself has failed with one of them, it does so each time.
fn is_news(error: &io::Error) -> bool {
    let of_icmp = [
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EPROTO,
        libc::EHOSTDOWN,
        libc::ENOPROTOOPT,
        libc::EMSGSIZE,
        libc::EOPNOTSUPP,
        libc::ENONET,
        libc::EACCES,
    ];
    error.raw_os_error().is_some_and(|number| number == libc::EINTR || of_icmp.contains(&number))
}

/// Whether this call reports an error that arose since the last one, and has sent nothing.
fn told_late(error: &io::Error) -> bool {
    is_news(error) || error.raw_os_error() == Some(libc::ENETDOWN)
}

/// How often a frame is sent to `to`, or to the connected peer. An unconnected socket is told nothing of ICMP messages: what
/// it fails with, it fails with each time.
const fn tries_to(to: Option<&Name>) -> usize {
    if to.is_some() { TRIES } else { SEND_TRIES }
}

/// Requests large buffers: beyond the system's limit where that is permitted, else as large as it allows.
fn grow_buffers(fd: BorrowedFd<'_>) -> io::Result<()> {
    for (forced, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        let large = BUFFER_BYTES.to_ne_bytes();
        if sys::set_option(fd, libc::SOL_SOCKET, forced, &large).is_err() {
            sys::set_option(fd, libc::SOL_SOCKET, plain, &MODEST_BUFFER_BYTES.to_ne_bytes())?;
        }
    }
    Ok(())
}

fn parse(buffer: &ControlBuffer, length: usize) -> Control {
    Control::parse(buffer.0.get(..length).unwrap_or_default())
}

/// Sets the DSCP of the packets that a socket sends.
///
/// # Errors
/// `Wrong` when the DSCP is out of range, else when the kernel refuses.
pub fn mark(socket: &Socket, address: IpAddr, dscp: u8) -> Result<(), PortError> {
    if dscp > MAX_DSCP {
        let problem = format!("there is no such code point; they go from 0 to {MAX_DSCP}");
        return Err(PortError::Wrong { object: format!("DSCP {dscp}"), problem });
    }
    let traffic_class = i32::from(dscp) << 2;
    let (level, option) = match address {
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_TOS),
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TCLASS),
    };
    socket.set(level, option, traffic_class).map_err(|error| socket.refused("set the DSCP of", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_count_continues_when_the_counter_of_the_kernel_restarts() {
        assert_eq!(grown(0, 7), 7);
        assert_eq!(grown(7, 7), 7);
        assert_eq!(grown(0xFFFF_FFFE, 3), 0x1_0000_0003);
    }

    #[test]
    fn packet_numbers_continue_when_the_kernel_restarts_its_numbering() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.next(), numbers.next()], [0, 1]);
        assert_eq!([numbers.of_kernel(1, StampKind::Left), numbers.of_kernel(2, StampKind::Left)], [Some(1), None]);
        numbers.start_anew();
        assert_eq!(numbers.next(), 2);
        assert_eq!([numbers.of_kernel(0, StampKind::Left), numbers.of_kernel(1, StampKind::Left)], [Some(2), None]);
    }

    #[test]
    fn timestamp_from_before_a_restart_is_not_assigned_to_a_later_frame() {
        let mut numbers = Numbers::default();
        for _ in 0..5 {
            numbers.next();
        }
        assert_eq!([numbers.of_kernel(0, StampKind::Left), numbers.of_kernel(1, StampKind::Left)], [Some(0), Some(1)]);
        // 2, 3 and 4 are not timestamped yet.
        numbers.start_anew();
        for _ in 0..7 {
            numbers.next();
        }
        assert_eq!([2, 3, 4].map(|key| numbers.of_kernel(key, StampKind::Left)), [None; 3], "of which of two frames?");
        assert_eq!([0, 1].map(|key| numbers.of_kernel(key, StampKind::Left)), [Some(5), Some(6)]);
        assert_eq!([2, 3, 4].map(|key| numbers.of_kernel(key, StampKind::Left)), [None; 3]);
        assert_eq!([5, 6].map(|key| numbers.of_kernel(key, StampKind::Left)), [Some(10), Some(11)]);
        numbers.start_anew();
        numbers.next();
        assert_eq!(numbers.of_kernel(0, StampKind::Left), Some(12), "all have left, so nothing is ambiguous any more");
    }

    #[test]
    fn packet_numbers_wrap_at_32_bits() {
        let mut numbers = Numbers { next: u32::MAX, kernel_zero: u32::MAX, ..Numbers::default() };
        assert_eq!([numbers.next(), numbers.next()], [u32::MAX, 0]);
        assert_eq!(numbers.of_kernel(1, StampKind::Left), Some(0));
    }
}
