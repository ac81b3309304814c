//! Sends the key of a stream to receivers that do not have it, before the stream begins.

use std::sync::atomic::{AtomicBool, Ordering};

use sojourn_port::{Batch, PortError};
use sojourn_time::{Clock, Nanos, Time, Watch};
use sojourn_wire::stream::{GreetingTail, GreetingWord, Kind};
use sojourn_wire::{SessionKey, StreamHeader};

use super::transmit;
use crate::frame::split;
use crate::{Auth, Head};

/// Interval of greetings while nobody replies.
const AGAIN: Nanos = Nanos::millis(100);

/// How long to listen for more receivers of a group, after each one that accepted.
const GROUP_PATIENCE: Nanos = Nanos::millis(300);

/// Maximum number of receivers of a group.
const MOST_RECEIVERS: usize = 256;

/// A stream that is to begin.
#[derive(Clone, Copy, Debug)]
pub struct Greeting<'a> {
    /// The header of its frames.
    pub head: Head,
    /// Its session key.
    pub key: SessionKey,
    /// Its flow number.
    pub flow: u16,
    /// The key shared with receivers, if any.
    pub auth: &'a Auth,
    /// Whether it is sent to a group, of which several receivers may reply.
    pub is_group: bool,
}

/// The receivers' replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeted {
    /// The cookies of the receivers that count the stream.
    accepted: Vec<u64>,
    /// Why a receiver refused: [`GreetingWord::Taken`], [`GreetingWord::NoSuchFlow`] or [`GreetingWord::Keyed`].
    pub refusal: Option<GreetingWord>,
}

impl Greeted {
    /// Returns the number of receivers that count the stream.
    pub const fn receivers(&self) -> usize {
        self.accepted.len()
    }
}

/// Greets until a receiver accepts or refuses (for a group: until no more do), at most for `patience`, and until `stop` is set.
///
/// # Errors
/// If the port fails.
pub fn greet(
    port: &mut dyn Batch,
    clock: &dyn Clock,
    greeting: Greeting<'_>,
    patience: Nanos,
    stop: &AtomicBool,
) -> Result<Greeted, PortError> {
    let start = clock.now();
    let (mut deadline, mut next, mut watch) = (start + patience, start, Watch::new(start));
    let mut greeted = Greeted::default();
    // Cookies returned since the last greeting: each receiver of a group gets those of the others too, and replies to them.
    let mut sent_back: Vec<u64> = Vec::new();
    loop {
        let now = clock.now();
        if now >= deadline || watch.is_set_back(now) || stop.load(Ordering::Relaxed) {
            return Ok(greeted);
        }
        if now >= next {
            say(port, greeting, 0, now)?;
            next = now + AGAIN;
            sent_back.clear();
        }
        let before = greeted.receivers();
        for cookie in listen(port, greeting, &mut greeted)? {
            if sent_back.len() < MOST_RECEIVERS && !sent_back.contains(&cookie) {
                sent_back.push(cookie);
                say(port, greeting, cookie, clock.now())?;
            }
        }
        if !greeting.is_group && (greeted.receivers() > 0 || greeted.refusal.is_some()) {
            return Ok(greeted);
        }
        if greeted.receivers() > before {
            deadline = clock.now() + GROUP_PATIENCE;
        }
        while port.tx_timestamp()?.is_some() {}
        port.wait(next.min(deadline))?;
    }
}

/// Sends a greeting with this cookie.
fn say(port: &mut dyn Batch, greeting: Greeting<'_>, cookie: u64, now: Time) -> Result<(), PortError> {
    let Greeting { head, key, flow, auth, .. } = greeting;
    let mut frame = vec![0; head.bytes() + head.greeting_payload_bytes() + auth.bytes()];
    if let Head::Link(link) = head {
        link.write(&mut frame);
    }
    let payload = &mut frame[head.bytes()..];
    StreamHeader { kind: Kind::Greeting, node: 0, flow, key, seq: 0, intended: now, sent: now }.write(payload);
    GreetingTail { cookie, word: GreetingWord::Greet }.write(payload);
    auth.seal(payload);
    match transmit(port, &frame) {
        Err(error) if !error.is_full_queue() => Err(error),
        _ => Ok(()),
    }
}

