//! `tcplog receive`: receives the log that `tcplog run --export` sends, and converts it as a log of this host.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde_json::{Value, json};
use sojourn_rights::Folders;
use sojourn_rights::table::TCPLOG_RECEIVE;
use sojourn_tcplog::spool::{ArrivalError, Arrived, Arriving, SpoolError, receipt};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::arguments::Receive;
use super::close::{FULL, LIMITED, Place, UNWRITTEN, convert};
use super::folder::{self, Moment};
use super::recover::footer_of;
use super::run::summary;
use super::senders::{Connection, Senders};
use crate::aside::{self, say};
use crate::caller;
use crate::failure::{NotTrusted, WrongRequest};
use crate::numbers::grouped;
use crate::place;
use crate::printed::printed;
use crate::sys::{self, STOP};

/// The size of the read buffer.
const BUFFERED: usize = 64 << 10;
/// TCP keepalive: the idle time before a probe and the interval of probes, and the number of unanswered probes until
/// the sender is given up.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(20);
const ASKED: u32 = 3;
/// The reason for the end of a log that its sender did not end.
const LOST: &str = "connection lost";

/// Receives one log.
///
/// # Errors
/// If the request is invalid, or what was received is not a complete log.
pub fn run(asked: &Receive) -> anyhow::Result<()> {
    folder::refuse_one_in_use(&asked.out)?;
    if !asked.at.ip().to_canonical().is_loopback() && asked.allowed.is_empty() {
        let problem = format!(
            "{} can be reached by other hosts, and the first log that comes is kept: say from whom with --allow PEERS \
             (any: from everybody)",
            asked.at.ip()
        );
        return Err(WrongRequest(problem).into());
    }
    let signal = place::stop_signal()?;
    let listener = TcpListener::bind(asked.at).with_context(|| format!("listen at {}", asked.at))?;
    caller::become_caller(|| folder::create(&asked.out).is_ok() && caller::can_write(&asked.out))?;
    TCPLOG_RECEIVE.drop_privileges()?;
    folder::create(&asked.out)?;
    TCPLOG_RECEIVE.write_only_below(Folders::open([&asked.out])?)?;
    aside::start(|| TCPLOG_RECEIVE.restrict_calls())?;
    TCPLOG_RECEIVE.restrict_calls()?;
    let until = asked.duration.map_or(Time::NEVER, |lasts| HostClock.now() + lasts);
    let at = listener.local_addr()?;
    eprintln!("{}: waits for a log at {at}, into {}", crate::program(), asked.out.display());
    let watch = Rc::new(Watch { signal, until });
    let ended = begun(&listener, asked, &watch).and_then(|log| {
        // Only one log is received.
        drop(listener);
        receive(log, asked)
    });
    let ended = ended.inspect_err(|_| {
        // The folder itself stays, empty: this program may no longer write above it.
        let _ = fs::remove_dir(asked.out.join(folder::RECORDS));
    })?;
    finish(asked, ended)
}

/// The end conditions of every wait.
pub struct Watch {
    signal: BorrowedFd<'static>,
    until: Time,
}

impl Watch {
    /// Waits until a descriptor is readable.
    fn wait(&self, from: BorrowedFd<'_>, until: Time) -> io::Result<()> {
        let ready = self.wait_any([from], until)?;
        let is_in_time = HostClock.now() < until;
        if is_in_time && ready.contains(&true) { Ok(()) } else { Err(io::Error::other("it did not come in time")) }
    }

    /// Waits until one of these descriptors is readable, or until a time; returns which are readable.
    pub fn wait_any<'a>(&self, from: impl IntoIterator<Item = BorrowedFd<'a>>, until: Time) -> io::Result<Vec<bool>> {
        let sources = from.into_iter().chain([self.signal]);
        let mut polled: Vec<_> = sources.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
        let own = polled.len() - 1;
        loop {
            let now = HostClock.now();
            if STOP.load(Ordering::Relaxed) {
                return Err(io::Error::other("it was asked to end"));
            }
            if now >= self.until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its --duration is over"));
            }
            let left = (self.until.min(until) - now).min(Nanos::seconds(3600)).max(Nanos::ZERO);
            let timeout = Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 };
            let found = match poll(&mut polled, Some(&timeout)) {
                Ok(_) => polled[..own].iter().map(|one| !one.revents().is_empty()).collect(),
                Err(Errno::INTR) => vec![false; own],
                Err(error) => return Err(error.into()),
            };
            if found.contains(&true) || HostClock.now() >= until {
                return Ok(found);
            }
        }
    }
}

