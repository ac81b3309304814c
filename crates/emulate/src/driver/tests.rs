//! Tests of the driver with simulated ports and a simulated CPU: frames arrive by a list, and each operation takes time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use sojourn_port::{PortError, Received};
use sojourn_time::{Source, Stamp, Wait};

use super::*;
use crate::Engine;
use crate::accuracy::Accuracy;
use crate::config::{Action, Config, Delay, Direction, Link, Match, Pipe, Rule};

mod deep_sleep;

/// A CPU that sleeps for this long enters a deep sleep state.
const DEEP: Nanos = Nanos::micros(500);

/// A simulated CPU: reading the clock, writing to a ring and waking up take time.
#[derive(Clone, Debug, Default)]
struct Processor {
    now: Rc<Cell<Time>>,
    look: Nanos,
    put: Nanos,
    wake: Nanos,
    /// Additional wake-up latency after a sleep of at least [`DEEP`].
    wake_from_deep: Nanos,
    slept: Rc<Cell<Nanos>>,
    /// When `CLOCK_TAI` is set, and by how much.
    step: Option<(Time, Nanos)>,
}

impl Processor {
    fn work(&self, span: Nanos) -> Time {
        self.now.set(self.now.get() + span);
        self.now.get()
    }
}

impl Clock for Processor {
    fn now(&self) -> Time {
        self.work(self.look)
    }

    fn wait_until(&self, deadline: Time, _: Nanos) -> Time {
        self.now.set(self.now.get().max(deadline));
        self.now.get()
    }

    fn tai_ahead(&self) -> Nanos {
        self.step.filter(|(at, _)| *at <= self.now.get()).map_or(Nanos::ZERO, |(_, by)| by)
    }
}

/// One side of the bridge: the frames to be received, and those sent.
#[derive(Debug, Default)]
struct Side {
    coming: VecDeque<(Time, Vec<u8>)>,
    gone: Vec<(Time, Vec<u8>)>,
    in_ring: usize,
    /// Free slots of the TX ring; it is not drained before `blocked_until`.
    room: usize,
    blocked_until: Time,
    /// The MTU with header, if not 1,514 bytes; and its value after an attempt to send a longer frame.
    longest: usize,
    raised: usize,
    /// How often the port was asked for its local drops.
    drops_read: u32,
}

struct SimPort {
    side: Rc<RefCell<Side>>,
    processor: Processor,
    nothing: File,
}

impl BridgePort for SimPort {
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let mut count = 0;
        while count < most {
            let now = self.processor.now.get();
            let mut side = self.side.borrow_mut();
            if side.coming.front().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((at, frame)) = side.coming.pop_front() else { break };
            drop(side);
            let arrived = Stamp { at, source: Source::Simulated };
            each(&frame, Received { length: frame.len(), arrived, returned: now, from: None, to_group: false });
            count += 1;
        }
        Ok(count)
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        self.processor.work(self.processor.put);
        let longest = self.longest();
        let mut side = self.side.borrow_mut();
        if frame.len() > longest {
            side.longest = side.raised;
        }
        if frame.len() > longest.max(side.longest) || side.in_ring >= side.room {
            return Ok(false);
        }
        side.in_ring += 1;
        side.gone.push((Time::NEVER, frame.to_vec()));
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let now = self.processor.now.get();
        let mut side = self.side.borrow_mut();
        if now >= side.blocked_until {
            side.in_ring = 0;
            side.gone.iter_mut().filter(|(at, _)| *at == Time::NEVER).for_each(|(at, _)| *at = now);
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.nothing.as_fd()
    }

    fn engine(&self) -> &str {
        "simulated"
    }

    fn local_drops(&mut self) -> u64 {
        self.side.borrow_mut().drops_read += 1;
        0
    }

    fn longest(&self) -> usize {
        self.side.borrow().longest.max(1514)
    }

    fn name(&self) -> &str {
        "sim"
    }
}

