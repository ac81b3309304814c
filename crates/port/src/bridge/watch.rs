//! Monitors bridged interfaces: their existence, the programs attached to them, and other users of them.
//!
//! Runs in its own thread, because querying programs waits for the kernel's RTNL lock, which others may hold for
//! milliseconds. The kernel reports changes of links, addresses and routes (rtnetlink). Nothing reports that a program was
//! detached or replaced, or that a port of AF_XDP has more queues now, so these are checked every [`LOOK_EVERY`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sojourn_time::{Clock, Nanos, SteadyClock, Time};

use super::claim::{Change, VANISHED};
use super::detour::DetourGuard;
use super::neighbours::{Standing, is_somebodys, master};
use crate::bpf::{Attached, Attachment};
use crate::kernel::{LinkState, Netlink, Said};
use crate::xdp::unheard_queues;

/// The interval between checks of the programs.
pub const LOOK_EVERY: Nanos = Nanos::millis(200);
/// How long the kernel may not tell whether a program is attached before that is said.
const BLIND_AFTER: Nanos = Nanos::seconds(1);
/// How often a detached program is attached again; after more, the port is given up.
const MOST_RETURNS: u32 = 3;
/// The most routes by a port that are known, and so said: a router may have a million.
const MOST_ROUTES: usize = 1_024;

/// What a watch monitors at one port.
#[derive(Debug)]
pub struct Guard {
    standing: Standing,
    to_port: Sender<Change>,
    /// Its XDP program; `None`: it has none, and no other process's may precede it.
    program: Option<Weak<Attached>>,
    returns: u32,
    /// When the program was last seen attached.
    seen: Time,
    /// Whether it was said that the kernel does not tell.
    is_blind: bool,
    is_lost: bool,
}

/// The thread of a watch; it ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts monitoring these ports, and a detour over them, in the network namespace of the calling thread. The new
    /// thread calls `begin` first, and monitors nothing if that fails.
    ///
    /// # Errors
    /// When the thread cannot be created, or `begin` fails.
    pub fn start(
        guards: impl IntoIterator<Item = Guard>,
        detour: Option<DetourGuard>,
        begin: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let (changes, asking) = (Netlink::open(true)?, Netlink::open(false)?);
        let guards = guards.into_iter().collect();
        let mut watcher = Watcher { guards, detour, changes, asking, clock: SteadyClock::begin() };
        let (begun, has_begun) = channel();
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(move || {
            let is_ready = begin();
            let goes_on = is_ready.is_ok();
            let _ = begun.send(is_ready);
            if goes_on {
                watcher.run(&stopped);
            }
        })?;
        has_begun.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has died")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watcher {
    guards: Vec<Guard>,
    detour: Option<DetourGuard>,
    changes: Netlink,
    asking: Netlink,
    clock: SteadyClock,
}

impl Watcher {
    fn run(&mut self, stop: &OwnedFd) {
        let now = self.clock.now();
        self.guards.iter_mut().for_each(|guard| guard.seen = now);
        // Read what has changed since the ports were opened.
        self.ask_anew();
        let mut due = now;
        loop {
            let now = self.clock.now();
            if now >= due {
                due = now + LOOK_EVERY;
                self.look(now);
            }
            let left = (due - self.clock.now()).max(Nanos::ZERO);
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.0 };
            let changes = self.changes.as_fd();
            let mut polled = [PollFd::new(stop, PollFlags::IN), PollFd::from_borrowed_fd(changes, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&timeout));
            let [is_over, has_changed] = polled.map(|one| !one.revents().is_empty());
            if has_changed {
                self.hear();
            }
            if is_over {
                // What has happened since the last look would be said by nobody.
                return self.look(self.clock.now());
            }
        }
    }

    fn look(&mut self, now: Time) {
        let Self { guards, asking, .. } = self;
        guards.iter_mut().for_each(|guard| guard.look(asking, now));
        self.detour.iter().for_each(DetourGuard::look);
    }

    /// Processes the notifications of the kernel.
    fn hear(&mut self) {
        let mut all = Vec::new();
        let is_whole = self.changes.changes(|said| all.push(said)).is_ok();
        if !is_whole || all.contains(&Said::Overrun) {
            return self.ask_anew();
        }
        let Self { guards, asking, .. } = self;
        for said in all {
            guards.iter_mut().for_each(|guard| guard.hear(&said, asking));
        }
    }

    /// Reads the state again after lost notifications.
    fn ask_anew(&mut self) {
        let Self { guards, asking, .. } = self;
        for guard in guards {
            let index = guard.standing.link.index;
            let link = asking.link(index);
            match link {
                Ok(link) => guard.now_is(link, asking),
                Err(error) if is_gone(&error) => guard.lose(VANISHED.to_owned()),
                Err(_) => {}
            }
            for address in asking.addresses(index).unwrap_or_default() {
                guard.has_address(address);
            }
            for to in asking.routes(index).unwrap_or_default() {
                guard.has_route(&to);
            }
            for (above, name) in asking.stacked(index).unwrap_or_default() {
                guard.has_on_top(above, &name);
            }
        }
    }
}

