//! A bridge's claim on an interface: one bridge at a time holds it, and loses it when the interface or the program
//! attached to it is removed.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::io::Errno;
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sojourn_time::{Clock, Nanos, SteadyClock, Time};
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::HEADER_BYTES;
use sojourn_wire::stream::TAG_BYTES;

use super::lock::{Lock, NoLock, has_ended};
use super::neighbours::Standing;
use super::watch::Guard;
use crate::bpf::has_a_program;
use crate::kernel::{Interface, Netlink, Socket};
use crate::packet::{membership, open};
use crate::{PortError, Stamps};

/// The shortest interval between readings of the MTU, for frames that exceed it.
const READ_EVERY: Nanos = Nanos::millis(100);
/// How long to wait for a lock whose holder was killed: the process that shares the lock restores the port meanwhile.
const PATIENCE: Nanos = Nanos::seconds(5);
/// How long to wait for any lock: its holder may have been killed just now.
const SIGNALLED: Nanos = Nanos::millis(100);
/// The interval between attempts.
const TRY_EVERY: Nanos = Nanos::millis(10);

/// An interface that only this process bridges.
#[derive(Debug)]
pub struct Claim {
    interface: Interface,
    standing: Standing,
    /// Keeps the interface promiscuous while it is open; `None`: the kernel refused.
    _promiscuous: Option<Socket>,
    /// `None`: there is neither a folder for a lock file nor CAP_NET_RAW.
    _lock: Option<Lock>,
    clock: SteadyClock,
    to_us: Sender<Change>,
    changes: Receiver<Change>,
    /// When its MTU was last read.
    read: Time,
    /// Since when it has no carrier.
    stopped: Option<Time>,
    news: VecDeque<String>,
    /// Why the claim is lost.
    lost: Option<String>,
}

/// A change that a watch detects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Whether it has a carrier.
    Running(bool),
    /// Its new MTU.
    Mtu(usize),
    /// Its new name.
    Name(String),
    /// A message for the user.
    News(String),
    /// It can no longer be bridged, for this reason.
    Lost(String),
}

impl Claim {
    /// Claims an interface; adds a warning to `said` where nothing excludes other claimants.
    pub fn take(
        interface: Interface,
        standing: Standing,
        clock: SteadyClock,
        said: &mut Vec<String>,
    ) -> Result<Self, PortError> {
        let mut lock = reserve(&interface)?;
        match &mut lock {
            // The file might outlive the right to remove it.
            Some(lock) => lock.settle(),
            None => said.push(format!("{}: no place for a lock: nothing keeps a second emulator away", interface.name)),
        }
        let promiscuous = match promiscuous(&interface) {
            Ok(socket) => Some(socket),
            Err(error) => {
                said.push(format!("{}: frames to other MAC addresses may not come in: {error}", interface.name));
                None
            }
        };
        let now = clock.now();
        let stopped = (!interface.running).then_some(now);
        let (to_us, changes) = channel();
        let (news, lost) = (VecDeque::new(), None);
        Ok(Self {
            interface,
            standing,
            _promiscuous: promiscuous,
            _lock: lock,
            clock,
            to_us,
            changes,
            read: now,
            stopped,
            news,
            lost,
        })
    }

    /// Refuses an interface that belongs to a switch, which would forward its frames a second time.
    pub fn check_alone(&self) -> Result<(), PortError> {
        let Some(master) = self.standing.master.as_ref().filter(|master| master.is_switch) else { return Ok(()) };
        let name = &self.interface.name;
        let problem = format!(
            "it is a port of {}, which would forward its frames a second time (AF_PACKET shows them to both): take it out \
             with `ip link set {name} nomaster`, or use --backend kernel",
            master.name
        );
        Err(PortError::Wrong { object: name.clone(), problem })
    }

    /// Whether an XDP program of another process was attached when the claim was made.
    pub fn has_program(&self) -> bool {
        self.standing.link.program.is_some()
    }

    /// Refuses an interface with an XDP program of another process, which sees its frames first and may take them. Asks
    /// the kernel again: the program of a killed emulator has gone since the interface was looked at.
    pub fn check_no_program(&self) -> Result<(), PortError> {
        let index = self.interface.index;
        let program = Netlink::open(false).and_then(|mut netlink| netlink.link(index)).map(|link| link.program);
        let program = program.unwrap_or(self.standing.link.program);
        program.map_or(Ok(()), |_| Err(has_a_program(&self.interface.name)))
    }

    /// Whether frames could wait in a queueing discipline when the claim was made, or in those of interfaces below.
    pub fn has_queue(&self) -> bool {
        let link = &self.standing.link;
        link.queue().is_some() || matches!(link.kind.as_str(), "bond" | "team" | "net_failover")
    }

    /// The interface, as last reported.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The clock of its timestamps.
    pub fn clock(&self) -> SteadyClock {
        self.clock
    }

    /// Returns what a watch monitors.
    pub fn guard(&self) -> Guard {
        Guard::new(self.standing.clone(), self.to_us.clone())
    }

    /// Processes the changes that the watch detected. Makes no system call.
    ///
    /// # Errors
    /// `TakenAway` once the interface can no longer be bridged.
    pub fn heed(&mut self) -> Result<(), PortError> {
        while let Ok(change) = self.changes.try_recv() {
            self.take_in(change);
        }
        self.lost.as_ref().map_or(Ok(()), |problem| Err(self.taken_away(problem.clone())))
    }