/// A reader of the sender's data that waits no longer than permitted.
struct Coming {
    stream: Rc<TcpStream>,
    watch: Rc<Watch>,
    until: Rc<Cell<Time>>,
}

impl Read for Coming {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.watch.wait(self.stream.as_fd(), self.until.get())?;
        (&*self.stream).read(bytes)
    }
}

/// A log that has ended.
struct Ended {
    header: Value,
    /// The sender's footer; null if it was not received.
    footer: Value,
    /// Why the log ended, if the sender did not end it; and the same as a sentence.
    why: Option<&'static str>,
    problem: Option<String>,
}

/// A log whose header was received.
struct Begun {
    stream: Rc<TcpStream>,
    arriving: Arriving<BufReader<Coming>>,
    header: Value,
}

/// Waits for a sender of a log. Other connections are reported and closed.
fn begun(listener: &TcpListener, asked: &Receive, watch: &Rc<Watch>) -> anyhow::Result<Begun> {
    let no_log = |why: &dyn std::fmt::Display| NotTrusted(format!("no log came: {why}"));
    let mut senders = Senders::new(listener, &asked.allowed);
    loop {
        let (one, peer) = senders.next(watch).map_err(|why| no_log(&format!("{why:#}")))?;
        match begin(one, watch) {
            Ok(log) => {
                say(&format!("receives a log from {peer}"));
                return Ok(log);
            }
            Err(why) => senders.refuse(peer, &format!("{why:#}")),
        }
    }
}

/// Reads the header of a log.
fn begin(Connection { stream, until }: Connection, watch: &Rc<Watch>) -> anyhow::Result<Begun> {
    sockopt::set_tcp_keepidle(&stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(&stream, SILENCE)?;
    sockopt::set_tcp_keepcnt(&stream, ASKED)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    let stream = Rc::new(stream);
    let until = Rc::new(Cell::new(until));
    let coming = Coming { stream: Rc::clone(&stream), watch: Rc::clone(watch), until: Rc::clone(&until) };
    let arriving = Arriving::begin(BufReader::with_capacity(BUFFERED, coming))?;
    until.set(Time::NEVER);
    let header = folder::value_of(arriving.header().as_bytes()).map(plain).map_err(NotTrusted)?;
    if header["tcplog"] != json!(1) || header["hz"].as_u64().is_none_or(|hz| hz == 0) {
        return Err(NotTrusted("its header is none of a log".to_owned()).into());
    }
    Ok(Begun { stream, arriving, header })
}

/// Receives a log into a spool.
fn receive(log: Begun, asked: &Receive) -> anyhow::Result<Ended> {
    let Begun { stream, mut arriving, header } = log;
    let mut arrived = Arrived::create(&asked.out, arriving.header(), asked.log_limit)?;
    folder::write_whole(&asked.out.join(folder::HEADER), &header)?;
    let problem = keep(&mut arriving, &mut arrived);
    let (is_whole, records) = (arriving.is_whole(), arriving.records());
    let footer = folder::value_of(arriving.footer()).ok().filter(|footer| is_whole && footer.is_object());
    let footer = footer.map(plain);
    drop(arriving);
    let closed = arrived.close();
    let problem = problem.err().or(closed.err().map(|error| (UNWRITTEN, error.to_string())));
    if is_whole && problem.is_none() {
        // The sender may have disappeared.
        let _ = (&*stream).write_all(&receipt(records));
    }
    let (why, problem) = problem.unzip();
    Ok(Ended { header, footer: footer.unwrap_or_default(), why, problem })
}

/// Replaces control characters, which could control a terminal, because the sender's texts are printed.
fn plain(value: Value) -> Value {
    let of_text = |text: String| text.replace(char::is_control, "\u{fffd}");
    match value {
        Value::String(text) => of_text(text).into(),
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (of_text(name), plain(value))).collect(),
        other => other,
    }
}