impl Guard {
    /// Returns a guard of a port with this state.
    pub fn new(standing: Standing, to_port: Sender<Change>) -> Self {
        Self { standing, to_port, program: None, returns: 0, seen: Time(0), is_blind: false, is_lost: false }
    }

    /// Monitors an attached program as well.
    pub fn with_program(mut self, program: &Arc<Attached>) -> Self {
        self.program = Some(Arc::downgrade(program));
        self
    }

    fn hear(&mut self, said: &Said, asking: &mut Netlink) {
        let index = self.standing.link.index;
        match said {
            Said::Link(link) if link.index == index => self.now_is(link.clone(), asking),
            Said::Link(link) if link.is_stacked_on(index) => self.has_on_top(link.index, &link.name),
            Said::Gone(gone) if *gone == index => self.lose(VANISHED.to_owned()),
            Said::Gone(gone) => drop(self.standing.stacked.remove(gone)),
            Said::Address(of, address, true) if *of == index => self.has_address(*address),
            Said::Address(of, address, false) if *of == index => {
                self.standing.addresses.remove(address);
            }
            Said::Route(by, to, true) if by.contains(&index) => self.has_route(to),
            Said::Route(by, to, false) if by.contains(&index) => self.standing.routes.retain(|known| known != to),
            _ => {}
        }
    }

    /// Compares the interface with its previous state.
    fn now_is(&mut self, link: LinkState, asking: &mut Netlink) {
        let was = mem::replace(&mut self.standing.link, link);
        let now = self.standing.link.clone();
        let name = &now.name;
        if was.name != *name {
            self.tell(Change::News(format!("{} is called {name} now", was.name)));
            self.tell(Change::Name(name.clone()));
        }
        if was.mtu != now.mtu {
            self.tell(Change::Mtu(now.mtu));
            self.tell(Change::News(format!("the MTU of {name} is {} bytes now; it was {}", now.mtu, was.mtu)));
        }
        let carries = |link: &LinkState| link.is_up && link.is_running;
        if carries(&was) != carries(&now) {
            self.tell(Change::Running(carries(&now)));
        }
        if was.master.as_ref().map(|(index, _)| index) != now.master.as_ref().map(|(index, _)| index) {
            self.standing.master = master(asking, &now);
            self.has_master();
        }
        if self.program.is_none() && now.program.is_some() && was.program != now.program {
            let program = now.program.unwrap_or_default();
            self.tell(Change::News(format!(
                "an XDP program ({program}) hangs on {name} now: it sees frames before this bridge does, and may take them"
            )));
        }
    }

    fn has_master(&mut self) {
        let name = &self.standing.link.name;
        match &self.standing.master {
            None => {}
            Some(master) if master.is_switch && self.program.is_none() => {
                let problem = format!("it belongs to {} now, which forwards its frames a second time", master.name);
                self.lose(problem);
            }
            Some(master) => {
                let sentence = format!(
                    "{name} belongs to {} now: what that sends by it is not emulated, and it sees none of its frames",
                    master.name
                );
                self.tell(Change::News(sentence));
            }
        }
    }

