//! `emulate run`: opens the ports, sets its scheduling, drops privileges, and forwards frames until it is stopped.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_emulate::config::to_words;
use sojourn_emulate::select::Rules;
use sojourn_emulate::{Config, Direction};
use sojourn_port::bridge::{self, BridgePort, Detour, How, Wanted, Watch};
use sojourn_rights::table::EMULATE;
use sojourn_rights::{self as rights, Folders, Right};
use sojourn_time::{Clock, Nanos, SteadyClock, Time, Wait};

use super::arguments::{Run, SelfTest};
use super::compensate::{Compensated, Compensation};
use super::events::Event;
use super::idle::{Idle, IdleArgument};
use super::live::{Live, Urgency};
use super::log::{self, Files, Log};
use super::{Bridge, asked, show};
use crate::arguments::PlaceArguments;
use crate::aside;
use crate::control::{self, Control};
use crate::failure::WrongRequest;
use crate::place::{self, Fifo, Place, Processors};
use crate::serve;
use crate::sys;

/// The minimum number of CPUs at which the emulator spins on one by default.
const ENOUGH_PROCESSORS: u32 = 4;

/// Forwards frames until a signal arrives, the time is over or a client stops it.
///
/// # Errors
/// If the request is invalid, the ports cannot be opened or fail, or the log cannot be written.
pub fn run(asked: &Run) -> anyhow::Result<()> {
    if asked.left == "verify" {
        let problem = "emulate verify: the measurement is done by `sojourn emulate verify`, not by this program";
        return Err(WrongRequest(problem.to_owned()).into());
    }
    asked::check_ports(&[&asked.left, &asked.right])?;
    // First of all: a file that this program opens could get the same descriptor number.
    let ready_pipe = asked.how.ready_fd.map(open_ready).transpose()?;
    let config = asked::config(&asked.asked)?;
    let signal = place::stop_signal()?;
    let processors = Processors::own()?;
    let wait = wait(asked, &processors);
    let (compensated, measured_over) = compensated(asked, &config, wait)?;
    let place = Place::take(&place_arguments(asked, wait), fifo(asked))?;
    let clock = SteadyClock::begin();
    let (left, right, mut said) = bridge::open(&asked.left, &asked.right, &how(asked, &config, clock)?)?;
    let detour = detour(asked)?;
    if let Some(measured) = &measured_over {
        check_measured(measured, [&*left, &*right])?;
    }
    // If frames pass within the kernel (redirect), spinning has no use.
    let wait = if left.shows_frames() || right.shows_frames() { wait } else { Wait::Sleep };
    let idle = Idle::open(if wait == Wait::SleepThenSpin { asked.how.idle } else { IdleArgument::Sleep });
    let mut control = control(asked)?;
    let files = files(asked, &config)?;
    give_up(control.as_mut(), &kept_rights(&place, [left.engine(), right.engine()]))?;
    said.extend(place::autogroup_problem().filter(|_| !place.is_real_time));
    let log = files.map(|files| Log::begin(files, processors, clock)).transpose()?;
    let guards = [left.guard(), right.guard()].into_iter().flatten();
    let begin = move || {
        processors.lower_priority();
        EMULATE.restrict_calls()
    };
    aside::start(begin).context("start the thread that prints sentences")?;
    let watch = Watch::start(guards, detour.as_ref().map(Detour::guard), begin).context("look after the ports")?;

    let mut bridge = Bridge::new(&config, [left, right], clock, wait)?;
    bridge.engine().keep_dispositions(log.is_some());
    bridge.compensate(compensated.path_delay_ns);
    let now = clock.now();
    let until = asked.how.lasts.map_or(Time::NEVER, |lasts| now + lasts);
    let urgency = Urgency::new(place.is_real_time, now);
    let ports = [asked.left.clone(), asked.right.clone()];
    let mut live = Live {
        signal,
        control,
        log,
        clock,
        until,
        urgency,
        idle,
        compensated,
        is_stopped: false,
        block: 0,
        ports,
        detour,
        failed: None,
    };
    begin_log(asked, &mut bridge, &mut live, &config);
    let ready = ready(asked, &mut bridge, &live, &place, &said);
    tell_ready(asked, ready_pipe, &ready)?;
    EMULATE.restrict_calls()?;
    let ran = bridge.run(&mut live);
    // It looks at the ports once more.
    drop(watch);
    let ran = ran.and_then(|()| live.last_news(&mut bridge));
    // From here on, frames of the detoured interface take their own way.
    live.detour = None;
    let ran = ran.and(live.failed.take().map_or(Ok(()), Err));
    let ended = end(&mut bridge, &mut live);
    sys::let_signals_end();
    // The reader of standard output may have closed it; that must not change the result.
    let _ = tell_ended(asked, &ended.0);
    ran?;
    ended.1
}

