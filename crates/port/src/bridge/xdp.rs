//! A bridge's port over AF_XDP: every frame of an interface, none of which reaches the kernel's stack.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use sojourn_time::{Clock, Source, Stamp, SteadyClock, Time};
use sojourn_wire::ethernet::HEADER_BYTES;
use sojourn_wire::offload;
use sojourn_wire::stream::TAG_BYTES;

use super::claim::Claim;
use super::redirect::{self, Redirect};
use super::{BridgePort, Guard, Means, Wanted};
use crate::bpf::{Attached, Mode, Program, attach_refused, object};
use crate::kernel::Interface;
use crate::packet::with_tag;
use crate::xdp::{LONGEST_FRAME, check_queues, is_busy, open_rings, sys};
use crate::{PortError, Received};

/// The magic number of `struct arrival` of `bpf/bridge.bpf.c`, which precedes each frame.
const ARRIVAL_MARK: u32 = 0x534F_4A42;
/// How often the kernel is asked to send; it sends 32 frames per call, and the ring holds 2,048.
const PUSHES: usize = 128;

/// An XDP program that redirects frames to the rings of a socket.
pub struct Entrance {
    // First, so that it is dropped first: redirection must stop before the socket closes.
    attached: Arc<Attached>,
    program: Program,
    wanted: Wanted,
    rings: sys::Rings,
}

/// Why an entrance cannot be opened.
pub struct Refusal {
    pub error: PortError,
    /// Whether no other backend may be tried: another process uses the interface.
    pub is_final: bool,
}

/// A bridge's port over AF_XDP.
pub struct XdpBridge {
    entrance: Entrance,
    claim: Claim,
    engine: String,
    /// Whether the interface was down at the last attempt to send.
    is_down: bool,
    /// Frames that the peer of a veth had no room for.
    refused: u64,
    /// Frames of queues without a socket, at the last reading.
    unheard: u64,
    redirect: Option<Redirect>,
}

impl Entrance {
    /// Opens it where AF_XDP carries all possible frames. With [`Means::Xdp`], opens it even where tags may get lost,
    /// with a warning.
    pub fn open(interface: &Interface, means: Means, wanted: &Wanted, said: &mut Vec<String>) -> Result<Self, Refusal> {
        check_queues(interface).map_err(Refusal::other)?;
        check_mtu(interface).map_err(Refusal::other)?;
        let (program, attached) = attach(interface, means, &redirect::constants(wanted), said)?;
        let rings = open_rings(interface, attached.mode).map_err(Refusal::of)?;
        let socket = rings.descriptor().as_raw_fd();
        let zero = 0_u32.to_ne_bytes();
        program.write("sockets", &zero, &socket.to_ne_bytes()).map_err(Refusal::other)?;
        // A frame that came before the socket was there came before the port was open.
        program.write("unheard", &zero, &0_u64.to_ne_bytes()).map_err(Refusal::other)?;
        Ok(Self { attached: Arc::new(attached), program, wanted: wanted.clone(), rings })
    }
}

impl Refusal {
    fn other(error: PortError) -> Self {
        Self { error, is_final: false }
    }

    /// Converts an error that may mean that another process's program or socket is in the way.
    fn of(error: PortError) -> Self {
        let is_final = matches!(error, PortError::Unusable { .. });
        Self { error, is_final }
    }
}

impl XdpBridge {
    /// Returns the port of an entrance on a claimed interface.
    pub fn new(entrance: Entrance, claim: Claim) -> Self {
        let copies = if entrance.rings.is_zero_copy() { "zero-copy" } else { "copy" };
        let engine = format!("AF_XDP {copies}, {}", entrance.attached.mode.name());
        Self { entrance, claim, engine, is_down: false, refused: 0, unheard: 0, redirect: None }
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        self.claim.interface()
    }

    /// Redirects the frames that the bridge need not see to another port, if there may be any.
    pub fn redirect_to(&mut self, other: &Interface) -> Result<(), PortError> {
        if redirect::may_go_on(&self.entrance.wanted) {
            self.redirect = Some(Redirect::begin(&self.entrance.program, other, self.claim.clock())?);
            self.engine.push_str(", redirecting");
        }
        Ok(())
    }

    fn put_one(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        self.entrance.rings.put_one(frame).map_err(|error| self.failed("send on", error))
    }

