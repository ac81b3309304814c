//! The suite that every backend passes: tests what the [`Batch`] trait and its [`Port`] promise, against an answering
//! far end.

pub mod frames;

use sojourn_port::{Batch, PortError, Received, Sent, StampKind};
use sojourn_time::{Clock, Nanos, Source, Time};

const ANSWER_WITHIN: Nanos = Nanos::seconds(10);
const ROUNDS: u16 = 50;
const BURST: u16 = 200;

/// A port, an answering far end, and functions that build and parse frames.
pub struct Bench<P> {
    pub port: P,
    pub clock: Box<dyn Clock>,
    /// Builds the request with this sequence number and this length in the port's framing.
    pub request: fn(u16, usize) -> Vec<u8>,
    /// Parses the sequence number of a reply.
    pub sequence: fn(&[u8]) -> Option<u16>,
    /// Answers the requests that have reached the far end, where the kernel does not.
    pub answer: Box<dyn FnMut()>,
    /// Lengths of requests to test, shortest first.
    pub lengths: [usize; 3],
    /// The expected timestamp source.
    pub source: Source,
}

/// Runs the whole suite.
pub fn run<P: Batch>(mut bench: Bench<P>) {
    nothing_comes_of_nothing(&mut bench);
    each_request_is_answered_and_stamped(&mut bench);
    a_burst_keeps_its_numbers(&mut bench);
    a_batch_keeps_its_numbers(&mut bench);
    a_short_buffer_cuts(&mut bench);
    waiting_does_not_spin_on_stamps(&mut bench);
    a_refused_frame_has_no_number(&mut bench);
    assert_eq!(bench.port.local_drops(), 0);
}

fn nothing_comes_of_nothing<P: Batch>(bench: &mut Bench<P>) {
    assert_eq!(bench.port.receive(&mut [0; 64]).expect("receives"), None);
    assert_eq!(bench.port.tx_timestamp().expect("reads stamps"), None);
    assert!(bench.returns_until(Nanos::millis(2)) < 10, "a wait with nothing to receive lasts until its deadline");
}

fn each_request_is_answered_and_stamped<P: Batch>(bench: &mut Bench<P>) {
    for sequence in 0..ROUNDS {
        let length = bench.lengths[usize::from(sequence) % 3];
        let (sent, left) = bench.exchange_stamp(sequence, length);
        let (received, frame) = bench.reply();
        assert_eq!((bench.sequence)(&frame), Some(sequence));
        assert_eq!(frame.len(), length, "the reply is as long as its request");
        assert_eq!(received.arrived.source, bench.source, "frame {sequence}: {received:?}");
        assert!(sent.called <= left, "called {sent:?}, left {left:?}");
        assert!(left <= received.arrived.at, "left {left:?}, arrived {received:?}");
        assert!(received.arrived.at <= received.returned, "{received:?}");
    }
}

fn a_burst_keeps_its_numbers<P: Batch>(bench: &mut Bench<P>) {
    let length = bench.lengths[0];
    let sent: Vec<Sent> = (0..BURST).map(|sequence| bench.send(sequence, length)).collect();
    assert!(sent.windows(2).all(|pair| pair[1].number == pair[0].number + 1));
    let mut answered = vec![0; usize::from(BURST)];
    for _ in 0..BURST {
        let (_, frame) = bench.reply();
        answered[usize::from((bench.sequence)(&frame).expect("a sequence number"))] += 1;
    }
    assert!(answered.iter().all(|times| *times == 1), "each request is answered once: {answered:?}");
    for request in sent {
        assert!(request.called <= bench.left(request));
    }
}

fn a_batch_keeps_its_numbers<P: Batch>(bench: &mut Bench<P>) {
    let length = bench.lengths[0];
    let (before, _) = bench.exchange_stamp(BURST, length);
    bench.reply();
    let mut frames: Vec<u8> = (0..BURST).flat_map(|sequence| (bench.request)(sequence, length)).collect();
    frames.push(0);
    let taken = bench.port.transmit_batch(&frames, length).expect("transmits");
    assert_eq!(taken, usize::from(BURST), "every whole frame is taken, a piece of one is not");
    let mut answered = vec![0; taken];
    while answered.iter().sum::<usize>() < taken {
        for (received, frame) in bench.replies() {
            assert_eq!((received.length, received.arrived.source), (length, bench.source));
            assert!(received.arrived.at <= received.returned, "{received:?}");
            answered[usize::from((bench.sequence)(&frame).expect("a sequence number"))] += 1;
        }
    }
    assert!(answered.iter().all(|times| *times == 1), "each request is answered once: {answered:?}");
    for nth in 1..=u32::from(BURST) {
        let left = bench.left(Sent { number: before.number + nth, ..before });
        assert!(before.called <= left);
    }
}