/// Returns the path delay to subtract from departures: zero if there is no pipe.
fn compensated(asked: &Run, config: &Config, wait: Wait) -> anyhow::Result<(Compensated, Option<String>)> {
    let how = SelfTest { cpu: asked.how.cpu, engine: asked.how.engine, spin: wait == Wait::Spin, idle: asked.how.idle };
    let compensation = if config.pipes.is_empty() { Compensation::Given(Nanos::ZERO) } else { asked.how.compensate };
    compensation.find([&asked.left, &asked.right], &how)
}

/// Starts the detour of an interface's frames through the ports, if requested.
fn detour(asked: &Run) -> anyhow::Result<Option<Detour>> {
    let [interface, inner, outer] = &asked.how.detour[..] else { return Ok(None) };
    Ok(Some(Detour::begin(interface, inner, outer)?))
}

/// Refuses a path delay that was measured with another engine than that of these ports.
fn check_measured(measured: &str, ports: [&dyn BridgePort; 2]) -> anyhow::Result<()> {
    let kind = |engine: &str| engine.split(' ').next().map(str::to_owned);
    let Some(other) = ports.iter().find(|port| port.shows_frames() && kind(port.engine()) != kind(measured)) else {
        return Ok(());
    };
    let problem = format!(
        "--compensate auto measured the path by {measured}, and {} is open by {}: give --engine packet, or the time that \
         `emulate verify` finds",
        other.name(),
        other.engine()
    );
    Err(WrongRequest(problem).into())
}

/// Chooses how to wait.
fn wait(asked: &Run, processors: &Processors) -> Wait {
    let is_roomy = processors.count() >= ENOUGH_PROCESSORS && !asked.how.sleep && !asked.how.fifo;
    if asked.how.spin || is_roomy { Wait::Spin } else { Wait::SleepThenSpin }
}

/// Returns the privileges that a running emulator needs: to return to real-time priority, and to enlarge a ring when an
/// MTU is raised.
fn kept_rights(place: &Place, engines: [&str; 2]) -> Vec<Right> {
    let rings = engines.iter().any(|engine| engine.starts_with("AF_PACKET")).then_some(Right::NetRaw);
    let priority = place.is_real_time.then_some(Right::SysNice);
    [Right::IpcLock].into_iter().chain(rings).chain(priority).collect()
}

/// Changes the user if root started the emulator, and keeps only these privileges. That user may not remove root's socket.
fn give_up(mut control: Option<&mut Control>, kept: &[Right]) -> anyhow::Result<()> {
    let becomes = EMULATE.becomes();
    if becomes.is_some() {
        control.iter_mut().try_for_each(|control| control.leave_to_remover())?;
    }
    let socket = control.as_ref().and_then(|control| control.path().parent()).map(|folder| here(folder).to_owned());
    let own = socket.into_iter().chain(bridge::lock_folder()).filter(|_| becomes.is_none());
    let writable = Folders::open(own)?;
    if let Some(user) = becomes {
        user.assume_with_rights()?;
    }
    rights::keep_only(kept)?;
    EMULATE.write_only_below(writable)?;
    Ok(())
}

/// Returns the folder's path, or `.` for an empty one.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn how(asked: &Run, config: &Config, clock: SteadyClock) -> anyhow::Result<How> {
    let (means, take_over) = (asked.how.engine.into(), asked.how.take_over);
    let mut how = How { means, take_over, clock, ..How::default() };
    // Only on request: the counters of this program do not include what these frames undergo within the kernel.
    if asked.how.redirect {
        let rules = Rules::new(config)?;
        how.wanted = [Direction::Forward, Direction::Backward]
            .map(|direction| rules.ethertypes(direction).map_or(Wanted::All, Wanted::Ethertypes));
    }
    Ok(how)
}

