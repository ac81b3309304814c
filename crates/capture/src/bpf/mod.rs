//! A tap by tc programs in the kernel (tcx, Linux 6.6), which timestamp each frame and copy it into a ring buffer. Once
//! open, it needs neither a capability nor bpf(2); the programs are detached when the process ends, however it ends.
//!
//! Its timestamps are the programs' own ([`Source::Bpf`]): for a received frame when the stack takes it, a little later
//! than the kernel's own timestamp; for a sent one before the queueing discipline.

pub(crate) mod record;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use sojourn_port::bpf::{AttachedTc, End, Numbers, Program, Records, is_kernel_before, object, places_of_processors};
use sojourn_port::kernel::{Interface, Opening as OpenSocket, Socket, denied_raw};
use sojourn_port::packet::membership;
use sojourn_port::{PortError, Stamps};
use sojourn_time::{HostClock, Source, Stamp};
use sojourn_wire::MacAddress;

use crate::any::is_there;
use crate::{Directions, Opening, Passed, Tap, Totals, Wanted};

/// The interval between readings of the ring: as long as the age limit of a packet socket's block.
const READ_EVERY_NS: i64 = 20_000_000;
/// How much one call delivers: as much as a block of a packet socket.
const AT_ONCE_BYTES: u64 = 1 << 18;
/// The smallest ring that is tried when the kernel lacks memory for the requested size.
const LEAST_BYTES: usize = 1 << 20;

/// The first kernel with all that the tap needs; the newest is tcx.
const OLDEST: [u32; 2] = [6, 6];

/// The size of `struct count` of `bpf/tap.bpf.c`; there is one per possible CPU number.
const COUNT_BYTES: usize = 64;
/// While frames arrive, the programs are checked only once in this many checks of the interface.
const SELDOM: u32 = 10;
const IS_OPEN: usize = 0;
const ACCEPTED: usize = 8;
const DROPPED: usize = 16;
const FULL: usize = 24;

/// A tap by BPF programs in the kernel.
#[derive(Debug)]
pub struct BpfTap {
    attached: Vec<AttachedTc>,
    counts: Numbers,
    processors: usize,
    records: Records,
    ring_bytes: usize,
    /// Becomes readable when it is time to read the ring.
    timer: OwnedFd,
    interface: Interface,
    /// Keeps the interface promiscuous, and receives nothing.
    promiscuous: Option<Socket>,
    /// Invalid records: they count as dropped.
    damaged: u64,
    scratch: Vec<u8>,
    /// The number of checks so far, and the frames accepted at the last one.
    looks: u32,
    accepted: u64,
}

impl BpfTap {
    /// Opens a tap that does not copy frames yet.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, it is not Ethernet, or this kind of tap lacks a requested feature;
    /// `Unusable` on a kernel before Linux 6.6; `Denied` without permission.
    pub fn open(interface: &str, asked: &Opening) -> Result<Self, PortError> {
        let interface = Interface::named(interface)?;
        check(&interface, asked)?;
        let promiscuous = asked.is_promiscuous.then(|| silent_socket(&interface)).transpose()?;
        let processors = places_of_processors()?;
        let loaded = load(asked, processors);
        let ([mut inward, outward], ring_bytes) =
            loaded.map_err(|error| unloaded(&interface, error, is_kernel_before(OLDEST)))?;
        let mut ends = vec![];
        if asked.directions != Directions::Out {
            ends.push((&inward, End::In));
        }
        if asked.directions != Directions::In {
            ends.push((&outward, End::Out));
        }
        let attach = |(program, end): (&Program, End)| program.attach_tc(&interface, end);
        let attached = ends.into_iter().map(attach).collect::<Result<_, _>>();
        let attached = attached.map_err(|error| unattached(&interface, error))?;
        let processors = processors as usize;
        Ok(Self {
            attached,
            counts: inward.numbers("counts")?,
            processors,
            records: inward.records("frames")?,
            ring_bytes,
            timer: timer().map_err(|error| PortError::System {
                operation: "set",
                object: "a timer".to_owned(),
                source: error.into(),
            })?,
            interface,
            promiscuous,
            damaged: 0,
            scratch: Vec::with_capacity(1 << 16),
            looks: 0,
            accepted: 0,
        })
    }

