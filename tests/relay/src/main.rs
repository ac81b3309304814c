//! The tests' own device under test: forwards every frame between pairs of interfaces after holding it for a set time,
//! and logs the true arrival and departure of each, by the kernel's timestamps.
//!
//! Frames of one direction depart in the order of arrival. It spins, so that the actual holding time is as close to the
//! requested one as the CPU permits; the log shows how close. It ends at the end of its standard input. Of the
//! instruments' data path it shares only the timestamping socket and the parser of stream headers.

mod hold;
mod log;

use std::collections::VecDeque;
use std::io::Read;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use sojourn_port::Stamps;
use sojourn_port::kernel::{Interface, Name, Opening, Socket};
use sojourn_time::{Clock, HostClock, Nanos, Stamp};
use sojourn_wire::StreamHeader;
use sojourn_wire::stream::{Kind, Link};

use hold::Hold;
use log::{Entry, Log};

const ETHERTYPE_ALL: u16 = 0x0003;
/// `struct virtio_net_hdr` before each frame: carries a checksum that is still to be made, and segments, across.
const OFFLOAD_HEADER_BYTES: usize = 10;
const FRAME_BYTES: usize = OFFLOAD_HEADER_BYTES + (1 << 16);
const FRAMES_HELD: usize = 4_096;
const LOOKS_BETWEEN: u32 = 1_000;
const LAST_STAMPS_WITHIN: Nanos = Nanos::millis(50);

/// Holds each frame between pairs of interfaces for a set time, and logs what it truly did.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// NEAR,FAR,FORWARD_NS,BACKWARD_NS[,EVERY,EXTRA_NS]: two interfaces, how long frames from NEAR to FAR and from FAR
    /// to NEAR are held, and by how much every Nth (EVERY) frame from NEAR to FAR is held longer.
    #[arg(long = "path", required = true)]
    paths: Vec<PathSpec>,
    /// Hold nothing but the frames by which the ends of a stream compare their clocks.
    #[arg(long)]
    exchanges_only: bool,
    /// Where to write, at the end, when each frame came and left (CSV).
    #[arg(long)]
    log: PathBuf,
    /// The processor to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

/// One pair of interfaces, as asked for.
#[derive(Clone, Debug)]
struct PathSpec {
    near: String,
    far: String,
    forward_ns: i64,
    backward_ns: i64,
    every: Option<(u64, i64)>,
}

impl FromStr for PathSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split(',').collect();
        let (near, far, forward, backward, every) = match words[..] {
            [near, far, forward, backward] => (near, far, forward, backward, None),
            [near, far, forward, backward, nth, extra] => {
                (near, far, forward, backward, Some((nth.parse::<NonZeroU64>()?.get(), extra.parse()?)))
            }
            _ => anyhow::bail!("a path is NEAR,FAR,FORWARD_NS,BACKWARD_NS[,EVERY,EXTRA_NS]"),
        };
        let (forward_ns, backward_ns) = (forward.parse()?, backward.parse()?);
        Ok(Self { near: near.to_owned(), far: far.to_owned(), forward_ns, backward_ns, every })
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(cpu) = arguments.cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).with_context(|| format!("run on processor {cpu}"))?;
    }
    let open = |path| HeldPath::open(path, arguments.exchanges_only);
    let mut paths = arguments.paths.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    println!("{}", serde_json::json!({"event": "ready"}));
    let mut looks = 0;
    while looks < LOOKS_BETWEEN || !input_has_ended() {
        looks = looks % LOOKS_BETWEEN + 1;
        for path in &mut paths {
            path.step()?;
        }
    }
    finish(&mut paths, &arguments.log)
}

fn finish(paths: &mut [HeldPath], log: &Path) -> anyhow::Result<()> {
    let deadline = HostClock.now() + LAST_STAMPS_WITHIN;
    while HostClock.now() < deadline {
        for path in paths.iter_mut() {
            path.take_stamps()?;
        }
    }
    let logs = paths.iter().flat_map(|path| [&path.forward.log, &path.backward.log]);
    let forwarded = log::write(log, logs).with_context(|| format!("write {}", log.display()))?;
    let refused: u64 = paths.iter().map(|path| path.forward.refused + path.backward.refused).sum();
    let dropped: u64 = paths.iter_mut().map(|path| path.near.socket.drops() + path.far.socket.drops()).sum();
    println!("{}", serde_json::json!({"event": "end", "forwarded": forwarded, "refused": refused, "dropped": dropped}));
    Ok(())
}

/// One pair of interfaces, and the frames held on their way between them.
struct HeldPath {
    near: Side,
    far: Side,
    forward: OneWay,
    backward: OneWay,
}

impl HeldPath {
    fn open(asked: &PathSpec, exchanges_only: bool) -> anyhow::Result<Self> {
        let forward = Hold::new(asked.forward_ns, asked.every);
        let backward = Hold::new(asked.backward_ns, None);
        Ok(Self {
            near: Side::open(&asked.near)?,
            far: Side::open(&asked.far)?,
            forward: OneWay::new(&asked.near, "forward", (forward, exchanges_only)),
            backward: OneWay::new(&asked.near, "backward", (backward, exchanges_only)),
        })
    }

