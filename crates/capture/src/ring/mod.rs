//! A tap over AF_PACKET: the kernel fills blocks of a ring with frames (`TPACKET_V3`), each with the kernel's timestamp
//! or the interface's own. Reading them needs no system call.

pub(crate) mod block;
mod sys;

use std::os::fd::{AsFd, BorrowedFd};

use sojourn_port::kernel::{FilterStep, HardwareClock, Interface, Name, Opening as OpenSocket, Socket, denied_raw};
use sojourn_port::packet::membership;
use sojourn_port::{PortError, Stamps};
use sojourn_time::{Clock, HostClock, Source, Stamp, TaiOffset, Time};
use sojourn_wire::MacAddress;

use crate::any::is_there;
use crate::{Directions, Passed, Tap, Totals};
use block::Stamped;
use sys::{Ring, Shape};

/// A block is delivered at this age, however few frames it holds.
const BLOCK_AGE_MS: u32 = 20;
const BLOCK_BYTES: usize = 1 << 18;
/// `tp_frame_size`: unused in this version, but validated.
const PLACE_BYTES: usize = 2048;
/// The smallest ring that is tried when the kernel lacks memory for the requested size.
const LEAST_BLOCKS: usize = 4;

/// The requested timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Those of the interface where it is set to timestamp every frame, else the kernel's.
    #[default]
    Best,
    /// Those of the interface.
    Hardware,
    /// Those of the kernel.
    Kernel,
}

/// The options of a tap.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The filter, a classic BPF program; empty: all frames are accepted.
    pub filter: Vec<FilterStep>,
    /// The directions of the frames.
    pub directions: Directions,
    /// The snapshot length where there is no filter program: the most bytes copied of a frame.
    pub snap: u32,
    /// The size of the ring, in bytes.
    pub ring_bytes: usize,
    /// Whether the interface is set to promiscuous mode.
    pub is_promiscuous: bool,
    /// The requested timestamps.
    pub stamps: Wanted,
}

/// A tap over AF_PACKET.
#[derive(Debug)]
pub struct RingTap {
    socket: Socket,
    ring: Ring,
    ring_bytes: usize,
    interface: Interface,
    directions: Directions,
    is_promiscuous: bool,
    clock: Option<HardwareClock>,
    totals: Totals,
    /// Invalid frames in the ring: they count as dropped.
    damaged: u64,
    scratch: Vec<u8>,
}

impl RingTap {
    /// Opens a tap that does not copy frames yet.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface or it is not Ethernet, `Unusable` when it lacks the requested hardware
    /// timestamps, `Denied` without CAP_NET_RAW.
    pub fn open(interface: &str, asked: &Opening) -> Result<Self, PortError> {
        let interface = Interface::named(interface)?;
        if !interface.is_ethernet() {
            let problem = "its frames are not Ethernet's; capture the interface that carries them".to_owned();
            return Err(PortError::Wrong { object: interface.name, problem });
        }
        let clock = hardware_clock(&interface, asked.stamps)?;
        let object = format!("a tap on {}", interface.name);
        let kind = [libc::AF_PACKET, libc::SOCK_RAW, 0];
        let stamping = clock.as_ref().map(|_| &interface);
        let opening = OpenSocket { kind, object: &object, stamps: Stamps::None, interface: stamping };
        let socket = Socket::open(opening).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => denied_raw("open", &object, None),
            _ => PortError::System { operation: "open", object: object.clone(), source: error },
        })?;
        let refused = |error| socket.refused("set up", error);
        socket
            .set(libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)
            .and_then(|()| socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1))
            .and_then(|()| {
                socket.set(
                    libc::SOL_PACKET,
                    libc::PACKET_IGNORE_OUTGOING,
                    i32::from(asked.directions == Directions::In),
                )
            })
            .map_err(refused)?;
        if clock.is_some() {
            let flags = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
            socket.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, flags).map_err(refused)?;
        }
        if !asked.filter.is_empty() {
            socket.filter(&asked.filter).map_err(|error| socket.refused("filter", error))?;
        }
        let (ring, ring_bytes) = make_ring(&socket, asked.ring_bytes).map_err(|error| socket.refused("map", error))?;
        Ok(Self {
            socket,
            ring,
            ring_bytes,
            interface,
            directions: asked.directions,
            is_promiscuous: asked.is_promiscuous,
            clock,
            totals: Totals::default(),
            damaged: 0,
            scratch: Vec::with_capacity(1 << 16),
        })
    }

    /// Starts copying frames.
    ///
    /// # Errors
    /// `Unusable` when the interface is down or gone.
    pub fn attach(&mut self) -> Result<(), PortError> {
        let index = self.interface.index;
        if self.is_promiscuous {
            let all = membership(index, libc::PACKET_MR_PROMISC, MacAddress::default());
            let made = self.socket.set_bytes(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all);
            made.map_err(|error| self.socket.refused("show all frames of", error))?;
        }
        let name = Name::link(i32::try_from(index).unwrap_or(i32::MAX), libc::ETH_P_ALL as u16);
        self.socket.bind(&name).map_err(|error| self.socket.refused("bind", error))
    }

    /// Its interface, in the state when the tap was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The size of the ring, in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The best timestamp source that it can use.
    pub fn source(&self) -> Source {
        if self.clock.is_some() { Source::Hardware } else { Source::Kernel }
    }

    /// Checks that the interface, which may be down, still exists; call it when poll(2) reports an error.
    ///
    /// # Errors
    /// When it is gone.
    pub fn look(&mut self) -> Result<(), PortError> {
        // Reading the error clears it.
        let _ = self.socket.option(libc::SOL_SOCKET, libc::SO_ERROR, &mut [0; 4]);
        is_there(&self.interface)
    }
}

