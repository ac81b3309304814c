//! The tests' own device under test: forwards every frame between two interfaces after holding it for a set time, and logs
//! when each one truly came and truly left, by the kernel's stamps.
//!
//! Frames of one direction leave in the order in which they came. It spins, so that the time it holds a frame is the time
//! asked, as near as the processor permits; the log tells how near. It ends at the end of its standard input.
//! It has nothing to do with the instruments' data path but the socket that stamps.

mod hold;
mod log;

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use sojourn_port::kernel::{Interface, Name, Opening, Socket};
use sojourn_time::{Clock, HostClock, Nanos, Stamp};

use hold::Hold;
use log::{Entry, Log};

const ETHERTYPE_ALL: u16 = 0x0003;
/// `struct virtio_net_hdr` before each frame: carries a checksum that is still to be made, and segments, across.
const OFFLOAD_HEADER_BYTES: usize = 10;
const FRAME_BYTES: usize = OFFLOAD_HEADER_BYTES + (1 << 16);
const FRAMES_HELD: usize = 4_096;
const LOOKS_BETWEEN: u32 = 1_000;
const LAST_STAMPS_WITHIN: Nanos = Nanos::millis(50);

/// Holds each frame between two interfaces for a set time, and logs what it truly did.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The interface whose frames go forward.
    near: String,
    /// The interface whose frames go backward.
    far: String,
    /// How long frames from NEAR to FAR are held.
    #[arg(long, default_value_t = 0)]
    hold_forward_ns: i64,
    /// How long frames from FAR to NEAR are held.
    #[arg(long, default_value_t = 0)]
    hold_backward_ns: i64,
    /// Holds every Nth frame from NEAR to FAR longer.
    #[arg(long, requires = "extra_ns", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// By how much every Nth frame is held longer.
    #[arg(long, requires = "every")]
    extra_ns: Option<i64>,
    /// Where to write, at the end, when each frame came and left (CSV).
    #[arg(long)]
    log: PathBuf,
    /// The processor to run on.
    #[arg(long)]
    cpu: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(cpu) = arguments.cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).with_context(|| format!("run on processor {cpu}"))?;
    }
    let forward = Hold::new(arguments.hold_forward_ns, arguments.every.zip(arguments.extra_ns));
    let backward = Hold::new(arguments.hold_backward_ns, None);
    let mut near = Side::open(&arguments.near)?;
    let mut far = Side::open(&arguments.far)?;
    let mut lanes = [Lane::new("forward", forward), Lane::new("backward", backward)];
    println!("{}", serde_json::json!({"event": "ready"}));
    let mut looks = 0;
    while looks < LOOKS_BETWEEN || !input_has_ended() {
        looks = looks % LOOKS_BETWEEN + 1;
        lanes[0].step(&mut near, &mut far)?;
        lanes[1].step(&mut far, &mut near)?;
    }
    finish(&mut lanes, &mut near, &mut far, &arguments.log)
}

fn finish(lanes: &mut [Lane; 2], near: &mut Side, far: &mut Side, log: &Path) -> anyhow::Result<()> {
    let deadline = HostClock.now() + LAST_STAMPS_WITHIN;
    while HostClock.now() < deadline {
        lanes[0].take_stamps(far)?;
        lanes[1].take_stamps(near)?;
    }
    let refused: u64 = lanes.iter().map(|lane| lane.refused).sum();
    let [forward, backward] = lanes;
    let forwarded =
        log::write(log, [&forward.log, &backward.log]).with_context(|| format!("write {}", log.display()))?;
    let dropped = near.socket.drops() + far.socket.drops();
    println!("{}", serde_json::json!({"event": "end", "forwarded": forwarded, "refused": refused, "dropped": dropped}));
    Ok(())
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
            Socket::open(Opening { kind, object: &object, transmit_stamps: true, interface: Some(&interface) })
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
struct Lane {
    hold: Hold,
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

impl Lane {
    fn new(direction: &'static str, hold: Hold) -> Self {
        let spare = (0..FRAMES_HELD).map(|_| Vec::with_capacity(2_048)).collect();
        Self { hold, held: VecDeque::with_capacity(FRAMES_HELD), spare, log: Log::new(direction), refused: 0 }
    }

    /// Takes what has come, sends what is due, and notes what has left.
    fn step(&mut self, from: &mut Side, to: &mut Side) -> anyhow::Result<()> {
        if let Some(arrival) = from.socket.receive(&mut [], &mut from.buffer)? {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(&from.buffer[..arrival.length]);
            let due = arrival.arrived.at + self.hold.next();
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
        while let Some(stamp) = to.socket.transmit_stamp()? {
            self.log.left(stamp.number, stamp.left);
        }
        Ok(())
    }
}

fn input_has_ended() -> bool {
    let input = std::io::stdin();
    let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0);
    ready && !matches!(input.lock().read(&mut [0; 256]), Ok(1..))
}
