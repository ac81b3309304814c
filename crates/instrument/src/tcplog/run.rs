//! `tcplog run`: attaches programs, drops privileges, and logs until COMMAND or another reason ends the log.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp};
use serde_json::{Value, json};
use sojourn_rights::table::TCPLOG;
use sojourn_rights::{Folders, Right};
use sojourn_tcplog::Mode;
use sojourn_tcplog::spool::{Export, Outbox, Spool};
use sojourn_tcplog::tables::INTERRUPTED;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::answer::answer;
use super::arguments::{PartArguments, Run};
use super::child::{self, Companion, Prepared};
use super::close::{End, FULL, LIMITED, NUMBERED, Place, REMOVED, UNWRITTEN, close};
use super::drain::Drain;
use super::export::{self, Connected, Sending};
use super::logger::{Logger, Own};
use super::parts::{self, Parts};
use super::{folder, open, recorder, show};
use crate::aside::{self, say};
use crate::caller;
use crate::control::Control;
use crate::failure::CommandFailed;
use crate::numbers::grouped;
use crate::place;
use crate::printed::printed;
use crate::sys::{self, STOP};

/// The poll interval of the log's state.
const LOOK: Nanos = Nanos::millis(50);
/// The grace period of a command after a signal from the terminal, until it is signalled again; and the grace period
/// after that, until it is killed.
const PATIENCE: Nanos = Nanos::seconds(2);
const LAST_PATIENCE: Nanos = Nanos::seconds(10);
const COMMAND_ENDED: &str = "command ended";

/// Logs until COMMAND ends, a signal arrives or the time is over.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, the log cannot be trusted, or COMMAND failed.
pub fn run(asked: &Run) -> anyhow::Result<()> {
    child::check(&asked.command)?;
    let flight = recorder::flight(&asked.flight, &asked.request.fields)?;
    Parts::of(&asked.parts, HostClock.now())?;
    let signal = place::stop_signal()?;
    let programs = open::open(&asked.attach, &asked.request)?;
    folder::refuse_one_in_use(&asked.out)?;
    let connected = asked.export.as_deref().map(export::connect).transpose()?;
    let logger = attach(asked, Logger::new(programs, flight)?)?;
    let prepared = child::prepare(&asked.command, asked.user.as_deref())?;
    caller::become_caller(|| folder::create(&asked.out).is_ok() && caller::can_write(&asked.out))?;
    TCPLOG.drop_privileges_keeping(&[Right::SysNice])?;
    let outbox = connected.as_ref().map(|_| Arc::<Outbox>::default());
    let (logger, control) = begin(asked, logger, connected.as_ref().zip(outbox.as_ref()))?;
    TCPLOG.write_only_below(Folders::open([&asked.out])?)?;
    let began = HostClock.now();
    let until = asked.duration.map_or(Time::NEVER, |lasts| began + lasts);
    let drain = Drain::start(logger, asked.attach.ring_bytes(), &[])?;
    TCPLOG.drop_privileges()?;
    let sending = connected.zip(outbox).map(|(connected, outbox)| connected.start(outbox)).transpose()?;
    let (companion, started) = match prepared.map(Prepared::start).transpose() {
        Ok(companion) => (companion, Ok(())),
        Err(error) => (None, Err(error)),
    };
    aside::start(|| TCPLOG.restrict_calls())?;
    TCPLOG.restrict_calls()?;
    let mut beside = Beside {
        signal,
        control,
        companion,
        until,
        is_stopped: started.is_err(),
        told: None,
        is_interrupted: false,
        sending,
        is_lost: false,
    };
    let why = beside.wait(&drain)?;
    let command_status = beside.companion.as_mut().and_then(Companion::status);
    // Clients are no longer answered.
    let Beside { sending, .. } = beside;
    let place = Place::of_log(&asked.out, asked.attach.simulated.is_some());
    let mut closed = close(drain, &place, End { why, began, command_status })?;
    closed.footer["warning"] =
        broken_off(&closed.footer, &asked.parts).or_else(|| nothing_logged(&closed.footer)).into();
    let sent = sending.zip(closed.export.take()).map_or(Ok(()), |(to, log)| to.finish(log, &mut closed.footer));
    let written = folder::write_whole(&asked.out.join(folder::FOOTER), &closed.footer);
    // Records and footer are on the disk, so the spool can be discarded.
    if let Some(spent) = closed.spent.take_if(|_| written.is_ok()) {
        spent.discard();
    }
    sys::let_signals_end();
    let told = tell_ended(asked, &closed.footer);
    let whole = closed.interruption.map_or(Ok(()), |gap| Err(gap.into()));
    closed.outcome.and(whole).and(written).and(started).and(sent)?;
    told?;
    match command_status {
        Some(status) if status != 0 && why == COMMAND_ENDED => {
            Err(CommandFailed(u8::try_from(status).unwrap_or(1)).into())
        }
        _ => Ok(()),
    }
}