impl Tap for RingTap {
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError> {
        let Self { ring, directions, clock, scratch, .. } = self;
        let taken = ring.take(|block| {
            let now = HostClock.now();
            let offset = HostClock.tai_offset();
            let mut skipped = 0_u64;
            let (_, damaged) = block::each(block, scratch, |copied| {
                if directions.has(copied.direction) {
                    show(&passed(copied, clock.as_mut(), offset, now));
                } else {
                    skipped += 1;
                }
            });
            (skipped, damaged)
        });
        let Some((skipped, damaged)) = taken else { return Ok(false) };
        self.totals.skipped += skipped;
        self.damaged += damaged as u64;
        Ok(true)
    }

    fn detach(&mut self) -> Result<(), PortError> {
        let nothing = [FilterStep { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
        self.socket.filter(&nothing).map_err(|error| self.socket.refused("detach", error))
    }

    fn totals(&mut self) -> Result<Totals, PortError> {
        // struct tpacket_stats_v3: packets including dropped ones, drops, how often the ring became full.
        let mut words = [0_u8; 12];
        let read = self.socket.option(libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut words);
        read.map_err(|error| self.socket.refused("count the frames of", error))?;
        let word = |at: usize| words[at..].first_chunk().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
        // Reading resets them.
        self.totals.accepted += word(0);
        self.totals.dropped += word(4);
        self.totals.full += word(8);
        Ok(Totals { dropped: self.totals.dropped + self.damaged, ..self.totals })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

fn passed<'a>(
    copied: &block::Copied<'a>,
    clock: Option<&mut HardwareClock>,
    offset: TaiOffset,
    now: Time,
) -> Passed<'a> {
    let at = match (copied.stamped, clock) {
        (Stamped::Interface, Some(clock)) => Stamp { at: clock.convert(copied.at, now), source: Source::Hardware },
        _ => Stamp { at: offset.convert(copied.at), source: Source::Kernel },
    };
    let realtime = at.at - offset.0;
    let direction = copied.direction;
    Passed { frame: copied.frame, length: copied.length, at, realtime, direction, is_super: copied.is_super }
}

/// Opens the interface's clock where its timestamps are requested.
fn hardware_clock(interface: &Interface, wanted: Wanted) -> Result<Option<HardwareClock>, PortError> {
    if wanted == Wanted::Kernel {
        return Ok(None);
    }
    let stamping = interface.hardware_stamping();
    let clock = stamping.filter(|able| able.switched_on).and_then(|able| HardwareClock::open(able.clock?));
    if clock.is_some() || wanted == Wanted::Best {
        return Ok(clock);
    }
    let name = &interface.name;
    let problem = match stamping {
        None => "the interface takes no timestamps; leave --source away".to_owned(),
        Some(able) if !able.switched_on => {
            format!("the interface can stamp every frame but is not set to; `hwstamp_ctl -i {name} -t 1 -r 1` sets it")
        }
        Some(_) => "its clock cannot be read: run it as root".to_owned(),
    };
    Err(PortError::Unusable { object: name.clone(), problem })
}

/// Allocates a ring of the requested size, or a smaller one if the kernel lacks memory.
fn make_ring(socket: &Socket, bytes: usize) -> std::io::Result<(Ring, usize)> {
    let mut blocks = (bytes / BLOCK_BYTES).max(LEAST_BLOCKS);
    loop {
        let shape = Shape { blocks, block_bytes: BLOCK_BYTES };
        match socket.set_bytes(libc::SOL_PACKET, libc::PACKET_RX_RING, &request(shape)) {
            Ok(()) => return Ok((Ring::map(socket.as_fd(), shape)?, blocks * BLOCK_BYTES)),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && blocks > LEAST_BLOCKS => {
                blocks = (blocks / 2).max(LEAST_BLOCKS);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Builds `struct tpacket_req3`.
fn request(shape: Shape) -> [u8; 28] {
    let places = shape.blocks * (shape.block_bytes / PLACE_BYTES);
    let words = [shape.block_bytes, shape.blocks, PLACE_BYTES, places, BLOCK_AGE_MS as usize, 0, 0];
    let mut bytes = [0; 28];
    for (target, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *target = (word as u32).to_ne_bytes();
    }
    bytes
}
