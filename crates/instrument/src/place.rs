//! Where and how the program runs: processor, scheduler, memory, parent, signals. Says what it got.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{
    Resource, Signal, getppid, getpriority_process, getrlimit, set_parent_process_death_signal, setpriority_process,
};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use sojourn_probe::{Pace, Wait};

use crate::arguments::PlaceArguments;
use crate::failure::WrongRequest;
use crate::sys;

/// Above ordinary work, below the kernel's own real-time threads.
pub const PRIORITY: i32 = 20;

/// The most urgent of ordinary work: of two programs on a processor it waits least for its turn.
const NICEST: i32 = -20;

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
            hurry();
        }
        let nice = getpriority_process(None).unwrap_or_default();
        Ok(Self { cpu: arguments.cpu, is_real_time, nice, wait: arguments.wait.into(), is_locked })
    }

    /// Returns how the driver is to use the processor.
    pub fn pace(&self) -> Pace {
        Pace { wait: self.wait, is_real_time: self.is_real_time }
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

/// Has the kernel kill this process when its parent dies, also when that happened just now.
fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL)).context("ask to die with the parent")?;
    if getppid() == parent { Ok(()) } else { Err(anyhow!("the parent has died already")) }
}

/// Asks for more of the processor than other ordinary work gets, which would else take it for milliseconds at a time.
fn hurry() {
    // Best effort: without CAP_SYS_NICE it goes on as it is, and says so.
    let _ = setpriority_process(None, NICEST);
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
        (Err(error), Fifo::Required) if error.kind() == io::ErrorKind::PermissionDenied => Err(anyhow!(
            "--fifo needs CAP_SYS_NICE: run as root, or `sudo setcap cap_net_raw,cap_sys_nice,cap_ipc_lock+ep \
             $(command -v sojourn-instrument)`"
        )),
        (Err(error), Fifo::Required) => Err(error).context("--fifo: set SCHED_FIFO"),
    }
}