/// Ends when all frames were received and sent; sleeps in simulated time.
struct Until {
    sides: [Rc<RefCell<Side>>; 2],
    processor: Processor,
    /// A change of a pipe, and its time.
    then: Option<(Time, Pipe)>,
    told: Vec<(u64, Time)>,
}

impl Surroundings<Processor> for Until {
    fn sleep(&mut self, _: &Ports, until: Time) -> Result<bool, PortError> {
        let coming = self.sides.iter().filter_map(|side| side.borrow().coming.front().map(|(at, _)| *at)).min();
        let wakes = coming.unwrap_or(Time::NEVER).min(until).max(self.processor.now.get());
        let span = wakes - self.processor.now.get();
        self.processor.slept.set(self.processor.slept.get() + span);
        let more = if span >= DEEP { self.processor.wake_from_deep } else { Nanos::ZERO };
        self.processor.now.set(wakes + self.processor.wake + more);
        Ok(coming.is_none())
    }

    fn keep(&mut self, driver: &mut Driver<Processor>) {
        driver.engine().dispositions();
    }

    fn look_up(&mut self, driver: &mut Driver<Processor>, now: Time, _: f64) -> Flow {
        if let Some((_, pipe)) = self.then.take_if(|(at, _)| *at <= now) {
            let (number, times) = driver.set(&[pipe]).unwrap();
            self.told.extend(times.into_iter().map(|at| (number, at)));
        }
        let is_over = self.sides.iter().all(|side| side.borrow().coming.is_empty()) && self.then.is_none();
        let mut holds = || driver.engine().report().memory.held_frames > 0;
        if is_over && !holds() { Flow::Stop } else { Flow::On }
    }
}

const START: Time = Time(1_000_000_000);

