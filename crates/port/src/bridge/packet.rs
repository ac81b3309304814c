//! A bridge's port over AF_PACKET: every frame of an interface; the kernel's stack gets its own copy.
//!
//! The kernel reports for each frame what it left undone (`struct virtio_net_hdr`, the VLAN tag): it is completed here.

use std::os::fd::{AsFd, BorrowedFd};

use sojourn_time::{Ahead, Clock, Source, Stamp, Time};
use sojourn_wire::stream::TAG_BYTES;
use sojourn_wire::{MacAddress, offload, segment};

use super::claim::Claim;
use super::{BridgePort, Guard};
use crate::kernel::{Arrival, Inbox, Interface, Socket};
use crate::packet::{bind, membership, open, open_ring, sys::TransmitRing, with_tag};
use crate::{PortError, Received, Stamps};

const BUFFER_BYTES: usize = 64 << 20;
/// The longest super-frame that is accepted; larger ones (BIG TCP) are lost and counted.
const LONGEST_SUPER_FRAME: usize = 66_000;
/// How often the kernel is asked to send the whole ring.
const PUSHES: usize = 64;

/// A bridge's port over AF_PACKET.
#[derive(Debug)]
pub struct PacketBridge {
    socket: Socket,
    inbox: Inbox,
    ring: TransmitRing,
    claim: Claim,
    /// The offset of the kernel's timestamp clock from ours.
    ahead: Ahead,
    scratch: Vec<u8>,
    /// Whether the interface was down at the last attempt to send.
    is_down: bool,
    lost: u64,
}

impl PacketBridge {
    /// Opens a port, and adds warnings about the kernel's stack to `said`.
    pub fn open(claim: Claim, said: &mut Vec<String>) -> Result<Self, PortError> {
        claim.check_alone()?;
        claim.check_no_program()?;
        let interface = claim.interface();
        let socket = open_socket(interface)?;
        let ring = make_ring(interface)?;
        let name = &interface.name;
        said.push(format!(
            "frames of {name} reach this host's own stack, too, over AF_PACKET: leave it without addresses and out of \
             any bridge"
        ));
        let inbox = Inbox::new(LONGEST_SUPER_FRAME + Undone::BYTES, 0);
        let ahead = Ahead::new(claim.clock().realtime_ahead());
        Ok(Self { socket, inbox, ring, claim, ahead, scratch: Vec::with_capacity(1 << 16), is_down: false, lost: 0 })
    }

    /// Handles a failed call: an interface that is down yields no frames, and a frame that the kernel cannot describe
    /// is lost.
    fn tolerate(&mut self, error: PortError) -> Result<usize, PortError> {
        match error {
            PortError::System { ref source, .. } if source.raw_os_error() == Some(libc::EINVAL) => self.lost += 1,
            PortError::Unusable { .. } => self.claim.look()?,
            error => return Err(error),
        }
        Ok(0)
    }
}

impl BridgePort for PacketBridge {
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let (mut count, mut read) = (0, 0);
        // A message is a super-frame of several frames, or one that cannot be taken apart and shows none.
        while count < most && read < most {
            self.inbox.take_at_most(most - count.max(read));
            let taken = match self.socket.receive_batch(&mut self.inbox) {
                Ok(taken) => taken,
                Err(error) => self.tolerate(error)?,
            };
            let clock = self.claim.clock();
            let returned = clock.now();
            if taken > 0 {
                self.ahead.look(returned, || clock.realtime_ahead());
            }
            for nth in 0..taken {
                let arrival = self.socket.arrival(&self.inbox, nth);
                let arrived = steady(&arrival, &self.ahead, &clock, returned);
                let mut show = |frame: &[u8]| {
                    count += 1;
                    each(frame, Received { length: frame.len(), arrived, returned, from: None, to_group: false });
                };
                let message = self.inbox.message(nth);
                if !finish(message, arrival.control.tag, &mut self.scratch, &mut show) {
                    self.lost += 1;
                }
            }
            read += taken;
            if taken == 0 {
                break;
            }
        }
        self.claim.heed()?;
        Ok(count)
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        if self.is_down {
            self.flush()?;
        }
        if self.is_down || !self.claim.carries(frame.len()) {
            return Ok(false);
        }
        if frame.len() > self.ring.longest() {
            // The MTU was raised since the ring was created.
            self.flush()?;
            self.lost += self.ring.withdraw() as u64;
            self.ring = make_ring(self.claim.interface())?;
        }
        if frame.is_empty() || self.ring.put(frame, frame.len()) == 1 {
            return Ok(!frame.is_empty());
        }
        // A super-frame alone may produce more frames than the ring holds.
        self.flush()?;
        Ok(self.ring.put(frame, frame.len()) == 1)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.is_down = false;
        for _ in 0..PUSHES {
            let Err(error) = self.ring.push() else { break };
            self.is_down = error.raw_os_error() == Some(libc::ENETDOWN);
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) {
                // Down, gone, or a frame that the device rejects: withdraw it and those behind it, so that none is sent
                // late.
                self.lost += self.ring.withdraw() as u64;
                return self.claim.look();
            }
            if !self.ring.is_waiting() {
                break;
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn engine(&self) -> &str {
        "AF_PACKET recvmmsg, TX_RING, qdisc bypassed"
    }

    fn local_drops(&mut self) -> u64 {
        self.socket.drops() + self.lost
    }

    fn longest(&self) -> usize {
        self.claim.longest()
    }

    fn name(&self) -> &str {
        &self.claim.interface().name
    }

    fn news(&mut self) -> Result<Option<String>, PortError> {
        self.claim.heed()?;
        Ok(self.claim.news())
    }

    fn guard(&self) -> Option<Guard> {
        Some(self.claim.guard())
    }
}

/// Converts an RX timestamp to the steady clock; replaces an implausible one by the program's own.
fn steady(arrival: &Arrival, ahead: &Ahead, clock: &impl Clock, returned: Time) -> Stamp {
    let at = match arrival.arrived.source {
        Source::Kernel => arrival.control.software.and_then(|stamp| ahead.convert(stamp, returned)),
        Source::Hardware => Some(arrival.arrived.at - clock.tai_ahead()),
        Source::User | Source::Simulated | Source::Bpf => None,
    };
    match at {
        Some(at) => Stamp { at, source: arrival.arrived.source },
        None => Stamp { at: returned, source: Source::User },
    }
}

/// Opens a socket that receives every frame of an interface, each with what the kernel left undone.
fn open_socket(interface: &Interface) -> Result<Socket, PortError> {
    let object = format!("a packet socket on {}", interface.name);
    let socket = open(&object, Some(interface), Stamps::None)?;
    let all = membership(interface.index, libc::PACKET_MR_PROMISC, MacAddress::default());
    socket
        .set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
        .and_then(|()| socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1))
        .and_then(|()| socket.set_bytes(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all))
        .and_then(|()| socket.resize_receive_buffer(BUFFER_BYTES))
        .map_err(|error| socket.refused("set up", error))?;
    bind(&socket, interface.index, libc::ETH_P_ALL as u16)?;
    Ok(socket)
}

