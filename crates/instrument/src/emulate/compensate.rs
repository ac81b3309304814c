//! Path delay compensation that an emulator measures before it starts: the delay of a path over veth interfaces outside
//! the emulator.
//!
//! In a separate network namespace, which ends with the process, an emulator with the same wait settings delays frames
//! by a known time between two cables. The path delay is the difference between the kernel's timestamps at the sender
//! (TX) and the receiver (RX), minus that time: it lies before the emulator's RX timestamp and behind its send call. It
//! holds only for veth interfaces; `emulate verify` measures others.

use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sojourn_emulate::config::{Action, Delay, Match, Rule};
use sojourn_emulate::driver::{Flow, Ports, Surroundings};
use sojourn_emulate::{Config, Direction, Pipe};
use sojourn_port::bridge::{self, How};
use sojourn_port::kernel::{Interface, wait_for_any};
use sojourn_port::packet::PacketPort;
use sojourn_port::{Port, PortError};
use sojourn_time::text::time;
use sojourn_time::{Clock, Nanos, SteadyClock, Time, Wait};
use sojourn_wire::ethernet::PROBE_ETHERTYPE;

use super::Bridge;
use super::arguments::{EngineArgument, SelfTest};
use super::idle::{Idle, IdleArgument};
use crate::arguments::PlaceArguments;
use crate::failure::WrongRequest;
use crate::place::{Fifo, Place};

/// The delay of the pipe: longer than any path over veth interfaces takes.
const DELAY: Nanos = Nanos::millis(1);
/// The number of warm-up frames, and of measured frames; at least a third of the measured ones must arrive.
const FIRST: usize = 100;
const JUDGED: usize = 300;
/// The inter-departure time, and the maximum duration of a measurement.
const INTERVAL: Nanos = Nanos::micros(2_300);
const LONGEST: Nanos = Nanos::seconds(5);
/// Both cables, from host to host.
const CABLES: [[&str; 2]; 2] = [["near", "left"], ["right", "far"]];

/// The requested path delay compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compensation {
    /// A given path delay.
    Given(Nanos),
    /// A path delay measured at the start.
    Auto,
}

/// The path delay that is subtracted from departures, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compensated {
    /// The delay of the path outside the emulator.
    pub path_delay_ns: Nanos,
    /// The number of frames from which it was measured; `None`: it was given.
    pub frames: Option<usize>,
}

impl Compensation {
    /// Parses "6us" or "auto".
    pub fn read(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { time(text).map(Self::Given) }
    }

    /// Returns the given path delay, or measures it for an emulator between these ports with the same settings; also
    /// returns the engine of the measurement.
    ///
    /// # Errors
    /// If the ports are not veth interfaces, or the measurement fails.
    pub fn find(self, ports: [&str; 2], how: &SelfTest) -> anyhow::Result<(Compensated, Option<String>)> {
        match self {
            Self::Given(path_delay_ns) => Ok((Compensated { path_delay_ns, frames: None }, None)),
            Self::Auto => {
                ports.into_iter().try_for_each(check_veth)?;
                measure_apart(how).map(|(found, engine)| (found, Some(engine)))
            }
        }
    }
}

fn check_veth(port: &str) -> anyhow::Result<()> {
    let driver = Interface::named(port)?.driver();
    if driver.as_deref() == Some("veth") {
        return Ok(());
    }
    let kind = driver.unwrap_or_else(|| "unknown".to_owned());
    let problem = format!(
        "--compensate auto knows what a path over veth interfaces takes, and {port} is none (driver {kind}): measure it with \
         `emulate verify`, and give the time"
    );
    Err(WrongRequest(problem).into())
}

/// Measures in a separate process with its own network namespace.
fn measure_apart(how: &SelfTest) -> anyhow::Result<(Compensated, String)> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program).args(["emulate", "self-test"]);
    command.args(how.cpu.iter().flat_map(|cpu| ["--cpu".to_owned(), cpu.to_string()]));
    command.args(how.spin.then_some("--spin"));
    command.args((how.idle == IdleArgument::Sleep).then_some(["--idle", "sleep"]).into_iter().flatten());
    let engine = match how.engine {
        EngineArgument::Auto => "auto",
        EngineArgument::Xdp => "xdp",
        EngineArgument::Packet => "packet",
    };
    command.args(["--engine", engine]);
    let output = command.output().context("--compensate auto: start `unshare` (util-linux)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(anyhow!("--compensate auto: the path could not be measured: {}", said.trim()));
    }
    measured(&output.stdout).context("--compensate auto: read what was measured")
}

