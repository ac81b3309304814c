//! Makes idle CPUs poll instead of sleep while packets are queued: a sleeping CPU wakes late, by hundreds of
//! microseconds on a virtual machine.
//!
//! Uses `/dev/cpu_dma_latency`: a request holds as long as the file is open, so it ends with the process. Without
//! permission to open the file, nothing is requested.

use std::fs::File;
use std::io::Write;

use clap::ValueEnum;
use sojourn_time::{Nanos, Time};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// The longest wake-up latency, in µs, that makes idle processors poll, and the one that lets them sleep as they like.
const POLL: i32 = 0;
const SLEEP: i32 = 2_000_000_000;
/// For so long after the last packet they poll.
const LINGER: Nanos = Nanos::seconds(1);

/// What idle processors do while packets are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleArgument {
    /// Poll: they wake at once, and take power
    Poll,
    /// Sleep, as the machine lets them
    Sleep,
}

/// What is asked of idle processors.
#[derive(Debug)]
pub struct Idle {
    device: Option<File>,
    polls: bool,
    busy: Time,
}

impl Idle {
    /// Opens the device, if they are to poll, and asks for nothing yet.
    pub fn open(asked: IdleArgument) -> Self {
        let device = (asked == IdleArgument::Poll).then(|| File::options().write(true).open(DEVICE).ok()).flatten();
        Self::over(device)
    }

    fn over(device: Option<File>) -> Self {
        Self { device, polls: false, busy: Time(0) }
    }

    /// Whether they poll now.
    pub fn polls(&self) -> bool {
        self.polls
    }

    /// Asks them to poll, or lets them sleep, where that is to change.
    pub fn follow(&mut self, is_busy: bool, now: Time) {
        let Some(device) = &mut self.device else { return };
        if is_busy {
            self.busy = now;
        }
        let polls = is_busy || (self.polls && now - self.busy < LINGER);
        if polls != self.polls {
            let longest = if polls { POLL } else { SLEEP };
            self.polls = device.write_all(&longest.to_ne_bytes()).is_ok() && polls;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn idle_polling_lasts_one_second_beyond_the_last_packet() {
        let path = std::env::temp_dir().join(format!("sojourn-idle-{}", std::process::id()));
        let mut idle = Idle::over(Some(File::create(&path).expect("is made")));
        let mut seen = Vec::new();
        for (millis, is_busy) in [(0, false), (10, true), (900, false), (1_000, true), (1_999, false), (2_000, false)] {
            idle.follow(is_busy, Time(millis * 1_000_000));
            seen.push(idle.polls());
        }
        assert_eq!(seen, [false, true, true, true, true, false]);
        let asked = fs::read(&path).expect("reads");
        assert_eq!(asked, [0_i32.to_ne_bytes(), 2_000_000_000_i32.to_ne_bytes()].concat(), "each change is asked once");
        fs::remove_file(path).expect("is there");
    }

    #[test]
    fn without_the_idle_device_processors_sleep() {
        let mut idle = Idle::open(IdleArgument::Sleep);
        idle.follow(true, Time(5));
        assert!(!idle.polls());
    }
}
