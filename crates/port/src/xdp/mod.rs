//! Whole Ethernet frames over AF_XDP: one EtherType on one interface, bypassing the kernel's network stack.
//!
//! An XDP program redirects the frames of the EtherType, tagged or not, to the socket, each with the time of its
//! arrival; all other frames go on to the stack. Hides the rings, their memory and the program. One queue
//! only: an interface that distributes frames over several is refused. There are no TX timestamps. Frames to other
//! hosts' MAC addresses are received too: the program runs before the stack's address filter.

pub(crate) mod sys;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use sojourn_time::{Clock, HostClock, Nanos, Source, Stamp, Time};
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::HEADER_BYTES;

use crate::bpf::{Attached, Attachment, Mode, Program, object};
use crate::kernel::{Interface, denied_raw, wait_until_readable};
use crate::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, TxTimestamp};

/// A page minus the kernel's headroom (256 bytes), our headroom, and the kernel's tailroom (320 bytes).
pub(crate) const LONGEST_FRAME: usize = 4096 - 256 - sys::HEADROOM - 320;
/// The magic number of `struct arrival` of `bpf/redirect.bpf.c`, which precedes each frame.
const ARRIVAL_MARK: u64 = 0x534F_4A41_5252_4956;
/// How often the kernel is asked to send the remaining frames before the queue counts as full.
const PUSHES: usize = 4096;
/// How long a closed socket's queue may stay busy, and the interval between attempts to open it.
const QUEUE_PATIENCE: Nanos = Nanos::seconds(1);
const QUEUE_NAP: Nanos = Nanos::millis(10);

/// Frames of one EtherType on one interface, bypassing the kernel's network stack.
pub struct XdpPort {
    // First, so that it is dropped first: redirection must stop before the socket closes.
    attached: Attached,
    _program: Program,
    rings: sys::Rings,
    interface: Interface,
    engine: String,
    next: u32,
}

impl XdpPort {
    /// Opens a port on an interface for the frames of one EtherType: zero-copy and native XDP where possible.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it has no carrier, several queues or another XDP
    /// program, `Denied` without permission to load BPF programs.
    pub fn open(interface: &str, ethertype: u16) -> Result<Self, PortError> {
        let interface = Interface::usable(interface)?;
        check_queues(&interface)?;
        let program = Program::load("redirect", object!("redirect.bpf.o"), &ethertype.to_ne_bytes())?;
        let attached = program.attach(&interface)?;
        let rings = open_rings(&interface, attached.mode)?;
        let socket = rings.descriptor().as_raw_fd();
        program.write("sockets", &0_u32.to_ne_bytes(), &socket.to_ne_bytes())?;
        let copies = if rings.is_zero_copy() { "zero-copy" } else { "copy" };
        let engine = format!("AF_XDP {copies}, {}", attached.mode.name());
        Ok(Self { attached, _program: program, rings, interface, engine, next: 0 })
    }

    /// The MAC address of its interface.
    pub fn mac(&self) -> MacAddress {
        self.interface.mac
    }

    /// Its interface, in the state when the port was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The attach mode of its program.
    pub fn mode(&self) -> Mode {
        self.attached.mode
    }

    fn max_frame(&self) -> usize {
        (self.interface.mtu + HEADER_BYTES).min(LONGEST_FRAME)
    }

    fn check_length(&self, frames: &[u8], frame_bytes: usize) -> Result<(), PortError> {
        let most = LONGEST_FRAME;
        if frame_bytes > most {
            let problem = format!("a frame over AF_XDP is at most {most} bytes long; ask for less");
            return Err(PortError::Wrong { object: self.interface.name.clone(), problem });
        }
        self.interface.check_length(frames, frame_bytes)
    }

    /// Makes the kernel send the frames of the ring; one call sends only some of them.
    fn push(&mut self) -> Result<(), PortError> {
        for _ in 0..PUSHES {
            match self.rings.push() {
                Ok(()) => break,
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(self.refused("send on", error)),
            }
        }
        Ok(())
    }

    /// Passes the waiting frames to `each`, or only one of them.
    fn take(&mut self, is_single: bool, each: &mut dyn FnMut(&[u8], Option<Time>)) -> Result<usize, PortError> {
        let most = if is_single { 1 } else { sys::MOST_AT_ONCE };
        let taken = self.rings.receive(most, &mut |bytes| {
            if let Some((arrival, frame)) = bytes.split_first_chunk() {
                each(frame, arrival_time(*arrival));
            }
        });
        taken.map_err(|error| self.refused("receive from", error))
    }

    fn refused(&self, operation: &'static str, source: std::io::Error) -> PortError {
        PortError::System { operation, object: format!("AF_XDP on {}", self.interface.name), source }
    }
}

impl Port for XdpPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        let number = self.next;
        let called = HostClock.now();
        if self.transmit_batch(frame, frame.len())? == 0 {
            return Err(self.refused("send on", std::io::Error::from_raw_os_error(libc::ENOBUFS)));
        }
        Ok(Sent { number, called })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let mut received = None;
        self.take(true, &mut |frame, arrived| {
            let returned = HostClock.now();
            let length = frame.len().min(buffer.len());
            buffer[..length].copy_from_slice(&frame[..length]);
            received =
                Some(Received { length, arrived: stamp(arrived, returned), returned, from: None, to_group: false });
        })?;
        Ok(received)
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        let socket = self.rings.descriptor();
        wait_until_readable(socket, deadline).map_err(|error| self.refused("wait for", error))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Ethernet, max_frame: self.max_frame(), tx_timestamps: false }
    }

    /// Frames that were dropped because a ring was full.
    fn local_drops(&mut self) -> u64 {
        self.rings.drops()
    }
}

