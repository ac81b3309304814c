//! Runs responders over their sockets.

use std::os::fd::{AsFd, BorrowedFd};

use sojourn_port::kernel::wait_for_any;
use sojourn_port::{Listener, PortError};
use sojourn_time::pace::LONGEST_SLEEP;
use sojourn_time::{Clock, Pace, Rests, Seconds, Wait};

use super::engine::{Asked, Reply};

/// Holds any frame that a socket can deliver, and any reply.
const FRAME_BYTES: usize = 1 << 16;
/// The number of polls of empty sockets, or of replies, between two checks whether to end.
const LOOKS_BETWEEN: u32 = 1_000;

/// A socket with its responder and its buffers.
pub struct Endpoint<L, R> {
    listener: L,
    responder: R,
    request: Box<[u8]>,
    reply: Box<[u8]>,
    refused: u64,
}

/// An endpoint of any kind of socket and responder.
pub trait Serve: AsFd {
    /// Answers the next request, if there is one; returns whether there was.
    ///
    /// # Errors
    /// When the kernel refuses to receive. A reply that it refuses to send is only counted.
    fn serve_one(&mut self, clock: &dyn Clock) -> Result<bool, PortError>;

    /// Counts the replies that the kernel refused to send.
    fn refused(&self) -> u64;

    /// Counts the requests that the tester's own socket dropped.
    fn local_drops(&mut self) -> u64;
}

