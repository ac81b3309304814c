//! `probe respond`: answers probes until it is stopped.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use sojourn_port::PortError;
use sojourn_port::packet::PacketListener;
use sojourn_port::udp::UdpListener;
use sojourn_probe::DEFAULT_UDP_PORT;
use sojourn_probe::respond::{Endpoint, Guard, Policy, Pretence, Refusal, Responder, Serve, serve};
use sojourn_record::Finding;
use sojourn_rights::table::RESPOND;
use sojourn_time::{Clock, HostClock, Wait};
use sojourn_wire::{Key, Peers};

use crate::arguments::{AnswerArguments, GuardArguments, PlaceArguments, Respond};
use crate::clock;
use crate::failure::WrongRequest;
use crate::place::{self, Fifo, Place};
use crate::secret;
use crate::serve;
use crate::sys::STOP;

/// The name that selects all interfaces.
const ANY: &str = "any";

/// Answers probes until SIGINT or SIGTERM arrives or, where requested, standard input ends.
///
/// # Errors
/// If the request is invalid, or the kernel refuses a socket or a receive.
pub fn run(arguments: &Respond) -> anyhow::Result<()> {
    let pretence = arguments.pretend_clock.map(|pretended| pretended.since(HostClock.now()));
    let open = |guard: &SharedGuard, key| {
        let responder = Responder::new(clock_id(pretence), pretence, Rc::clone(guard), key);
        let open = open(arguments, &responder, guard)?;
        let simulated = pretence.map_or(String::new(), |pretence| format!("; {}", pretended(&pretence)));
        let (event, names) = (ready(&open, pretence.as_ref()), open.names().join(", ") + &simulated);
        Ok(Opened { endpoints: open.endpoints, event, names })
    };
    answer(&arguments.answer, &arguments.amplified, open, || {})
}

/// The guard that decides which requests are answered, shared by all endpoints.
pub type SharedGuard = Rc<RefCell<Guard>>;

/// The open endpoints, and what is reported when they are ready.
pub struct Opened {
    /// The sockets.
    pub endpoints: Vec<Box<dyn Serve>>,
    /// The ready event.
    pub event: serde_json::Value,
    /// The sockets, as text for a person.
    pub names: String,
}

/// Answers at the sockets that `open` opens; calls `tick` repeatedly.
///
/// # Errors
/// If the request is invalid, or the kernel refuses a socket or a receive.
pub fn answer(
    arguments: &AnswerArguments,
    amplified: &[Peers],
    open: impl FnOnce(&SharedGuard, Option<Arc<Key>>) -> anyhow::Result<Opened>,
    mut tick: impl FnMut(),
) -> anyhow::Result<()> {
    if arguments.fifo && arguments.wait == Wait::Spin {
        let problem = "--fifo --wait spin: a real-time program that never sleeps must rest, 3 of each 40 ms, and requests \
             would wait meanwhile; leave out one of the two";
        return Err(WrongRequest(problem.to_owned()).into());
    }
    let key = secret::key_of(arguments.key.as_deref())?;
    let is_keyed = key.is_some();
    let signal = place::stop_signal()?;
    let place = Place::take(&place_arguments(arguments), Fifo::Required)?;
    let guard = guard_of(&arguments.guard, amplified)?;
    let Opened { mut endpoints, event, names } = open(&guard, key)?;
    RESPOND.confine()?;
    let mut ready = serve::ready(Some(&place), event);
    serve::add(&mut ready, policy(guard.borrow().policy(), is_keyed));
    serve::tell(
        arguments.json,
        &ready,
        &format!("answering {names}{}; Ctrl-C ends it", whom(&guard.borrow(), is_keyed)),
    )?;
    let input = io::stdin();
    let wakers = [signal, input.as_fd()];
    let wakers = if arguments.until_eof { &wakers[..] } else { &wakers[..1] };
    let ended = || {
        tick();
        STOP.load(Ordering::Relaxed) || (arguments.until_eof && has_ended(input.as_fd()))
    };
    let served = serve(&mut endpoints, &HostClock, place.pace(), wakers, ended);
    // The reader of standard output may have closed it; that must not change the exit status.
    let (counts, sentence) = counts(&mut endpoints, &guard.borrow());
    let _ = serve::tell(arguments.json, &counts, &sentence);
    Ok(served?)
}

fn policy(policy: &Policy, is_keyed: bool) -> serde_json::Value {
    json!({
        "allowed": names(&policy.allowed),
        "amplified": names(&policy.amplified),
        "peer_rate": policy.peer_rate,
        "rate": policy.rate,
        "authenticated": is_keyed,
    })
}

/// Returns which peers are answered, as text for a person.
fn whom(guard: &Guard, is_keyed: bool) -> String {
    let peers = names(&guard.policy().allowed).join(", ");
    let whom = if peers == "any" { String::new() } else { format!(" to {peers}") };
    whom + if is_keyed { " where it is authenticated" } else { "" }
}

/// The open sockets, and their names.
struct Open {
    endpoints: Vec<Box<dyn Serve>>,
    udp: Vec<String>,
    raw: Vec<String>,
}

impl Open {
    fn names(&self) -> Vec<String> {
        let udp = self.udp.iter().map(|address| format!("UDP at {address}"));
        udp.chain(self.raw.iter().map(|device| format!("Ethernet frames on {device}"))).collect()
    }
}

