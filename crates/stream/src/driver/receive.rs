//! The receiver's loop over its ports.

use std::os::fd::BorrowedFd;

use sojourn_port::kernel::wait_for_any;
use sojourn_port::{Batch, Framing, MOST_AT_ONCE, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Nanos, Source, Time, Wait};
use sojourn_wire::SessionKey;

use crate::Receiver;

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
/// when one of `wakers` is readable: descriptors that end a sleep.
///
/// # Errors
/// If the kernel refuses to receive or to wait, or the observer fails.
pub fn receive(
    receiver: &mut Receiver,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    wait: Wait,
    wakers: &[BorrowedFd<'_>],
    observer: &mut dyn Observer,
) -> Result<(), PortError> {
    let mut replies = Replies::new(receiver.longest_reply());
    let mut density = Density::new(receiver.answers_packets());
    let mut looks = 0;
    loop {
        let taken = replies.take_from_all(receiver, ports, clock, observer)?;
        looks += 1;
        let rest = if wait == Wait::Spin { Rest::None } else { density.rest(taken, replies.stamped_here, clock) };
        if looks >= LOOKS_BETWEEN || rest == Rest::Sleep {
            looks = 0;
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
    /// For each answer: the index of its frame in the poll, and its length.
    kept: Vec<(usize, usize)>,
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
            while let Some(length) = next_follow_up(receiver, index, *port, &mut self.follow_up) {
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
                self.kept.push((nth, length));
            }
            nth += 1;
        });
        while let Some((flow, key)) = receiver.greeted() {
            observer.greeted(flow, key)?;
        }
        for (place, (nth, length)) in self.kept.iter().enumerate() {
            let reply = &mut self.room[place * self.each..][..*length];
            receiver.stamp(index, reply, clock.now());
            // An unreachable peer must not end the service of the others.
            let Ok(sent) = port.answer(*nth, reply) else { continue };
            receiver.answered(index, reply, sent);
            // Most drivers have stamped the frame by the time the call returns.
            while let Some(length) = next_follow_up(receiver, index, port, &mut self.follow_up) {
                let _: Result<_, PortError> = port.answer(*nth, &self.follow_up[..length]);
            }
        }
        match taken {
            Err(PortError::Refused(_)) => Ok(1),
            taken => taken,
        }
    }
}

/// Reads TX timestamps until one of them makes a follow-up; `None` if there are no more.
fn next_follow_up(receiver: &mut Receiver, index: usize, port: &mut dyn Batch, room: &mut [u8]) -> Option<usize> {
    if !port.capabilities().tx_timestamps {
        return None;
    }
    // An error here only means that a timestamp is missing.
    while let Ok(Some(stamp)) = port.tx_timestamp() {
        let length = receiver.on_stamp(index, &stamp, room);
        if length.is_some() {
            return length;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use sojourn_time::SimulatedClock;

    use super::*;

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
}