/// Writes each received frame; returns an error if frames stop before the end of the log.
fn keep(arriving: &mut Arriving<impl Read>, arrived: &mut Arrived) -> Result<(), (&'static str, String)> {
    loop {
        let frame = arriving.next_frame().map_err(|error| (why_no_more(&error), error.to_string()))?;
        let Some(frame) = frame else { return Ok(()) };
        arrived.put(frame).map_err(|error| (why_unwritten(&error), error.to_string()))?;
    }
}

fn why_no_more(error: &ArrivalError) -> &'static str {
    match error {
        ArrivalError::Connection { .. } if STOP.load(Ordering::Relaxed) => "signal",
        // A timeout reported by the kernel means that the sender has disappeared; one without an OS error is the end of the wait.
        ArrivalError::Connection { source, .. }
            if source.kind() == io::ErrorKind::TimedOut && source.raw_os_error().is_none() =>
        {
            "duration"
        }
        _ => LOST,
    }
}

const fn why_unwritten(error: &SpoolError) -> &'static str {
    match error {
        SpoolError::Limit(_) => LIMITED,
        SpoolError::Full(_) => FULL,
        _ => UNWRITTEN,
    }
}

/// Converts the spool and writes the footer.
fn finish(asked: &Receive, ended: Ended) -> anyhow::Result<()> {
    let place = Place::of_log(&asked.out, ended.header["simulated"] == json!(true));
    let (converted, spent) = convert(&place, &asked.out.join(folder::RECORDS))?;
    let mut footer = footer_of(&ended.header, &converted, Moment::now());
    footer["why"] = LOST.into();
    // The footer's values come from the records, where these have them, and otherwise from the sender.
    let ours = std::mem::replace(&mut footer, ended.footer.clone());
    footer = if footer.is_object() { footer } else { json!({}) };
    let is_said = footer["why"].is_string();
    let why = if is_said { footer["why"].clone() } else { ended.why.unwrap_or(LOST).into() };
    let members = ours.as_object().into_iter().flatten();
    let times = ["ended", "disable_time_secs", "disable_time_usecs", "duration_s"];
    members.filter(|(name, _)| !is_said || !times.contains(&name.as_str())).for_each(|(name, value)| {
        footer[name] = value.clone();
    });
    footer["why"] = why;
    footer["problem"] = ended.problem.clone().into();
    footer["warning"] = warning(&footer).into();
    folder::write_whole(&asked.out.join(folder::FOOTER), &footer)?;
    spent.discard();
    sys::let_signals_end();
    if asked.json {
        writeln!(printed(), "{footer}")?;
    } else {
        eprint!("{}", summary(&footer));
    }
    match (ended.problem, converted.problems.first()) {
        (Some(why), _) => Err(NotTrusted(format!("the log is not whole: {why}")).into()),
        (None, Some(problem)) => Err(NotTrusted(format!("the records of the log do not add up: {problem}")).into()),
        (None, None) => Ok(()),
    }
}

fn warning(footer: &Value) -> Option<String> {
    let skipped = footer["skipped_on_the_way"].as_u64().filter(|skipped| *skipped > 0)?;
    Some(format!("{} records are not here: the connection could not take them in time", grouped(skipped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_from_a_sender_are_not_printed() {
        let sent = json!({"why": "\u{1b}[2J", "export": {"to\n": ["a\u{7}b", 3, null]}});
        assert_eq!(plain(sent), json!({"why": "\u{fffd}[2J", "export": {"to\u{fffd}": ["a\u{fffd}b", 3, null]}}));
    }

    #[test]
    fn sender_timeout_is_not_reported_as_end_of_duration() {
        let of = |source| why_no_more(&ArrivalError::Connection { frames: 0, source });
        assert_eq!(of(io::Error::new(io::ErrorKind::TimedOut, "its --duration is over")), "duration");
        assert_eq!(of(io::Error::from_raw_os_error(libc::ETIMEDOUT)), LOST);
    }
}