    fn has_address(&mut self, address: std::net::IpAddr) {
        if !is_somebodys(&address) || !self.standing.addresses.insert(address) {
            return;
        }
        let name = &self.standing.link.name;
        let effect = match self.program {
            Some(_) => "this host cannot be reached by it while it is bridged",
            None => "this host's own stack answers frames to that address too, beside the bridge",
        };
        self.tell(Change::News(format!("{name} has the address {address} now: {effect}")));
    }

    fn has_route(&mut self, to: &str) {
        let known = &self.standing.routes;
        if known.len() >= MOST_ROUTES || known.iter().any(|known| known == to) {
            return;
        }
        self.standing.routes.push(to.to_owned());
        let name = &self.standing.link.name;
        let sentence = format!("a route leads by {name} to {to} now: what this host sends by it is not emulated");
        self.tell(Change::News(sentence));
    }

    fn has_on_top(&mut self, above: u32, name: &str) {
        if self.standing.stacked.insert(above, name.to_owned()).is_some() {
            return;
        }
        let effect = match self.program {
            Some(_) => "it gets no frame of that while it is bridged",
            None => "it may take frames of that beside the bridge",
        };
        let port = &self.standing.link.name;
        let sentence = format!("{name} is on top of {port} now: {effect}, and what it sends is not emulated");
        self.tell(Change::News(sentence));
    }

    /// Checks that the port's program is attached and gets the frames of all queues, or that no other process's is.
    fn look(&mut self, asking: &mut Netlink, now: Time) {
        if self.is_lost {
            return;
        }
        let Some(program) = &self.program else {
            // Attaching a program by a BPF link sends no rtnetlink notification.
            if let Ok(link) = asking.link(self.standing.link.index) {
                self.now_is(link, asking);
            }
            return;
        };
        let Some(program) = program.upgrade() else { return };
        match program.state() {
            Ok(Attachment::Hangs) => {
                (self.seen, self.is_blind) = (now, false);
                if let Some(problem) = unheard_queues(&self.standing.link.name) {
                    self.lose(problem);
                }
            }
            Ok(Attachment::Replaced(other)) => {
                self.lose(format!(
                    "its XDP program was replaced by another one ({other}): no frame comes here any more"
                ));
            }
            Ok(Attachment::Detached) => self.attach_again(&program, asking, now),
            Err(error) if now - self.seen > BLIND_AFTER && !self.is_blind => {
                self.is_blind = true;
                let name = &self.standing.link.name;
                self.tell(Change::News(format!(
                    "the kernel no longer reports whether the XDP program of {name} is attached: {error}"
                )));
            }
            Err(_) => {}
        }
    }

    fn attach_again(&mut self, program: &Attached, asking: &mut Netlink, now: Time) {
        // An interface that disappears takes its program along; report the interface first.
        let link = match asking.link(self.standing.link.index) {
            Err(error) if is_gone(&error) => return self.lose(VANISHED.to_owned()),
            link => link.ok(),
        };
        if let Some(other) = link.and_then(|link| link.program) {
            let problem =
                format!("its XDP program was detached, and another one ({other}) hangs there: no frame comes here");
            return self.lose(problem);
        }
        self.returns += 1;
        if self.returns > MOST_RETURNS {
            return self.lose(format!("its XDP program was detached {} times: somebody wants it gone", self.returns));
        }
        match program.attach_again() {
            Ok(()) => {
                let millis = (now - self.seen).0 / 1_000_000;
                let name = &self.standing.link.name;
                let sentence = format!(
                    "the XDP program of {name} was detached and was attached again: frames of up to {millis} ms were not bridged"
                );
                self.tell(Change::News(sentence));
                self.seen = now;
            }
            Err(error) => self.lose(format!("its XDP program was detached, and cannot be attached again: {error}")),
        }
    }

    fn lose(&mut self, problem: String) {
        if !mem::replace(&mut self.is_lost, true) {
            self.tell(Change::Lost(problem));
        }
    }

    /// Sends a change; fails silently if the port is gone.
    fn tell(&self, change: Change) {
        let _ = self.to_port.send(change);
    }
}