/// Attaches programs that do not count yet.
fn attach(asked: &Run, mut logger: Logger) -> anyhow::Result<Logger> {
    logger.room = asked.attach.flows;
    let said = logger.set(&asked.request, Some(!asked.disabled))?;
    logger.be(Mode::Disabled)?;
    let fallback = logger.facts().refusal.as_deref().map(show::fallback);
    said.iter().chain(&fallback).for_each(|said| eprintln!("{}: {said}", crate::program()));
    Ok(logger)
}

/// Creates the folder and its files, listens, and enables logging.
fn begin(
    asked: &Run,
    mut logger: Logger,
    export: Option<(&Connected, &Arc<Outbox>)>,
) -> anyhow::Result<(Logger, Control)> {
    folder::create(&asked.out)?;
    let command = asked.command.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let mut options = json!(logger.asked);
    options["flows"] = json!(asked.attach.flows);
    options["ring_bytes"] = json!(asked.attach.ring_bytes());
    options["log_limit"] = json!(asked.log_limit);
    options["parts"] = parts::told(&asked.parts);
    [options["flight"], options["flight_on"]] = recorder::told(&asked.flight);
    let header = folder::header(logger.facts(), &options, (!command.is_empty()).then_some(command));
    let text = header.to_string();
    let spool = Spool::create(&asked.out, &text)?;
    if let Some((connected, outbox)) = export {
        logger.export = Some(Export::new(&text, Arc::clone(outbox)));
        // The cookies of a simulated TCP are not those of sockets.
        logger.own = Own::of(if logger.facts().is_simulated { Vec::new() } else { connected.cookies.clone() });
    }
    logger.spool_to(match (asked.log_limit, asked.parts.budget) {
        (None, Some(budget)) if asked.parts.remove_oldest => spool.parts_within(budget),
        (Some(limit), _) | (None, Some(limit)) => spool.limited_to(limit),
        (None, None) => spool,
    });
    logger.parts = Parts::of(&asked.parts, HostClock.now())?;
    folder::write_whole(&asked.out.join(folder::HEADER), &header)?;
    let control = Control::open(&asked.out.join(folder::SOCKET))?;
    logger.be(Mode::On)?;
    eprintln!("{}: {}", crate::program(), begun(asked, &options, &logger.facts().attach));
    Ok((logger, control))
}

