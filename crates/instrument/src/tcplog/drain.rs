//! The thread that drains the rings by a timer, and does nothing else: clients must not delay records.
//!
//! Records wake no thread. The timer is faster while rings fill quickly.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow};
use rustix::process::setpriority_process;
use sojourn_rights::Right;
use sojourn_rights::table::TCPLOG;
use sojourn_tcplog::layout::slots;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::logger::Logger;
use crate::place::NICEST;

/// The intervals at which rings are drained: minimum, default, maximum.
const QUICKEST: Nanos = Nanos::millis(1);
const USUAL: Nanos = Nanos::millis(5);
const SLOWEST: Nanos = Nanos::millis(10);
/// A ring filled above this level is drained more often; below the second level, less often.
const FULL: f64 = 0.1;
const EMPTY: f64 = 0.01;
/// The intervals at which ended flows are reaped, and at which counters are written to the log.
const REAPED: Nanos = Nanos::millis(20);
const WRITTEN_DOWN: Nanos = Nanos::seconds(1);
/// The interval at which filters of flows are re-evaluated, because their inputs may have changed.
const JUDGED: Nanos = Nanos::millis(100);
/// The interval of checks that programs are still attached: the removal of a cgroup causes no notification.
const LOOKED_AT: Nanos = Nanos::millis(500);

/// A logger with its thread.
pub struct Drain {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

struct Shared {
    logger: Mutex<Option<Logger>>,
    is_to_end: AtomicBool,
    /// The CPU time of the thread so far.
    processor_ns: AtomicI64,
}

impl Drain {
    /// Starts the thread with the privileges of [`TCPLOG`] and `more`; each CPU has a ring of at most so many bytes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(logger: Logger, ring_bytes: u64, more: &'static [Right]) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            logger: Mutex::new(Some(logger)),
            is_to_end: AtomicBool::new(false),
            processor_ns: AtomicI64::new(0),
        });
        let seen = Arc::clone(&shared);
        let slots = slots(usize::try_from(ring_bytes)?);
        let drain = move || seen.run(slots, more);
        let thread = thread::Builder::new().name("drain".to_owned()).spawn(drain).context("start a thread")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Calls a function with the logger, between two drains.
    ///
    /// # Errors
    /// If the log has ended, or the function fails.
    pub fn with<T>(&self, act: impl FnOnce(&mut Logger) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.shared.lock().as_mut().map_or_else(|| Err(anyhow!("the log has ended")), act)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the CPU time used for draining so far.
    pub fn processor_time(&self) -> Nanos {
        Nanos(self.shared.processor_ns.load(Ordering::Relaxed))
    }

    /// Ends the thread; returns the logger.
    ///
    /// # Errors
    /// As the thread.
    pub fn stop(mut self) -> (Option<Logger>, anyhow::Result<()>) {
        self.shared.is_to_end.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map_or(Ok(()), |thread| match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(anyhow!("the thread that drains the rings ended early: a mistake of ours")),
        });
        (self.shared.lock().take(), ended)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Logger>> {
        self.logger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, slots: u32, more: &[Right]) -> anyhow::Result<()> {
        // Higher priority than traffic: a logger that waits for the CPU loses records. The privilege is not needed after that.
        let _ = setpriority_process(None, NICEST);
        TCPLOG.drop_privileges_keeping(more)?;
        TCPLOG.restrict_calls()?;
        let mut pause = USUAL;
        let now = HostClock.now();
        let mut outcome = Ok(());
        let mut due = [REAPED, WRITTEN_DOWN, JUDGED, LOOKED_AT].map(|every| now + every);
        while !self.is_to_end.load(Ordering::Relaxed) {
            let now = HostClock.wait_until(HostClock.now() + pause, Nanos::ZERO);
            let mut logger = self.lock();
            let Some(logger) = logger.as_mut() else { break };
            // After an error, continue to drain the rings and to reap flows.
            let turn = logger.drain();
            let most = turn.as_ref().map_or(0, |turn| turn.most);
            pause = paused(pause, most as f64 / f64::from(slots));
            outcome = outcome.and(turn.map(|_| ())).and(look_after(logger, now, &mut due));
            self.processor_ns.store(HostClock.thread_time().0, Ordering::Relaxed);
        }
        outcome
    }
}

fn look_after(logger: &mut Logger, now: Time, due: &mut [Time; 4]) -> anyhow::Result<()> {
    // If the clock was set back, everything is due immediately.
    let is_due = |due: &mut Time, every: Nanos| {
        let is_due = now >= *due || *due - now > every;
        if is_due {
            *due = now + every;
        }
        is_due
    };
    let mut outcome = Ok(());
    if is_due(&mut due[0], REAPED) {
        outcome = outcome.and(logger.reap(now));
        outcome = outcome.and(logger.rotate(now));
    }
    if is_due(&mut due[1], WRITTEN_DOWN) {
        outcome = outcome.and(logger.write_down());
    }
    if is_due(&mut due[2], JUDGED) {
        logger.reevaluate();
    }
    if is_due(&mut due[3], LOOKED_AT) {
        logger.look_at_programs(now);
    }
    outcome
}

fn paused(pause: Nanos, fill: f64) -> Nanos {
    if fill > FULL {
        QUICKEST.max(Nanos(pause.0 / 2))
    } else if fill < EMPTY {
        SLOWEST.min(Nanos(pause.0 + pause.0 / 8))
    } else {
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_that_fill_quickly_are_drained_more_often() {
        let after = |fill: f64| (0..20).fold(USUAL, |pause, _| paused(pause, fill));
        assert_eq!((after(0.5), after(0.05), after(0.0)), (QUICKEST, USUAL, SLOWEST));
    }
}
