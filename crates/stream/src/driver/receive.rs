//! The receiver's loop over its ports.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use sojourn_port::kernel::wait_for_any;
use sojourn_port::{Batch, Framing, MOST_AT_ONCE, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Nanos, Pace, Rests, Seconds, Source, Time, Wait};
use sojourn_wire::SessionKey;

use crate::{FollowUp, Receiver};

/// Number of polls of the ports between calls of the observer.
const LOOKS_BETWEEN: u32 = 200;

/// Sleep if there are more ports than can be waited for, or ports without a descriptor.
const SHORT_SLEEP: Nanos = Nanos::micros(500);

/// Maximum number of descriptors to wait for.
const MOST_WAITED_FOR: usize = 8;

/// More frames than sockets hold.
const ALL_FRAMES: usize = 1 << 18;

/// If frames arrive at shorter intervals on average, they are dense: they are then read every [`NAP`]. Waking a sleeper
/// for each frame costs the CPU that delivers it about a microsecond, and polling costs nearly as much, because the two
/// CPUs compete for the same cache lines. Either is a third of the cost of a frame from its sender to its receiver.
const DENSE: Nanos = Nanos::micros(20);
const NAP: Nanos = Nanos::micros(20);

/// Decides when a reception is over.
pub trait Observer {
    /// Returns whether it is over.
    fn is_over(&mut self, receiver: &Receiver) -> bool;

    /// Learns the key of a flow whose sender has greeted, before the sender gets the reply that its frames are counted.
    ///
    /// # Errors
    /// If the component that counts the frames cannot take the key.
    fn greeted(&mut self, _flow: u16, _key: SessionKey) -> Result<(), PortError> {
        Ok(())
    }
}

impl<F: FnMut(&Receiver) -> bool> Observer for F {
    fn is_over(&mut self, receiver: &Receiver) -> bool {
        self(receiver)
    }
}

/// Receives frames at all `ports` until `observer` says that it is over. The observer is called many times a second and
/// when one of `wakers` is readable: descriptors that end a sleep. A real-time thread rests under any number of frames,
/// which wait in their sockets meanwhile ([`Rests`]).
///
/// # Errors
/// If the kernel refuses to receive or to wait, or the observer fails.
pub fn receive(
    receiver: &mut Receiver,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    pace: Pace,
    wakers: &[BorrowedFd<'_>],
    observer: &mut dyn Observer,
) -> Result<(), PortError> {
    let mut rests = Rests::new(pace.is_real_time, clock);
    let mut replies = Replies::new(receiver.longest_reply());
    let mut density = Density::new(receiver.answers_packets());
    let mut looks = 0;
    let mut seconds = Seconds::new(clock.now());
    loop {
        let taken = replies.take_from_all(receiver, ports, clock, observer)?;
        looks += 1;
        let rest = if pace.wait == Wait::Spin { Rest::None } else { density.rest(taken, replies.stamped_here, clock) };
        if looks >= LOOKS_BETWEEN || rest == Rest::Sleep {
            looks = 0;
            if seconds.have_passed(clock.now()) {
                for port in ports.iter_mut() {
                    port.local_drops();
                }
            }
            if observer.is_over(receiver) {
                return replies.drain(receiver, ports, clock, observer);
            }
        }
        match rest {
            Rest::Sleep => {
                replies.take_stamps(receiver, ports);
                sleep(ports, wakers)?;
            }
            Rest::Nap => {
                clock.wait_until(clock.now() + NAP, Nanos::ZERO);
            }
            Rest::None if taken == 0 => std::hint::spin_loop(),
            Rest::None => {}
        }
        rests.rest_if_due(clock);
    }
}

/// What a receiver does after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Poll again.
    None,
    /// Sleep for [`NAP`], regardless of arrivals.
    Nap,
    /// Sleep until a frame arrives.
    Sleep,
}

/// Estimates whether frames are dense.
#[derive(Debug)]
struct Density {
    /// Whether answers must leave at once.
    answers: bool,
    /// When frames were last found.
    found: Option<Time>,
}

impl Density {
    const fn new(answers: bool) -> Self {
        Self { answers, found: None }
    }

