//! Facts about this host's own clocks: hardware clocks, the state of the kernel's clock, and the daemons that steer it.

use std::fs::{self, File};

use serde_json::{Value, json};
use sojourn_probe::respond::ClockState;
use sojourn_time::{HostClock, Nanos};
use sojourn_wire::stamp::{Format, Scale};

use super::sys::{self, KernelClock};

/// Daemons that set or steer clocks, by the kernel's names of processes (15 characters at most).
const KEEPERS: [&str; 9] =
    ["chronyd", "ntpd", "ntp-daemon", "systemd-timesyn", "timemaster", "ptp4l", "phc2sys", "ts2phc", "openntpd"];

/// The kernel's status bit for an unsynchronised clock.
const STA_UNSYNC: i32 = 0x40;

/// Returns all facts.
pub fn facts() -> Value {
    json!({
        "clock": super::own_id(),
        "clock_source": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "kernel": kernel(),
        "hardware_clocks": hardware_clocks(),
        "daemons": daemons(),
    })
}

/// Returns the maximum error of this host's clock as the kernel reports it, and the offset between TAI and UTC.
pub fn state(format: Format) -> ClockState {
    let scale = Scale { format, tai_offset_s: HostClock.tai_offset().0.0 / 1_000_000_000 };
    state_of(scale, sys::kernel_clock().ok().as_ref())
}

fn state_of(scale: Scale, kernel: Option<&KernelClock>) -> ClockState {
    let Some(kernel) = kernel else { return ClockState::new(scale, false, Nanos::seconds(1 << 31)) };
    // If no program has set the kernel's TAI offset, CLOCK_TAI equals UTC.
    let knows_scale = scale.format == Format::Ntp || scale.knows_tai();
    ClockState::new(scale, is_synchronised(kernel) && knows_scale, Nanos::micros(kernel.max_error_us))
}

fn is_synchronised(state: &KernelClock) -> bool {
    state.status & STA_UNSYNC == 0 && state.state >= 0
}

/// Returns the state that adjtimex(2) reports.
fn kernel() -> Value {
    let Ok(state) = sys::kernel_clock() else { return Value::Null };
    json!({
        "synchronised": is_synchronised(&state),
        "status": state.status,
        "max_error_us": state.max_error_us,
        "estimated_error_us": state.estimated_error_us,
        // The kernel's unit is 1/65536 ppm.
        "frequency_ppm": state.frequency as f64 / 65_536.0,
        "tai_offset_s": state.tai_offset_s,
    })
}

fn hardware_clocks() -> Vec<Value> {
    let entries = fs::read_dir("/sys/class/ptp").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let clock = |name: &String| {
        json!({
            "name": name,
            "driver": read(&format!("/sys/class/ptp/{name}/clock_name")),
            "readable": File::open(format!("/dev/{name}")).is_ok(),
        })
    };
    names.iter().map(clock).collect()
}

fn daemons() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let is_process = entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process.then(|| read(&format!("{}/comm", entry.path().display()))).flatten()
    };
    let mut found: Vec<String> = entries.filter_map(name).filter(|name| KEEPERS.contains(&name.as_str())).collect();
    found.sort();
    found.dedup();
    found
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_know_tai_is_not_synchronised_to_it() {
        let kernel =
            KernelClock { state: 0, status: 0, max_error_us: 70, estimated_error_us: 0, frequency: 0, tai_offset_s: 0 };
        for (format, tai_offset_s, expected) in
            [(Format::Ntp, 0, true), (Format::Ptp, 0, false), (Format::Ntp, 37, true), (Format::Ptp, 37, true)]
        {
            let told = state_of(Scale { format, tai_offset_s }, Some(&kernel)).error;
            assert_eq!(told.is_synchronised(), expected, "{format:?} {tai_offset_s}");
            assert!(told.error() >= Nanos::micros(70));
        }
        let unsynchronised = KernelClock { status: STA_UNSYNC, ..kernel };
        for kernel in [None, Some(&unsynchronised)] {
            assert!(!state_of(Scale { format: Format::Ntp, tai_offset_s: 37 }, kernel).error.is_synchronised());
        }
    }
}
