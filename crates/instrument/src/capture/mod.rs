//! `capture`: timestamped copies of the frames that pass interfaces, started by hand or by a study. The taps are in
//! `sojourn-capture`.

pub mod arguments;
mod files;
mod output;
pub mod rows;
pub mod serve;
pub mod session;
pub mod show;
mod tap;

use std::io::Write as _;
use std::path::Path;

use sojourn_capture::filter;
use sojourn_record::private;
use sojourn_rights::Folders;
use sojourn_rights::table::CAPTURE;
use sojourn_time::{Clock, HostClock, Time};

use crate::caller;
use crate::failure::{WrongRequest, exists, of_path};
use crate::place;
use crate::printed::printed;
use crate::sys::STOP;
use crate::tcplog::write_whole;
use arguments::{ByHand, CaptureCommand, CaptureKind};
use session::{Limits, Session, Wanted, Why};

/// The name of the capture's summary file.
const SUMMARY: &str = "capture.json";

/// Runs `capture`.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, or the capture must not be trusted.
pub fn run(command: &CaptureCommand) -> anyhow::Result<()> {
    match &command.command {
        Some(CaptureKind::Serve(asked)) => serve::run(asked),
        None => by_hand(&command.by_hand),
    }
}

fn by_hand(asked: &ByHand) -> anyhow::Result<()> {
    let wanted = wanted(asked)?;
    let out = asked.out.as_deref().ok_or_else(|| wrong("name a folder for what is captured with -o"))?;
    refuse_one_in_use(out)?;
    let signal = place::stop_signal()?;
    place::stay(asked.cpu, asked.die_with_parent)?;
    // Capturing needs little CPU time, but soon: a ring fills within seconds.
    place::raise_priority();
    let limits = Limits { count: asked.count, budget: asked.budget, remove_oldest: asked.remove_oldest };
    let mut session = Session::open(wanted, limits)?;
    caller::become_caller(|| private::create_folder(out).is_ok() && caller::can_write(out))?;
    CAPTURE.drop_privileges()?;
    // Privileges to give the folder away are gone: it belongs to the user who writes into it.
    private::create_folder(out).map_err(|error| of_path("create", out, error))?;
    CAPTURE.write_only_below(Folders::open([out])?)?;
    session.write_to(out).map_err(exists)?;
    CAPTURE.restrict_calls()?;
    session.attach()?;
    session.down().for_each(|name| eprintln!("{}: {name} is down: nothing passes it until it is up", crate::program()));
    eprintln!("{}: capturing {}; Ctrl-C ends it", crate::program(), asked.interfaces.join(" and "));
    let until = asked.span.map_or(Time::NEVER, |span| HostClock.now() + span);
    let why = session.run(until, &STOP, signal)?;
    let (ended, finished) = session.end(why);
    let summary = show::json(&ended);
    let written = write_whole(&out.join(SUMMARY), &summary);
    let text = if asked.json { format!("{summary:#}\n") } else { show::text(&ended, out) };
    write!(printed(), "{text}")?;
    let found = ended.findings();
    match ended.why {
        Why::Time | Why::Count | Why::Budget | Why::Asked => {}
        why => return Err(failed(why)),
    }
    finished?;
    written?;
    Ok(found.refuse_useless()?)
}

/// Returns the error of a capture that ended early.
pub fn failed(why: Why) -> anyhow::Error {
    match why {
        Why::Gone(error) => error.into(),
        Why::Unwritten(error) => exists(error),
        Why::Time | Why::Count | Why::Budget | Why::Asked => anyhow::anyhow!("the capture ended as it was to"),
    }
}

fn wanted(asked: &ByHand) -> anyhow::Result<Vec<Wanted>> {
    if asked.interfaces.is_empty() {
        return Err(wrong("name an interface to capture; `ip link` lists those there are").into());
    }
    if !asked.options.filter.is_empty() {
        filter::check(&asked.options.filter)?;
    }
    asked.options.rotation().check_oldest(asked.remove_oldest)?;
    let tap = |interface: &String| Wanted {
        name: interface.clone(),
        interface: interface.clone(),
        options: asked.options.clone(),
    };
    Ok(asked.interfaces.iter().map(tap).collect())
}

/// Refuses a folder that already holds a capture.
fn refuse_one_in_use(out: &Path) -> Result<(), WrongRequest> {
    if out.join(SUMMARY).exists() {
        return Err(wrong(&format!(
            "{}: it holds an earlier capture, and captures are written once: choose another folder",
            out.display()
        )));
    }
    Ok(())
}

fn wrong(problem: &str) -> WrongRequest {
    WrongRequest(problem.to_owned())
}