    fn take_in(&mut self, change: Change) {
        match change {
            Change::Running(is_running) => self.note(is_running),
            Change::Mtu(mtu) => self.interface.mtu = mtu,
            Change::Name(name) => self.interface.name = name,
            Change::News(sentence) => self.news.push_back(sentence),
            Change::Lost(problem) => self.lost = self.lost.take().or(Some(problem)),
        }
    }

    /// Returns the next message.
    pub fn news(&mut self) -> Option<String> {
        self.news.pop_front()
    }

    /// Records when it loses its carrier, and when it regains it.
    fn note(&mut self, is_running: bool) {
        let (now, name) = (self.clock.now(), &self.interface.name);
        match (self.stopped, is_running) {
            (None, false) => {
                self.stopped = Some(now);
                self.news
                    .push_back(format!("{name} is down or has no carrier: frames that are to leave by it are lost"));
            }
            (Some(since), true) => {
                self.stopped = None;
                let tenths = (now - since).0 / 100_000_000;
                self.news.push_back(format!("{name} is up again after {}.{} s", tenths / 10, tenths % 10));
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// Checks that the interface still exists, after a send error that suggests otherwise.
    ///
    /// # Errors
    /// `TakenAway` when it was deleted or moved to another namespace.
    pub fn look(&mut self) -> Result<(), PortError> {
        self.heed()?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        match socket.and_then(|socket| index_to_name_inlined(&socket, self.interface.index)) {
            Err(Errno::NODEV | Errno::NXIO) => Err(self.taken_away(VANISHED.to_owned())),
            // The sender and the receiver report all other errors.
            _ => Ok(()),
        }
    }

    /// Whether the MTU allows a frame of so many bytes, with a tag or without; for a longer frame, reads the MTU again
    /// at intervals.
    pub fn carries(&mut self, bytes: usize) -> bool {
        if bytes <= self.longest() {
            return true;
        }
        let now = self.clock.now();
        if now - self.read >= READ_EVERY {
            self.read = now;
            self.read_mtu();
        }
        bytes <= self.longest()
    }

    /// The longest frame that the interface's MTU allows, with one tag.
    pub fn longest(&self) -> usize {
        self.interface.mtu + HEADER_BYTES + TAG_BYTES
    }

    fn read_mtu(&mut self) {
        if let Ok(interface) = Interface::named(&self.interface.name)
            && interface.index == self.interface.index
        {
            self.interface.mtu = interface.mtu;
        }
    }

    fn taken_away(&self, problem: String) -> PortError {
        PortError::TakenAway { object: self.interface.name.clone(), problem }
    }
}

/// Excludes other emulators from an interface for as long as the returned lock lives: those of this user and, with
/// CAP_NET_RAW, those of other users. `None`: there is neither that capability nor a folder for a lock. Waits while the
/// helper of a killed emulator restores the interface.
///
/// # Errors
/// When another emulator holds it, or the file system refuses.
pub fn reserve(interface: &Interface) -> Result<Option<Lock>, PortError> {
    let clock = SteadyClock::begin();
    let end = clock.now() + PATIENCE;
    let mut tried = Lock::take(interface.index);
    // A process that was just signalled does not end at once.
    let soon = clock.now() + SIGNALLED;
    while matches!(tried, Err(NoLock::Held(Some(holder))) if has_ended(holder) || clock.now() < soon)
        && clock.now() < end
    {
        clock.wait_until(clock.now() + TRY_EVERY, Nanos::ZERO);
        tried = Lock::take(interface.index);
    }
    match tried {
        Ok(lock) => Ok(Some(lock)),
        Err(NoLock::NoFolder) => Ok(None),
        Err(NoLock::Held(holder)) => Err(taken(interface, holder.map(|process| format!("process {process}")))),
        Err(NoLock::Marked(other)) => {
            let user = format!("user {}", other.user);
            Err(taken(interface, Some(other.process.map_or(user, |process| format!("process {process}")))))
        }
        Err(NoLock::Unmarked(error)) => Err(error),
        Err(NoLock::Refused(source)) => {
            Err(PortError::System { operation: "claim", object: interface.name.clone(), source })
        }
    }
}

/// Makes an interface promiscuous for as long as the socket, which is unbound and receives nothing, is open.
fn promiscuous(interface: &Interface) -> Result<Socket, PortError> {
    let socket = open(&format!("a packet socket on {}", interface.name), None, Stamps::None)?;
    let all = membership(interface.index, libc::PACKET_MR_PROMISC, MacAddress::default());
    let set = socket.set_bytes(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all);
    set.map_err(|error| socket.refused("set up", error))?;
    Ok(socket)
}

/// The message about an interface that no longer exists.
pub const VANISHED: &str = "the interface has vanished while it was bridged; start again when it is back";

fn taken(interface: &Interface, holder: Option<String>) -> PortError {
    let who = holder.map_or_else(String::new, |holder| format!(" ({holder})"));
    let problem = format!("another emulator{who} bridges it already; ending that frees it");
    PortError::Unusable { object: interface.name.clone(), problem }
}