/// Describes in one line what is logged, and where.
fn begun(asked: &Run, options: &Value, attach: &str) -> String {
    let often = match options["ppl"].as_u64() {
        Some(1) => format!("every {}", text(&options["ppl_by"])),
        ppl => format!("1 of {} {}s of each flow", ppl.unwrap_or_default(), text(&options["ppl_by"])),
    };
    let filters = ["port", "prefix", "cgroup", "netns", "process", "congestion"]
        .iter()
        .filter_map(|name| shown(&options[*name]).map(|value| format!(", {name} {value}")))
        .collect::<String>();
    let state = if asked.disabled { "will log, once enabled," } else { "logs" };
    format!("{state} TCP's state at {often}{filters}, of sockets below {attach}, into {}", asked.out.display())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a filter as text; `None` if it is not set.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Array(values) if !values.is_empty() => {
            Some(values.iter().filter_map(shown).collect::<Vec<_>>().join(" or "))
        }
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The state beside the drain.
struct Beside {
    signal: BorrowedFd<'static>,
    control: Control,
    companion: Option<Companion>,
    until: Time,
    /// A client has requested the end.
    is_stopped: bool,
    /// When the command's grace period ends, and whether it will be killed then.
    told: Option<(Time, bool)>,
    /// The detachment of the programs has been reported.
    is_interrupted: bool,
    /// The export to another host; `is_lost`: its loss has been reported.
    sending: Option<Sending>,
    is_lost: bool,
}

impl Beside {
    /// Answers clients until there is a reason to end; returns the reason.
    fn wait(&mut self, drain: &Drain) -> anyhow::Result<&'static str> {
        let mut why = None;
        loop {
            self.sleep()?;
            let is_stopped = &mut self.is_stopped;
            self.control.serve(&mut |line| answer(drain, line, is_stopped));
            let is_over = self.companion.as_mut().is_some_and(|companion| companion.status().is_some());
            why = why.or_else(|| self.reason(drain, is_over));
            match (why, &self.companion) {
                (Some(why), None) => return Ok(why),
                (Some(why), Some(_)) if is_over => return Ok(why),
                (Some(why), Some(companion)) if companion.is_beyond_us() => {
                    let problem = "COMMAND has become another user's and may not be signalled: the log ends without it";
                    say(problem);
                    return Ok(why);
                }
                (Some(_), Some(_)) => self.end_command(),
                (None, _) => {}
            }
        }
    }

    fn reason(&mut self, drain: &Drain, is_over: bool) -> Option<&'static str> {
        let interruption = drain.with(|logger| Ok(logger.interruption().cloned())).unwrap_or_default();
        if let Some(interruption) = interruption.filter(|_| !std::mem::replace(&mut self.is_interrupted, true)) {
            say(&format!("{}: packets from then on are not logged", interruption.why));
        }
        if let Some(why) =
            self.sending.as_ref().and_then(Sending::lost).filter(|_| !std::mem::replace(&mut self.is_lost, true))
        {
            say(&format!("the export has ended: {why}: records from then on are in the log here alone"));
        }
        let has_failed = drain.has_ended() || drain.with(|logger| Ok(logger.has_failed())).unwrap_or(true);
        match () {
            () if is_over => Some(COMMAND_ENDED),
            () if STOP.load(Ordering::Relaxed) => Some("signal"),
            () if HostClock.now() >= self.until => Some("duration"),
            () if self.is_stopped => Some("asked to stop"),
            // COMMAND may be a measurement, so it continues, and so do the counters.
            () if has_failed && self.companion.is_none() => Some("failed"),
            () if self.is_interrupted && self.companion.is_none() => Some(INTERRUPTED),
            () => None,
        }
    }

    /// Sleeps until an event, or until the next poll.
    fn sleep(&self) -> anyhow::Result<()> {
        let ended = self.companion.as_ref().map(Companion::descriptor);
        // The signal descriptor stays readable: it is polled only until the signal has arrived.
        let signal = (!STOP.load(Ordering::Relaxed)).then_some(self.signal.as_fd());
        let all = ended.into_iter().chain(signal).chain(self.control.descriptors());
        let mut polled: Vec<_> = all.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
        let left = if self.control.is_pending() { Nanos::millis(1) } else { LOOK };
        let left = left.min(self.until - HostClock.now()).max(Nanos::ZERO);
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.0 };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Signals the command to end; if the terminal has already signalled it, first waits for the grace period.
    fn end_command(&mut self) {
        let now = HostClock.now();
        let Some(companion) = &self.companion else { return };
        match self.told {
            None if is_foreground() && STOP.load(Ordering::Relaxed) => self.told = Some((now + PATIENCE, false)),
            None => {
                companion.tell(Signal::TERM);
                self.told = Some((now + LAST_PATIENCE, true));
            }
            Some((due, _)) if now < due => {}
            Some((_, false)) => {
                companion.tell(Signal::TERM);
                self.told = Some((now + LAST_PATIENCE, true));
            }
            Some((_, true)) => companion.tell(Signal::KILL),
        }
    }
}

