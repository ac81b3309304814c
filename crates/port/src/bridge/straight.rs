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
use crate::kernel::Interface;
use crate::{PortError, Received};

/// The interval between checks that its programs are still attached.
const LOOK_EVERY: Nanos = Nanos::millis(200);

/// A port whose frames the kernel forwards.
#[derive(Debug)]
pub struct StraightBridge {
    claim: Claim,
    way: Way,
    looked: Time,
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
        let (from, to) = (from.interface(), to.interface());
        let constants = [from.index.to_ne_bytes(), to.index.to_ne_bytes()].concat();
        let hang = |name, interface, end| {
            let program = Program::load(name, object!("straight.bpf.o"), &constants).ok()?;
            Some((program.attach_tc(interface, end).ok()?, program))
        };
        // Attach the egress program first, so that no frame enters that it does not count.
        let outward = hang("passed_on", to, End::Out)?;
        let dropped_before = dropped(to)?;
        Some(Self {
            to: to.clone(),
            dropped_before,
            dropped: Cell::new(0),
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
        Passed { received, sent: leaving.saturating_sub(self.dropped.get()) }
    }

    /// Says why the number of sent frames is not exact, if it is not.
    fn doubt(&self) -> Option<String> {
        self.passed();
        let dropped = self.dropped.get();
        let Counted { super_frames, own, .. } = Counted::by(&self.outward.1);
        (dropped > 0 && super_frames + own > 0).then(|| {
            let to = name(&self.to).unwrap_or_else(|| self.to.name.clone());
            format!(
                "{to} dropped {dropped} packets, and {super_frames} super-frames and {own} packets of this host were among those that \
                 it was given: the number of frames that it has sent is not exact"
            )
        })
    }
}

/// What a program has counted. The map exists for as long as the program.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    frames: u64,
    super_frames: u64,
    own: u64,
}

impl Counted {
    fn by(program: &Program) -> Self {
        let told = program.words("frames").map(|[frames, super_frames, own]| Self { frames, super_frames, own });
        told.unwrap_or_default()
    }
}

/// Counts the frames that an interface dropped instead of sending them, by its present name. A super-frame counts as
/// one; the drops of a queueing discipline are not included.
fn dropped(interface: &Interface) -> Option<u64> {
    let now = Interface { name: name(interface)?, ..interface.clone() };
    now.counters().ok().map(|counters| counters.send_dropped)
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
        if now - self.looked >= LOOK_EVERY {
            self.looked = now;
            if let Some((object, problem)) = self.way.broken(self.name()) {
                self.claim.look()?;
                return Err(PortError::TakenAway { object, problem });
            }
            if !self.is_doubted {
                self.doubt = self.way.doubt();
                self.is_doubted = self.doubt.is_some();
            }
        }
        Ok(self.claim.news().or_else(|| self.doubt.take()))
    }

    fn guard(&self) -> Option<Guard> {
        Some(self.claim.guard())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
