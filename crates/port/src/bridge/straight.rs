//! A bridge's port for a bridge that needs to see no frame of either port: tc programs in the kernel forward and count
//! all frames.
//!
//! Works with every driver, since each frame is already an skb: checksums, tags and super-frames are forwarded
//! unchanged. Never yields a frame, and accepts none.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sojourn_time::{Clock, Nanos, Time};

use super::claim::Claim;
use super::{BridgePort, Guard, Passed};
use crate::bpf::{AttachedTc, Attachment, End, Program, object};
use crate::kernel::{Counters, Interface};
use crate::{PortError, Received};

/// The interval between checks that its programs are still attached.
const LOOK_EVERY: Nanos = Nanos::millis(200);
/// How long a packet given to an interface may be missing in its counters: some drivers read theirs at intervals.
const COUNTED_WITHIN: Nanos = Nanos::seconds(1);

/// A port whose frames the kernel forwards.
#[derive(Debug)]
pub struct StraightBridge {
    claim: Claim,
    way: Way,
    looked: Time,
    /// Whether every look may be the last.
    is_ending: bool,
    /// Why the number of sent frames is not exact, until it is said; it is said once.
    doubt: Option<String>,
    is_doubted: bool,
    /// Never becomes readable.
    nothing: OwnedFd,
}

/// One direction of the bridge: ingress on one interface, egress on the other.
#[derive(Debug)]
struct Way {
    to: Interface,
    /// The other interface's drops before it began, and those since then at the last reading.
    dropped_before: u64,
    dropped: Cell<u64>,
    /// `None`: packets may wait in a queueing discipline, so what has not left is not lost.
    taken: Option<Taken>,
    inward: (AttachedTc, Program),
    outward: (AttachedTc, Program),
}

/// Creates both ports; returns the claims where this kernel cannot, as Linux before 6.6.
pub fn open(claims: [Claim; 2]) -> Result<[StraightBridge; 2], Box<[Claim; 2]>> {
    let [left, right] = &claims;
    let ways = (Way::open(left, right), Way::open(right, left), nothing(), nothing());
    let (Some(there), Some(back), Some(first), Some(second)) = ways else { return Err(claims.into()) };
    let [left, right] = claims;
    let port = |claim: Claim, way, nothing| StraightBridge {
        looked: claim.clock().now(),
        is_ending: false,
        doubt: None,
        is_doubted: false,
        claim,
        way,
        nothing,
    };
    Ok([port(left, there, first), port(right, back, second)])
}

fn nothing() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

impl Way {
    fn open(from: &Claim, to: &Claim) -> Option<Self> {
        let (since, has_queue) = (to.clock().now(), to.has_queue());
        let (from, to) = (from.interface(), to.interface());
        let constants = [from.index.to_ne_bytes(), to.index.to_ne_bytes()].concat();
        let hang = |name, interface, end| {
            let program = Program::load(name, object!("straight.bpf.o"), &constants).ok()?;
            Some((program.attach_tc(interface, end).ok()?, program))
        };
        // Before the program counts: what leaves meanwhile must not count as taken.
        let done_before = done(to)?;
        // Attach the egress program first, so that no frame enters that it does not count.
        let outward = hang("passed_on", to, End::Out)?;
        let dropped_before = dropped(to)?;
        Some(Self {
            to: to.clone(),
            dropped_before,
            dropped: Cell::new(0),
            taken: (!has_queue).then(|| Taken::since(since, done_before)),
            inward: hang("pass_on", from, End::In)?,
            outward,
        })
    }

    /// Checks that its programs are attached; returns the present name of the interface where one is not, and the
    /// reason.
    fn broken(&self, from: &str) -> Option<(String, String)> {
        let to = || name(&self.to).unwrap_or_else(|| self.to.name.clone());
        let inward = broken(self.inward.0.state()).map(|problem| (from.to_owned(), problem));
        inward.or_else(|| broken(self.outward.0.state()).map(|problem| (to(), problem)))
    }