    /// Returns what to do after a poll that found `taken` frames.
    /// Frames that are `stamped_here` have the time of the poll as RX timestamp: a nap would falsify it.
    fn rest(&mut self, taken: usize, stamped_here: bool, clock: &dyn Clock) -> Rest {
        match taken {
            0 => return Rest::Sleep,
            MOST_AT_ONCE.. => return Rest::None,
            _ if self.answers || stamped_here => return Rest::None,
            _ => {}
        }
        let now = clock.now();
        let before = self.found.replace(now);
        // If the clock was set back, the interval is unknown.
        let is_dense = |span: Nanos| (0..DENSE.0 * taken as i64).contains(&span.0);
        if before.is_some_and(|before| is_dense(now - before)) { Rest::Nap } else { Rest::None }
    }
}

fn sleep(ports: &[&mut dyn Batch], wakers: &[BorrowedFd<'_>]) -> Result<(), PortError> {
    let descriptors = || ports.iter().filter_map(|port| port.descriptor());
    let all = descriptors().count() == ports.len() && ports.len() + wakers.len() <= MOST_WAITED_FOR;
    // Wakers first: there are few of them, and descriptors beyond the eighth are ignored.
    wait_for_any(wakers.iter().copied().chain(descriptors()), if all { LONGEST_SLEEP } else { SHORT_SLEEP })
}

/// Answers to the frames of one poll, sent after it.
struct Replies {
    room: Vec<u8>,
    each: usize,
    /// For each answer: the index of its frame in the poll, the source as a socket reports it, and its length.
    kept: Vec<(usize, Option<SocketAddr>, usize)>,
    follow_up: Vec<u8>,
    /// Whether a frame of the last poll has a timestamp of this program, for lack of a better one.
    stamped_here: bool,
}

impl Replies {
    fn new(longest: usize) -> Self {
        Self {
            room: vec![0; longest * MOST_AT_ONCE],
            each: longest,
            kept: Vec::with_capacity(MOST_AT_ONCE),
            follow_up: vec![0; longest],
            stamped_here: false,
        }
    }

    /// Receives what arrived while this thread did not run: it is not lost.
    fn drain(
        &mut self,
        receiver: &mut Receiver,
        ports: &mut [&mut dyn Batch],
        clock: &dyn Clock,
        observer: &mut dyn Observer,
    ) -> Result<(), PortError> {
        let mut left = ALL_FRAMES;
        while left > 0 {
            let taken = self.take_from_all(receiver, ports, clock, observer)?;
            left = if taken == 0 { 0 } else { left.saturating_sub(taken) };
        }
        Ok(())
    }

    /// Reads TX timestamps that came later: follow-ups can still be sent in frames that carry their addresses.
    fn take_stamps(&mut self, receiver: &mut Receiver, ports: &mut [&mut dyn Batch]) {
        for (index, port) in ports.iter_mut().enumerate() {
            let is_addressed = port.capabilities().framing == Framing::Ethernet;
            while let Some(FollowUp { length, .. }) = next_follow_up(receiver, index, *port, &mut self.follow_up) {
                if is_addressed {
                    let _: Result<_, PortError> = port.transmit(&self.follow_up[..length]);
                }
            }
        }
    }

    fn take_from_all(
        &mut self,
        receiver: &mut Receiver,
        ports: &mut [&mut dyn Batch],
        clock: &dyn Clock,
        observer: &mut dyn Observer,
    ) -> Result<usize, PortError> {
        let mut taken = 0;
        self.stamped_here = false;
        for (index, port) in ports.iter_mut().enumerate() {
            taken += self.take(receiver, (index, *port), clock, observer)?;
        }
        Ok(taken)
    }

    /// Receives what waits at a port, and sends the answers.
    fn take(
        &mut self,
        receiver: &mut Receiver,
        (index, port): (usize, &mut dyn Batch),
        clock: &dyn Clock,
        observer: &mut dyn Observer,
    ) -> Result<usize, PortError> {
        self.kept.clear();
        let mut nth = 0;
        let taken = port.receive_batch(&mut |frame, received| {
            self.stamped_here |= received.arrived.source == Source::User;
            let at = self.kept.len() * self.each;
            let room = self.room.get_mut(at..at + self.each).unwrap_or_default();
            if let Some(length) = receiver.on_frame(index, frame, &received, room) {
                self.kept.push((nth, received.from, length));
            }
            nth += 1;
        });
        while let Some((flow, key)) = receiver.greeted() {
            observer.greeted(flow, key)?;
        }
        for (place, (nth, from, length)) in self.kept.iter().enumerate() {
            let reply = &mut self.room[place * self.each..][..*length];
            receiver.stamp(index, reply, clock.now());
            // An unreachable peer must not end the service of the others.
            let Ok(sent) = port.answer(*nth, reply) else { continue };
            receiver.answered(index, reply, *from, sent);
            // Most drivers have stamped the frame by the time the call returns.
            while let Some(FollowUp { length, to }) = next_follow_up(receiver, index, port, &mut self.follow_up) {
                // A socket answers the source of a frame of this poll: an earlier reply may have gone to another one.
                if let Some((asking, ..)) = self.kept.iter().find(|(_, from, _)| *from == to) {
                    let _: Result<_, PortError> = port.answer(*asking, &self.follow_up[..length]);
                }
            }
        }
        match taken {
            Err(PortError::Refused(_)) => Ok(1),
            taken => taken,
        }
    }
}

/// Reads TX timestamps until one of them makes a follow-up; `None` if there are no more.
fn next_follow_up(receiver: &mut Receiver, index: usize, port: &mut dyn Batch, room: &mut [u8]) -> Option<FollowUp> {
    if !port.capabilities().tx_timestamps {
        return None;
    }
    // An error here only means that a timestamp is missing.
    while let Ok(Some(stamp)) = port.tx_timestamp() {
        let follow_up = receiver.on_stamp(index, &stamp, room);
        if follow_up.is_some() {
            return follow_up;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use sojourn_port::{Capabilities, Port, Received, Sent, StampKind, TxTimestamp};
    use sojourn_time::{SimulatedClock, Stamp};
    use sojourn_wire::stream::{GREETING_BYTES, Kind, SYNC_BYTES, SyncTail};
    use sojourn_wire::{MacAddress, StreamHeader};

    use super::*;
    use crate::{Auth, Keep, PortRequest, ReceiveRequest, Senders};

    /// Returns the decisions after polls, given as time since the previous one and number of frames found.
    fn rests(density: &mut Density, stamped_here: bool, looks: &[(i64, usize)]) -> Vec<Rest> {
        let clock = SimulatedClock::default();
        let look = |(after_us, taken): &(i64, usize)| {
            clock.advance_to(clock.now() + Nanos::micros(*after_us));
            density.rest(*taken, stamped_here, &clock)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn receiver_at_high_rate_sleeps_briefly_instead_of_waking_per_frame() {
        // 400,000 frames per second: it is woken for the first one, and by no other until they end. After a poll that
        // found the maximum it polls again.
        let looks = [(1_000, 1), (2, 1), (72, 28), (72, 28), (160, MOST_AT_ONCE), (1, 2), (2, 1), (70, 0)];
        let expected = [Rest::None, Rest::Nap, Rest::Nap, Rest::Nap, Rest::None, Rest::None, Rest::Nap, Rest::Sleep];
        assert_eq!(rests(&mut Density::new(false), false, &looks), expected);
    }

    #[test]
    fn receiver_at_low_rate_is_woken_per_frame() {
        // 40,000 frames per second.
        let looks = [(25, 1), (1, 0), (24, 1), (1, 0), (24, 1), (1, 0), (50, 2), (1, 0)];
        assert!(rests(&mut Density::new(false), false, &looks).iter().all(|rest| *rest != Rest::Nap));
    }

    #[test]
    fn receiver_that_replies_or_timestamps_polls_again_at_once() {
        let looks = [(1, 1), (2, 1), (2, 1), (1, 0)];
        let expected = [Rest::None, Rest::None, Rest::None, Rest::Sleep];
        assert_eq!(rests(&mut Density::new(true), false, &looks), expected);
        assert_eq!(rests(&mut Density::new(false), true, &looks), expected);
    }

    /// A socket that has received frames, and whose TX timestamps of answers come one answer late.
    struct Socket {
        waiting: VecDeque<(SocketAddr, Vec<u8>)>,
        taken: Vec<SocketAddr>,
        /// The kind of each answer, and whom it went to.
        answers: Vec<(Kind, SocketAddr)>,
        stamps: VecDeque<u32>,
    }

    impl Port for Socket {
        fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
            unreachable!("everything is an answer")
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
            let Some((from, frame)) = self.waiting.pop_front() else { return Ok(None) };
            buffer[..frame.len()].copy_from_slice(&frame);
            self.taken.push(from);
            let arrived = Stamp { at: Time(5), source: Source::Kernel };
            Ok(Some(Received { length: frame.len(), arrived, returned: Time(6), from: Some(from), to_group: false }))
        }

        fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
            let number = self.stamps.pop_front().filter(|number| (*number as usize) + 1 < self.answers.len());
            let left = Stamp { at: Time(9), source: Source::Kernel };
            Ok(number.map(|number| TxTimestamp { number, left, kind: StampKind::Left }))
        }

        fn wait(&mut self, _: Time) -> Result<(), PortError> {
            Ok(())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { framing: Framing::Udp, max_frame: 100, tx_timestamps: true }
        }

        fn local_drops(&mut self) -> u64 {
            0
        }
    }

    impl Batch for Socket {
        fn answer(&mut self, nth: usize, frame: &[u8]) -> Result<Sent, PortError> {
            let number = self.answers.len() as u32;
            self.answers.push((StreamHeader::read(frame).unwrap().kind, self.taken[nth]));
            self.stamps = (0..=number).collect();
            Ok(Sent { number, called: Time(7) })
        }

        fn engine(&self) -> &str {
            "none"
        }
    }

    /// A socket sends to the source of a received frame: its follow-up must not go to that of another one.
    #[test]
    fn a_follow_up_goes_only_where_its_reply_went() {
        let key = SessionKey(7);
        let payload = |kind, bytes: usize| {
            let mut payload = vec![0; bytes];
            StreamHeader { kind, node: 0, flow: 1, key, seq: 1, intended: Time(1), sent: Time(1) }.write(&mut payload);
            if kind == Kind::SyncRequest {
                SyncTail { clock: 1, source: Source::User, follows_up: true }.write(&mut payload);
            }
            payload
        };
        let (exchange, greeting) = (payload(Kind::SyncRequest, SYNC_BYTES), payload(Kind::Greeting, GREETING_BYTES));
        let [sender, other]: [SocketAddr; 2] = [([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 9], 40_000).into()];
        for (second, told) in [
            ((other, greeting), vec![(Kind::SyncReply, sender), (Kind::GreetingReply, other)]),
            (
                (sender, exchange.clone()),
                vec![(Kind::SyncReply, sender), (Kind::SyncReply, sender), (Kind::SyncFollowUp, sender)],
            ),
        ] {
            let mut receiver = Receiver::new(&ReceiveRequest {
                senders: Senders::Known(key),
                allowed: Vec::new(),
                seed: 1,
                auth: Auth::default(),
                ports: vec![PortRequest {
                    framing: Framing::Udp,
                    mac: MacAddress::default(),
                    answer: None,
                    tx_timestamps: true,
                }],
                flows: vec![1],
                keep: Keep::Histograms,
                late_after: Nanos::seconds(1),
                clock_offset: Nanos::ZERO,
                clock: 77,
            });
            let waiting = VecDeque::from([(sender, exchange.clone()), second]);
            let mut socket = Socket { waiting, taken: Vec::new(), answers: Vec::new(), stamps: VecDeque::new() };
            let mut replies = Replies::new(receiver.longest_reply());
            let (clock, mut observer) = (SimulatedClock::default(), |_: &Receiver| true);
            replies.take(&mut receiver, (0, &mut socket), &clock, &mut observer).unwrap();
            assert_eq!(socket.answers[..told.len()], told);
            assert!(socket.answers[told.len()..].iter().all(|(kind, to)| *kind == Kind::SyncFollowUp && *to == sender));
        }
    }
}