fn make_ring(interface: &Interface) -> Result<TransmitRing, PortError> {
    let object = format!("a transmit ring on {}", interface.name);
    open_ring(interface).map_err(|source| PortError::System { operation: "open", object, source })
}

/// Passes a frame as on the wire, or all segments of a super-frame, to `show`; `message` begins with a description of
/// what was left undone. Returns whether it could be completed.
pub(crate) fn finish(
    message: &mut [u8],
    tag: Option<[u8; TAG_BYTES]>,
    scratch: &mut Vec<u8>,
    show: &mut dyn FnMut(&[u8]),
) -> bool {
    let Some((head, frame)) = message.split_first_chunk_mut::<{ Undone::BYTES }>() else { return false };
    let undone = Undone::read(*head);
    if frame.len() >= LONGEST_SUPER_FRAME {
        return false;
    }
    if let (Some((start, offset)), None) = (undone.checksum, undone.segment) {
        // SCTP uses a CRC, which the kernel reports like an Internet checksum.
        let _ = offload::complete(frame) || offload::finish(frame, start, offset);
    }
    let frame = with_tag(&mut message[Undone::BYTES - TAG_BYTES..], tag);
    match undone.segment {
        None => show(frame),
        Some(bytes) => return segment::split(frame, bytes, scratch, show).is_some(),
    }
    true
}

/// What the kernel left undone in a frame: `struct virtio_net_hdr`.
struct Undone {
    /// The start of the checksummed range, and the offset of the checksum field from there.
    checksum: Option<(usize, usize)>,
    /// The user data of each segment of a super-frame, in bytes.
    segment: Option<usize>,
}

impl Undone {
    const BYTES: usize = 10;

    fn read(bytes: [u8; Self::BYTES]) -> Self {
        const NEEDS_CHECKSUM: u8 = 1;
        let [flags, kind, _, _, rest @ ..] = bytes;
        let [size, start, offset] = [0, 2, 4].map(|at| usize::from(u16::from_ne_bytes([rest[at], rest[at + 1]])));
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0).then_some((start, offset)),
            segment: (kind != 0).then_some(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn finished(message: &[u8], tag: Option<[u8; 4]>) -> Option<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let is_done = finish(&mut message.to_vec(), tag, &mut Vec::new(), &mut |frame| frames.push(frame.to_vec()));
        is_done.then_some(frames)
    }

    #[test]
    fn complete_frame_is_unchanged_except_for_its_vlan_tag() {
        let frame: Vec<u8> = (0..60).collect();
        let message = [&[0; 10][..], &frame].concat();
        assert_eq!(finished(&message, None), Some(vec![frame.clone()]));
        let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
        assert_eq!(finished(&message, Some([0x81, 0, 0, 7])), Some(vec![tagged]));
    }

    #[test]
    fn partial_checksums_are_completed_where_the_kernel_says() {
        let mut frame = vec![0; 60];
        frame[20..24].copy_from_slice(&[1, 2, 3, 4]);
        let start = 20_u16.to_ne_bytes();
        let offset = 10_u16.to_ne_bytes();
        let head = [1, 0, 0, 0, 0, 0, start[0], start[1], offset[0], offset[1]];
        let done = finished(&[&head[..], &frame].concat(), None).expect("is done");
        assert_eq!(done[0][30..32], (!0x0406_u16).to_be_bytes());
    }

    #[test]
    fn super_frames_that_cannot_be_segmented_are_lost() {
        let head = [0, 3, 0, 0, 100, 0, 0, 0, 0, 0];
        assert_eq!(finished(&[&head[..], &[0; 60]].concat(), None), None);
        assert_eq!(finished(&[0; 9], None), None);
    }

    proptest! {
        #[test]
        fn arbitrary_messages_never_panic(message: Vec<u8>, tag: Option<[u8; 4]>) {
            let _ = finished(&message, tag);
        }
    }
}