    fn step(&mut self) -> anyhow::Result<()> {
        self.forward.step(&mut self.near, &mut self.far)?;
        self.backward.step(&mut self.far, &mut self.near)
    }

    fn take_stamps(&mut self) -> anyhow::Result<()> {
        self.forward.take_stamps(&mut self.far)?;
        self.backward.take_stamps(&mut self.near)
    }
}

/// One interface.
struct Side {
    socket: Socket,
    buffer: Box<[u8]>,
}

impl Side {
    fn open(name: &str) -> anyhow::Result<Self> {
        let interface = Interface::usable(name)?;
        let object = format!("a packet socket on {name}");
        let kind = [libc::AF_PACKET, libc::SOCK_RAW, 0];
        let socket =
            Socket::open(Opening { kind, object: &object, stamps: Stamps::Departure, interface: Some(&interface) })
                .with_context(|| format!("open {object}"))?;
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_VNET_HDR, libc::PACKET_QDISC_BYPASS] {
            socket.set(libc::SOL_PACKET, option, 1).with_context(|| format!("set up {object}"))?;
        }
        // struct packet_mreq: interface, type, and an address that this type does not use.
        let mut membership = [0; 16];
        membership[..4].copy_from_slice(&interface.index.to_ne_bytes());
        membership[4..6].copy_from_slice(&(libc::PACKET_MR_PROMISC as u16).to_ne_bytes());
        socket.set_bytes(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership).context("hear all frames")?;
        let index = i32::try_from(interface.index)?;
        socket.bind(&Name::link(index, ETHERTYPE_ALL)).with_context(|| format!("bind {object}"))?;
        Ok(Self { socket, buffer: vec![0; FRAME_BYTES].into_boxed_slice() })
    }
}

/// One direction.
struct OneWay {
    hold: Hold,
    /// Whether other frames than those that compare clocks are let go at once.
    exchanges_only: bool,
    held: VecDeque<Held>,
    /// Buffers of frames that have left, to be used again.
    spare: Vec<Vec<u8>>,
    log: Log,
    refused: u64,
}

/// A frame that is being held.
struct Held {
    bytes: Vec<u8>,
    arrived: Stamp,
    due: sojourn_time::Time,
}

impl OneWay {
    fn new(near: &str, direction: &'static str, (hold, exchanges_only): (Hold, bool)) -> Self {
        let spare = (0..FRAMES_HELD).map(|_| Vec::with_capacity(2_048)).collect();
        Self {
            hold,
            exchanges_only,
            held: VecDeque::with_capacity(FRAMES_HELD),
            spare,
            log: Log::new(near, direction),
            refused: 0,
        }
    }

    /// Takes what has come, sends what is due, and notes what has left.
    fn step(&mut self, from: &mut Side, to: &mut Side) -> anyhow::Result<()> {
        if let Some(arrival) = from.socket.receive(&mut [], &mut from.buffer)? {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(&from.buffer[..arrival.length]);
            let is_held = !self.exchanges_only || compares_clocks(&bytes);
            let due = arrival.arrived.at + if is_held { self.hold.next() } else { Nanos::ZERO };
            self.held.push_back(Held { bytes, arrived: arrival.arrived, due });
        }
        while self.held.front().is_some_and(|held| held.due <= HostClock.now()) {
            let Some(held) = self.held.pop_front() else { break };
            self.send(held, to);
        }
        self.take_stamps(to)
    }

    fn send(&mut self, held: Held, to: &mut Side) {
        let frame_bytes = held.bytes.len().saturating_sub(OFFLOAD_HEADER_BYTES);
        match to.socket.send(&held.bytes) {
            Ok(sent) => {
                self.log.add(sent.number, Entry { frame_bytes, arrived: held.arrived, due: held.due, left: None })
            }
            Err(_) => self.refused += 1,
        }
        self.spare.push(held.bytes);
    }

    fn take_stamps(&mut self, to: &mut Side) -> anyhow::Result<()> {
        while let Some(stamp) = to.socket.tx_timestamp()? {
            self.log.left(stamp.number, stamp.left);
        }
        Ok(())
    }
}

/// Whether a frame, with its offload header, is of an exchange of two ends of a stream about their clocks.
fn compares_clocks(bytes: &[u8]) -> bool {
    let payload = bytes.get(OFFLOAD_HEADER_BYTES..).and_then(Link::split).map(|(_, payload)| payload);
    let header = payload.and_then(|payload| StreamHeader::read(payload).ok());
    header.is_some_and(|header| matches!(header.kind, Kind::SyncRequest | Kind::SyncReply | Kind::SyncFollowUp))
}

fn input_has_ended() -> bool {
    let input = std::io::stdin();
    let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0);
    ready && !matches!(input.lock().read(&mut [0; 256]), Ok(1..))
}
