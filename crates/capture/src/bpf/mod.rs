//! A tap over programs of traffic control in the kernel (TCX, Linux 6.6): they stamp each frame and copy it into a ring that is
//! read here. Once it is open it needs no right and no system call of `bpf`; the programs go with the process, however it ends.
//!
//! Its times are the programs' own ([`Source::Bpf`]): of a received frame as the stack begins with it, a little later than the
//! kernel's own stamp; of a sent one before the queueing discipline.

mod record;

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

/// How often the ring is read: as often as blocks of a packet socket are handed over.
const READ_EVERY_NS: i64 = 20_000_000;
/// How much is shown at a time: as much as a block of a packet socket has.
const AT_ONCE_BYTES: u64 = 1 << 18;
/// Smaller rings are not tried where the kernel has no memory for what was asked for.
const LEAST_BYTES: usize = 1 << 20;

/// The first kernel with all that the tap needs: TCX came last.
const OLDEST: [u32; 2] = [6, 6];

/// `struct count` of `bpf/tap.bpf.c`, one for each number of a processor.
const COUNT_BYTES: usize = 64;
/// While frames come, programs are looked at once in so many looks at the interface.
const SELDOM: u32 = 10;
const IS_OPEN: usize = 0;
const ACCEPTED: usize = 8;
const DROPPED: usize = 16;
const FULL: usize = 24;

/// A tap over programs in the kernel.
#[derive(Debug)]
pub struct BpfTap {
    attached: Vec<AttachedTc>,
    counts: Numbers,
    processors: usize,
    records: Records,
    ring_bytes: usize,
    /// Readable whenever it is time to look into the ring.
    timer: OwnedFd,
    interface: Interface,
    /// Has the interface show all frames, and receives none.
    promiscuous: Option<Socket>,
    /// Records that made no sense: they count as dropped.
    damaged: u64,
    scratch: Vec<u8>,
    /// How often it was looked, and what had been accepted then.
    looks: u32,
    accepted: u64,
}

impl BpfTap {
    /// Opens a tap that shows nothing yet.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, it is none of Ethernet, or what is asked for is not to be had of such a tap;
    /// `Unusable` on a kernel that is too old, as those before Linux 6.6; `Denied` without the rights.
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

    /// Lets frames in from now on.
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

    /// Its interface, as it was when the tap was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// How much memory of the kernel holds frames that wait, in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Looks whether the interface is still there, which may be down, and its programs.
    ///
    /// # Errors
    /// When one is gone.
    pub fn look(&mut self) -> Result<(), PortError> {
        is_there(&self.interface)?;
        // The answer waits for the kernel's lock of all interfaces, and frames for us: asked where none came, else seldom.
        self.looks += 1;
        let accepted = self.sum(ACCEPTED);
        let is_quiet = std::mem::replace(&mut self.accepted, accepted) == accepted;
        if !is_quiet && !self.looks.is_multiple_of(SELDOM) {
            return Ok(());
        }
        // What /proc does not say is no reason to end.
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
            // Until the next time that it is time to look.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        }
        Ok(took)
    }

    fn detach(&mut self) -> Result<(), PortError> {
        self.open_gate(false);
        // The kernel waits until no program runs any more that began before.
        self.attached.clear();
        Ok(())
    }

    fn totals(&mut self) -> Result<Totals, PortError> {
        // A program counts what it accepts before it counts that as dropped or has it in the ring.
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

/// Loads the programs, with a ring of so many bytes, or a smaller one where the kernel has no memory for that.
fn load(asked: &Opening, processors: u32) -> Result<([Program; 2], usize), PortError> {
    // The kernel's rings have powers of 2.
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

/// Older kernels refuse the programs in their own ways before anything is attached.
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
        // What the kernel answers to a kind of attachment that it does not know.
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
    fn a_ring_has_one_reader_and_only_what_it_is_can_be_mapped() {
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
    fn an_old_kernel_gets_its_sentence_whatever_it_refuses_first() {
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