/// Answers requests at all `endpoints` until `ended` returns true. It is called about a thousand times per second and
/// at each error of `wakers`: descriptors that end a sleep when they become readable. A real-time thread rests under
/// any number of requests, which wait in their sockets meanwhile ([`Rests`]).
///
/// # Errors
/// When the kernel refuses to receive or to wait.
pub fn serve(
    endpoints: &mut [Box<dyn Serve>],
    clock: &dyn Clock,
    pace: Pace,
    wakers: &[BorrowedFd<'_>],
    mut ended: impl FnMut() -> bool,
) -> Result<(), PortError> {
    let mut rests = Rests::new(pace.is_real_time, clock);
    let mut looks = 0;
    let mut seconds = Seconds::new(clock.now());
    loop {
        let mut answered = false;
        for endpoint in endpoints.iter_mut() {
            answered |= endpoint.serve_one(clock)?;
        }
        looks += 1;
        let sleeps = pace.wait != Wait::Spin && !answered;
        if looks >= LOOKS_BETWEEN || sleeps {
            looks = 0;
            if seconds.have_passed(clock.now()) {
                for endpoint in endpoints.iter_mut() {
                    endpoint.local_drops();
                }
            }
            if ended() {
                return Ok(());
            }
        }
        if sleeps {
            let sockets = endpoints.iter().map(|endpoint| endpoint.as_fd()).chain(wakers.iter().copied());
            wait_for_any(sockets, LONGEST_SLEEP)?;
        } else if !answered {
            std::hint::spin_loop();
        }
        rests.rest_if_due(clock);
    }
}

impl<L: Listener, R: Reply> Endpoint<L, R> {
    /// Returns an endpoint that answers with this responder.
    pub fn new(listener: L, responder: R) -> Self {
        let frame = || vec![0; FRAME_BYTES].into_boxed_slice();
        Self { listener, responder, request: frame(), reply: frame(), refused: 0 }
    }
}

impl<L: Listener, R> AsFd for Endpoint<L, R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl<L: Listener, R: Reply> Serve for Endpoint<L, R> {
    fn serve_one(&mut self, clock: &dyn Clock) -> Result<bool, PortError> {
        let Some((received, peer)) = self.listener.receive(&mut self.request)? else { return Ok(false) };
        let request = self.request.get(..received.length).unwrap_or_default();
        let (framing, route) = (self.listener.framing(), self.listener.route(&peer));
        let asked = Asked { framing, route, request, arrived: received.arrived.at, now: &|| clock.now() };
        if let Some(length) = self.responder.reply(&asked, &mut self.reply)
            && self.listener.answer(&peer, &self.reply[..length]).is_err()
        {
            // An unreachable peer, or a reply beyond the MTU, must not stop the service for others.
            self.refused += 1;
        }
        Ok(true)
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn local_drops(&mut self) -> u64 {
        self.listener.local_drops()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::rc::Rc;

    use sojourn_time::{Nanos, Time};

    use super::*;

    /// The durations of reading the clock and of answering a request.
    const LOOK: Nanos = Nanos(100);
    const WORK: Nanos = Nanos::micros(2);
    const HALF_A_SECOND: Nanos = Nanos::millis(500);

    /// The thread's processor, whose time passes by work and by sleep.
    #[derive(Clone, Default)]
    struct Processor {
        now: Rc<Cell<Time>>,
        slept: Rc<Cell<Nanos>>,
        /// When it last slept, and its longest time without sleep.
        woke: Rc<Cell<Time>>,
        longest_busy: Rc<Cell<Nanos>>,
        /// How often a socket was asked for its local drops.
        drops_read: Rc<Cell<u32>>,
    }

    impl Processor {
        fn work(&self, span: Nanos) -> Time {
            self.now.set(self.now.get() + span);
            self.longest_busy.set(self.longest_busy.get().max(self.now.get() - self.woke.get()));
            self.now.get()
        }
    }

    impl Clock for Processor {
        fn now(&self) -> Time {
            self.work(LOOK)
        }

        fn wait_until(&self, deadline: Time, _: Nanos) -> Time {
            let left = (deadline - self.now()).max(Nanos::ZERO);
            self.slept.set(self.slept.get() + left);
            self.now.set(self.now.get() + left);
            self.woke.set(self.now.get());
            self.now()
        }

        fn thread_time(&self) -> Nanos {
            (self.now() - Time(0)) - self.slept.get()
        }
    }

    /// A socket at which a request arrives in each `interval`.
    struct Flooded {
        processor: Processor,
        interval: Nanos,
        answered: Rc<Cell<i64>>,
        most_waiting: Rc<Cell<i64>>,
        /// Always readable.
        file: File,
    }

    impl AsFd for Flooded {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    impl Serve for Flooded {
        fn serve_one(&mut self, clock: &dyn Clock) -> Result<bool, PortError> {
            let arrived = (clock.now() - Time(0)).0 / self.interval.0;
            let waiting = arrived - self.answered.get();
            self.most_waiting.set(self.most_waiting.get().max(waiting));
            if waiting == 0 {
                return Ok(false);
            }
            self.processor.work(WORK);
            self.answered.set(self.answered.get() + 1);
            Ok(true)
        }

        fn refused(&self) -> u64 {
            0
        }

        fn local_drops(&mut self) -> u64 {
            self.processor.drops_read.set(self.processor.drops_read.get() + 1);
            0
        }
    }

    /// Returns the processor, the number of answers, and the most requests that waited.
    fn answer_for(span: Nanos, interval: Nanos, pace: Pace) -> (Processor, i64, i64) {
        let (processor, answered, most_waiting) = (Processor::default(), Rc::default(), Rc::default());
        let flooded: Box<dyn Serve> = Box::new(Flooded {
            processor: processor.clone(),
            interval,
            answered: Rc::clone(&answered),
            most_waiting: Rc::clone(&most_waiting),
            file: File::open("/dev/null").expect("a file"),
        });
        let ended = || processor.now.get() >= Time(0) + span;
        serve(&mut [flooded], &processor, pace, &[], ended).expect("serves");
        (processor, answered.get(), most_waiting.get())
    }

    /// A real-time thread that never sleeps takes a core for ever, where the kernel's throttling is switched off.
    #[test]
    fn real_time_responder_rests_under_a_flood() {
        for wait in [Wait::Sleep, Wait::Spin] {
            let (processor, answered, _) =
                answer_for(HALF_A_SECOND, Nanos::micros(1), Pace { wait, is_real_time: true });
            let (slept, all) = (processor.slept.get().0, processor.now.get().0);
            assert!(slept * 100 >= all * 6, "{wait:?}: {slept} ns of {all}");
            assert!(processor.longest_busy.get() < Nanos::millis(41), "{wait:?}: {:?}", processor.longest_busy);
            assert!(answered > 150_000, "{wait:?}: {answered}");
            let (ordinary, ..) = answer_for(HALF_A_SECOND, Nanos::micros(1), Pace { wait, is_real_time: false });
            assert_eq!(ordinary.slept.get(), Nanos::ZERO, "{wait:?}: the kernel takes the CPU from an ordinary thread");
        }
    }

    /// Requests that arrive during a rest wait in their socket, which holds far more.
    #[test]
    fn requests_that_arrive_during_a_rest_are_answered_after_it() {
        let interval = Nanos::micros(3);
        let pace = Pace { wait: Wait::Sleep, is_real_time: true };
        let (processor, answered, most_waiting) = answer_for(HALF_A_SECOND, interval, pace);
        assert!(processor.slept.get() >= Nanos::millis(25), "{:?}", processor.slept);
        let arrived = (processor.now.get() - Time(0)).0 / interval.0;
        let in_a_rest = sojourn_time::pace::REST.0 / interval.0;
        assert!(most_waiting <= in_a_rest + 10, "{most_waiting} waited, {in_a_rest} arrive in a rest");
        assert!(arrived - answered <= most_waiting, "{arrived} arrived, {answered} were answered");
    }

    #[test]
    fn local_drops_are_read_once_a_second() {
        let pace = Pace { wait: Wait::Spin, is_real_time: false };
        let (processor, ..) = answer_for(Nanos::seconds(4), Nanos::micros(1), pace);
        let read = processor.drops_read.get();
        assert!((3..=4).contains(&read), "{read}");
    }
}