/// Returns the guard that the command line requests.
///
/// # Errors
/// If the kernel returns no random number.
fn guard_of(arguments: &GuardArguments, amplified: &[Peers]) -> anyhow::Result<SharedGuard> {
    let GuardArguments { allowed, peer_rate, rate } = arguments.clone();
    let allowed = if allowed.is_empty() { vec![Peers::Any] } else { allowed };
    let policy = Policy { allowed, amplified: amplified.to_vec(), own_ports: Vec::new(), peer_rate, rate };
    Ok(Rc::new(RefCell::new(Guard::new(policy, secret::random()?))))
}

/// Returns the requested ports; 0 lets the kernel choose one.
fn udp_ports(arguments: &Respond) -> &[u16] {
    match arguments.udp.as_slice() {
        [] if arguments.raw.is_empty() => &[DEFAULT_UDP_PORT],
        ports => ports,
    }
}

fn open(arguments: &Respond, responder: &Responder, guard: &RefCell<Guard>) -> Result<Open, PortError> {
    let mut open = Open { endpoints: Vec::new(), udp: Vec::new(), raw: arguments.raw.clone() };
    if !arguments.raw.is_empty() {
        let names: Vec<&str> = arguments.raw.iter().map(String::as_str).collect();
        let names = if names.contains(&ANY) { &[] } else { names.as_slice() };
        open.endpoints.push(Box::new(Endpoint::new(PacketListener::open(names)?, responder.clone())));
    }
    for port in udp_ports(arguments) {
        for listener in listeners(&arguments.answer.addresses, *port)? {
            guard.borrow_mut().add_own_port(listener.address().port());
            open.udp.push(listener.address().to_string());
            open.endpoints.push(Box::new(Endpoint::new(listener, responder.clone())));
        }
    }
    Ok(open)
}

/// Listens at these addresses or, without any, at all addresses of this host, IPv4 and IPv6.
///
/// # Errors
/// If this host does not have an address, or the port is in use.
pub fn listeners(addresses: &[IpAddr], port: u16) -> Result<Vec<UdpListener>, PortError> {
    if !addresses.is_empty() {
        return addresses.iter().map(|address| UdpListener::open(SocketAddr::new(*address, port))).collect();
    }
    let all = |address: IpAddr, port| UdpListener::open(SocketAddr::new(address, port));
    let first = all(Ipv4Addr::UNSPECIFIED.into(), port)?;
    match all(Ipv6Addr::UNSPECIFIED.into(), first.address().port()) {
        Ok(second) => Ok(vec![first, second]),
        Err(error) if lacks_ipv6(&error) => Ok(vec![first]),
        Err(error) => Err(error),
    }
}

/// Whether this machine has no IPv6: then there is no IPv6 peer to answer.
fn lacks_ipv6(error: &PortError) -> bool {
    let PortError::System { source, .. } = error else { return false };
    source.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn place_arguments(arguments: &AnswerArguments) -> PlaceArguments {
    let AnswerArguments { cpu, fifo, wait, die_with_parent, .. } = *arguments;
    PlaceArguments { cpu, fifo, wait, die_with_parent }
}

/// Returns the clock ID for replies: this host's or, for a simulated clock, a different one.
fn clock_id(pretence: Option<Pretence>) -> u32 {
    let own = clock::own_id();
    if pretence.is_some() { !own ^ std::process::id() } else { own }
}

fn pretended(pretence: &Pretence) -> String {
    let Pretence { offset, skew_ppm, .. } = pretence;
    format!(
        "it pretends a clock that is {} ns ahead and gains {skew_ppm} ppm: for tests of clock estimation alone",
        offset.0
    )
}

fn ready(open: &Open, pretence: Option<&Pretence>) -> serde_json::Value {
    json!({
        "udp": open.udp,
        "raw": open.raw,
        "clock": clock_id(pretence.copied()),
        "pretended_clock": pretence.map(|pretence| json!({
            "offset_ns": pretence.offset, "skew_ppm": pretence.skew_ppm, "since_ns": pretence.since,
        })),
        "findings": pretence.iter().map(|pretence| json!({
            "finding": Finding::PretendedClock.name(), "sentence": pretended(pretence),
        })).collect::<Vec<_>>(),
    })
}

fn names(peers: &[Peers]) -> Vec<String> {
    peers.iter().map(ToString::to_string).collect()
}

/// Returns the counts of received frames, each frame in exactly one, as an event and as a sentence.
fn counts(endpoints: &mut [Box<dyn Serve>], guard: &Guard) -> (serde_json::Value, String) {
    let refused: u64 = endpoints.iter().map(|endpoint| endpoint.refused()).sum();
    let local_drops: u64 = endpoints.iter_mut().map(|endpoint| endpoint.local_drops()).sum();
    let answered = guard.answered().saturating_sub(refused);
    let mut event = json!({ "event": "end", "answered": answered, "refused": refused, "local_drops": local_drops });
    let mut sentence = format!("answered {answered}");
    for refusal in Refusal::ALL {
        let count = guard.refused(refusal);
        serve::add(&mut event, json!({ refusal.name(): count }));
        if count > 0 {
            sentence += &format!(", ignored {count} {}", refusal.sentence());
        }
    }
    if refused > 0 {
        sentence += &format!(", refused by the kernel {refused}");
    }
    (event, format!("{sentence}, dropped {local_drops}"))
}

/// Whether an input has ended; discards what can be read from it.
fn has_ended(input: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_ready = poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0);
    is_ready && !matches!(rustix::io::read(input, &mut [0; 256]), Ok(1..))
}
