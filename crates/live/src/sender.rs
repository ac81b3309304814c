//! The sender of live frames.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use sojourn_port::PortError;
use sojourn_port::bpf::{Anchor, Anchored, Program, object};
use sojourn_port::kernel::{Counters, Interface};
use sojourn_time::{Clock, HostClock, Nanos, Time};
use sojourn_wire::stream::{self, Kind, Link, StreamHeader};
use sojourn_wire::{SessionKey, ethernet};

/// The number of frames in a run, at maximum rate and at a given rate. Starting and ending a run takes tens of
/// milliseconds, so a stream with a rate uses one run. After a stop request the kernel still iterates over the rest of
/// a run, some 20 ns a frame.
const FRAMES_A_RUN: [u64; 2] = [1 << 21, 1 << 24];
/// The interval at which `stop` is polled.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// Up to this rate each frame is sent when it is made; above it, up to `MOST_TOGETHER` are sent as a batch.
const RATE_ONE_BY_ONE: f64 = 200_000.0;
const MOST_TOGETHER: u32 = 64;
/// The minimum rate: the kernel waits for a departure without letting anything else run on that CPU.
const LEAST_RATE: f64 = 100.0;
/// The number of first frames that test whether the device accepts any.
const TRIAL_FRAMES: u64 = 16;
const TRIAL_LASTS: Nanos = Nanos::millis(100);
const LOOK_AGAIN_AFTER: Nanos = Nanos::millis(1);
/// A frame and the kernel's own data share one page.
const MOST_FRAME_BYTES: usize = 3000;
/// The minimum Ethernet frame, without FCS; `bpf/live.bpf.c` rewrites that much of each frame.
const LEAST_FRAME_BYTES: usize = ethernet::HEADER_BYTES + ethernet::LEAST_PAYLOAD_BYTES;

/// Sends the frames of one flow through a device.
#[derive(Debug)]
pub struct LiveSender {
    program: Program,
    interface: Interface,
    frame: Vec<u8>,
    /// Whether frames have been seen to leave.
    is_tried: bool,
    /// Makes the start and end of each run faster.
    anchored: Option<Anchored>,
}

/// The properties of a live stream's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveStream {
    /// The Ethernet header.
    pub link: Link,
    /// The frame size, without FCS.
    pub frame_bytes: usize,
    /// The flow.
    pub flow: u16,
    /// The key of its frames.
    pub key: SessionKey,
}

/// The result of one [`LiveSender::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSent {
    /// The number of frames made, each with a sequence number.
    pub made: u64,
    /// How many of them the device dropped according to its counters, because its peer's queue was full.
    pub refused: u64,
    /// The TX time of the first frame.
    pub first: Time,
    /// The TX time of the last frame.
    pub last: Time,
}

impl LiveSender {
    /// Prepare to send a stream through a device.
    ///
    /// # Errors
    /// `Wrong` when the interface does not exist or the frames do not fit, `Unusable` when it is down, `Denied` without
    /// the privilege to load BPF programs.
    pub fn open(interface: &str, asked: &LiveStream) -> Result<Self, PortError> {
        let (interface, frame) = aimed(interface, asked)?;
        let program = Program::load("live", object!("live.bpf.o"), &[])?;
        let sender = Self { program, interface, frame, is_tried: false, anchored: None };
        sender.write_stream(asked)?;
        Ok(sender)
    }