/// A thread that panics drops its guards: nobody would notice a change any more, so the port is lost.
impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.lose("the thread that watches it has died, which is a defect of this program; start again".to_owned());
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    fn guard() -> (Guard, Receiver<Change>, Netlink) {
        let link = LinkState {
            index: 9,
            name: "left".into(),
            is_up: true,
            is_running: true,
            mtu: 1500,
            ..LinkState::default()
        };
        let (to_port, told) = channel();
        let guard = Guard::new(Standing { link, ..Standing::default() }, to_port);
        (guard, told, Netlink::open(false).expect("opens"))
    }

    #[test]
    fn each_interface_change_is_reported_once() {
        let (mut guard, told, mut asking) = guard();
        let mut link = guard.standing.link.clone();
        guard.hear(&Said::Link(link.clone()), &mut asking);
        guard.hear(&Said::Gone(8), &mut asking);
        assert_eq!(told.try_iter().count(), 0, "nothing has changed");
        (link.mtu, link.is_running, link.name) = (9000, false, "port".into());
        for _ in 0..2 {
            guard.hear(&Said::Link(link.clone()), &mut asking);
        }
        let all: Vec<_> = told.try_iter().collect();
        assert_eq!(all[1..3], [Change::Name("port".into()), Change::Mtu(9000)]);
        assert_eq!((all.len(), &all[4]), (5, &Change::Running(false)), "{all:?}");
        for _ in 0..2 {
            guard.hear(&Said::Gone(9), &mut asking);
        }
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [Change::Lost(VANISHED.to_owned())]);
    }

    #[test]
    fn watch_that_dies_takes_its_ports_along() {
        let (guard, told, _) = guard();
        drop(guard);
        assert_eq!(told.try_iter().count(), 0, "a watch that ends loses nothing");
        let (guard, told, asking) = self::guard();
        let (changes, clock) = (Netlink::open(true).expect("opens"), SteadyClock::begin());
        let watcher = Watcher { guards: vec![guard], detour: None, changes, asking, clock };
        let died = thread::spawn(move || {
            let _watcher = watcher;
            panic!("a defect");
        });
        assert!(died.join().is_err());
        let last = told.try_iter().last();
        assert!(matches!(&last, Some(Change::Lost(told)) if told.starts_with("the thread that watches it has died")));
    }

    #[test]
    fn new_address_is_reported_unless_it_is_link_local() {
        let (mut guard, told, mut asking) = guard();
        for address in ["fe80::1", "10.0.0.1", "10.0.0.1"] {
            let address = address.parse().expect("an address");
            guard.hear(&Said::Address(9, address, true), &mut asking);
        }
        let all: Vec<_> = told.try_iter().collect();
        assert!(
            matches!(&all[..], [Change::News(told)] if told.contains("left has the address 10.0.0.1 now")),
            "{all:?}"
        );
    }

    #[test]
    fn route_or_interface_on_top_is_reported_once_until_it_has_gone() {
        let (mut guard, told, mut asking) = guard();
        let above = |name: &str, lower| {
            Said::Link(LinkState { index: 12, name: name.into(), lower: Some(lower), ..LinkState::default() })
        };
        let route = |by, is_there| Said::Route(vec![by], "10.99.0.0/16".into(), is_there);
        for said in [route(8, true), above("tagged", 8), route(8, false), Said::Gone(12)] {
            guard.hear(&said, &mut asking);
        }
        assert_eq!(told.try_iter().count(), 0, "these are of another interface");
        for _ in 0..2 {
            for said in [route(9, true), above("tagged", 9), route(9, true), above("renamed", 9)] {
                guard.hear(&said, &mut asking);
            }
            let all: Vec<_> = told.try_iter().collect();
            let [Change::News(route_told), Change::News(above_told)] = &all[..] else { panic!("{all:?}") };
            assert!(route_told.starts_with("a route leads by left to 10.99.0.0/16 now: "), "{route_told}");
            assert!(above_told.starts_with("tagged is on top of left now: "), "{above_told}");
            guard.hear(&route(9, false), &mut asking);
            guard.hear(&Said::Gone(12), &mut asking);
        }
    }

    #[test]
    fn foreign_program_before_a_packet_socket_is_reported() {
        let (mut guard, told, mut asking) = guard();
        let link = LinkState { program: Some(7), ..guard.standing.link.clone() };
        guard.hear(&Said::Link(link), &mut asking);
        assert!(matches!(told.try_recv(), Ok(Change::News(told)) if told.contains("an XDP program (7) hangs on left")));
    }
}
