//! The claim of a bridge on an interface: one bridge at a time has it, and loses it when the interface vanishes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use sojourn_time::{Clock, HostClock, Nanos, Time};
use sojourn_wire::ethernet::HEADER_BYTES;
use sojourn_wire::stream::TAG_BYTES;

use crate::PortError;
use crate::kernel::Interface;

/// How often an interface that shows no frames is looked at.
const LOOK_EVERY: Nanos = Nanos::millis(100);

/// An interface that this process alone bridges.
#[derive(Debug)]
pub struct Claim {
    interface: Interface,
    /// An abstract socket, whose name there is once in a network namespace and only for as long as it is open.
    socket: OwnedFd,
    looked: Time,
    /// When its MTU was read.
    read: Time,
    /// Since when it carries nothing.
    stopped: Option<Time>,
    news: Option<String>,
}

impl Claim {
    /// Claims an interface.
    pub fn take(interface: Interface) -> Result<Self, PortError> {
        let name = format!("sojourn-emulate/{}", interface.index);
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .and_then(|socket| bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?).map(|()| socket))
            .map_err(|errno| taken(&interface, &name, errno))?;
        let now = HostClock.now();
        let stopped = (!interface.running).then_some(now);
        Ok(Self { interface, socket, looked: now, read: now, stopped, news: None })
    }

    /// The interface as it was when it was last looked at.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Refuses to go on when the interface has vanished: deleted, or gone to another namespace. Looks now and then only.
    pub fn watch(&mut self) -> Result<(), PortError> {
        let now = HostClock.now();
        let age = now - self.looked;
        if age < LOOK_EVERY && age >= Nanos::ZERO {
            return Ok(());
        }
        self.looked = now;
        self.look()?;
        if let Some(is_running) = self.interface.is_running(self.socket.as_fd()) {
            self.note(is_running, now);
        }
        Ok(())
    }

    /// Takes what has come up.
    pub fn news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Notes when it stops to carry frames, and when it carries them again.
    fn note(&mut self, is_running: bool, now: Time) {
        let name = &self.interface.name;
        match (self.stopped, is_running) {
            (None, false) => {
                self.stopped = Some(now);
                self.news = Some(format!("{name} is down or has no carrier: frames that are to leave by it are lost"));
            }
            (Some(since), true) => {
                self.stopped = None;
                let tenths = (now - since).0 / 100_000_000;
                self.news = Some(format!("{name} is up again after {}.{} s", tenths / 10, tenths % 10));
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// As [`Self::watch`], at once.
    pub fn look(&mut self) -> Result<(), PortError> {
        match index_to_name_inlined(&self.socket, self.interface.index) {
            Err(Errno::NODEV | Errno::NXIO) => Err(self.vanished()),
            // What else goes wrong is told by who sends and receives.
            _ => Ok(()),
        }
    }

    /// Whether the interface carries a frame of so many bytes, with a tag or without; one that is too long makes it
    /// look whether the MTU has changed, now and then.
    pub fn carries(&mut self, bytes: usize) -> bool {
        if bytes <= self.longest() {
            return true;
        }
        let now = HostClock.now();
        let age = now - self.read;
        if age >= LOOK_EVERY || age < Nanos::ZERO {
            self.read = now;
            self.read_mtu();
        }
        bytes <= self.longest()
    }

    /// The longest frame by the interface's MTU, which counts no tag.
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

    fn vanished(&self) -> PortError {
        let problem = "the interface has vanished while it was bridged; start again when it is back".to_owned();
        PortError::Unusable { object: self.interface.name.clone(), problem }
    }
}

fn taken(interface: &Interface, name: &str, errno: Errno) -> PortError {
    let object = interface.name.clone();
    if errno != Errno::ADDRINUSE {
        return PortError::System { operation: "claim", object, source: errno.into() };
    }
    let problem =
        format!("another emulator bridges it already; `ss -xap | grep {name}` tells which, and ending it frees it");
    PortError::Unusable { object, problem }
}
