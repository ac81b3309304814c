//! A STAMP session-reflector (RFC 8762 §4.3), stateless or stateful. Reads no clock itself and sends nothing.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use sojourn_port::Framing;
use sojourn_wire::Key;
use sojourn_wire::stamp::{ErrorEstimate, Format, Reflected, Scale, Sent, Unread, is_reflected, tag_of};

use super::engine::{Asked, Reply};
use super::sessions::{Place, Sessions};
use super::tags::Tags;
use sojourn_port::guard::{Case, Guard, Lengths, Refusal};

/// The state of this host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// TAI minus UTC, and the timestamp format.
    pub scale: Scale,
    /// The error estimate of the clock.
    pub error: ErrorEstimate,
}

impl Default for ClockState {
    fn default() -> Self {
        Self { scale: Scale::default(), error: ErrorEstimate::from_bits(1) }
    }
}

/// How a reflector chooses its sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The sender's sequence number: the reflector keeps no state.
    #[default]
    Stateless,
    /// The count of earlier packets of the session: the sender can distinguish loss by direction.
    Stateful,
}

impl Numbering {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Stateful => "stateful",
        }
    }
}

/// Reflects STAMP's test packets.
#[derive(Clone, Debug)]
pub struct Reflector {
    numbering: Numbering,
    key: Option<Arc<Key>>,
    clock: Rc<Cell<ClockState>>,
    guard: Rc<RefCell<Guard>>,
    sessions: Rc<RefCell<Sessions<SessionId>>>,
    /// With a key: what was answered, from whichever address. A copy from another address would begin a session there.
    answered: Option<Rc<RefCell<Tags>>>,
}

/// The sender's address, the local address, and the session identifier (RFC 8972 §3).
type SessionId = (SocketAddr, Option<IpAddr>, u16);

impl Reflector {
    /// Creates a reflector of the packets that `guard` admits; with a key, only of authentic ones, each once. `clock`
    /// may be updated meanwhile.
    pub fn new(
        numbering: Numbering,
        key: Option<Arc<Key>>,
        clock: Rc<Cell<ClockState>>,
        guard: Rc<RefCell<Guard>>,
    ) -> Self {
        let answered = key.as_ref().map(|_| Rc::new(RefCell::new(Tags::new())));
        Self { numbering, key, clock, guard, sessions: Rc::default(), answered }
    }

    /// Returns the sequence number of the reflected packet, if it is to be answered. With a key, that is once.
    fn take(&self, session: SessionId, sent: &Sent, request: &[u8], case: &Case) -> Result<u32, Refusal> {
        let Some(answered) = &self.answered else { return self.number(session, sent, case) };
        let tag = tag_of(request).ok_or(Refusal::Unexpected)?;
        if answered.borrow().have(tag) {
            return Err(Refusal::Replayed);
        }
        let number = self.number(session, sent, case)?;
        answered.borrow_mut().note(tag);
        Ok(number)
    }

    /// Returns the sequence number of the reflected packet, unless its session has had it.
    fn number(&self, session: SessionId, sent: &Sent, case: &Case) -> Result<u32, Refusal> {
        if self.numbering == Numbering::Stateless && self.key.is_none() {
            return Ok(sent.seq);
        }
        let stamp = self.clock.get().scale.with(sent.error.format()).read(sent.timestamp, case.now);
        let place = Place { seq: sent.seq, stamp: Some(stamp), now: case.now, peer: case.identity() };
        let number = self.sessions.borrow_mut().take(session, place, self.key.is_some())?;
        Ok(if self.numbering == Numbering::Stateful { number } else { sent.seq })
    }
}