/// Reads the output of `emulate self-test`: the path delay, and the engine.
pub fn measured(output: &[u8]) -> serde_json::Result<(Compensated, String)> {
    serde_json::from_slice(output)
}

/// `emulate self-test`: measures in the network namespace of this process, which must be new, and prints the result.
///
/// # Errors
/// If the namespace is in use, the cables cannot be created, or too few frames arrived.
pub fn run(asked: &SelfTest) -> anyhow::Result<()> {
    check_apart()?;
    lay_cables()?;
    let wait = if asked.spin { Wait::Spin } else { Wait::SleepThenSpin };
    let clock = SteadyClock::begin();
    let (frames, (tell, measured)) = (Frames::open()?, channel());
    let (begin, may_begin) = channel();
    // Started before this thread changes its scheduling: hosts are ordinary programs.
    let thread = thread::Builder::new().name("hosts".to_owned());
    thread.spawn(move || {
        if may_begin.recv().is_ok() {
            let _ = tell.send(frames.measure(clock));
        }
    })?;
    let place = PlaceArguments { cpu: asked.cpu, fifo: wait != Wait::Spin, wait, die_with_parent: true };
    Place::take(&place, Fifo::IfPermitted)?;
    let how = How { clock, means: asked.engine.into(), ..How::default() };
    let (left, right, _) = bridge::open("left", "right", &how)?;
    let engine = left.engine().to_owned();
    let mut bridge = Bridge::new(&held(), [left, right], clock, wait)?;
    let idle = Idle::open(if wait == Wait::SleepThenSpin { asked.idle } else { IdleArgument::Sleep });
    let mut around = Measured { clock, idle, measured, result: None };
    let _ = begin.send(());
    bridge.run(&mut around)?;
    let mut outside = around.result.context("measure the path: its thread has died")??;
    let found = conclude(&mut outside)?;
    println!("{}", serde_json::to_string(&(found, engine))?);
    Ok(())
}

/// Refuses a network namespace in use: in a new one no interface is up, not even lo.
fn check_apart() -> anyhow::Result<()> {
    let devices = std::fs::read("/proc/thread-self/net/dev").context("read the interfaces")?;
    let devices = String::from_utf8_lossy(&devices);
    let names = devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    for name in names {
        if Interface::named(name).is_ok_and(|interface| interface.up) {
            let problem = format!(
                "emulate self-test lays cables in a new network namespace (`unshare --net`), and in this one {name} is up"
            );
            return Err(WrongRequest(problem).into());
        }
    }
    Ok(())
}

fn lay_cables() -> anyhow::Result<()> {
    // IPv6 neighbour discovery would add frames.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for [one, other] in CABLES {
        ip(&["link", "add", one, "type", "veth", "peer", "name", other])?;
    }
    CABLES.iter().flatten().try_for_each(|end| ip(&["link", "set", end, "up"]))
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(words).output().context("start `ip` (iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(anyhow!("ip {}: {}", words.join(" "), said.trim())) }
}

/// Returns a configuration of one pipe that delays every frame by the same time.
fn held() -> Config {
    let name = "forward".to_owned();
    let action = Action::Pipe { pipe: name.clone(), class: None };
    let on = Match { direction: Some(Direction::Forward), ..Match::default() };
    let delay = Delay { constant: DELAY, ..Delay::default() };
    let rules = vec![Rule { number: 1, on, action }];
    Config { pipes: vec![Pipe { name, delay, ..Pipe::default() }], rules, ..Config::default() }
}

/// Sends frames one by one and receives them at the other end, on another CPU than the emulator, as hosts do.
struct Frames {
    near: PacketPort,
    far: PacketPort,
    frame: Vec<u8>,
}

impl Frames {
    fn open() -> anyhow::Result<Self> {
        let (near, far) = (PacketPort::open("near", false)?, PacketPort::open("far", false)?);
        let mut frame = far.mac().0.to_vec();
        frame.extend(near.mac().0);
        frame.extend(PROBE_ETHERTYPE.to_be_bytes());
        frame.resize(60, 0);
        Ok(Self { near, far, frame })
    }