impl Batch for XdpPort {
    fn transmit_batch(&mut self, frames: &[u8], frame_bytes: usize) -> Result<usize, PortError> {
        self.check_length(frames, frame_bytes)?;
        let frame_bytes = frame_bytes.max(1);
        let whole = frames.len() / frame_bytes;
        let mut taken = 0;
        while taken < whole {
            let put = self.rings.put(&frames[taken * frame_bytes..], frame_bytes);
            let now = put.map_err(|error| self.refused("send on", error))?;
            if now == 0 {
                break;
            }
            self.push()?;
            taken += now;
        }
        self.next = self.next.wrapping_add(taken as u32);
        Ok(taken)
    }

    fn receive_batch(&mut self, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let mut returned = None;
        self.take(false, &mut |frame, arrived| {
            let returned = *returned.get_or_insert_with(|| HostClock.now());
            each(
                frame,
                Received {
                    length: frame.len(),
                    arrived: stamp(arrived, returned),
                    returned,
                    from: None,
                    to_group: false,
                },
            );
        })
    }

    fn engine(&self) -> &str {
        &self.engine
    }

    fn is_attached(&self) -> bool {
        self.attached.state().is_ok_and(|state| state == Attachment::Hangs)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.rings.descriptor())
    }
}

impl std::fmt::Debug for XdpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpPort").field("interface", &self.interface.name).field("engine", &self.engine).finish()
    }
}

/// Opens the rings: zero-copy where the driver supports it, else in copy mode.
pub(crate) fn open_rings(interface: &Interface, mode: Mode) -> Result<sys::Rings, PortError> {
    let opened = once_free(&HostClock, || match mode {
        Mode::Native => sys::Rings::open(interface.index, true).or_else(|_| sys::Rings::open(interface.index, false)),
        Mode::Generic => sys::Rings::open(interface.index, false),
    });
    opened.map_err(|source| {
        let object = format!("an AF_XDP socket on {}", interface.name);
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => denied_raw("open", &object, None),
            Some(libc::EBUSY) => {
                let problem = "another AF_XDP socket has its queue; close that program".to_owned();
                PortError::Unusable { object: interface.name.clone(), problem }
            }
            _ => PortError::System { operation: "open", object, source },
        }
    })
}

/// Calls `open` until its queue is not busy: the kernel releases a closed socket's queue in a worker, some time after
/// its process has ended (`xp_put_pool`).
fn once_free<T>(clock: &impl Clock, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let give_up = clock.now() + QUEUE_PATIENCE;
    loop {
        match open() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && clock.now() < give_up => {
                clock.wait_until(clock.now() + QUEUE_NAP, Nanos::ZERO);
            }
            opened => return opened,
        }
    }
}

/// Refuses an interface that may receive frames on queues without a socket.
pub(crate) fn check_queues(interface: &Interface) -> Result<(), PortError> {
    let Interface { name, .. } = interface;
    match unheard_queues(name) {
        Some(problem) => Err(PortError::Unusable { object: name.clone(), problem }),
        None => Ok(()),
    }
}

/// Describes the queues of an interface that have no socket, and the remedy; `None`: all frames arrive by one queue.
pub(crate) fn unheard_queues(name: &str) -> Option<String> {
    let queues = Interface::receive_queues_of(name).filter(|queues| *queues > 1)?;
    Some(format!(
        "its frames come in by {queues} queues, and AF_XDP here listens to one; `ethtool -L {name} combined 1` \
         (for a veth: `ethtool -L {name} rx 1`)"
    ))
}

/// The time that the XDP program wrote before a frame, if it did.
fn arrival_time(bytes: [u8; sys::HEADROOM]) -> Option<Time> {
    let [mark, at]: [u64; 2] = [0, 8].map(|from| u64::from_ne_bytes(std::array::from_fn(|index| bytes[from + index])));
    (mark == ARRIVAL_MARK).then_some(Time(at.cast_signed()))
}

fn stamp(arrived: Option<Time>, returned: Time) -> Stamp {
    match arrived {
        Some(at) => Stamp { at, source: Source::Kernel },
        None => Stamp { at: returned, source: Source::User },
    }
}

/// Whether the kernel has sent all that it can for now.
pub(crate) fn is_busy(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR))
}

#[cfg(test)]
mod tests {
    use sojourn_time::SimulatedClock;

    use super::*;

    #[test]
    fn queue_still_held_by_a_closed_socket_is_retried() {
        let opened_after = |busy: usize, error: i32| {
            let (clock, mut asked) = (SimulatedClock::default(), 0);
            let opened = once_free(&clock, || {
                asked += 1;
                if asked > busy { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
            });
            (opened.map_err(|error| error.raw_os_error()), clock.now() - Time(0))
        };
        assert_eq!(opened_after(0, libc::EBUSY), (Ok(()), Nanos::ZERO));
        assert_eq!(opened_after(5, libc::EBUSY), (Ok(()), Nanos::millis(50)));
        assert_eq!(opened_after(usize::MAX, libc::EBUSY), (Err(Some(libc::EBUSY)), QUEUE_PATIENCE));
        assert_eq!(opened_after(usize::MAX, libc::ENODEV), (Err(Some(libc::ENODEV)), Nanos::ZERO));
    }

    #[test]
    fn timestamp_without_its_mark_is_ignored() {
        let bytes = |mark: u64| [mark.to_ne_bytes(), 7_u64.to_ne_bytes()].concat().try_into().expect("16 bytes");
        assert_eq!(arrival_time(bytes(ARRIVAL_MARK)), Some(Time(7)));
        assert_eq!(arrival_time(bytes(0)), None);
    }
}