fn a_short_buffer_cuts<P: Batch>(bench: &mut Bench<P>) {
    let length = bench.lengths[1];
    bench.exchange_stamp(7, length);
    let mut buffer = [0; 24];
    let received = bench.take(&mut buffer);
    assert!(received.length <= buffer.len(), "{received:?}");
    assert_eq!(bench.port.receive(&mut buffer).expect("receives"), None, "the rest of a cut frame is gone");
}

fn waiting_does_not_spin_on_stamps<P: Batch>(bench: &mut Bench<P>) {
    let length = bench.lengths[0];
    let sent = bench.send(9, length);
    bench.reply();
    let returns = bench.returns_until(Nanos::millis(20));
    assert!(returns < 10, "a stamp that waits to be read woke the waiter {returns} times");
    // Waiting loses no timestamp.
    bench.left(sent);
}

fn a_refused_frame_has_no_number<P: Batch>(bench: &mut Bench<P>) {
    let (before, _) = bench.exchange_stamp(1, bench.lengths[0]);
    bench.reply();
    let too_long = vec![0; bench.port.capabilities().max_frame + 1];
    let refused = bench.port.transmit(&too_long);
    assert!(matches!(refused, Err(PortError::Wrong { .. })), "a frame longer than max_frame: {refused:?}");
    let (after, _) = bench.exchange_stamp(2, bench.lengths[0]);
    bench.reply();
    assert_eq!(after.number, before.number + 1);
}

impl<P: Batch> Bench<P> {
    fn send(&mut self, sequence: u16, length: usize) -> Sent {
        let frame = (self.request)(sequence, length);
        self.port.transmit(&frame).expect("transmits")
    }

    /// Sends a request and returns its timestamp.
    pub fn exchange_stamp(&mut self, sequence: u16, length: usize) -> (Sent, Time) {
        let sent = self.send(sequence, length);
        (sent, self.left(sent))
    }

    /// Returns the next TX timestamp, which must belong to this transmission; without TX timestamps, the time of the
    /// call.
    fn left(&mut self, sent: Sent) -> Time {
        if !self.port.capabilities().tx_timestamps {
            assert_eq!(self.port.tx_timestamp().expect("reads stamps"), None);
            return sent.called;
        }
        let deadline = self.clock.now() + ANSWER_WITHIN;
        loop {
            if let Some(stamp) = self.port.tx_timestamp().expect("reads stamps") {
                let expected = (sent.number, self.source, StampKind::Left);
                assert_eq!((stamp.number, stamp.left.source, stamp.kind), expected);
                return stamp.left.at;
            }
            assert!(self.clock.now() < deadline, "no TX timestamp came");
        }
    }

    /// Receives the next reply.
    pub fn reply(&mut self) -> (Received, Vec<u8>) {
        let mut buffer = vec![0; 65_536];
        let received = self.take(&mut buffer);
        buffer.truncate(received.length);
        (received, buffer)
    }

    /// Receives all waiting replies.
    fn replies(&mut self) -> Vec<(Received, Vec<u8>)> {
        let deadline = self.clock.now() + ANSWER_WITHIN;
        let mut taken = Vec::new();
        loop {
            (self.answer)();
            let each = &mut |frame: &[u8], received| taken.push((received, frame.to_vec()));
            let count = self.port.receive_batch(each).expect("receives");
            assert_eq!(count, taken.len());
            if count > 0 {
                return taken;
            }
            assert!(self.clock.now() < deadline, "no reply came");
            self.port.wait(deadline.min(self.clock.now() + Nanos::millis(1))).expect("waits");
        }
    }

    fn take(&mut self, buffer: &mut [u8]) -> Received {
        let deadline = self.clock.now() + ANSWER_WITHIN;
        loop {
            (self.answer)();
            if let Some(received) = self.port.receive(buffer).expect("receives") {
                return received;
            }
            assert!(self.clock.now() < deadline, "no reply came");
            self.port.wait(deadline.min(self.clock.now() + Nanos::millis(1))).expect("waits");
        }
    }

    /// Waits for `span`, and counts how often waiting returned.
    fn returns_until(&mut self, span: Nanos) -> u32 {
        let deadline = self.clock.now() + span;
        let mut returns = 0;
        while self.clock.now() < deadline {
            self.port.wait(deadline).expect("waits");
            returns += 1;
        }
        returns
    }
}