    /// Starts copying frames.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn attach(&mut self) -> Result<(), PortError> {
        if let Some(socket) = &self.promiscuous {
            let all = membership(self.interface.index, libc::PACKET_MR_PROMISC, MacAddress::default());
            let made = socket.set_bytes(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all);
            made.map_err(|error| socket.refused("show all frames of", error))?;
        }
        self.open_gate(true);
        Ok(())
    }

    /// Its interface, in the state when the tap was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The size of the ring, in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Checks that the interface, which may be down, still exists, and that its programs are still attached.
    ///
    /// # Errors
    /// When one is gone.
    pub fn look(&mut self) -> Result<(), PortError> {
        is_there(&self.interface)?;
        // This check waits for the kernel's RTNL lock while frames wait in the ring: do it when no frame arrived, else
        // rarely.
        self.looks += 1;
        let accepted = self.sum(ACCEPTED);
        let is_quiet = std::mem::replace(&mut self.accepted, accepted) == accepted;
        if !is_quiet && !self.looks.is_multiple_of(SELDOM) {
            return Ok(());
        }
        // An unreadable state in /proc is no reason to stop.
        if self.attached.iter().all(|one| one.hangs().unwrap_or(true)) {
            return Ok(());
        }
        let problem = "the program of its tap was detached or replaced; what passed before is recorded".to_owned();
        Err(PortError::TakenAway { object: self.interface.name.clone(), problem })
    }

    fn open_gate(&self, is_open: bool) {
        (0..self.processors).for_each(|cpu| self.counts.store(cpu * COUNT_BYTES + IS_OPEN, is_open.into()));
    }

    fn sum(&self, of: usize) -> u64 {
        (0..self.processors).map(|cpu| self.counts.load(cpu * COUNT_BYTES + of)).sum()
    }
}