impl Reply for Reflector {
    fn reply(&mut self, asked: &Asked<'_>, reply: &mut [u8]) -> Option<usize> {
        let route = asked.route.filter(|_| asked.framing == Framing::Udp)?;
        let length = asked.request.len();
        let payload = reply.get_mut(..length)?;
        let key = self.key.as_deref();
        let accepts = || {
            let sent = Sent::read(asked.request, key).map_err(|unread| match unread {
                Unread::Short => Refusal::Unexpected,
                Unread::Unauthenticated => Refusal::Unauthenticated,
            })?;
            if is_reflected(asked.request, key) {
                return Err(Refusal::Reflected);
            }
            Ok((sent, Lengths { request: length, answer: length }))
        };
        let case = Case::datagram(route, (asked.now)());
        let takes = |sent: Sent| Ok((sent, self.take((route.from, route.to, sent.ssid), &sent, asked.request, &case)?));
        let admitted = self.guard.borrow_mut().admits(&case, accepts, takes);
        let (sender, seq) = admitted?;
        let ClockState { scale, error } = self.clock.get();
        payload.copy_from_slice(asked.request);
        let reflected = Reflected {
            seq,
            timestamp: scale.write((asked.now)()),
            error,
            ssid: sender.ssid,
            receive: scale.write(asked.arrived),
            sender,
            // RFC 8762 §4.3.1: 255 where the received TTL is unknown.
            ttl: route.hop_limit.unwrap_or(u8::MAX),
        };
        reflected.write(payload, key);
        Some(length)
    }
}

impl ClockState {
    /// Returns the state of a clock with this scale and maximum error.
    pub fn new(scale: Scale, is_synchronised: bool, error: sojourn_time::Nanos) -> Self {
        Self { scale, error: ErrorEstimate::new(scale.format, is_synchronised, error) }
    }

