//! Scheduling settings of the program: CPU, scheduling class, memory locking, parent death, signals. Reports which
//! settings took effect.

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

/// SCHED_FIFO priority: above ordinary processes, below the kernel's own real-time threads.
pub const PRIORITY: i32 = 20;

/// The highest priority among ordinary processes: it waits least where two programs share a CPU.
pub const NICEST: i32 = -20;

/// The nice value of this program's own session, relative to other sessions and to kernel threads. On a busy CPU, a
/// spinning program does not run for 0.8 % of the time at -20, 1.1 % at -15, 2.2 % at -10 and 44 % at 0; another
/// program that wakes there then waits for up to 126, 41, 13 and 5 ms (Linux 6.18).
const SESSION_NICE: i32 = -15;
const AUTOGROUP: &str = "/proc/self/autogroup";
const AUTOGROUP_SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// More memory than the largest block of probes needs.
const ENOUGH_MEMORY_BYTES: u64 = 4 << 30;

/// The scheduling settings that took effect.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The CPU to which the program is pinned.
    pub cpu: Option<u32>,
    /// Whether it runs under SCHED_FIFO.
    pub is_real_time: bool,
    /// The nice value, from -20 (highest priority) to 19; without effect under SCHED_FIFO.
    pub nice: i32,
    /// How the program waits.
    pub wait: Wait,
    /// Whether its memory is locked.
    pub is_locked: bool,
}

/// What to do if SCHED_FIFO is requested and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fifo {
    /// Exit with an error.
    Required,
    /// Continue without it, and report that.
    IfPermitted,
}

impl Place {
    /// Applies the requested settings.
    pub fn take(arguments: &PlaceArguments, fifo: Fifo) -> anyhow::Result<Self> {
        if arguments.die_with_parent {
            die_with_parent()?;
        }
        if let Some(cpu) = arguments.cpu {
            pin(cpu)?;
        }
        // The kernel's default timer slack prolongs sleeps of ordinary threads by 50 µs.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let is_locked = lock_memory();
        let is_real_time = arguments.fifo && run_real_time(fifo)?;
        if !is_real_time {
            raise_priority();
        }
        let nice = nice();
        Ok(Self { cpu: arguments.cpu, is_real_time, nice, wait: arguments.wait, is_locked })
    }

    /// Returns the settings as in events and summaries.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "wait": self.wait.name(), "fifo": self.is_real_time, "nice": self.nice, "cpu": self.cpu,
            "memory_locked": self.is_locked,
        })
    }

    /// Returns how the driver waits.
    pub fn pace(&self) -> Pace {
        Pace { wait: self.wait, is_real_time: self.is_real_time }
    }
}

/// The CPUs on which a thread may run; query this before the thread is pinned.
#[derive(Clone, Copy, Debug)]
pub struct Processors(CpuSet);

impl Processors {
    /// Returns those of this thread.
    pub fn own() -> anyhow::Result<Self> {
        Ok(Self(sched_getaffinity(None).context("ask where the program may run")?))
    }

    /// Returns their number.
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Lets this thread run on these CPUs with ordinary priority: for background work started by a high-priority
    /// thread, whose settings it inherits.
    pub fn lower_priority(&self) {
        // Best effort: if this fails, the thread competes with the high-priority one.
        let _ = sys::run_ordinarily();
        let _ = setpriority_process(None, 0);
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Returns a descriptor that becomes readable once SIGINT or SIGTERM has arrived; from then on, these signals do not
/// end the program.
pub fn stop_signal() -> anyhow::Result<BorrowedFd<'static>> {
    static WAKER: OnceLock<OwnedFd> = OnceLock::new();
    let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("create an eventfd")?;
    let waker = WAKER.get_or_init(|| waker).as_fd();
    sys::stop_on_signals(waker).context("take over SIGINT and SIGTERM")?;
    Ok(waker)
}

/// Pins this process and ties it to its parent, but leaves its priority alone: for programs that must run like any other.
pub fn stay(cpu: Option<u32>, with_parent: bool) -> anyhow::Result<()> {
    if with_parent {
        die_with_parent()?;
    }
    cpu.map_or(Ok(()), pin)
}

/// Raises priority over other ordinary processes and removes timer slack, as far as permitted, so that departures are
/// on time. Threads started later inherit both. Returns the nice value.
pub fn be_punctual() -> i32 {
    // The kernel's default timer slack prolongs sleeps of ordinary threads by 50 µs.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    raise_priority();
    nice()
}

/// Returns the nice value.
pub fn nice() -> i32 {
    getpriority_process(None).unwrap_or_default()
}

/// Has the kernel kill this process when its parent dies; fails if the parent has just died.
pub fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).context("ask to die with the parent")?;
    if getppid() == parent { Ok(()) } else { Err(anyhow!("the parent has died already")) }
}

/// Raises priority: other ordinary processes could otherwise take the CPU for milliseconds at a time.
pub fn raise_priority() {
    // Best effort: without CAP_SYS_NICE the program continues at its priority, and reports it.
    let _ = setpriority_process(None, NICEST);
    if leads_its_session() {
        let _ = fs::write(AUTOGROUP, SESSION_NICE.to_string());
    }
}

/// Returns a warning where the nice value has no effect: with autogroups (sched(7), "The autogroup feature"), the
/// kernel shares CPUs among sessions first, and nice values count only within one session. This program raises its own
/// session as a whole, and leaves a session led by another process alone.
pub fn autogroup_problem() -> Option<String> {
    let is_shared = !leads_its_session() && fs::read_to_string(AUTOGROUP).is_ok();
    let is_on = fs::read_to_string(AUTOGROUP_SWITCH).is_ok_and(|switch| switch.trim() == "1");
    let problem = "this kernel shares processors among sessions before it looks at priorities: where others are busy, \
                   departures come late; give --fifo, or start it as a service";
    (is_shared && is_on).then(|| problem.to_owned())
}

/// The kernel reports session 0 if the session's leader is outside this process's PID namespace.
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

/// Locks all memory, current and future, unless the limit would make later allocations fail. Tries an allocation beyond
/// the limit, because the user number does not show whether CAP_IPC_LOCK is held.
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

/// Tries whether so much memory can be allocated, and frees it.
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

/// Returns an error that names the missing privilege or, where the privilege is held, what else may refuse.
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