    fn failed(&self, operation: &'static str, source: std::io::Error) -> PortError {
        PortError::System { operation, object: format!("AF_XDP on {}", self.claim.interface().name), source }
    }

    /// Makes the kernel send; returns whether frames are left that need another call.
    fn push(&mut self) -> Result<bool, PortError> {
        let pushed = self.entrance.rings.push();
        self.is_down = false;
        let error = match pushed {
            Ok(()) => return Ok(self.entrance.rings.hand_over() > 0),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::ENETDOWN) => {
                self.is_down = true;
                self.claim.look().map(|()| false)
            }
            Some(libc::ENXIO | libc::ENODEV) => self.claim.look().map(|()| false),
            // The kernel accepted a frame that its queue or the peer had no room for, and lost it.
            Some(libc::EBUSY) => {
                self.refused += 1;
                self.entrance.rings.hand_over();
                Ok(true)
            }
            _ if is_busy(&error) => {
                self.entrance.rings.hand_over();
                Ok(true)
            }
            _ => Err(self.failed("send on", error)),
        }
    }
}

impl BridgePort for XdpBridge {
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let (clock, mut count, mut returned) = (self.claim.clock(), 0, None);
        while count < most {
            let taken = self.entrance.rings.receive(most - count, &mut |bytes| {
                let returned = *returned.get_or_insert_with(|| clock.now());
                show(bytes, &clock, returned, each);
            });
            match taken.map_err(|error| self.failed("receive from", error))? {
                0 => break,
                taken => count += taken,
            }
        }
        self.claim.heed()?;
        if let Some(redirect) = &mut self.redirect {
            redirect.watch(&self.entrance.program)?;
        }
        Ok(count)
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        if frame.len() > LONGEST_FRAME || !self.claim.carries(frame.len()) {
            return Ok(false);
        }
        if self.is_down {
            // A frame queued while the interface is down would be sent when it is up again, much too late.
            self.push()?;
            if self.is_down {
                return Ok(false);
            }
        }
        if self.put_one(frame)? {
            return Ok(true);
        }
        self.flush()?;
        self.put_one(frame)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.entrance.rings.hand_over();
        for _ in 0..PUSHES {
            if !self.push()? {
                break;
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.entrance.rings.descriptor()
    }

    fn engine(&self) -> &str {
        &self.engine
    }

    fn local_drops(&mut self) -> u64 {
        self.unheard = self.entrance.program.words("unheard").map_or(self.unheard, |[count]| count);
        self.entrance.rings.drops() + self.refused + self.unheard + self.redirect.as_ref().map_or(0, Redirect::lost)
    }

    fn longest(&self) -> usize {
        self.claim.longest().min(LONGEST_FRAME)
    }

    fn name(&self) -> &str {
        &self.claim.interface().name
    }

    fn news(&mut self) -> Result<Option<String>, PortError> {
        self.claim.heed()?;
        Ok(self.redirect.as_mut().and_then(Redirect::news).or_else(|| self.claim.news()))
    }

    fn guard(&self) -> Option<Guard> {
        Some(self.claim.guard().with_program(&self.entrance.attached))
    }
}

impl std::fmt::Debug for XdpBridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpBridge").field("claim", &self.claim).field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Attaches a program that reads VLAN tags from metadata, or else one that does not.
fn attach(
    interface: &Interface,
    means: Means,
    constants: &[u8],
    said: &mut Vec<String>,
) -> Result<(Program, Attached), Refusal> {
    let object = object!("bridge.bpf.o");
    if let Ok(program) = Program::load_for("bridge_tags", object, constants, Some(interface)) {
        match program.attach_as(interface, Mode::Native) {
            Ok(attached) => return Ok((program, attached)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                return Err(Refusal::of(attach_refused(interface, error)));
            }
            Err(_) => {}
        }
    }
    let program = Program::load("bridge", object, constants).map_err(Refusal::other)?;
    let attached = program.attach(interface).map_err(Refusal::of)?;
    for problem in defects(interface, attached.mode) {
        let object = interface.name.clone();
        if means == Means::Auto {
            return Err(Refusal::other(PortError::Unusable { object, problem }));
        }
        said.push(format!("{object}: {problem}"));
    }
    Ok((program, attached))
}

/// Describes what frames lose with a program that cannot query the driver.
fn defects(interface: &Interface, mode: Mode) -> Vec<String> {
    let mut defects = Vec::new();
    if interface.takes_tags_off() {
        defects.push(format!(
            "it takes VLAN tags off frames before XDP sees them, which are bridged without; \
             `ethtool -K {} rxvlan off` leaves them where they are",
            interface.name
        ));
    }
    // Native XDP makes the kernel disable segmentation offload at the veth peer; generic XDP does not.
    if mode == Mode::Generic && interface.driver().as_deref() == Some("veth") {
        defects.push(
            "its far end sends super-frames, which generic XDP loses; `ethtool -K PEER tso off gso off` there".into(),
        );
    }
    defects
}

/// Refuses an interface whose frames exceed a UMEM chunk.
fn check_mtu(interface: &Interface) -> Result<(), PortError> {
    let Interface { name, mtu, .. } = interface;
    let most = LONGEST_FRAME - HEADER_BYTES - TAG_BYTES;
    if *mtu <= most {
        return Ok(());
    }
    let problem = format!("its MTU of {mtu} bytes is too large for AF_XDP, which carries {most}");
    Err(PortError::Unusable { object: name.clone(), problem })
}

/// Passes a frame as on the wire to `each`; `bytes` begin with the metadata that the program wrote.
pub(crate) fn show(bytes: &mut [u8], clock: &SteadyClock, returned: Time, each: &mut dyn FnMut(&[u8], Received)) {
    let Some((head, frame)) = bytes.split_first_chunk_mut::<{ sys::HEADROOM }>() else { return };
    let arrival = Arrival::read(head);
    offload::complete(frame);
    let arrived = match &arrival {
        Some(arrival) => Stamp { at: clock.of_kernel(arrival.at), source: Source::Kernel },
        None => Stamp { at: returned, source: Source::User },
    };
    let frame = with_tag(&mut bytes[sys::HEADROOM - TAG_BYTES..], arrival.and_then(|arrival| arrival.tag));
    each(frame, Received { length: frame.len(), arrived, returned, from: None, to_group: false });
}

/// The metadata that the program wrote before a frame.
struct Arrival {
    tag: Option<[u8; TAG_BYTES]>,
    /// When it was received, on the kernel's `CLOCK_MONOTONIC`.
    at: Time,
}

impl Arrival {
    fn read(bytes: &[u8; sys::HEADROOM]) -> Option<Self> {
        let (mark, rest) = bytes.split_first_chunk::<4>()?;
        let (tag, at) = rest.split_first_chunk::<TAG_BYTES>()?;
        if u32::from_ne_bytes(*mark) != ARRIVAL_MARK {
            return None;
        }
        let at = Time(i64::from_ne_bytes(*at.first_chunk()?));
        Some(Self { tag: (tag[..2] != [0, 0]).then_some(*tag), at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(clock: &SteadyClock, mark: u32, tag: [u8; 4], frame: &[u8]) -> (Vec<u8>, Stamp) {
        let mut bytes = [&mark.to_ne_bytes()[..], &tag, &7_i64.to_ne_bytes(), frame].concat();
        let mut seen = Vec::new();
        show(&mut bytes, clock, Time(9), &mut |frame, received| {
            assert_eq!(received.length, frame.len());
            seen.push((frame.to_vec(), received.arrived));
        });
        seen.remove(0)
    }

    #[test]
    fn vlan_tag_in_metadata_is_reinserted() {
        let frame: Vec<u8> = (1..=20).collect();
        let clock = SteadyClock::begin();
        let (bytes, stamp) = shown(&clock, ARRIVAL_MARK, [0x81, 0, 0, 10], &frame);
        assert_eq!(bytes, [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat());
        assert_eq!(stamp, Stamp { at: clock.of_kernel(Time(7)), source: Source::Kernel });
        let (bytes, _) = shown(&clock, ARRIVAL_MARK, [0; 4], &frame);
        assert_eq!(bytes, frame);
    }

    #[test]
    fn metadata_without_its_mark_is_ignored() {
        let (bytes, stamp) = shown(&SteadyClock::begin(), 0, [0x81, 0, 0, 10], &[1; 20]);
        assert_eq!((bytes, stamp), (vec![1; 20], Stamp { at: Time(9), source: Source::User }));
    }
}