    /// Returns its timestamp format.
    pub const fn format(&self) -> Format {
        self.scale.format
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_port::Route;
    use sojourn_time::{Nanos, Time};

    use super::*;
    use sojourn_port::guard::Policy;

    fn key() -> Arc<Key> {
        Arc::new(Key::new(&[7; 16]).expect("long enough"))
    }

    fn reflector(numbering: Numbering, key: Option<Arc<Key>>) -> Reflector {
        let scale = Scale { format: Format::Ntp, tai_offset_s: 37 };
        let clock = ClockState::new(scale, true, Nanos::micros(50));
        Reflector::new(
            numbering,
            key,
            Rc::new(Cell::new(clock)),
            Rc::new(RefCell::new(Guard::new(Policy::default(), 1))),
        )
    }

    fn packet(seq: u32, at: i64, ssid: u16, bytes: usize, key: Option<&Key>) -> Vec<u8> {
        let error = ErrorEstimate::new(Format::Ptp, false, Nanos::millis(1));
        let mut payload = vec![0; bytes];
        Sent { seq, timestamp: Scale::default().with(Format::Ptp).write(Time(at)), error, ssid }
            .write(&mut payload, key);
        payload
    }

    fn reflect(reflector: &mut Reflector, request: &[u8]) -> Option<Vec<u8>> {
        reflect_from("10.0.0.1:40000", reflector, request)
    }

    fn reflect_from(from: &str, reflector: &mut Reflector, request: &[u8]) -> Option<Vec<u8>> {
        let from = from.parse().expect("an address");
        let to = Some("10.0.0.2".parse().expect("an address"));
        let route = Some(Route { from, to, to_group: false, hop_limit: Some(61) });
        let (arrived, now) = (Time(1_800_000_000_000_000_123), Time(1_800_000_000_000_009_456));
        let mut reply = vec![0xEE; 2_000];
        let asked = Asked { framing: Framing::Udp, route, request, arrived, now: &|| now };
        let length = reflector.reply(&asked, &mut reply)?;
        reply.truncate(length);
        Some(reply)
    }

    #[test]
    fn reflected_packet_has_equal_length_with_timestamps_and_ttl() {
        for (bytes, key) in [(44, None), (100, None), (1_472, None), (112, Some(key()))] {
            let key = key.as_deref();
            let mut reflector = reflector(Numbering::Stateless, key.cloned().map(Arc::new));
            let request = packet(41, 1_800_000_000_000_000_000, 9, bytes, key);
            let reply = reflect(&mut reflector, &request).expect("a reply");
            assert_eq!(reply.len(), bytes);
            let read = Reflected::read(&reply, key).expect("a reflected packet");
            let scale = reflector.clock.get().scale;
            let near = Time(1_800_000_000_000_000_000);
            assert_eq!((read.seq, read.ssid, read.ttl), (41, 9, 61));
            assert_eq!(scale.read(read.receive, near), Time(1_800_000_000_000_000_123));
            assert_eq!(scale.read(read.timestamp, near), Time(1_800_000_000_000_009_456));
            assert_eq!(read.sender, Sent::read(&request, key).expect("a packet"));
            assert!(read.error.is_synchronised() && read.error.error() >= Nanos::micros(50));
        }
    }

    #[test]
    fn stateful_reflector_numbers_each_session_separately() {
        let mut reflector = reflector(Numbering::Stateful, None);
        let mut number = |seq, ssid| {
            let reply = reflect(&mut reflector, &packet(seq, i64::from(seq), ssid, 44, None)).expect("a reply");
            Reflected::read(&reply, None).expect("a reflected packet").seq
        };
        assert_eq!([number(0, 1), number(1, 1), number(5, 1), number(0, 2), number(6, 1)], [0, 1, 2, 0, 3]);
    }

    #[test]
    fn with_a_key_forged_and_replayed_packets_are_counted_and_not_answered() {
        let key = key();
        for numbering in [Numbering::Stateless, Numbering::Stateful] {
            let mut reflector = reflector(numbering, Some(Arc::clone(&key)));
            let good = packet(0, 1, 9, 112, Some(&key));
            assert!(reflect(&mut reflector, &good).is_some());
            assert_eq!(reflect(&mut reflector, &good), None, "replayed");
            let other = Key::new(&[8; 16]).expect("long enough");
            assert_eq!(reflect(&mut reflector, &packet(1, 2, 9, 112, Some(&other))), None, "another key");
            assert_eq!(reflect(&mut reflector, &packet(1, 2, 9, 112, None)), None, "no key");
            assert_eq!(reflect(&mut reflector, &packet(1, 2, 9, 44, None)), None, "too short");
            assert!(reflect(&mut reflector, &packet(1, 2, 9, 112, Some(&key))).is_some());
            let guard = reflector.guard.borrow();
            let counts =
                [Refusal::Replayed, Refusal::Unauthenticated, Refusal::Unexpected].map(|why| guard.refused(why));
            assert_eq!((guard.answered(), counts), (2, [1, 2, 1]));
        }
    }

    #[test]
    fn with_a_key_a_packet_replayed_from_any_address_is_counted_and_not_answered() {
        let key = key();
        for numbering in [Numbering::Stateless, Numbering::Stateful] {
            let mut reflector = reflector(numbering, Some(Arc::clone(&key)));
            let sent: Vec<_> = (0..3).map(|seq| packet(seq, 1_000 + i64::from(seq), 0, 112, Some(&key))).collect();
            assert!(sent.iter().all(|request| reflect(&mut reflector, request).is_some()));
            // Packets of another sender with the same identifier and numbers are not replays, nor is a restart at another port.
            for (from, at) in [("10.0.0.7:40000", 1_500), ("10.0.0.1:50000", 9_000)] {
                let request = packet(0, at, 0, 112, Some(&key));
                assert!(reflect_from(from, &mut reflector, &request).is_some(), "{from}");
            }
            let ports: Vec<_> = (40_001..40_301).map(|port| format!("10.0.0.1:{port}")).collect();
            let others = ["10.0.0.2:40000", "10.0.0.7:40000", "[fd77::1]:40000"];
            for from in ports.iter().map(String::as_str).chain(others) {
                for request in &sent {
                    let longer = [&request[..], &[0; 20]].concat();
                    assert_eq!(reflect_from(from, &mut reflector, request), None, "{from}");
                    assert_eq!(reflect_from(from, &mut reflector, &longer), None, "{from}, with padding");
                }
            }
            let guard = reflector.guard.borrow();
            assert_eq!((guard.answered(), guard.refused(Refusal::Replayed)), (5, 303 * 6));
        }
    }

    /// A packet forged from one reflector's address to another must not start an endless exchange, however their clocks
    /// differ.
    #[test]
    fn reflector_ignores_reflected_packets() {
        for (key, bytes) in [(None, 44), (None, 1_000), (Some(key()), 112)] {
            for (formats, tai_offset_s) in [([Format::Ntp, Format::Ptp], 37), ([Format::Ptp, Format::Ntp], 0)] {
                let [mut first, mut second] =
                    [Numbering::Stateful, Numbering::Stateless].map(|numbering| reflector(numbering, key.clone()));
                for (reflector, format) in [&first, &second].into_iter().zip(formats) {
                    reflector.clock.set(ClockState::new(Scale { format, tai_offset_s }, false, Nanos::seconds(16)));
                }
                for at in [1, 1_800_000_000_000_000_000, 1_700_000_000_000_000_000] {
                    let forged = packet(7, at, 9, bytes, key.as_deref());
                    let answer = reflect(&mut first, &forged).expect("an answer");
                    assert_eq!(reflect(&mut second, &answer), None, "{formats:?}");
                    let answer = reflect(&mut second, &packet(8, at, 9, bytes, key.as_deref())).expect("an answer");
                    assert_eq!(reflect(&mut first, &answer), None, "{formats:?}");
                    first.sessions.take();
                    second.sessions.take();
                }
                let refused = [first, second].map(|reflector| reflector.guard.borrow().refused(Refusal::Reflected));
                assert_eq!(refused, [3, 3]);
            }
        }
    }

    #[test]
    fn padding_does_not_make_a_request_look_like_a_reflected_packet() {
        let mut reflector = reflector(Numbering::Stateless, None);
        let mut request = packet(0, 1_800_000_000_000_000_000, 0, 44, None);
        for noise in [0, 0xFF, 0xA5] {
            request[16..].fill(noise);
            assert!(reflect(&mut reflector, &request).is_some(), "{noise}");
        }
    }

    #[test]
    fn one_host_cannot_exhaust_the_sessions_of_a_stateful_reflector() {
        let mut reflector = reflector(Numbering::Stateful, None);
        let ask = |reflector: &mut Reflector, from: String, ssid| {
            let from = from.parse().expect("an address");
            let route = Some(Route { from, to: None, to_group: false, hop_limit: None });
            let request = packet(0, 1, ssid, 44, None);
            let arrived = Time(1_800_000_000_000_000_000);
            let asked = Asked { framing: Framing::Udp, route, request: &request, arrived, now: &|| arrived };
            reflector.reply(&asked, &mut [0; 44])
        };
        let answered =
            (0..10_000).filter(|ssid| ask(&mut reflector, "10.0.0.1:40000".to_owned(), *ssid).is_some()).count();
        assert_eq!(answered, super::super::sessions::MOST_OF_A_PEER);
        assert!(ask(&mut reflector, "10.0.0.2:40000".to_owned(), 1).is_some());
        reflector.guard = Rc::new(RefCell::new(Guard::new(Policy { peer_rate: 10, ..Policy::default() }, 1)));
        for port in 20_000..22_000 {
            ask(&mut reflector, format!("10.0.0.3:{port}"), 1);
        }
        assert_eq!(reflector.guard.borrow().refused(Refusal::PeerRate), 1_998, "and these began no session");
        assert!(ask(&mut reflector, "10.0.0.4:40000".to_owned(), 1).is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_packets_never_panic_and_are_answered_with_equal_length(bytes in prop::collection::vec(any::<u8>(), 0..400), keyed: bool, stateful: bool) {
            let key = keyed.then(key);
            let numbering = if stateful { Numbering::Stateful } else { Numbering::Stateless };
            let mut bytes = bytes;
            if let (Some(key), true) = (&key, bytes.len() >= 112) {
                let tag = key.tag(&[&bytes[..96]]);
                bytes[96..112].copy_from_slice(&tag);
            }
            let least = if keyed { 112 } else { 44 };
            let reply = reflect(&mut reflector(numbering, key.clone()), &bytes);
            let is_due = bytes.len() >= least && !is_reflected(&bytes, key.as_deref());
            prop_assert_eq!(reply.map(|reply| reply.len()), is_due.then_some(bytes.len()));
        }
    }
}