    /// Returns the path delay of each frame without the pipe's delay, in order.
    fn measure(mut self, clock: SteadyClock) -> Result<Vec<Nanos>, PortError> {
        let mut outside = Vec::with_capacity(FIRST + JUDGED);
        let give_up = clock.now() + LONGEST;
        while outside.len() < FIRST + JUDGED && clock.now() < give_up {
            self.near.transmit(&self.frame)?;
            clock.wait_until(clock.now() + INTERVAL, Nanos::ZERO);
            outside.extend(self.take()?);
        }
        Ok(outside)
    }

    /// Returns the path delay of the frame that was sent last; `None` if it has not arrived yet, or a late frame arrived too.
    fn take(&mut self) -> Result<Option<Nanos>, PortError> {
        let (mut left, mut came) = (Vec::new(), Vec::new());
        while let Some(stamp) = self.near.tx_timestamp()? {
            left.push(stamp.left.at);
        }
        let mut buffer = [0; 64];
        while let Some(received) = self.far.receive(&mut buffer)? {
            came.push(received.arrived.at);
        }
        let [left, came] = [left.as_slice(), came.as_slice()];
        let ([left], [came]) = (left, came) else { return Ok(None) };
        Ok(Some(*came - *left - DELAY))
    }
}

/// Returns the median of the measured frames, never negative: no frame departs before it arrives.
fn conclude(outside: &mut [Nanos]) -> anyhow::Result<Compensated> {
    let judged = outside.get_mut(FIRST..).unwrap_or_default();
    let frames = judged.len();
    if frames < JUDGED / 3 {
        return Err(anyhow!("only {frames} of {JUDGED} frames came through within {} s", LONGEST.0 / 1_000_000_000));
    }
    let (_, median, _) = judged.select_nth_unstable(frames / 2);
    Ok(Compensated { path_delay_ns: (*median).max(Nanos::ZERO), frames: Some(frames) })
}

/// The surroundings of the emulator under self-test: they end with the measurement.
struct Measured {
    clock: SteadyClock,
    idle: Idle,
    measured: Receiver<Result<Vec<Nanos>, PortError>>,
    result: Option<Result<Vec<Nanos>, PortError>>,
}

impl Surroundings<SteadyClock> for Measured {
    fn sleep(&mut self, ports: &Ports, until: Time) -> Result<bool, PortError> {
        // Waits as the emulator does, but without a control socket.
        let left = (until - self.clock.now()).max(Nanos::ZERO);
        wait_for_any(ports.iter().map(|port| port.descriptor()), left).map(|()| false)
    }

    fn keep(&mut self, _: &mut Bridge) {}

    fn look_up(&mut self, bridge: &mut Bridge, now: Time, _: f64) -> Flow {
        self.idle.follow(bridge.is_busy(), now);
        match self.measured.try_recv() {
            Err(TryRecvError::Empty) => Flow::On,
            measured => {
                self.result = measured.ok();
                Flow::Stop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compensate_accepts_a_duration_or_auto() {
        assert_eq!(Compensation::read("auto"), Ok(Compensation::Auto));
        assert_eq!(Compensation::read("6us"), Ok(Compensation::Given(Nanos::micros(6))));
        assert!(Compensation::read("automatic").is_err());
    }

    #[test]
    fn median_is_subtracted_and_never_negative() {
        let path = |judged: i64| {
            let mut outside: Vec<_> = [vec![Nanos::millis(9); FIRST], vec![Nanos(judged); JUDGED]].concat();
            outside[FIRST] = Nanos::seconds(1);
            conclude(&mut outside).map(|found| (found.path_delay_ns, found.frames)).map_err(|error| error.to_string())
        };
        assert_eq!(path(6_100), Ok((Nanos(6_100), Some(JUDGED))));
        assert_eq!(path(-40), Ok((Nanos::ZERO, Some(JUDGED))));
        let told = conclude(&mut [Nanos(1); FIRST + 9]).unwrap_err().to_string();
        assert_eq!(told, "only 9 of 300 frames came through within 5 s");
    }

    #[test]
    fn configuration_of_the_compensation_measurement_is_valid() {
        assert_eq!(sojourn_emulate::config::check(&held()), Ok(()));
    }
}
