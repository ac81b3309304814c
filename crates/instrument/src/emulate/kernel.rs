//! Emulation by the kernel's netem: the commands that create the same pipes, and `--backend kernel`, which runs them.

use std::io::Write;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use sojourn_emulate::kernel::{commands, to_text, undo};
use sojourn_port::kernel::{Interface, Netlink};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::arguments::{Kernel, Run};
use super::asked;
use super::bridged::{Bridged, LOOK_EVERY};
use super::qdiscs::Qdiscs;
use crate::aside::{self, say};
use crate::failure::WrongRequest;
use crate::place;
use crate::printed::printed;
use crate::serve;
use crate::sys::{self, STOP};

/// Prints the commands.
///
/// # Errors
/// If netem cannot do exactly what is requested.
pub fn print(asked: &Kernel) -> anyhow::Result<()> {
    asked::check_ports(&[&asked.left, &asked.right])?;
    let config = asked::config(&asked.asked)?;
    let (commands, undo) = (commands(&config, &asked.left, &asked.right)?, undo(&config, &asked.left, &asked.right)?);
    let (text, undone) = (to_text(&commands), to_text(&undo));
    let mut output = printed();
    if asked.json {
        return Ok(writeln!(output, "{}", json!({ "commands": commands, "undo": undo }))?);
    }
    match text.is_empty() {
        true => writeln!(output, "# nothing is asked of the kernel: a bridge as it is")?,
        false => write!(
            output,
            "{text}# and to end it:\n{}",
            undone.lines().map(|line| format!("# {line}\n")).collect::<String>()
        )?,
    }
    Ok(())
}

/// Runs the commands, and waits until a signal arrives or the time is over.
///
/// # Errors
/// If netem cannot do exactly what is requested, this kernel lacks netem, or the ports are in no bridge; [`NotTrusted`]
/// within a second after one of the qdiscs is no longer in place, or a port no longer in its bridge.
///
/// [`NotTrusted`]: crate::failure::NotTrusted
pub fn run(asked: &Run) -> anyhow::Result<()> {
    if asked.how.log.is_some() {
        let problem = "--log: the kernel's netem tells nobody what became of packets; use --backend user";
        return Err(WrongRequest(problem.to_owned()).into());
    }
    let config = asked::config(&asked.asked)?;
    let (left, right) = (asked.left.as_str(), asked.right.as_str());
    let doing = commands(&config, left, right)?;
    [left, right].into_iter().try_for_each(in_bridge)?;
    place::stay(asked.how.cpu, asked.how.die_with_parent)?;
    let signal = place::stop_signal()?;
    let qdiscs = Qdiscs::begin([left, right], &doing)?;
    let doing = qdiscs.put(&doing)?;
    let mut bridged = Bridged::begin(&[left, right].map(|port| (port, qdiscs.handle_at(port))))?;
    let event = serve::ready(None, json!({ "backend": "kernel", "left": left, "right": right, "commands": doing }));
    let text = format!("the kernel does it:\n{}Ctrl-C ends it", to_text(&doing));
    serve::tell(asked.how.json, &event, &text)?;
    aside::start(|| Ok(()))?;
    let until = asked.how.lasts.map_or(Time::NEVER, |lasts| HostClock.now() + lasts);
    while !STOP.load(Ordering::Relaxed) && HostClock.now() < until {
        let left = (until - HostClock.now()).min(LOOK_EVERY).max(Nanos::ZERO);
        let span = Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 };
        // A signal ends the wait early.
        let _ = poll(&mut [PollFd::from_borrowed_fd(signal, PollFlags::IN)], Some(&span));
        bridged.look()?.iter().for_each(|sentence| say(sentence));
    }
    drop(qdiscs);
    sys::let_signals_end();
    serve::tell(asked.how.json, &json!({ "event": "ended", "backend": "kernel" }), "ended")
}

/// Checks that the port is in a bridge: the kernel must forward packets between the ports.
fn in_bridge(port: &str) -> anyhow::Result<()> {
    let index = Interface::named(port)?.index;
    let link = Netlink::open(false).and_then(|mut netlink| netlink.link(index));
    if link.with_context(|| format!("ask what {port} belongs to"))?.master.is_some() {
        return Ok(());
    }
    Err(anyhow!(
        "{port}: it is in no bridge, and --backend kernel only delays what the kernel forwards: \
         `ip link add br0 type bridge`, `ip link set {port} master br0`"
    ))
}
