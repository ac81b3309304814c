//! `capture serve`: taps for each trial of a study, driven by requests on standard input. Taps are attached before the
//! answer `started`; their records are on the disk before the answer `stopped`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use serde_json::{Value, json};
use sojourn_capture::{Kind, filter};
use sojourn_record::{RecordError, private};
use sojourn_rights::table::CAPTURE_SERVE;
use sojourn_time::Time;

use super::arguments::{Serve, TapOptions};
use super::session::{self, Ended, Limits, Session, Wanted, Why};
use super::{failed, show};
use crate::failure::WrongRequest;
use crate::place;
use crate::serve;

/// Carries out requests until the input ends or a signal arrives.
///
/// # Errors
/// If the machine refuses a basic setting, or the last capture cannot be written.
pub fn run(asked: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    place::stay(asked.cpu, asked.die_with_parent)?;
    place::raise_priority();
    // Load libraries before privileges and system calls are restricted.
    let has_filters = filter::load();
    sojourn_port::kernel::open_clocks();
    CAPTURE_SERVE.drop_privileges()?;
    CAPTURE_SERVE.restrict_calls()?;
    serve::say(&serve::ready(None, json!({ "filters": has_filters })))?;
    let mut server = Server::default();
    serve::serve(signal, |request| server.carry_out(request).map(Some))?;
    server.running.take().map_or(Ok(()), |running| running.stop().map(|_| ()))
}

/// A request on standard input.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    /// Attach these taps, and write their records into a folder.
    Start {
        #[serde(default)]
        block: Option<i32>,
        folder: PathBuf,
        taps: Vec<TapRequest>,
        #[serde(default)]
        count: Option<u64>,
    },
    /// Report the number of frames seen so far.
    Counts {},
    /// Detach all taps, and report what they saw.
    Stop {},
}

/// Checks that a request is valid and that its taps could be opened, as far as that is known without the interfaces.
///
/// # Errors
/// If the request is invalid.
pub fn understood(line: &[u8]) -> anyhow::Result<()> {
    if let Request::Start { taps, .. } = serve::parse(line)? {
        session::check(&wanted(taps)?)?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TapRequest {
    name: String,
    interface: String,
    #[serde(default)]
    options: TapOptions,
}

#[derive(Default)]
struct Server {
    running: Option<Running>,
}

/// Attached taps, which a separate thread reads.
struct Running {
    block: Option<i32>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    seen: Arc<AtomicU64>,
    thread: JoinHandle<anyhow::Result<(Ended, Result<(), RecordError>)>>,
}

impl Server {
    fn carry_out(&mut self, request: Request) -> anyhow::Result<Value> {
        match request {
            Request::Start { block, folder, taps, count } => {
                if self.running.is_some() {
                    return Err(wrong("taps are attached already: stop them first"));
                }
                let (running, told) = Running::start(block, &folder, taps, count)?;
                self.running = Some(running);
                Ok(told)
            }
            Request::Counts {} => {
                let running = self.running.as_ref().ok_or_else(none)?;
                let seen = running.seen.load(Ordering::Relaxed);
                Ok(json!({ "event": "counts", "block": running.block, "seen": seen }))
            }
            Request::Stop {} => self.running.take().ok_or_else(none)?.stop(),
        }
    }
}

impl Running {
    fn start(
        block: Option<i32>,
        folder: &Path,
        taps: Vec<TapRequest>,
        count: Option<u64>,
    ) -> anyhow::Result<(Self, Value)> {
        let mut session = Session::open(wanted(taps)?, Limits { count, ..Limits::default() })?;
        private::create_folder(folder).with_context(|| format!("create {}", folder.display()))?;
        session.write_to(folder).map_err(unmade)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("create an eventfd")?);
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), session.progress());
        session.attach()?;
        let told = json!({ "event": "started", "block": block, "taps": session.json() });
        let (stopped, woken) = (Arc::clone(&stop), Arc::clone(&wake));
        let read = move || {
            let why = session.run(Time::NEVER, &stopped, woken.as_fd())?;
            Ok(session.end(why))
        };
        let thread = thread::Builder::new().name("taps".to_owned()).spawn(read).context("start a thread")?;
        Ok((Self { block, stop, wake, seen, thread }, told))
    }

    fn stop(self) -> anyhow::Result<Value> {
        self.stop.store(true, Ordering::Relaxed);
        rustix::io::write(&*self.wake, &1_u64.to_ne_bytes())?;
        let (ended, written) = self.thread.join().map_err(|_| anyhow!("read taps: their thread has died"))??;
        let mut told = show::json(&ended);
        serve::add(&mut told, json!({ "event": "stopped", "block": self.block }));
        match ended.why {
            Why::Asked | Why::Time | Why::Count | Why::Budget => {}
            why => return Err(failed(why)),
        }
        written?;
        Ok(told)
    }
}

fn wanted(taps: Vec<TapRequest>) -> anyhow::Result<Vec<Wanted>> {
    taps.into_iter().map(TapRequest::wanted).collect()
}

impl TapRequest {
    fn wanted(self) -> anyhow::Result<Wanted> {
        let Self { name, interface, options } = self;
        let is_plain = !name.is_empty() && name.len() <= 16 && name.chars().all(|c| c.is_ascii_alphanumeric());
        if options.tap == Kind::Bpf {
            Err(wrong(
                "tap: bpf is for `sojourn capture` alone, since a server of taps keeps no right to load programs",
            ))
        } else if is_plain {
            Ok(Wanted { name, interface, options })
        } else {
            Err(wrong("name: expected 1 to 16 letters and digits"))
        }
    }
}

/// If files cannot be created, only this request fails.
fn unmade(error: RecordError) -> anyhow::Error {
    match error {
        RecordError::Exists(path) => wrong(&format!("{}: it exists already; records are written once", path.display())),
        error => error.into(),
    }
}

fn none() -> anyhow::Error {
    wrong("no tap is attached: start some first")
}

fn wrong(problem: &str) -> anyhow::Error {
    WrongRequest(problem.to_owned()).into()
}
