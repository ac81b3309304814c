//! Where and how the program runs: processor, scheduler, memory, parent, signals. Says what it got.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{
    Resource, Signal, getpid, getppid, getpriority_process, getrlimit, set_parent_process_death_signal,
    setpriority_process,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use sojourn_rights::{Right, for_a_group};
use sojourn_time::{Pace, Wait};

use crate::arguments::PlaceArguments;
use crate::failure::WrongRequest;
use crate::sys;

/// Above ordinary work, below the kernel's own real-time threads.
pub const PRIORITY: i32 = 20;

/// The most urgent of ordinary work: of two programs on a processor it waits least for its turn.
pub const NICEST: i32 = -20;

/// How urgent a session of our own is to be among others, and the kernel's threads. At -20 one that spins is off a busy
/// processor for 0.8 % of the time, at -15 for 1.1 %, at -10 for 2.2 %, at 0 for 44 %; what else wakes there then waits for up to
/// 126, 41, 13 and 5 ms (Linux 6.18).
const SESSION_NICE: i32 = -15;
const AUTOGROUP: &str = "/proc/self/autogroup";
const AUTOGROUP_SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// More than a block of the most probes takes.
const ENOUGH_MEMORY_BYTES: u64 = 4 << 30;

/// Where and how the prober runs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The CPU that it is pinned to.
    pub cpu: Option<u32>,
    /// Whether it runs under SCHED_FIFO.
    pub is_real_time: bool,
    /// Its nice value, from -20 (most urgent) to 19; without effect under SCHED_FIFO.
    pub nice: i32,
    /// How it waits.
    pub wait: Wait,
    /// Whether its memory is locked.
    pub is_locked: bool,
}

/// What is to be done when SCHED_FIFO is asked for and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fifo {
    /// End with a sentence.
    Required,
    /// Go on without, and say so.
    IfPermitted,
}

impl Place {
    /// Takes the place that is asked for.
    pub fn take(arguments: &PlaceArguments, fifo: Fifo) -> anyhow::Result<Self> {
        if arguments.die_with_parent {
            die_with_parent()?;
        }
        if let Some(cpu) = arguments.cpu {
            pin(cpu)?;
        }
        // Sleeps of ordinary threads are prolonged by 50 µs unless told otherwise.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let is_locked = lock_memory();
        let is_real_time = arguments.fifo && run_real_time(fifo)?;
        if !is_real_time {
            raise_priority();
        }
        let nice = nice();
        Ok(Self { cpu: arguments.cpu, is_real_time, nice, wait: arguments.wait, is_locked })
    }

    /// Returns it as events and summaries carry it.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "wait": self.wait.name(), "fifo": self.is_real_time, "nice": self.nice, "cpu": self.cpu,
            "memory_locked": self.is_locked,
        })
    }

    /// Returns how the driver is to use the processor.
    pub fn pace(&self) -> Pace {
        Pace { wait: self.wait, is_real_time: self.is_real_time }
    }
}

/// The processors that a thread may run on, to be taken before it is pinned.
#[derive(Clone, Copy, Debug)]
pub struct Processors(CpuSet);

impl Processors {
    /// Those of this thread.
    pub fn own() -> anyhow::Result<Self> {
        Ok(Self(sched_getaffinity(None).context("ask where the program may run")?))
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Lets this thread run there as ordinary work: for what goes on beside what is urgent, which hands its urgency down.
    pub fn lower_priority(&self) {
        // Best effort: at worst it competes.
        let _ = sys::run_ordinarily();
        let _ = setpriority_process(None, 0);
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Returns a descriptor that can be read once SIGINT or SIGTERM has come; from then on they no longer kill.
pub fn stop_signal() -> anyhow::Result<BorrowedFd<'static>> {
    static WAKER: OnceLock<OwnedFd> = OnceLock::new();
    let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("create an eventfd")?;
    let waker = WAKER.get_or_init(|| waker).as_fd();
    sys::stop_on_signals(waker).context("take over SIGINT and SIGTERM")?;
    Ok(waker)
}

/// Pins this process and ties it to its parent, and asks for nothing else: for programs that are to be like any other.
pub fn stay(cpu: Option<u32>, with_parent: bool) -> anyhow::Result<()> {
    if with_parent {
        die_with_parent()?;
    }
    cpu.map_or(Ok(()), pin)
}

/// Asks for what departures need that are to be on time, as far as that is permitted: priority over other ordinary work, and sleeps
/// that end when they are to. Threads that are started from now on have it, too. Returns the nice value.
pub fn be_punctual() -> i32 {
    // Sleeps of ordinary threads are prolonged by 50 µs unless told otherwise.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    raise_priority();
    nice()
}

/// Returns the nice value.
pub fn nice() -> i32 {
    getpriority_process(None).unwrap_or_default()
}

/// Has the kernel kill this process when its parent dies, also when that happened just now.
pub fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).context("ask to die with the parent")?;
    if getppid() == parent { Ok(()) } else { Err(anyhow!("the parent has died already")) }
}