    fn passed(&self) -> Passed {
        // Read egress before ingress: a frame that was sent was also received. The interface counts what it drops: it
        // is down, or a veth's peer has no room.
        let leaving = Counted::by(&self.outward.1).frames;
        if let Some(all) = dropped(&self.to) {
            self.dropped.set(self.dropped.get().max(all.saturating_sub(self.dropped_before)));
        }
        let received = Counted::by(&self.inward.1).frames;
        Passed { received, sent: leaving.saturating_sub(self.dropped.get() + self.taken()) }
    }

    /// The packets that a filter behind the program has taken.
    fn taken(&self) -> u64 {
        self.taken.as_ref().map_or(0, |taken| taken.packets)
    }

    /// Compares what the other interface was given with its counters; says, when that is first the case, that a filter
    /// takes packets.
    fn look_behind(&mut self, now: Time) -> Option<String> {
        let taken = self.taken.as_mut().filter(|taken| taken.is_due(now))?;
        let counted = Counted::by(&self.outward.1);
        let was_clear = taken.packets == 0;
        let is_missing = taken.look(now, counted.packets(), done(&self.to)?);
        (was_clear && is_missing).then(|| {
            let (to, packets) = (name(&self.to).unwrap_or_else(|| self.to.name.clone()), taken.packets);
            format!(
                "{to} was given packets that neither left it nor are among its drops ({packets} so far), and they count \
                 as lost: a filter of traffic control may take them (`tc filter show dev {to} egress`)"
            )
        })
    }

    /// Says why the number of sent frames is not exact, if it is not.
    fn doubt(&self) -> Option<String> {
        self.passed();
        let dropped = self.dropped.get() + self.taken();
        let Counted { super_frames, own, .. } = Counted::by(&self.outward.1);
        (dropped > 0 && super_frames + own > 0).then(|| {
            let to = name(&self.to).unwrap_or_else(|| self.to.name.clone());
            format!(
                "{to} did not send {dropped} packets, and {super_frames} super-frames and {own} packets of this host were among those that \
                 it was given: the number of frames that it has sent is not exact"
            )
        })
    }
}

/// What a filter behind the egress program takes, by the counters of the interface. Packets of this host that pass no
/// program (a packet socket that bypasses the queue) may hide as many of them.
#[derive(Debug)]
struct Taken {
    /// The packets that the interface had sent or dropped before the program was attached.
    before: u64,
    looked: Time,
    /// The packets that it had been given at the last look, and what its counters showed.
    given: u64,
    done: u64,
    /// Whether the counters only ever grew.
    is_sound: bool,
    /// The packets that were given and never left.
    packets: u64,
}

impl Taken {
    fn since(looked: Time, before: u64) -> Self {
        Self { before, looked, given: 0, done: before, is_sound: true, packets: 0 }
    }

    /// Whether the packets that were given at the last look have had time to leave.
    fn is_due(&self, now: Time) -> bool {
        now - self.looked >= COUNTED_WITHIN
    }

    /// Compares the counters with what was given at the last look; returns whether packets are missing.
    fn look(&mut self, now: Time, given: u64, done: u64) -> bool {
        self.is_sound &= done >= self.done;
        if self.is_sound {
            self.packets = self.packets.max(self.given.saturating_sub(done - self.before));
        }
        (self.looked, self.given, self.done) = (now, given, done);
        self.packets > 0
    }
}

/// What a program has counted. The map exists for as long as the program.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    frames: u64,
    super_frames: u64,
    own: u64,
    /// The frames in super-frames.
    joined: u64,
}

impl Counted {
    fn by(program: &Program) -> Self {
        let told = program.words("frames");
        told.map(|[frames, super_frames, own, joined]| Self { frames, super_frames, own, joined }).unwrap_or_default()
    }

    /// The packets given to the interface, a super-frame as one.
    fn packets(self) -> u64 {
        (self.frames + self.super_frames + self.own).saturating_sub(self.joined)
    }
}

/// Counts the frames that an interface dropped instead of sending them, by its present name. A super-frame counts as
/// one; the drops of a queueing discipline are not included.
fn dropped(interface: &Interface) -> Option<u64> {
    counters(interface).map(|counters| counters.send_dropped)
}

/// Counts the packets that an interface has sent or dropped.
fn done(interface: &Interface) -> Option<u64> {
    counters(interface).map(|counters| counters.sent + counters.send_dropped)
}

