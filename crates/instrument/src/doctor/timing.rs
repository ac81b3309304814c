//! Checks of clocks, and of how late this machine wakes a sleeping thread.

use std::num::NonZeroU64;
use std::thread;

use rustix::thread::set_current_timer_slack;
use sojourn_rights::{Right, for_a_group};
use sojourn_time::pace::{REST, STRETCH};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::{Check, Status};
use crate::sys;

const DEADLINES: usize = 100;
const INTERVAL: Nanos = Nanos::millis(1);
const SPIN: Nanos = Nanos::micros(100);
const CLOCK_READS: i64 = 20_000;
const THROTTLE_FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const PERIOD_FILE: &str = "/proc/sys/kernel/sched_rt_period_us";
/// The clocksource that programs can read without a system call.
const READ_BY_PROGRAMS: &str = if cfg!(target_arch = "aarch64") { "arch_sys_counter" } else { "tsc" };
const CLOCKSOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// The limit for a clock read: one without a system call takes some tens of nanoseconds.
const CHEAP_READ: Nanos = Nanos(200);
const QUIETER: &str = "a quieter machine, or a core of its own: isolcpus=";
/// The maximum pacing error of a punctual departure; the studies use the same limit.
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
        Check::new(NAME, Status::Limited, found).fix(format!(
            "a clocksource that needs no system call: echo {READ_BY_PROGRAMS} | sudo tee {CLOCKSOURCE_FILE}"
        ))
    };
    check.value("read_ns", cost.0)
}

/// Waits for several deadlines, under SCHED_FIFO where permitted, and reports the wake-up latency.
fn wake_up(name: &'static str, spin: Nanos, fix: &str, real_time: bool) -> Check {
    let mut late = on_a_thread(move || {
        // The kernel's default timer slack prolongs sleeps of ordinary threads by 50 µs.
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
            .fix(format!("run as root, or {}", for_a_group(&[Right::SysNice]))),
    }
}

fn throttle() -> Check {
    const NAME: &str = "real-time throttle";
    let read = |file| std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i64>().ok());
    let (Some(runtime), Some(period)) = (read(THROTTLE_FILE), read(PERIOD_FILE)) else {
        return Check::new(NAME, Status::Limited, format!("{THROTTLE_FILE} cannot be read"))
            .fix("mount /proc".to_owned());
    };
    judge_throttle(NAME, runtime, period).value("runtime_us", runtime).value("period_us", period)
}

/// Checks real-time throttling: what share of the CPU the kernel leaves to real-time threads, and what share Sojourn's
/// threads leave to the kernel.
fn judge_throttle(name: &'static str, runtime_us: i64, period_us: i64) -> Check {
    if runtime_us < 0 {
        let found = "off: a real-time thread that never sleeps, anybody's, takes its processor for good. The kernel's own \
                     threads starve there, and the machine may hang";
        return Check::new(name, Status::Limited, found.to_owned())
            .fix("sysctl -w kernel.sched_rt_runtime_us=950000, the kernel's own value; ours need no more".to_owned());
    }
    let found =
        format!("a SCHED_FIFO thread that never sleeps is stopped after {runtime_us} µs of each {period_us} µs");
    let taken = 1.0 - runtime_us as f64 / period_us.max(1) as f64;
    if taken < REST.0 as f64 / STRETCH.0 as f64 {
        let rests = format!(
            "{found}; ours rest for {} ms of each {} ms, and are not",
            REST.0 / 1_000_000,
            STRETCH.0 / 1_000_000
        );
        return Check::ok(name, rests);
    }
    Check::new(name, Status::Limited, format!("{found}: more than ours rest")).fix(
        "sysctl -w kernel.sched_rt_runtime_us=950000 kernel.sched_rt_period_us=1000000, the kernel's own values"
            .to_owned(),
    )
}

/// Runs a task in a separate thread, so that its scheduling settings end with it.
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

/// Returns the percentile of a sorted list.
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
    fn advice_never_disables_real_time_throttling() {
        for (runtime, period, status) in
            [(-1, 1_000_000, Status::Limited), (950_000, 1_000_000, Status::Ok), (900_000, 1_000_000, Status::Limited)]
        {
            let check = judge_throttle("throttle", runtime, period);
            assert_eq!(check.status, status, "{check:?}");
            let fix = check.fix.unwrap_or_default();
            assert!(!fix.contains("=-1") && !fix.contains("= -1"), "{fix}");
        }
    }

    #[test]
    fn a_percentile_is_a_value_of_the_list() {
        let list: Vec<Nanos> = (1..=100).map(Nanos).collect();
        assert_eq!((at(&list, 50), at(&list, 99), at(&list[..1], 99)), (Nanos(50), Nanos(99), Nanos(1)));
        assert_eq!(at(&[], 50), Nanos::ZERO);
    }
}
