//! Sends a log to another host while it is written: a thread of its own empties the outbox, so that nothing else waits for the network.
//!
//! A connection that is lost is not made again: the receiver's log would have a hole that its account does not know of.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use serde_json::{Value, json};
use sojourn_rights::table::TCPLOG;
use sojourn_tcplog::account::Account;
use sojourn_tcplog::spool::{Chunk, Export, GREETING, Outbox, RECEIPT, greeted, kept};
use sojourn_time::{Clock, HostClock, Nanos};

use super::show;
use crate::failure::{NotTrusted, WrongRequest};

/// How long a receiver may take to be reached, and to say that it is one.
const GREETED_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take, once the log is over, to take what waits: as long as an outbox that is full takes at 1 Mbit/s.
const LAST_PATIENCE: Nanos = Nanos::seconds(90);
/// How long it may take then to read what the kernel still holds, to have all on its disk, and to say so.
const RECEIPT_PATIENCE: Nanos = Nanos::seconds(60);
/// How often it is looked whether something waits.
const LOOK: Nanos = Nanos::millis(10);
/// Where the kernel says which run of it this is.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A connection to a receiver.
pub struct Connected {
    to: String,
    stream: TcpStream,
    /// The cookies of its ends that are sockets of this kernel.
    pub cookies: Vec<u64>,
}

/// A connection with the thread that sends.
pub struct Sending {
    to: String,
    stream: TcpStream,
    outbox: Arc<Outbox>,
    thread: JoinHandle<()>,
}

/// Which run of the kernel this is.
pub fn boot() -> String {
    std::fs::read_to_string(BOOT).unwrap_or_default()
}

/// Connects to a receiver.
///
/// # Errors
/// When nobody is there, or no receiver.
pub fn connect(to: &str) -> anyhow::Result<Connected> {
    let addresses = to
        .to_socket_addrs()
        .map_err(|error| WrongRequest(format!("--export {to}: expected the host and port of a receiver: {error}")))?;
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, GREETED_WITHIN) {
            Ok(stream) => return greet(to, stream),
            Err(error) => refused = error,
        }
    }
    Err(refused).with_context(|| format!("--export {to}: no `sojourn tcplog receive` is reached there"))
}

fn greet(to: &str, mut stream: TcpStream) -> anyhow::Result<Connected> {
    let mut greeting = [0; GREETING];
    stream.set_read_timeout(Some(GREETED_WITHIN))?;
    let said = stream.read_exact(&mut greeting);
    said.map_err(|error| NotTrusted(format!("--export {to}: what listens there receives no log: {error}")))?;
    let theirs = greeted(&greeting, &boot()).map_err(|error| NotTrusted(format!("--export {to}: {error}")))?;
    stream.set_nodelay(true)?;
    let cookies = sockopt::socket_cookie(&stream).ok().into_iter().chain(theirs).collect();
    Ok(Connected { to: to.to_owned(), stream, cookies })
}

impl Connected {
    /// Starts to send what comes into an outbox.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(self, outbox: Arc<Outbox>) -> anyhow::Result<Sending> {
        let (stream, from) = (self.stream.try_clone()?, Arc::clone(&outbox));
        let run = move || {
            let confined = TCPLOG.drop_privileges().and_then(|()| TCPLOG.restrict_calls());
            if let Err(error) = confined.and_then(|()| send(&stream, &from)) {
                from.lose(error.to_string());
            }
        };
        let thread = thread::Builder::new().name("export".to_owned()).spawn(run).context("start a thread")?;
        Ok(Sending { to: self.to, stream: self.stream, outbox, thread })
    }
}

/// Sends what waits until nothing more comes.
fn send(mut stream: &TcpStream, outbox: &Outbox) -> io::Result<()> {
    loop {
        match outbox.take() {
            Some(Chunk { bytes, .. }) => stream.write_all(&bytes)?,
            None if outbox.is_spent() => return Ok(()),
            None if outbox.lost().is_some() => return Ok(()),
            None => {
                look(stream)?;
                HostClock.wait_until(HostClock.now() + LOOK, Nanos::ZERO);
            }
        }
    }
}

/// Notices a receiver that has gone while nothing is sent.
fn look(stream: &TcpStream) -> io::Result<()> {
    match recv(stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::Error::other("the receiver closed the connection")),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Sending {
    /// Why nothing can be sent any more.
    pub fn lost(&self) -> Option<String> {
        self.outbox.lost()
    }

    /// Sends the end, and waits for the receipt. Adds to the footer what became of it.
    ///
    /// # Errors
    /// When the receiver lacks more than what was skipped.
    pub fn finish(self, (mut export, account): (Export, Account), footer: &mut Value) -> anyhow::Result<()> {
        let mut theirs = footer.clone();
        let skipped = export.skipped();
        let number = |name: &str| footer[name].as_u64().unwrap_or_default();
        theirs["totals"] = show::totals(account.totals_without(Default::default()));
        theirs["events"] = number("events").saturating_sub(skipped.events).into();
        theirs["skipped_on_the_way"] = (skipped.full + skipped.lost).into();
        export.end(&theirs.to_string());
        let received = self.receipt();
        let problem = match (self.outbox.lost(), received) {
            (Some(why), _) => Some(why),
            (None, Some(records)) if records == export.sent() => None,
            (None, Some(records)) => Some(format!("it has {records} of {} records", export.sent())),
            (None, None) => Some("it did not say that it has all".to_owned()),
        };
        let skipped = export.skipped();
        footer["export"] = json!({
            "to": self.to,
            "sent": export.sent(),
            "skipped": skipped.full + skipped.lost,
            "skipped_full": skipped.full,
            "skipped_lost": skipped.lost,
            "problem": problem,
        });
        let _ = self.thread.join();
        let told = |why| format!("the export to {} is not whole: {why}: the log here is", self.to);
        problem.map_or(Ok(()), |why| Err(NotTrusted(told(why)).into()))
    }

    /// Waits until all is sent, and for what the receiver says then.
    fn receipt(&self) -> Option<u64> {
        let until = HostClock.now() + LAST_PATIENCE;
        while !self.thread.is_finished() {
            if HostClock.now() >= until {
                self.outbox.lose("the receiver did not take what waited in time");
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            HostClock.wait_until(HostClock.now() + LOOK, Nanos::ZERO);
        }
        let mut receipt = [0; RECEIPT];
        let patience = Duration::from_nanos(RECEIPT_PATIENCE.0.unsigned_abs());
        self.stream.set_read_timeout(Some(patience)).ok()?;
        (&self.stream).read_exact(&mut receipt).ok()?;
        kept(&receipt)
    }
}