/// Whether this process is in the terminal's foreground group, so that the terminal's signals reach the command, too.
fn is_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// Prints the results.
fn tell_ended(asked: &Run, footer: &Value) -> io::Result<()> {
    if asked.json {
        writeln!(printed(), "{footer}")?;
    } else {
        eprint!("{}", summary(footer));
    }
    Ok(())
}

/// Returns a warning about a log without records.
fn nothing_logged(footer: &Value) -> Option<String> {
    if footer["records"] != json!(0) {
        return None;
    }
    let of =
        |disposition: &str| ["in", "out"].map(|way| footer["totals"][way][disposition].as_u64().unwrap_or_default());
    let [seen, filtered] = ["seen", "filtered"].map(|disposition| of(disposition).iter().sum::<u64>());
    Some(match (seen, filtered) {
        (0, _) => "nothing was logged: no TCP packet passed".to_owned(),
        (seen, 0) => format!("nothing was logged of {} packets: the table tells why", grouped(seen)),
        (seen, filtered) => {
            format!("nothing was logged: of {} packets the filters kept out {}", grouped(seen), grouped(filtered))
        }
    })
}

/// Returns a warning about a log that ended before its programs were detached.
fn broken_off(footer: &Value, parts: &PartArguments) -> Option<String> {
    let left_out = |way: &str| footer["totals"][way]["broken"].as_u64().unwrap_or_default();
    let why = match footer["why"].as_str() {
        Some(LIMITED) if parts.remove_oldest => {
            "what each part says again of the open flows takes more than a third of the --budget, which is too small for them"
        }
        Some(LIMITED) if parts.budget.is_some() => "the log reached its --budget",
        Some(LIMITED) => "the log reached its --log-limit",
        Some(FULL) => "the disk was full",
        Some(REMOVED) => "the log was removed or replaced",
        Some(NUMBERED) => "the log had as many flows as its records can number",
        Some(UNWRITTEN) => "the log could not be written",
        _ => return None,
    };
    let packets = grouped(left_out("in") + left_out("out"));
    let flows = match footer["flows_unrecorded"].as_u64().unwrap_or_default() {
        0 => String::new(),
        flows => {
            format!("; {} flows ended then: what was not recorded of them before is in the totals only", grouped(flows))
        }
    };
    Some(format!("{why}: {packets} packets after that were counted and not logged{flows}"))
}

/// Formats the results as text.
pub fn summary(footer: &Value) -> String {
    let number = |name: &str| footer[name].as_u64().unwrap_or_default();
    let real = |name: &str| footer[name].as_f64().unwrap_or_default();
    let (_, law) = show::law(&footer["totals"]);
    let mut text = show::table(&footer["totals"]);
    let lasted = real("duration_s").max(1e-9);
    // The CPU time of a killed log is unknown.
    let took = footer["logger_cpu_s"]
        .as_f64()
        .map_or(String::new(), |took| format!("; logging took {took:.2} s of a CPU ({:.1} %)", 100.0 * took / lasted));
    let (records, flows) = (grouped(number("records")), grouped(number("flows")));
    text.push_str(&format!("{records} records of {flows} flows in {lasted:.1} s{took}\n"));
    text.push_str(&format!("{law}\n"));
    text.extend(show::removed(footer));
    text.extend(show::fields(footer));
    text.extend(show::triggered(footer));
    text.extend(show::not_run(footer));
    text.extend(show::exported(&footer["export"]));
    if let Some(warning) = footer["warning"].as_str() {
        text.push_str(&format!("! {warning}\n"));
    }
    if let Some(why) = footer["interruption"]["why"].as_str() {
        text.push_str(&format!("! {why}: what passed from then on is not in the log\n"));
    }
    let lost = show::lost(&footer["totals"]).saturating_add(number("events_full"));
    if lost > 0 {
        text.push_str(&format!(
            "! {} records had no room: {} gaps in the log tell where; a larger --ring or --ppl, fewer flows or --flows N help\n",
            grouped(lost),
            grouped(number("gaps")),
        ));
    }
    text
}
