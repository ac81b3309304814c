//! The sending half of live frames.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use sojourn_port::PortError;
use sojourn_port::bpf::{Anchor, Anchored, Program, object};
use sojourn_port::kernel::{Counters, Interface};
use sojourn_time::{Clock, HostClock, Nanos, Time};
use sojourn_wire::stream::{self, Kind, Link, StreamHeader};
use sojourn_wire::{SessionKey, ethernet};

/// How many frames one run makes. A run costs tens of milliseconds at its ends, so those of a stream with a rate are made in
/// one; once asked to stop, the kernel still goes through the frames of a run, some 20 ns each.
const FRAMES_A_RUN: [u64; 2] = [1 << 21, 1 << 24];
/// How often it is asked whether to stop.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// Up to this rate each frame leaves when it is made; faster, so many more leave together.
const RATE_ONE_BY_ONE: f64 = 200_000.0;
const MOST_TOGETHER: u32 = 64;
/// The kernel waits for a frame's time while nothing else may run there, so not for long.
const LEAST_RATE: f64 = 100.0;
/// The first frames of a sender, which show whether the device takes any.
const TRIAL_FRAMES: u64 = 16;
const TRIAL_LASTS: Nanos = Nanos::millis(100);
const LOOK_AGAIN_AFTER: Nanos = Nanos::millis(1);
/// What the kernel makes lies in one page, with room for its own needs.
const MOST_FRAME_BYTES: usize = 3000;
/// The shortest frame of Ethernet, without FCS; `bpf/live.bpf.c` writes as much anew each time.
const LEAST_FRAME_BYTES: usize = ethernet::HEADER_BYTES + ethernet::LEAST_PAYLOAD_BYTES;

/// Sends the frames of one flow out of a device.
#[derive(Debug)]
pub struct LiveSender {
    program: Program,
    interface: Interface,
    frame: Vec<u8>,
    /// Whether frames were seen to leave.
    is_tried: bool,
    /// Spares each run the kernel's work at its ends.
    anchored: Option<Anchored>,
}

/// What the frames of a live stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveStream {
    /// Their Ethernet header.
    pub link: Link,
    /// How long each is, without FCS.
    pub frame_bytes: usize,
    /// The flow.
    pub flow: u16,
    /// The key of its frames.
    pub key: SessionKey,
}

/// What became of the frames of one [`LiveSender::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSent {
    /// How many the kernel made, each with a number of its own.
    pub made: u64,
    /// How many of them the device dropped on their way out, as far as its counters tell: the queue of its other end was full.
    pub refused: u64,
    /// When the first one was made.
    pub first: Time,
    /// When the last one was made.
    pub last: Time,
}

impl LiveSender {
    /// Makes ready to send a stream by a device.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface or the frames do not fit, `Unusable` when it carries nothing, `Denied` without
    /// the right to run programs in the kernel.
    pub fn open(interface: &str, asked: &LiveStream) -> Result<Self, PortError> {
        let (interface, frame) = aimed(interface, asked)?;
        let program = Program::load("live", object!("live.bpf.o"), &[])?;
        let sender = Self { program, interface, frame, is_tried: false, anchored: None };
        sender.write_stream(asked)?;
        Ok(sender)
    }

    /// Makes ready to send another stream, by this device or another; numbers begin anew. The program stays as it is in the kernel:
    /// to load one takes milliseconds.
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

    /// Hangs the program on a device of its own, so that runs begin and end at once; without, each takes 10 to 25 ms longer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold_by(&mut self, anchor: Anchor) -> io::Result<()> {
        self.anchored = Some(anchor.hold(&self.program)?);
        Ok(())
    }

    /// Whether it hangs on a device of its own.
    pub fn is_held(&self) -> bool {
        self.anchored.is_some()
    }

    /// Sends `count` frames, `rate_pps` evenly spaced ones a second or as fast as it goes; ends early once `stop` says so.
    /// Numbers go on from the last call.
    ///
    /// # Errors
    /// `Unusable` when the device takes no redirected frames, with what would fix that; `Wrong` when the rate is too low.
    pub fn send(
        &mut self,
        count: u64,
        rate_pps: Option<f64>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<LiveSent, PortError> {
        self.send_until(Time::NEVER, count, rate_pps, stop)
    }

    /// As [`Self::send`], but makes no frame at `until` or later: the kernel itself looks at the time, where this thread may get no
    /// turn to `stop` it.
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
        self.program.write("stops", &0_u32.to_ne_bytes(), &[0; 8])?;
        self.begin(State { next, first: next, interval_ps: pace.interval_ps, until, ..State::default() })?;
        let mut first_at = 0;
        if count > 0 && !self.is_tried {
            self.run(count.min(TRIAL_FRAMES), pace.together, stop)?;
            let state = self.state()?;
            self.expect_departures(&counters, state.next - next)?;
            (self.is_tried, first_at) = (true, state.first_at);
            // The time that this took is not to be caught up with.
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

    /// Sends no frames ahead to see whether the device takes any: another sender has seen it. A short stream is then one
    /// stretch.
    pub fn take_as_tried(&mut self) {
        self.is_tried = true;
    }

    /// Says by what means frames move, for the record.
    pub fn engine(&self) -> &'static str {
        "XDP live frames"
    }

    /// Makes `count` frames in a thread of its own, which this one asks to stop.
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
                    let _ = self.program.write("stops", &0_u32.to_ne_bytes(), &1_u64.to_ne_bytes());
                }
            }
            run.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
        });
        match made {
            // A signal ends a run early; the state tells how far it came.
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                let object = self.interface.name.clone();
                Err(PortError::System { operation: "send live frames by", object, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Waits until the counters of a veth show that it took so many frames; other drivers may count late.
    fn expect_departures(&self, before: &Counters, made: u64) -> Result<(), PortError> {
        if self.interface.driver().as_deref() != Some("veth") {
            return Ok(());
        }
        let give_up = HostClock.now() + TRIAL_LASTS;
        while HostClock.now() < give_up {
            let now = self.interface.counters()?;
            if now.sent + now.send_dropped >= before.sent + before.send_dropped + made {
                return Ok(());
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

    /// Writes what the program goes by, as `bpf/live.bpf.c` orders it.
    fn write_stream(&self, asked: &LiveStream) -> Result<(), PortError> {
        let header_at = asked.link.header_bytes() as u32;
        let head = &self.frame[..LEAST_FRAME_BYTES];
        let stream = [&self.interface.index.to_ne_bytes(), &header_at.to_ne_bytes()[..], head].concat();
        self.program.write("streams", &0_u32.to_ne_bytes(), &stream)
    }

    fn state(&self) -> Result<State, PortError> {
        let [next, first, first_at, last_at, interval_ps, until] = self.program.words("senders")?;
        Ok(State { next, first, first_at, last_at, interval_ps, until })
    }

    fn begin(&self, state: State) -> Result<(), PortError> {
        self.program.write("senders", &0_u32.to_ne_bytes(), &state.to_bytes())
    }
}

/// How fast frames are made, and how many leave together.
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
        Ok(Self { interval_ps: (1e12 / rate).max(1.0) as u64, together })
    }
}

/// What the program in the kernel goes by, as `bpf/live.bpf.c` orders it.
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

/// Looks the device up, and returns it with the frame that the kernel copies.
fn aimed(interface: &str, asked: &LiveStream) -> Result<(Interface, Vec<u8>), PortError> {
    let interface = Interface::usable(interface)?;
    check_length(&interface, asked.frame_bytes, asked.link.header_bytes())?;
    Ok((interface, frame(asked)))
}

/// The frame that the kernel copies; number and times are written into each copy.
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