fn frame(number: usize) -> Vec<u8> {
    let mut frame = vec![0_u8; 60];
    frame[12..14].copy_from_slice(&0x88B6_u16.to_be_bytes());
    frame[20..28].copy_from_slice(&(number as u64).to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> usize {
    u64::from_be_bytes(frame[20..28].try_into().unwrap()) as usize
}

/// Makes a frame in each direction every `interval`.
fn sides(count: usize, interval: Nanos) -> [Rc<RefCell<Side>>; 2] {
    [0, 1].map(|side| {
        let at = |number: usize| START + Nanos(interval.0 * number as i64 + interval.0 / 3 * side);
        let coming = (0..count).map(|number| (at(number), frame(number))).collect();
        Rc::new(RefCell::new(Side { coming, room: 64, ..Side::default() }))
    })
}

fn pipe(name: &str, constant: Nanos) -> Pipe {
    Pipe { name: name.to_owned(), delay: Delay { constant, ..Delay::default() }, ..Pipe::default() }
}

fn rule(number: u32, direction: Option<Direction>, pipe: &str) -> Rule {
    let on = Match { direction, ..Match::default() };
    Rule { number, on, action: Action::Pipe { pipe: pipe.to_owned(), class: None } }
}

fn config(delay: Nanos) -> Config {
    Config {
        pipes: vec![pipe("forward", delay), pipe("backward", delay)],
        rules: vec![rule(1, Some(Direction::Forward), "forward"), rule(2, Some(Direction::Backward), "backward")],
        ..Config::default()
    }
}

struct Ran {
    running: Running,
    told: Vec<(u64, Time)>,
}

impl Ran {
    fn accuracy(&self, pipe: usize) -> Accuracy {
        self.running.engine.pipes[pipe].accuracy
    }
}

fn run(
    config: &Config,
    sides: &[Rc<RefCell<Side>>; 2],
    processor: &Processor,
    wait: Wait,
    then: Option<(Time, Pipe)>,
) -> Ran {
    processor.now.set(START);
    let port = |side: &Rc<RefCell<Side>>| -> Box<dyn BridgePort> {
        let nothing = File::open("/dev/null").unwrap();
        Box::new(SimPort { side: Rc::clone(side), processor: processor.clone(), nothing })
    };
    let ports = [port(&sides[0]), port(&sides[1])];
    let mut driver = Driver::new(config, ports, processor.clone(), wait).unwrap();
    let mut until = Until { sides: sides.clone(), processor: processor.clone(), then, told: Vec::new() };
    driver.run(&mut until).unwrap();
    Ran { running: driver.report(), told: until.told }
}

fn real() -> Processor {
    let (look, put, wake) = (Nanos(40), Nanos::micros(5), Nanos::micros(60));
    Processor { look, put, wake, ..Processor::default() }
}

#[test]
fn in_simulated_time_departures_are_exact() {
    let sides = sides(2_000, Nanos::micros(97));
    let ran = run(&config(Nanos::millis(1)), &sides, &Processor::default(), Wait::Sleep, None);
    for (index, side) in sides.iter().enumerate() {
        let gone = &side.borrow().gone;
        assert_eq!(gone.len(), 2_000);
        for (place, (at, frame)) in gone.iter().enumerate() {
            assert_eq!(number(frame), place);
            let arrived = START + Nanos(97_000 * place as i64 + 97_000 / 3 * (1 - index as i64));
            assert_eq!(*at, arrived + Nanos::millis(1), "frame {place}");
        }
    }
    for pipe in [0, 1] {
        let Accuracy { count, min_ns, max_ns, .. } = ran.accuracy(pipe);
        assert_eq!((count, min_ns, max_ns), (2_000, 0, 0));
    }
    assert_eq!(
        ran.running.ports.iter().map(|port| (port.received, port.sent)).collect::<Vec<_>>(),
        [(2_000, 2_000); 2]
    );
}

#[test]
fn departure_cost_is_learnt_and_subtracted() {
    let sides = sides(5_000, Nanos::millis(1));
    let processor = real();
    let ran = run(&config(Nanos(2_300_000)), &sides, &processor, Wait::SleepThenSpin, None);
    for accuracy in [ran.accuracy(0), ran.accuracy(1)] {
        assert!(accuracy.p50_ns.abs() < 300, "{accuracy:?}");
        assert!(accuracy.p99_ns < 7_000, "{accuracy:?}");
    }
    let cost = ran.running.calibration.cost_ns;
    assert!((cost - Nanos::micros(5)).0.abs() < 500, "{cost:?}");
    let guard = ran.running.calibration.guard_ns;
    assert!((Nanos::micros(30)..Nanos::micros(80)).contains(&guard), "{guard:?}: waking takes 60 µs");
    let share = processor.slept.get().0 as f64 / 5e9;
    assert!(share > 0.7, "it slept {share} of the time");
}

#[test]
fn a_known_path_delay_is_compensated() {
    let sides = sides(500, Nanos::millis(1));
    let processor = Processor::default();
    processor.now.set(START);
    let port = |side: &Rc<RefCell<Side>>| -> Box<dyn BridgePort> {
        let nothing = File::open("/dev/null").unwrap();
        Box::new(SimPort { side: Rc::clone(side), processor: processor.clone(), nothing })
    };
    let ports = [port(&sides[0]), port(&sides[1])];
    let mut driver = Driver::new(&config(Nanos::millis(2)), ports, processor.clone(), Wait::Sleep).unwrap();
    driver.compensate(Nanos::micros(5));
    let mut until = Until { sides: sides.clone(), processor: processor.clone(), then: None, told: Vec::new() };
    driver.run(&mut until).unwrap();
    for (place, (at, _)) in sides[1].borrow().gone.iter().enumerate() {
        let arrived = START + Nanos(1_000_000 * place as i64);
        assert_eq!(*at - arrived, Nanos(1_995_000), "frame {place}");
    }
    let Running { engine, calibration, .. } = driver.report();
    assert_eq!(calibration.compensation_ns, Nanos::micros(5));
    assert!(engine.pipes.iter().all(|pipe| (pipe.accuracy.min_ns, pipe.accuracy.max_ns) == (0, 0)));
}

#[test]
fn driver_that_spins_never_sleeps() {
    let sides = sides(20, Nanos::millis(1));
    let processor = real();
    let ran = run(&config(Nanos::millis(1)), &sides, &processor, Wait::Spin, None);
    assert_eq!(processor.slept.get(), Nanos::ZERO);
    assert_eq!(ran.accuracy(0).count, 20);
}

#[test]
fn frames_that_nothing_selects_are_bridged_at_once() {
    let sides = sides(1_000, Nanos::micros(50));
    let ran = run(&Config::default(), &sides, &Processor::default(), Wait::Sleep, None);
    for (index, side) in sides.iter().enumerate() {
        for (place, (at, frame)) in side.borrow().gone.iter().enumerate() {
            assert_eq!(number(frame), place);
            assert_eq!(*at, START + Nanos(50_000 * place as i64 + 50_000 / 3 * (1 - index as i64)));
        }
        assert_eq!(side.borrow().gone.len(), 1_000);
    }
    assert!(ran.running.engine.pipes.is_empty());
}

#[test]
fn frames_of_both_directions_enter_one_pipe_in_timestamp_order() {
    let mut shared = config(Nanos::millis(1));
    shared.pipes[0].link = Link { rate_bps: Some(10_000_000), ..Link::default() };
    shared.pipes.truncate(1);
    shared.rules = vec![rule(1, None, "forward")];
    assert!(shared::is_shared(&shared) && !shared::is_shared(&config(Nanos::ZERO)));
    let sides = sides(500, Nanos::micros(200));
    // Wakes up rarely, so that several frames of both directions wait.
    let processor = Processor { wake: Nanos::millis(2), ..real() };
    run(&shared, &sides, &processor, Wait::SleepThenSpin, None);
    let gone: Vec<_> = sides.iter().map(|side| side.borrow().gone.len()).collect();
    assert_eq!(gone, [500, 500]);
}

#[test]
fn full_ring_is_retried_within_the_budget_and_then_counts_as_loss_of_the_port() {
    let sides = sides(100, Nanos::micros(10));
    sides[1].borrow_mut().room = 10;
    sides[1].borrow_mut().blocked_until = START + Nanos::millis(3);
    let processor = Processor { look: Nanos(40), ..Processor::default() };
    let ran = run(&config(Nanos::millis(1)), &sides, &processor, Wait::SleepThenSpin, None);
    let report = serde_json::to_value(&ran.running).unwrap();
    let forward = &report["pipes"][0];
    let (sent, lost) = (forward["sent"].as_u64().unwrap(), forward["lost"]["port"].as_u64().unwrap());
    assert_eq!(sent + lost, 100);
    assert!((10..=20).contains(&sent), "{sent}");
    assert_eq!(report["pipes"][1]["sent"], 100, "the other direction goes on");
}

#[test]
fn overload_causes_local_drops_but_neither_growing_memory_nor_late_departures() {
    // A frame takes 5 µs to send; each side receives one every 2 µs for half a second: four of five are too many.
    let sides = sides(250_000, Nanos::micros(2));
    let ran = run(&config(Nanos::millis(1)), &sides, &real(), Wait::SleepThenSpin, None);
    let ports = &ran.running.ports;
    for (pipe, port) in ran.running.engine.pipes.iter().zip(ports) {
        assert!(port.local_drops > 100_000, "{port:?}");
        assert_eq!(port.received + port.local_drops, 250_000, "each frame is in one count");
        assert_eq!(pipe.accuracy.count, port.received);
        assert!(pipe.accuracy.p50_ns < 10_000_000, "{:?}", pipe.accuracy);
    }
    assert!(ran.running.said.iter().any(|said| said.starts_with("overload: ")), "{:?}", ran.running.said);
}

#[test]
fn local_drops_are_read_once_a_second() {
    let sides = sides(4_000, Nanos::millis(1));
    run(&config(Nanos::millis(1)), &sides, &real(), Wait::SleepThenSpin, None);
    for side in &sides {
        // One more read is for the report.
        let read = side.borrow().drops_read;
        assert!((3 + 1..=4 + 1).contains(&read), "{read}");
    }
}

#[test]
fn bridge_drops_frames_that_do_not_fit_into_the_ring_of_the_port() {
    let sides = sides(100, Nanos::micros(10));
    sides[1].borrow_mut().room = 10;
    sides[1].borrow_mut().blocked_until = Time::NEVER;
    let ran = run(&Config::default(), &sides, &Processor::default(), Wait::Sleep, None);
    assert_eq!((ran.running.ports[1].sent, ran.running.ports[1].refused), (10, 90));
    assert_eq!(ran.running.ports[0].sent, 100);
}

#[test]
fn a_pipe_is_changed_between_two_packets() {
    let sides = sides(1_000, Nanos::millis(1));
    let then = Some((START + Nanos(500_400_000), pipe("forward", Nanos::millis(7))));
    let ran = run(&config(Nanos::millis(2)), &sides, &Processor::default(), Wait::Sleep, then);
    let [(first, at)] = ran.told[..] else { panic!("{:?}", ran.told) };
    let gone = &sides[1].borrow().gone;
    assert_eq!(gone.len(), 1_000, "none is lost");
    for (left, frame) in gone {
        let arrived = START + Nanos::millis(number(frame) as i64);
        // A frame that arrived exactly at the time of the change had been received before.
        let delay = if arrived <= at { 2 } else { 7 };
        assert_eq!(*left, arrived + Nanos::millis(delay));
    }
    assert!((1_000..1_004).contains(&first), "{first}");
}

#[test]
fn invalid_change_is_refused_and_changes_nothing() {
    let sides = sides(0, Nanos::millis(1));
    let port = |side: &Rc<RefCell<Side>>| -> Box<dyn BridgePort> {
        let nothing = File::open("/dev/null").unwrap();
        Box::new(SimPort { side: Rc::clone(side), processor: Processor::default(), nothing })
    };
    let before = config(Nanos::millis(1));
    let ports = [port(&sides[0]), port(&sides[1])];
    let mut driver = Driver::new(&before, ports, Processor::default(), Wait::Sleep).unwrap();
    let told = driver.set(&[pipe("forward", Nanos(5)), pipe("sideways", Nanos(5))]).unwrap_err();
    assert_eq!(told.to_string(), "pipe `sideways`: there is none; there are `forward`, `backward`");
    assert_eq!(driver.config(), &before);
}

#[test]
fn packet_leaves_a_link_without_delay_when_its_last_bit_is_serialised() {
    let mut rated = config(Nanos::ZERO);
    rated.pipes[0].link.rate_bps = Some(1_000_000);
    let sides = sides(2_000, Nanos::micros(700));
    let ran = run(&rated, &sides, &real(), Wait::SleepThenSpin, None);
    // 60 bytes at 1 Mbit/s take 480 µs.
    let accuracy = ran.accuracy(0);
    assert!(accuracy.p50_ns.abs() < 300 && accuracy.p99_ns < 7_000, "{accuracy:?}");
    let gone = &sides[1].borrow().gone;
    let late = gone.iter().filter(|(at, frame)| {
        let due = START + Nanos(700_000 * number(frame) as i64 + 480_000);
        (*at - due).0.abs() > 10_000
    });
    assert!(late.count() < 20);
}

#[test]
fn frame_is_lost_as_too_long_only_after_the_current_mtu_was_read() {
    let mut long = vec![0; 3_000];
    long[12..14].copy_from_slice(&0x88B6_u16.to_be_bytes());
    for (raised, lost) in [(0, 10), (9_014, 0)] {
        for config in [config(Nanos::millis(1)), Config::default()] {
            let sides = sides(0, Nanos::millis(1));
            let coming = (0..10).map(|number| (START + Nanos::millis(number), long.clone())).collect();
            *sides[0].borrow_mut() = Side { coming, room: 64, ..Side::default() };
            sides[1].borrow_mut().raised = raised;
            let ran = run(&config, &sides, &Processor::default(), Wait::Sleep, None);
            assert_eq!(sides[1].borrow().gone.len(), 10 - lost);
            let of_pipe = ran.running.engine.pipes.first().map_or(0, |pipe| pipe.counts.lost[crate::Cause::Port]);
            assert_eq!((of_pipe + ran.running.ports[1].refused) as usize, lost);
        }
    }
}

#[test]
fn clock_step_is_reported_and_neither_releases_nor_holds_frames() {
    let left = |step: Option<(Time, Nanos)>| {
        let sides = sides(2_000, Nanos::micros(97));
        let ran = run(&config(Nanos::millis(1)), &sides, &Processor { step, ..real() }, Wait::SleepThenSpin, None);
        let gone = sides.map(|side| side.take().gone);
        (gone, ran.running.said, ran.running.tai_ahead_ns)
    };
    let (undisturbed, said, _) = left(None);
    assert_eq!((said.len(), undisturbed[0].len()), (0, 2_000));
    for (by, told) in [
        (Nanos::millis(350), "the clock was set forward by 350ms: departures do not follow it"),
        (Nanos::millis(-20), "the clock was set back by 20ms: departures do not follow it"),
        (Nanos::seconds(-3_600), "the clock was set back by 3600s: departures do not follow it"),
        // A daemon sets the kernel's TAI offset.
        (Nanos::seconds(37), "the clock was set forward by 37s: departures do not follow it"),
    ] {
        let (gone, said, ahead) = left(Some((START + Nanos::millis(50), by)));
        assert_eq!((said, ahead), (vec![told.to_owned()], by));
        assert!(gone == undisturbed, "departure times are unchanged");
    }
}

/// Frames with timestamps of three sources.
#[test]
fn each_disposition_has_the_source_of_its_own_timestamp() {
    let mut engine = Engine::new(&config(Nanos::ZERO), START).unwrap();
    engine.keep_dispositions(true);
    let sources = [Source::Hardware, Source::Kernel, Source::User];
    for source in sources {
        engine.arrive_stamped(Direction::Forward, &frame(0), Stamp { at: START, source });
    }
    engine.end();
    assert_eq!(engine.dispositions().map(|disposition| disposition.source).collect::<Vec<_>>(), sources);
}

#[test]
fn simultaneous_changes_of_several_pipes_are_validated_together() {
    let loaded = |name: &str, delay| {
        let link = Link { rate_bps: Some(8_000_000_000), ..Link::default() };
        Pipe { link, ..pipe(name, Nanos::millis(delay)) }
    };
    // At 1 GB/s, delays of 100 ms and 10 ms fit into memory, twice 100 ms do not.
    let before = Config {
        pipes: vec![loaded("forward", 100), loaded("backward", 10)],
        memory_bytes: 128 << 20,
        ..config(Nanos::ZERO)
    };
    let port = || -> Box<dyn BridgePort> {
        let nothing = File::open("/dev/null").unwrap();
        Box::new(SimPort { side: Rc::default(), processor: Processor::default(), nothing })
    };
    let mut driver = Driver::new(&before, [port(), port()], Processor::default(), Wait::Sleep).unwrap();
    assert!(driver.set(&[loaded("backward", 100)]).is_err());
    let after = [loaded("backward", 100), loaded("forward", 10)];
    assert_eq!(driver.set(&after).unwrap().1.len(), 2);
    assert_eq!(driver.config().pipes, [after[1].clone(), after[0].clone()]);
    let known = driver.config().clone();
    assert_eq!(driver.engine().config(), &known);
}
