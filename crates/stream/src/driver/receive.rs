//! The receiver's loop over its ports.

use std::os::fd::BorrowedFd;

use sojourn_port::kernel::wait_for_any;
use sojourn_port::{Batch, Framing, MOST_AT_ONCE, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Nanos, Wait};
use sojourn_wire::SessionKey;

use crate::Receiver;

/// How many looks at ports go by before it is asked whether to end.
const LOOKS_BETWEEN: u32 = 200;

/// With more ports than can be waited for at once, or such without descriptor.
const SHORT_SLEEP: Nanos = Nanos::micros(500);

/// As many descriptors as can be waited for at once.
const MOST_WAITED_FOR: usize = 8;

/// More than sockets hold.
const ALL_FRAMES: usize = 1 << 18;

/// Whoever waits for the end of a reception.
pub trait Observer {
    /// Returns whether it is over.
    fn is_over(&mut self, receiver: &Receiver) -> bool;

    /// Learns the key of a flow whose sender has greeted, before that is told that its frames are counted.
    ///
    /// # Errors
    /// When what counts them cannot be told it.
    fn greeted(&mut self, _flow: u16, _key: SessionKey) -> Result<(), PortError> {
        Ok(())
    }
}

impl<F: FnMut(&Receiver) -> bool> Observer for F {
    fn is_over(&mut self, receiver: &Receiver) -> bool {
        self(receiver)
    }
}

/// Takes in what arrives at all `ports` until `observer` says that it is over, which is asked many times a second and at each
/// event of `wakers`: descriptors that end a sleep when something can be read from them.
///
/// # Errors
/// When the kernel refuses to receive or to wait, or the observer fails.
pub fn receive(
    receiver: &mut Receiver,
    ports: &mut [&mut dyn Batch],
    clock: &dyn Clock,
    wait: Wait,
    wakers: &[BorrowedFd<'_>],
    observer: &mut dyn Observer,
) -> Result<(), PortError> {
    let mut replies = Replies::new(receiver.longest_reply());
    let mut looks = 0;
    loop {
        let taken = replies.take_from_all(receiver, ports, clock, observer)?;
        looks += 1;
        let sleeps = wait != Wait::Spin && taken == 0;
        if looks >= LOOKS_BETWEEN || sleeps {
            looks = 0;
            if observer.is_over(receiver) {
                return replies.drain(receiver, ports, clock, observer);
            }
        }
        if sleeps {
            replies.take_stamps(receiver, ports);
            sleep(ports, wakers)?;
        } else if taken == 0 {
            std::hint::spin_loop();
        }
    }
}

fn sleep(ports: &[&mut dyn Batch], wakers: &[BorrowedFd<'_>]) -> Result<(), PortError> {
    let descriptors = || ports.iter().filter_map(|port| port.descriptor());
    let all = descriptors().count() == ports.len() && ports.len() + wakers.len() <= MOST_WAITED_FOR;
    // Wakers first: they are few, and those behind the eighth are not looked at.
    wait_for_any(wakers.iter().copied().chain(descriptors()), if all { LONGEST_SLEEP } else { SHORT_SLEEP })
}

/// Answers to the frames of one look, which leave after it.
struct Replies {
    room: Vec<u8>,
    each: usize,
    /// Of each: to which frame of the look, and how long it is.
    kept: Vec<(usize, usize)>,
    follow_up: Vec<u8>,
}

impl Replies {
    fn new(longest: usize) -> Self {
        Self {
            room: vec![0; longest * MOST_AT_ONCE],
            each: longest,
            kept: Vec::with_capacity(MOST_AT_ONCE),
            follow_up: vec![0; longest],
        }
    }

    /// Takes what has come while this thread was kept from looking: it is not lost.
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

    /// Takes the stamps that came later: frames that carry their addresses can still be followed up.
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
        for (index, port) in ports.iter_mut().enumerate() {
            taken += self.take(receiver, (index, *port), clock, observer)?;
        }
        Ok(taken)
    }

    /// Takes what has come to a port, and answers what is to be answered.
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
            // A peer that cannot be reached must not end the service of the others.
            let Ok(sent) = port.answer(*nth, reply) else { continue };
            receiver.answered(index, reply, sent);
            // Most drivers have stamped the frame when the call returns.
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

/// Takes late stamps up to one that makes a follow-up; `None` when there are no more.
fn next_follow_up(receiver: &mut Receiver, index: usize, port: &mut dyn Batch, room: &mut [u8]) -> Option<usize> {
    if !port.capabilities().tx_timestamps {
        return None;
    }
    // What the kernel refuses here is a stamp that is missing.
    while let Ok(Some(stamp)) = port.tx_timestamp() {
        let length = receiver.on_stamp(index, &stamp, room);
        if length.is_some() {
            return length;
        }
    }
    None
}