impl Tap for BpfTap {
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError> {
        let Self { records, scratch, damaged, .. } = self;
        let offset = HostClock.tai_offset();
        let took = records.take(AT_ONCE_BYTES, |bytes| match record::read(bytes, scratch) {
            Some(copied) => show(&Passed {
                frame: copied.frame,
                length: copied.length,
                at: Stamp { at: copied.at, source: Source::Bpf },
                realtime: copied.at - offset.0,
                direction: copied.direction,
                is_super: copied.is_super,
            }),
            None => *damaged += 1,
        });
        if !took {
            // Until the timer expires again.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        }
        Ok(took)
    }

    fn detach(&mut self) -> Result<(), PortError> {
        self.open_gate(false);
        // The kernel waits for running programs to end.
        self.attached.clear();
        Ok(())
    }

    fn totals(&mut self) -> Result<Totals, PortError> {
        // Read in this order: a program counts a frame as accepted before it drops it or commits it to the ring.
        let [dropped, full] = [DROPPED, FULL].map(|of| self.sum(of));
        Ok(Totals { accepted: self.sum(ACCEPTED), dropped: dropped + self.damaged, skipped: 0, full })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }
}

fn check(interface: &Interface, asked: &Opening) -> Result<(), PortError> {
    let problem = if !interface.is_ethernet() {
        "its frames are not Ethernet's; capture the interface that carries them"
    } else if !asked.filter.is_empty() {
        "a BPF tap has no filter; leave --tap or --filter away"
    } else if asked.stamps != Wanted::Best {
        "a BPF tap has timestamps of its own; leave --tap or --source away"
    } else {
        return Ok(());
    };
    Err(PortError::Wrong { object: interface.name.clone(), problem: problem.to_owned() })
}

/// Loads the programs with a ring of the requested size, or a smaller one if the kernel lacks memory.
fn load(asked: &Opening, processors: u32) -> Result<([Program; 2], usize), PortError> {
    // Sizes of ring buffers are powers of 2.
    let mut bytes = (asked.ring_bytes.max(LEAST_BYTES) / 2 + 1).next_power_of_two();
    let snap = asked.snap.to_ne_bytes();
    loop {
        let rooms = [("counts", processors), ("frames", u32::try_from(bytes).unwrap_or(1 << 30))];
        match Program::load_together(["tap_in", "tap_out"], object!("tap.bpf.o"), &snap, &rooms) {
            Ok(programs) => return Ok((programs, bytes)),
            Err(PortError::System { source, .. })
                if source.kind() == std::io::ErrorKind::OutOfMemory && bytes > LEAST_BYTES =>
            {
                bytes /= 2;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens a packet socket that receives nothing.
fn silent_socket(interface: &Interface) -> Result<Socket, PortError> {
    let object = format!("a tap on {}", interface.name);
    let kind = [libc::AF_PACKET, libc::SOCK_RAW, 0];
    let opening = OpenSocket { kind, object: &object, stamps: Stamps::None, interface: None };
    Socket::open(opening).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => denied_raw("open", &object, None),
        _ => PortError::System { operation: "open", object: object.clone(), source: error },
    })
}

/// Explains the various errors of older kernels, which refuse the programs before anything is attached.
fn unloaded(interface: &Interface, error: PortError, is_old: bool) -> PortError {
    match &error {
        PortError::Denied { .. } => error,
        PortError::System { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => error,
        _ if is_old => too_old(interface.name.clone()),
        _ => error,
    }
}

fn too_old(interface: String) -> PortError {
    let problem = format!(
        "this kernel takes no BPF tap there (Linux {}.{} is the first that does); leave --tap away",
        OLDEST[0], OLDEST[1]
    );
    PortError::Unusable { object: interface, problem }
}

fn unattached(interface: &Interface, source: std::io::Error) -> PortError {
    let name = interface.name.clone();
    match source.raw_os_error() {
        // The kernel's error for an unknown attach type.
        Some(libc::EINVAL) => too_old(name),
        _ => PortError::System { operation: "attach", object: format!("a BPF tap to {name}"), source },
    }
}

fn timer() -> rustix::io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let every = Timespec { tv_sec: 0, tv_nsec: READ_EVERY_NS };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: every, it_value: every })?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn interface() -> Interface {
        Interface { name: "eth1".to_owned(), ..Interface::named("lo").expect("is on every machine") }
    }

    #[test]
    fn ring_buffer_has_one_reader_and_only_a_ring_buffer_can_be_mapped() {
        let plain = Opening {
            filter: vec![],
            directions: Directions::Both,
            snap: 128,
            ring_bytes: LEAST_BYTES,
            is_promiscuous: false,
            stamps: Wanted::Best,
        };
        let ([mut first, mut second], _) = match load(&plain, places_of_processors().expect("are told")) {
            Err(PortError::Denied { .. }) if std::env::var_os("CI").is_none() => {
                return eprintln!("skipped: needs root");
            }
            loaded => loaded.expect("loads"),
        };
        assert!(second.records("frames").is_err(), "the first program alone has it");
        assert!(second.numbers("frames").is_err() && first.numbers("frames").is_err(), "it is no array");
        first.numbers("counts").expect("maps");
        second.numbers("counts").expect("is shared");
        assert!(second.records("counts").is_err(), "it is no ring");
        let mut records = first.records("frames").expect("maps");
        assert!(!records.take(AT_ONCE_BYTES, |bytes| panic!("{bytes:?}")), "nothing is there");
        assert!(first.records("frames").is_err(), "it has a reader");
    }

    #[test]
    fn error_on_an_old_kernel_names_the_first_version_that_works_whatever_failed() {
        let system = |code| PortError::System {
            operation: "use",
            object: "the program `tap_in` in the kernel".to_owned(),
            source: io::Error::from_raw_os_error(code),
        };
        let unusable =
            || PortError::Unusable { object: "the program".to_owned(), problem: "use another engine".to_owned() };
        let denied =
            || PortError::Denied { operation: "load", object: "it".to_owned(), right: "CAP_BPF", fix: String::new() };
        let told = |error, is_old| unloaded(&interface(), error, is_old).to_string();
        for error in [system(libc::ESRCH), system(libc::EINVAL), unusable()] {
            let sentence = told(error, true);
            assert!(sentence.contains("eth1") && sentence.contains("Linux 6.6 is the first"), "{sentence}");
        }
        for error in [
            || PortError::System { operation: "use", object: String::new(), source: io::ErrorKind::OutOfMemory.into() },
            denied,
        ] {
            assert_eq!(told(error(), true), error().to_string());
        }
        for error in [
            || PortError::System { operation: "use", object: String::new(), source: io::ErrorKind::Other.into() },
            unusable,
        ] {
            assert_eq!(told(error(), false), error().to_string());
        }
        let sentence = unattached(&interface(), io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert_eq!(sentence, told(system(libc::ESRCH), true));
    }
}