/// Reads the replies that wait, and returns the cookies to be sent back.
fn listen(port: &mut dyn Batch, greeting: Greeting<'_>, greeted: &mut Greeted) -> Result<Vec<u64>, PortError> {
    let framing = port.capabilities().framing;
    let mut cookies = Vec::new();
    let taken = port.receive_batch(&mut |frame, _| {
        let Some((_, payload)) = split(framing, frame) else { return };
        let header = StreamHeader::read(payload).ok().filter(|header| {
            header.kind == Kind::GreetingReply && (header.key, header.flow) == (greeting.key, greeting.flow)
        });
        let said = header.and_then(|_| greeting.auth.open(payload));
        let Some(tail) = said.and_then(GreetingTail::read) else { return };
        match tail.word {
            GreetingWord::Again if cookies.len() < MOST_RECEIVERS => cookies.push(tail.cookie),
            GreetingWord::Accepted if greeted.accepted.len() < MOST_RECEIVERS => {
                if !greeted.accepted.contains(&tail.cookie) {
                    greeted.accepted.push(tail.cookie);
                }
            }
            GreetingWord::Taken | GreetingWord::NoSuchFlow | GreetingWord::Keyed => greeted.refusal = Some(tail.word),
            GreetingWord::Greet | GreetingWord::Again | GreetingWord::Accepted => {}
        }
    });
    match taken {
        Ok(_) | Err(PortError::Refused(_)) => Ok(cookies),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use sojourn_port::{Capabilities, Framing, Port, Received, Sent, TxTimestamp};
    use sojourn_time::{Source, Stamp};

    use super::*;

    const KEY: SessionKey = SessionKey(7);
    const FLOW: u16 = 1;
    const FRAME_BYTES: usize = 200;
    /// Number of replies in each wait.
    const MANY: u64 = 10_000;

    /// A network that answers anything sent with replies of ever more receivers.
    #[derive(Clone, Debug, Default)]
    struct Crowd {
        now: Rc<Cell<Time>>,
        sent: Rc<Cell<usize>>,
        waiting: u64,
        next: u64,
    }

    impl Clock for Crowd {
        fn now(&self) -> Time {
            self.now.get()
        }

        fn wait_until(&self, deadline: Time, _: Nanos) -> Time {
            self.now.set(self.now.get().max(deadline));
            self.now.get()
        }

        fn thread_time(&self) -> Nanos {
            Nanos::ZERO
        }
    }

    impl Port for Crowd {
        fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
            self.sent.set(self.sent.get() + 1);
            Ok(Sent { number: 0, called: self.now() })
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
            if self.waiting == 0 {
                return Ok(None);
            }
            self.waiting -= 1;
            self.next += 1;
            let word = if self.next.is_multiple_of(2) { GreetingWord::Again } else { GreetingWord::Accepted };
            let now = self.now();
            let payload = &mut buffer[..FRAME_BYTES];
            StreamHeader { kind: Kind::GreetingReply, node: 0, flow: FLOW, key: KEY, seq: 0, intended: now, sent: now }
                .write(payload);
            GreetingTail { cookie: self.next, word }.write(payload);
            let arrived = Stamp { at: now, source: Source::Simulated };
            Ok(Some(Received { length: FRAME_BYTES, arrived, returned: now, from: None, to_group: false }))
        }

        fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
            Ok(None)
        }

        fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
            self.waiting = MANY;
            self.wait_until(deadline, Nanos::ZERO);
            Ok(())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { framing: Framing::Udp, max_frame: FRAME_BYTES, tx_timestamps: false }
        }

        fn local_drops(&mut self) -> u64 {
            0
        }
    }

    impl Batch for Crowd {
        fn engine(&self) -> &str {
            "none"
        }
    }

    #[test]
    fn remembered_and_answered_receivers_are_bounded() {
        let mut crowd = Crowd::default();
        let (clock, patience) = (crowd.clone(), Nanos::seconds(2));
        let greeting = Greeting { head: Head::Udp, key: KEY, flow: FLOW, auth: &Auth::default(), is_group: true };
        let greeted = greet(&mut crowd, &clock, greeting, patience, &AtomicBool::new(false)).expect("ends");
        assert_eq!(greeted.receivers(), MOST_RECEIVERS);
        assert!(clock.now() <= Time(0) + patience + GROUP_PATIENCE);
        let most = (MOST_RECEIVERS + 1) * (patience.0 / AGAIN.0 + 1) as usize;
        assert!((MOST_RECEIVERS..=most).contains(&crowd.sent.get()), "{}", crowd.sent.get());
    }
}
