//! Clocks, and how late this machine wakes a sleeper.

use std::num::NonZeroU64;
use std::thread;

use rustix::thread::set_current_timer_slack;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::{Check, Status};
use crate::sys;

const DEADLINES: usize = 100;
const INTERVAL: Nanos = Nanos::millis(1);
const SPIN: Nanos = Nanos::micros(100);
const CLOCK_READS: i64 = 20_000;
const THROTTLE_FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const CLOCKSOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// A clock that is read without a system call costs some tens of nanoseconds.
const CHEAP_READ: Nanos = Nanos(200);
const QUIETER: &str = "a quieter machine, or a core of its own: isolcpus=";
/// A departure that is later than this is late: what the studies judge by.
const PUNCTUAL: Nanos = Nanos::micros(10);

pub fn examine() -> Vec<Check> {
    let permitted = on_a_thread(|| sys::run_real_time(1));
    vec![
        tai_offset(),
        clock_read(),
        wake_up("wake-up by sleep-then-spin", SPIN, QUIETER, permitted.is_ok()),
        wake_up(
            "wake-up by sleep",
            Nanos::ZERO,
            "--wait sleep-then-spin, the default, which does not depend on it",
            permitted.is_ok(),
        ),
        fifo(permitted.err()),
        throttle(),
    ]
}

fn tai_offset() -> Check {
    const NAME: &str = "CLOCK_TAI";
    let seconds = HostClock.tai_offset().0.0 / 1_000_000_000;
    if seconds == 0 {
        let found =
            "equal to CLOCK_REALTIME: the kernel does not know the leap seconds; spans of time are not affected";
        return Check::new(NAME, Status::Limited, found.to_owned())
            .fix("chrony with `leapsectz right/UTC`, or ntpd with a leap-seconds file".to_owned())
            .value("offset_s", seconds);
    }
    Check::ok(NAME, format!("{seconds} s ahead of CLOCK_REALTIME")).value("offset_s", seconds)
}

fn clock_read() -> Check {
    const NAME: &str = "clock reading";
    let start = HostClock.now();
    let end = (0..CLOCK_READS).fold(start, |_, _| HostClock.now());
    let cost = Nanos((end - start).0 / CLOCK_READS);
    let source = std::fs::read_to_string(CLOCKSOURCE_FILE).unwrap_or_default();
    let found = format!("{} ns each, clocksource {}", cost.0, or_unknown(source.trim()));
    let check = if cost <= CHEAP_READ {
        Check::ok(NAME, found)
    } else {
        Check::new(NAME, Status::Limited, found)
            .fix(format!("a clocksource that needs no system call: echo tsc | sudo tee {CLOCKSOURCE_FILE}"))
    };
    check.value("read_ns", cost.0)
}

/// Waits for some deadlines, under SCHED_FIFO where that is permitted, and tells how late it was.
fn wake_up(name: &'static str, spin: Nanos, fix: &str, real_time: bool) -> Check {
    let mut late = on_a_thread(move || {
        // Sleeps of ordinary threads are prolonged by 50 µs unless told otherwise.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        if real_time {
            let _ = sys::run_real_time(1);
        }
        lateness(spin)
    });
    late.sort_unstable();
    let (p50, p99) = (at(&late, 50), at(&late, 99));
    let scheduler = if real_time { "SCHED_FIFO" } else { "ordinary scheduling" };
    let found = format!("late by {} ns (p50), {} ns (p99), {scheduler}", p50.0, p99.0);
    let check = if p50 <= PUNCTUAL {
        Check::ok(name, found)
    } else if real_time {
        Check::new(name, Status::Limited, found).fix(fix.to_owned())
    } else {
        Check::new(name, Status::Limited, found).fix("SCHED_FIFO: run as root".to_owned())
    };
    check.value("p50_ns", p50.0).value("p99_ns", p99.0).value("scheduler", scheduler)
}

fn fifo(refusal: Option<std::io::Error>) -> Check {
    const NAME: &str = "SCHED_FIFO";
    match refusal {
        None => Check::ok(NAME, "permitted".to_owned()),
        Some(error) => Check::new(NAME, Status::Missing, error.to_string())
            .fix("run as root, or `sudo setcap cap_sys_nice+ep` on this program".to_owned()),
    }
}

fn throttle() -> Check {
    const NAME: &str = "real-time throttle";
    let runtime = std::fs::read_to_string(THROTTLE_FILE).ok().and_then(|text| text.trim().parse::<i64>().ok());
    match runtime {
        Some(-1) => Check::ok(NAME, "off".to_owned()),
        Some(us) => {
            let found = format!("a SCHED_FIFO thread that spins may be stopped after {us} µs in each period");
            Check::new(NAME, Status::Limited, found)
                .fix("sysctl -w kernel.sched_rt_runtime_us=-1, or do not spin without sleeping".to_owned())
                .value("runtime_us", us)
        }
        None => {
            Check::new(NAME, Status::Limited, format!("{THROTTLE_FILE} cannot be read")).fix("mount /proc".to_owned())
        }
    }
}

/// Runs on a thread of its own, whose scheduling ends with it.
fn on_a_thread<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> T {
    match thread::spawn(task).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn lateness(spin: Nanos) -> Vec<Nanos> {
    let mut deadline: Time = HostClock.now();
    let mut wait = || {
        deadline = deadline + INTERVAL;
        HostClock.wait_until(deadline, spin) - deadline
    };
    (0..DEADLINES).map(|_| wait()).collect()
}

/// The value that so many percent of a sorted list do not exceed.
fn at(sorted: &[Nanos], percent: usize) -> Nanos {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_of_the_list() {
        let list: Vec<Nanos> = (1..=100).map(Nanos).collect();
        assert_eq!((at(&list, 50), at(&list, 99), at(&list[..1], 99)), (Nanos(50), Nanos(99), Nanos(1)));
        assert_eq!(at(&[], 50), Nanos::ZERO);
    }
}
