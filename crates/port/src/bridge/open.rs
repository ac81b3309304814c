//! Opens both ports of a bridge, each with the best I/O backend for its interface.

use sojourn_time::SteadyClock;

use super::claim::Claim;
use super::neighbours::{Standing, check_apart};
use super::{BridgePort, packet, straight, xdp};
use crate::PortError;
use crate::kernel::Interface;

/// The I/O backend to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// AF_XDP where it carries all possible frames, else AF_PACKET, with a message that says why.
    #[default]
    Auto,
    /// AF_XDP, or an error.
    Xdp,
    /// AF_PACKET.
    Packet,
}

/// How to open ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// The I/O backend.
    pub means: Means,
    /// The frames that the bridge must see, of those received at the left port and at the right one. The kernel may
    /// forward the others: only over AF_XDP, and where the other port's driver supports it. Where the bridge needs to
    /// see none from either port, the kernel forwards and counts all frames, with any driver (with [`Means::Auto`],
    /// Linux 6.6 or later).
    pub wanted: [Wanted; 2],
    /// Whether to bridge interfaces that this host itself uses.
    pub take_over: bool,
    /// The clock of the frames' timestamps.
    pub clock: SteadyClock,
}

/// The frames that a bridge must see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Every frame.
    #[default]
    All,
    /// Frames of these EtherTypes (behind all tags), 16 at most; none where the list is empty. Other frames are seen
    /// too where checksums or segmentation are left undone.
    Ethertypes(Vec<u16>),
}

impl Wanted {
    /// Whether no frame must be seen.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Ethertypes(list) if list.is_empty())
    }
}

/// Both ports, and messages for the user, one sentence each.
pub type Opened = (Box<dyn BridgePort>, Box<dyn BridgePort>, Vec<String>);

/// Opens the two ports of a bridge, in the network namespace of the calling thread.
///
/// # Errors
/// `Wrong` when there is no such interface, both are the same or the two ends of one cable, or the host itself uses
/// one; `Unusable` when one is down, claimed by another emulator, has another XDP program, or lacks a requested
/// feature; `Denied` without permission.
pub fn open(left: &str, right: &str, how: &How) -> Result<Opened, PortError> {
    let mut said = Vec::new();
    let interfaces = (look_at(left, &mut said)?, look_at(right, &mut said)?);
    if interfaces.0.index == interfaces.1.index {
        let problem = "a bridge stands between two interfaces; name another one for its other side".to_owned();
        return Err(PortError::Wrong { object: left.to_owned(), problem });
    }
    let standing = (Standing::of(&interfaces.0)?, Standing::of(&interfaces.1)?);
    check_apart(&standing.0.link, &standing.1.link)?;
    for one in [&standing.0, &standing.1] {
        one.check(how.take_over, how.means)?;
        if let Some(uses) = one.uses() {
            said.push(format!("{}: {uses}: this host loses the use of it until the bridge ends", one.link.name));
        }
    }
    let queues = [queue(&standing.0), queue(&standing.1)];
    let claims = (
        Claim::take(interfaces.0, standing.0, how.clock, &mut said)?,
        Claim::take(interfaces.1, standing.1, how.clock, &mut said)?,
    );
    let claims = match pass_straight([claims.0, claims.1], how) {
        Ok([left, right]) => {
            said.extend(queues.into_iter().flatten());
            return Ok((Box::new(left), Box::new(right), said));
        }
        Err(claims) => {
            let [left, right] = *claims;
            (left, right)
        }
    };
    let mut left = open_one(claims.0, how, 0, &mut said)?;
    let mut right = open_one(claims.1, how, 1, &mut said)?;
    if let (Opening::Xdp(left), Opening::Xdp(right)) = (&mut left, &mut right) {
        left.redirect_to(right.interface())?;
        right.redirect_to(left.interface())?;
    }
    Ok((left.boxed(), right.boxed(), said))
}

/// Forwards all frames in the kernel where the bridge needs to see none and no backend is requested; else returns the
/// claims.
fn pass_straight(claims: [Claim; 2], how: &How) -> Result<[straight::StraightBridge; 2], Box<[Claim; 2]>> {
    let is_unseen = how.means == Means::Auto && how.wanted.iter().all(Wanted::is_nothing);
    if is_unseen && claims.iter().all(|claim| claim.check_alone().is_ok() && !claim.has_program()) {
        straight::open(claims)
    } else {
        Err(claims.into())
    }
}

/// What programs of traffic control do not see of a port that has a queueing discipline.
fn queue(standing: &Standing) -> Option<String> {
    let name = &standing.link.name;
    let qdisc = standing.link.queue()?;
    Some(format!(
        "{name}: what its queueing discipline {qdisc} drops counts as sent; `tc -s qdisc show dev {name}` counts it"
    ))
}

/// A port whose I/O backend is still known.
enum Opening {
    Xdp(xdp::XdpBridge),
    Packet(packet::PacketBridge),
}

impl Opening {
    fn boxed(self) -> Box<dyn BridgePort> {
        match self {
            Self::Xdp(port) => Box::new(port),
            Self::Packet(port) => Box::new(port),
        }
    }
}

/// Reads an interface, which must be up; its carrier may come later.
fn look_at(name: &str, said: &mut Vec<String>) -> Result<Interface, PortError> {
    Interface::usable(name).or_else(|error| {
        let interface = Interface::named(name)?;
        if !interface.up {
            return Err(error);
        }
        said.push(format!("{name} has no carrier: frames flow when its other end is there"));
        Ok(interface)
    })
}

fn open_one(claim: Claim, how: &How, side: usize, said: &mut Vec<String>) -> Result<Opening, PortError> {
    if how.means == Means::Packet {
        return packet::PacketBridge::open(claim, said).map(Opening::Packet);
    }
    match xdp::Entrance::open(claim.interface(), how.means, &how.wanted[side], said) {
        Ok(entrance) => Ok(Opening::Xdp(xdp::XdpBridge::new(entrance, claim))),
        Err(refusal) if how.means == Means::Xdp || refusal.is_final => Err(refusal.error),
        Err(refusal) => {
            said.push(format!("AF_PACKET in place of AF_XDP: {}", refusal.error));
            packet::PacketBridge::open(claim, said).map(Opening::Packet)
        }
    }
}