/// Asks for more of the processor than other ordinary work gets, which would else take it for milliseconds at a time.
pub fn raise_priority() {
    // Best effort: without CAP_SYS_NICE it goes on as it is, and says so.
    let _ = setpriority_process(None, NICEST);
    if leads_its_session() {
        let _ = fs::write(AUTOGROUP, SESSION_NICE.to_string());
    }
}

/// Says what is to be known where a nice value does not help: the kernel shares processors among sessions first
/// (sched(7), "The autogroup feature"), so it counts only among programs of one session. A session of our own is made more
/// urgent as a whole; one of somebody else's is left as it is.
pub fn autogroup_problem() -> Option<String> {
    let is_shared = !leads_its_session() && fs::read_to_string(AUTOGROUP).is_ok();
    let is_on = fs::read_to_string(AUTOGROUP_SWITCH).is_ok_and(|switch| switch.trim() == "1");
    let problem = "this kernel shares processors among sessions before it looks at priorities: where others are busy, \
                   departures come late; give --fifo, or start it as a service";
    (is_shared && is_on).then(|| problem.to_owned())
}

/// Where the session's leader lives outside this process's PID namespace, the kernel calls the session 0.
fn leads_its_session() -> bool {
    sys::session() == getpid().as_raw_nonzero().get()
}

fn pin(cpu: u32) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    let is_there = (cpu as usize) < CpuSet::MAX_CPU && {
        set.set(cpu as usize);
        sched_setaffinity(None, &set).is_ok()
    };
    let problem = || format!("--cpu {cpu}: the program may not run there; `taskset -cp $$` tells where it may");
    if is_there { Ok(()) } else { Err(WrongRequest(problem()).into()) }
}

/// Locks all memory, now and later, unless a limit would make later allocations fail: whether it would is tried, for the
/// right to go beyond the limit may be there or not, whatever the user's number.
fn lock_memory() -> bool {
    if mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).is_err() {
        return false;
    }
    let is_enough = match getrlimit(Resource::Memlock).current {
        None => true,
        Some(limit) if limit >= ENOUGH_MEMORY_BYTES => true,
        Some(limit) => can_map(limit as usize + 1),
    };
    is_enough || munlockall().is_err()
}

/// Tries whether so much memory can be had, and gives it back.
fn can_map(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

fn run_real_time(fifo: Fifo) -> anyhow::Result<bool> {
    match (sys::run_real_time(PRIORITY), fifo) {
        (Ok(()), _) => Ok(true),
        (Err(_), Fifo::IfPermitted) => Ok(false),
        (Err(error), Fifo::Required) if error.kind() == io::ErrorKind::PermissionDenied => Err(not_in_real_time()),
        (Err(error), Fifo::Required) => Err(error).context("--fifo: set SCHED_FIFO"),
    }
}

/// Says what gives this process the right to run in real time or, where it has that, what else refuses.
fn not_in_real_time() -> anyhow::Error {
    if Right::SysNice.is_held() {
        return anyhow!(
            "--fifo: the kernel refuses although CAP_SYS_NICE is held: the control group of this process may run nothing in \
             real time (its cpu.rt_runtime_us is 0), or the right holds in a user namespace alone; leave --fifo out, or start \
             it outside of that group or namespace"
        );
    }
    anyhow!(
        "--fifo needs CAP_SYS_NICE: run as root, or {}",
        for_a_group(&[Right::NetRaw, Right::SysNice, Right::IpcLock])
    )
}