/// Reads the counters of an interface by its present name.
fn counters(interface: &Interface) -> Option<Counters> {
    let now = Interface { name: name(interface)?, ..interface.clone() };
    now.counters().ok()
}

/// The present name of an interface.
fn name(interface: &Interface) -> Option<String> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    index_to_name_inlined(&socket, interface.index).ok().map(|name| name.as_str().to_owned())
}

/// Describes why frames are no longer forwarded; an unknown state counts as broken.
fn broken(state: io::Result<Attachment>) -> Option<String> {
    match state {
        Ok(Attachment::Hangs) => None,
        Ok(Attachment::Detached) => Some("its program of traffic control was detached; start again".to_owned()),
        Ok(Attachment::Replaced(other)) => {
            Some(format!("its program of traffic control was replaced by another one ({other}); start again"))
        }
        Err(error) => {
            Some(format!("the kernel does not say whether its program of traffic control hangs there: {error}"))
        }
    }
}

impl BridgePort for StraightBridge {
    fn receive(&mut self, _: usize, _: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        self.claim.heed().map(|()| 0)
    }

    fn put(&mut self, _: &[u8]) -> Result<bool, PortError> {
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    fn engine(&self) -> &str {
        "within the kernel (TC redirect)"
    }

    fn local_drops(&mut self) -> u64 {
        0
    }

    fn shows_frames(&self) -> bool {
        false
    }

    fn passed(&self) -> Passed {
        self.way.passed()
    }

    fn longest(&self) -> usize {
        self.claim.longest()
    }

    fn name(&self) -> &str {
        &self.claim.interface().name
    }

    fn news(&mut self) -> Result<Option<String>, PortError> {
        self.claim.heed()?;
        let now = self.claim.clock().now();
        if now - self.looked >= LOOK_EVERY || self.is_ending {
            self.looked = now;
            if let Some((object, problem)) = self.way.broken(self.name()) {
                self.claim.look()?;
                return Err(PortError::TakenAway { object, problem });
            }
            let taken = self.way.look_behind(now);
            if !self.is_doubted {
                self.doubt = self.way.doubt();
                self.is_doubted = self.doubt.is_some();
            }
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(self.claim.news().or_else(|| self.doubt.take()))
    }

    fn end(&mut self) {
        self.is_ending = true;
    }

    fn guard(&self) -> Option<Guard> {
        Some(self.claim.guard())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_were_given_a_while_ago_and_never_left_are_taken() {
        let second = |count: i64| Time(0) + Nanos::seconds(count);
        let mut taken = Taken::since(second(0), 1_000);
        assert!(!taken.is_due(second(0) + Nanos::millis(900)) && taken.is_due(second(1)));
        assert!(!taken.look(second(1), 100, 1_000), "they may not be counted yet");
        assert!(!taken.look(second(2), 150, 1_100), "they are");
        assert!(taken.look(second(3), 200, 1_143), "7 of 150 are not");
        assert!(taken.look(second(4), 200, 1_500) && taken.packets == 7, "others do not bring them back");
        let mut reset = Taken::since(second(0), 1_000);
        for (at, done) in [(1, 1_100), (2, 5), (3, 2_000), (4, 2_000)] {
            assert!(!reset.look(second(at), 100_000, done), "a counter that was reset proves nothing");
        }
    }

    #[test]
    fn super_frame_is_one_packet() {
        let counted = Counted { frames: 48, super_frames: 2, own: 3, joined: 40 };
        assert_eq!(counted.packets(), 8 + 2 + 3);
    }

    #[test]
    fn emulation_continues_only_with_a_program_known_to_be_attached() {
        assert_eq!(broken(Ok(Attachment::Hangs)), None);
        for (state, why) in [
            (Ok(Attachment::Detached), "was detached"),
            (Ok(Attachment::Replaced(7)), "was replaced by another one (7)"),
            (Err(io::Error::other("no")), "does not say whether its program of traffic control hangs there: no"),
        ] {
            let told = broken(state).expect("it ends");
            assert!(told.contains(why), "{told}");
        }
    }
}