    /// Prepare to send another stream, through this device or another; sequence numbers restart. The program stays
    /// loaded, because loading takes milliseconds.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn aim(&mut self, interface: &str, asked: &LiveStream) -> Result<(), PortError> {
        let (interface, frame) = aimed(interface, asked)?;
        self.is_tried &= interface.index == self.interface.index;
        (self.interface, self.frame) = (interface, frame);
        self.write_stream(asked)?;
        self.begin(State::default())
    }

    /// Attach the program to a device of its own, so that runs start and end at once; otherwise each takes 10 to 25 ms
    /// longer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold_by(&mut self, anchor: Anchor) -> io::Result<()> {
        self.anchored = Some(anchor.hold(&self.program)?);
        Ok(())
    }

    /// Return whether it is attached to a device of its own.
    pub fn is_held(&self) -> bool {
        self.anchored.is_some()
    }

    /// Send `count` frames, evenly spaced at `rate_pps` or at maximum rate; end early once `stop` returns true.
    /// Sequence numbers continue from the last call.
    ///
    /// # Errors
    /// `Unusable` when the device accepts no redirected frames, with a remedy; `Wrong` when the rate is too low.
    pub fn send(
        &mut self,
        count: u64,
        rate_pps: Option<f64>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<LiveSent, PortError> {
        self.send_until(Time::NEVER, count, rate_pps, stop)
    }

    /// As [`Self::send`], but make no frame at or after `until`. The kernel checks the time, because this thread may
    /// not be scheduled in time to `stop`.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_until(
        &mut self,
        until: Time,
        count: u64,
        rate_pps: Option<f64>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<LiveSent, PortError> {
        let until = until.0.cast_unsigned();
        let pace = Pace::of(rate_pps)?;
        let counters = self.interface.counters()?;
        let next = self.state()?.next;
        self.program.write(".data.stop", &0_u32.to_ne_bytes(), &[0; 8])?;
        self.begin(State { next, first: next, interval_ps: pace.interval_ps, until, ..State::default() })?;
        let mut first_at = 0;
        if count > 0 && !self.is_tried {
            self.run(count.min(TRIAL_FRAMES), pace.together, stop)?;
            let state = self.state()?;
            self.expect_departures(&counters, state.next - next)?;
            (self.is_tried, first_at) = (true, state.first_at);
            // Do not catch up on the time that the test frames took.
            self.begin(State { first_at: 0, first: state.next, ..state })?;
        }
        let mut made = self.state()?.next - next;
        while made < count && !stop() {
            self.run((count - made).min(FRAMES_A_RUN[usize::from(rate_pps.is_some())]), pace.together, stop)?;
            made = self.state()?.next - next;
        }
        let state = self.state()?;
        let first = if first_at == 0 { state.first_at } else { first_at };
        let refused = self.interface.counters()?.send_dropped.saturating_sub(counters.send_dropped);
        Ok(LiveSent { made, refused, first: time(first), last: time(state.last_at) })
    }

    /// Skip the test of whether the device accepts frames: another sender has made it. A short stream is then sent in
    /// one run.
    pub fn take_as_tried(&mut self) {
        self.is_tried = true;
    }

    /// Return how frames are sent, for the record.
    pub fn engine(&self) -> &'static str {
        "XDP live frames"
    }

    /// Make `count` frames in another thread; this one asks it to stop.
    fn run(&self, count: u64, together: u32, stop: &mut dyn FnMut() -> bool) -> Result<(), PortError> {
        let made = std::thread::scope(|scope| {
            let (ended, wait) = mpsc::channel();
            let run = scope.spawn(move || {
                let made = self.program.make_frames(&self.frame, count as u32, together);
                let _ = ended.send(());
                made
            });
            while wait.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if stop() {
                    let _ = self.program.write(".data.stop", &0_u32.to_ne_bytes(), &1_u64.to_ne_bytes());
                }
            }
            run.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
        });
        match made {
            // A signal ends a run early; the state holds the progress.
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                let object = self.interface.name.clone();
                Err(PortError::System { operation: "send live frames by", object, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Wait until the counters of a veth include these frames; other drivers may update them late.
    fn expect_departures(&self, before: &Counters, made: u64) -> Result<(), PortError> {
        if self.interface.driver().as_deref() != Some("veth") {
            return Ok(());
        }
        let give_up = HostClock.now() + TRIAL_LASTS;
        while HostClock.now() < give_up {
            let now = self.interface.counters()?;
            let sent = now.sent.saturating_sub(before.sent);
            let dropped = now.send_dropped.saturating_sub(before.send_dropped);
            if sent + dropped >= made && (sent > 0 || made == 0) {
                return Ok(());
            }
            // A veth whose other end has no NAPI counts them as dropped in Linux 6.1, and not at all in 6.12.
            if dropped >= made {
                break;
            }
            HostClock.wait_until(HostClock.now() + LOOK_AGAIN_AFTER, Nanos::ZERO);
        }
        Err(PortError::Unusable {
            object: self.interface.name.clone(),
            problem:
                "no live frame left it: a veth takes them only where its other end has NAPI of its own; switch that \
                      on there with `ethtool -K PEER gro on`, or count there with XDP"
                    .to_owned(),
        })
    }

    /// Write the device, and the program's parameters in the order of `bpf/live.bpf.c`.
    fn write_stream(&self, asked: &LiveStream) -> Result<(), PortError> {
        let header_at = asked.link.header_bytes() as u32;
        let stream = [&self.frame[..LEAST_FRAME_BYTES], &header_at.to_ne_bytes()].concat();
        self.program.write("devices", &0_u32.to_ne_bytes(), &self.interface.index.to_ne_bytes())?;
        self.program.write(".data.asked", &0_u32.to_ne_bytes(), &stream)
    }

    fn state(&self) -> Result<State, PortError> {
        let [next, first, first_at, last_at, interval_ps, until] = self.program.words(".data.sender")?;
        Ok(State { next, first, first_at, last_at, interval_ps, until })
    }

    fn begin(&self, state: State) -> Result<(), PortError> {
        self.program.write(".data.sender", &0_u32.to_ne_bytes(), &state.to_bytes())
    }
}

/// The inter-departure time, and the number of frames in a batch.
#[derive(Clone, Copy, Debug)]
struct Pace {
    interval_ps: u64,
    together: u32,
}

impl Pace {
    fn of(rate_pps: Option<f64>) -> Result<Self, PortError> {
        let Some(rate) = rate_pps else { return Ok(Self { interval_ps: 0, together: MOST_TOGETHER }) };
        if rate.is_nan() || rate < LEAST_RATE {
            let problem = format!("live frames have a rate of at least {LEAST_RATE} a second; use another engine");
            return Err(PortError::Wrong { object: format!("{rate} frames a second"), problem });
        }
        let together = (rate / RATE_ONE_BY_ONE).clamp(1.0, MOST_TOGETHER.into()) as u32;
        Ok(Self { interval_ps: (1e12 / rate).round().max(1.0) as u64, together })
    }
}

/// The state of the program in the kernel, in the order of `bpf/live.bpf.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    next: u64,
    first: u64,
    first_at: u64,
    last_at: u64,
    interval_ps: u64,
    until: u64,
}

impl State {
    fn to_bytes(self) -> Vec<u8> {
        let Self { next, first, first_at, last_at, interval_ps, until } = self;
        [next, first, first_at, last_at, interval_ps, until].map(u64::to_ne_bytes).concat()
    }
}

/// Look up the device; return it with the frame that the kernel copies.
fn aimed(interface: &str, asked: &LiveStream) -> Result<(Interface, Vec<u8>), PortError> {
    let interface = Interface::usable(interface)?;
    check_length(&interface, asked.frame_bytes, asked.link.header_bytes())?;
    Ok((interface, frame(asked)))
}

/// Return the frame that the kernel copies; the program adds number and times to each copy.
fn frame(asked: &LiveStream) -> Vec<u8> {
    let mut frame = vec![0; asked.frame_bytes];
    asked.link.write(&mut frame);
    let payload = &mut frame[asked.link.header_bytes()..];
    stream::fill(payload);
    let header = StreamHeader {
        kind: Kind::Live,
        node: 0,
        flow: asked.flow,
        key: asked.key,
        seq: 0,
        intended: Time(0),
        sent: Time(0),
    };
    header.write(payload);
    frame
}

fn check_length(interface: &Interface, frame_bytes: usize, header_at: usize) -> Result<(), PortError> {
    let most = (interface.mtu + header_at).min(MOST_FRAME_BYTES);
    if (LEAST_FRAME_BYTES..=most).contains(&frame_bytes) {
        return Ok(());
    }
    Err(PortError::Wrong {
        object: interface.name.clone(),
        problem: format!("live frames by it are {LEAST_FRAME_BYTES} to {most} bytes long, not {frame_bytes}"),
    })
}

fn time(nanos: u64) -> Time {
    Time(nanos.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_frames_is_rounded_to_the_nearest_picosecond() {
        let interval_ps = |rate| Pace::of(Some(rate)).map(|pace| pace.interval_ps).ok();
        assert_eq!([1e6, 1.3e6, 3e6].map(interval_ps), [Some(1_000_000), Some(769_231), Some(333_333)]);
    }
}
