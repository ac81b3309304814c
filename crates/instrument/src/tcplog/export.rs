//! Exports a log to another host while it is written. A separate thread empties the outbox, so that nothing else waits
//! for the network.
//!
//! A lost connection is not reopened: the receiver's log would have a gap that its packet accounting does not include.

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

/// The timeout to connect to a receiver, and to receive its greeting.
const GREETED_WITHIN: Duration = Duration::from_secs(10);
/// The timeout, after the end of the log, to send what is queued: the time that a full outbox takes at 1 Mbit/s.
const LAST_PATIENCE: Nanos = Nanos::seconds(90);
/// The timeout for the receiver to read the rest, write everything to disk, and acknowledge it.
const RECEIPT_PATIENCE: Nanos = Nanos::seconds(60);
/// The poll interval of the outbox.
const LOOK: Nanos = Nanos::millis(10);
/// The file of the kernel's boot ID.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A connection to a receiver.
pub struct Connected {
    to: String,
    stream: TcpStream,
    /// The socket cookies of its ends on this kernel.
    pub cookies: Vec<u64>,
}

/// A connection with its sending thread.
pub struct Sending {
    to: String,
    stream: TcpStream,
    outbox: Arc<Outbox>,
    thread: JoinHandle<()>,
}

/// Returns the kernel's boot ID.
pub fn boot() -> String {
    std::fs::read_to_string(BOOT).unwrap_or_default()
}

/// Connects to a receiver.
///
/// # Errors
/// If no process listens there, or it is not a receiver.
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
    /// Starts to send what is put into an outbox.
    ///
    /// # Errors
    /// If no thread can be started.
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

/// Sends what is queued until the outbox is closed.
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

/// Detects that the receiver has closed the connection while nothing is sent.
fn look(stream: &TcpStream) -> io::Result<()> {
    match recv(stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::Error::other("the receiver closed the connection")),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Sending {
    /// Returns why the export was lost.
    pub fn lost(&self) -> Option<String> {
        self.outbox.lost()
    }

    /// Sends the end record, and waits for the receipt. Adds the result to the footer.
    ///
    /// # Errors
    /// If the receiver lacks more than what was skipped.
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

    /// Waits until everything is sent, and then for the receipt.
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