fn place_arguments(asked: &Run, wait: Wait) -> PlaceArguments {
    // The kernel throttles a SCHED_FIFO thread that never sleeps.
    let fifo = wait != Wait::Spin && !asked.how.no_fifo;
    PlaceArguments { cpu: asked.how.cpu, fifo, wait, die_with_parent: asked.how.die_with_parent }
}

fn fifo(asked: &Run) -> Fifo {
    if asked.how.fifo { Fifo::Required } else { Fifo::IfPermitted }
}

fn control(asked: &Run) -> anyhow::Result<Option<Control>> {
    match &asked.how.control {
        Some(path) if path.as_os_str() == "none" => Ok(None),
        Some(path) => Control::open(path).map(Some),
        None => {
            let folder = control::folders().into_iter().next().context("a folder for the control socket")?;
            Control::open_by_default(&folder.join(format!("emulate-{}-{}.sock", asked.left, asked.right))).map(Some)
        }
    }
}

fn files(asked: &Run, config: &Config) -> anyhow::Result<Option<Files>> {
    let pipes = config.pipes.iter().map(|pipe| pipe.name.clone()).collect();
    asked
        .how
        .log
        .as_ref()
        .map(|folder| log::create(folder, (&asked.how.name, asked.how.part), pipes, asked.how.log_limit))
        .transpose()
}

fn begin_log(asked: &Run, bridge: &mut Bridge, live: &mut Live, config: &Config) {
    let Some(log) = &mut live.log else { return };
    let running = bridge.report();
    log.note(Event::Start {
        config: Box::new(config.clone()),
        start_ns: bridge.start(),
        left: asked.left.clone(),
        right: asked.right.clone(),
        engine: [0, 1].map(|port| running.ports[port].engine.clone()),
        wait: running.calibration.wait.to_owned(),
        compensated: Some(live.compensated),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: crate::PROFILE.to_owned(),
    });
    log.note_clock(bridge.start(), bridge.tai_ahead());
}

fn ready(asked: &Run, bridge: &mut Bridge, live: &Live, place: &Place, said: &[String]) -> Value {
    let running = bridge.report();
    let config = bridge.config();
    let pipes: Vec<_> = config.pipes.iter().map(|pipe| json!({ "name": pipe.name, "words": to_words(pipe) })).collect();
    let own = json!({
        "left": asked.left,
        "right": asked.right,
        "engine": running.ports.iter().map(|port| &port.engine).collect::<Vec<_>>(),
        "wait": running.calibration.wait,
        "compensated": live.compensated,
        "control": live.control.as_ref().map(|control| control.path().display().to_string()),
        "log": asked.how.log,
        "seed": config.seed,
        "pipes": pipes,
        "said": said,
    });
    serve::ready(Some(place), own)
}

/// Opens the descriptor of --ready-fd.
fn open_ready(number: i32) -> anyhow::Result<File> {
    let pipe = File::options().write(true).open(format!("/proc/self/fd/{number}"));
    pipe.map_err(|_| WrongRequest(format!("--ready-fd {number}: nothing to write to is open there")).into())
}

fn tell_ready(asked: &Run, pipe: Option<File>, ready: &Value) -> anyhow::Result<()> {
    serve::tell(asked.how.json, ready, &show::ready(ready))?;
    match pipe {
        Some(mut pipe) => writeln!(pipe, "{ready}").context("write to --ready-fd"),
        None => Ok(()),
    }
}

/// Ends the bridge and the log; returns the final report.
fn end(bridge: &mut Bridge, live: &mut Live) -> (Value, anyhow::Result<()>) {
    bridge.end();
    let mut report = live.report(bridge);
    let finished = match live.log.take() {
        None => Ok(()),
        Some(mut log) => {
            let finished = log.finish(bridge, report.clone());
            report["log"] = log.told();
            finished
        }
    };
    // Remove the socket before the end is reported.
    live.control = None;
    (json!({ "event": "ended", "report": report, "marks": show::marks(&report), "config": bridge.config() }), finished)
}

fn tell_ended(asked: &Run, ended: &Value) -> anyhow::Result<()> {
    serve::tell(asked.how.json, ended, &show::table(&ended["report"], &ended["config"], None))
}
