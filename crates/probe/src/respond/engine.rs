//! Builds the reply to a request. Reads no clock itself and sends nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use sojourn_port::{Framing, Route};
use sojourn_time::{Nanos, Time};
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::probe::{self, AUTHENTICATED_BYTES, HEADER_BYTES};
use sojourn_wire::{Key, MacAddress, PeerAddress, ProbeHeader};

use super::sessions::{Place, Sessions};
use sojourn_port::guard::{Case, Guard, Lengths, Refusal};

/// A received frame.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What the request's frame consists of.
    pub framing: Framing,
    /// The addresses of a datagram.
    pub route: Option<Route>,
    /// The frame.
    pub request: &'a [u8],
    /// Its RX timestamp.
    pub arrived: Time,
    /// Reads the clock: for the decision, and again after it, because a reply states its departure time.
    pub now: &'a dyn Fn() -> Time,
}

/// Builds replies.
pub trait Reply {
    /// Writes the reply into `reply` and returns its length; `None` where there is no reply.
    fn reply(&mut self, asked: &Asked<'_>, reply: &mut [u8]) -> Option<usize>;
}

/// Answers this tool's own probes.
#[derive(Clone, Debug)]
pub struct Responder {
    clock: u32,
    pretence: Option<Pretence>,
    guard: Rc<RefCell<Guard>>,
    key: Option<Arc<Key>>,
    sessions: Rc<RefCell<Sessions<u64>>>,
}

/// A simulated clock in place of the host's, to test estimators of clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pretence {
    /// When it starts, on the host's clock.
    pub since: Time,
    /// Its offset from the host's clock at the start.
    pub offset: Nanos,
    /// Its rate relative to the host's clock, in ppm.
    pub skew_ppm: f64,
}

impl Pretence {
    /// Returns the reading of the simulated clock at a host time.
    pub fn shown(&self, host: Time) -> Time {
        let gained = (host - self.since).0 as f64 * self.skew_ppm * 1e-6;
        host + self.offset + Nanos(gained.round() as i64)
    }
}

impl Responder {
    /// Creates a responder whose replies identify their clock by `clock`; the times are those of `pretence` where there
    /// is one. `guard` decides which requests are answered; with a key, only authentic ones are, and each only once.
    pub fn new(clock: u32, pretence: Option<Pretence>, guard: Rc<RefCell<Guard>>, key: Option<Arc<Key>>) -> Self {
        Self { clock, pretence, guard, key, sessions: Rc::default() }
    }

    /// Returns the header of a request, and the lengths of the request and of its reply.
    fn accept(&self, payload: &[u8]) -> Result<(ProbeHeader, Lengths), Refusal> {
        let header = ProbeHeader::read(payload).ok_or(Refusal::Unexpected)?;
        let asked = usize::from(header.asked_bytes().ok_or(Refusal::Unexpected)?);
        let lengths = |answer| Lengths { request: payload.len(), answer };
        let Some(key) = &self.key else { return Ok((header, lengths(asked.max(HEADER_BYTES)))) };
        if !probe::is_authentic(payload, key) {
            return Err(Refusal::Unauthenticated);
        }
        if asked < AUTHENTICATED_BYTES {
            return Err(Refusal::Unexpected);
        }
        Ok((header, lengths(asked)))
    }

    /// Records an accepted request, if each may be answered only once. Returns its header.
    fn take(&self, header: ProbeHeader, case: &Case) -> Result<ProbeHeader, Refusal> {
        if self.key.is_some() {
            let place = Place { seq: header.seq, stamp: None, now: case.now, peer: case.identity() };
            self.sessions.borrow_mut().take(header.session, place, true)?;
        }
        Ok(header)
    }

    fn shown(&self, host: Time) -> Time {
        self.pretence.map_or(host, |pretence| pretence.shown(host))
    }
}

impl Reply for Responder {
    fn reply(&mut self, asked: &Asked<'_>, reply: &mut [u8]) -> Option<usize> {
        let Asked { framing, route, request, arrived, now } = *asked;
        let (back, payload) = match framing {
            Framing::Ethernet => ours(request).map(|(header, payload)| (Some(header), payload)),
            Framing::Udp => Some((None, request)),
            // The kernel answers these.
            Framing::Icmp4 | Framing::Icmp6 => None,
        }
        .unwrap_or_default();
        let judged = now();
        let case = match (back, route) {
            (Some(header), _) => {
                Case { peer: PeerAddress::Ethernet(header.source), to_group: is_group(header), now: judged }
            }
            (None, Some(route)) => Case::datagram(route, judged),
            (None, None) => Case { peer: PeerAddress::Ethernet(NOBODY), to_group: false, now: judged },
        };
        let admitted =
            self.guard.borrow_mut().admits(&case, || self.accept(payload), |header| self.take(header, &case));
        let header = admitted?;
        let (head, payload) = room(back, &header, reply)?;
        payload.fill(0);
        let answer = header.reply(self.shown(arrived), self.shown(now()))?;
        ProbeHeader { clock: self.clock, ..answer }.write(payload);
        if let Some(key) = &self.key {
            probe::authenticate(payload, key);
        }
        Some(head + payload.len())
    }
}

/// The sender of a frame that is not a probe.
const NOBODY: MacAddress = MacAddress([2, 0, 0, 0, 0, 0]);

fn is_group(header: Header) -> bool {
    header.destination.0[0] & 1 == 1
}

/// Writes the Ethernet header of the reply to a frame with the header `ethernet`; returns its length, and the space for
/// the requested user data.
fn room<'a>(ethernet: Option<Header>, asked: &ProbeHeader, reply: &'a mut [u8]) -> Option<(usize, &'a mut [u8])> {
    let length = usize::from(asked.asked_bytes()?).max(HEADER_BYTES);
    let Some(header) = ethernet else { return Some((0, reply.get_mut(..length)?)) };
    let bytes = Header { destination: header.source, source: header.destination, ..header }.to_bytes();
    let (head, body) = reply.split_at_mut_checked(bytes.len())?;
    head.copy_from_slice(&bytes);
    Some((bytes.len(), body.get_mut(..length)?))
}

/// Returns header and user data of a probe frame.
fn ours(request: &[u8]) -> Option<(Header, &[u8])> {
    Header::split(request).filter(|(header, _)| header.ethertype == PROBE_ETHERTYPE)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;

    use super::*;
    use sojourn_port::guard::{Policy, Refusal};

    const PROBER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const EVERYBODY: MacAddress = MacAddress([0xFF; 6]);

    fn guard(policy: Policy) -> Rc<RefCell<Guard>> {
        Rc::new(RefCell::new(Guard::new(policy, 1)))
    }

    fn responder() -> Responder {
        Responder::new(0, None, guard(Policy::default()), None)
    }

    fn asked(framing: Framing, request: &[u8]) -> Asked<'_> {
        let from = "10.0.0.1:40000".parse().expect("an address");
        let route = (framing == Framing::Udp).then_some(Route { from, to: None, to_group: false, hop_limit: None });
        Asked { framing, route, request, arrived: Time(5), now: &|| Time(9) }
    }

    fn request(length: usize, response_bytes: u16) -> Vec<u8> {
        let mut payload = vec![0; length];
        ProbeHeader::request(3, 4, response_bytes).write(&mut payload);
        payload
    }

    fn frame(destination: MacAddress, ethertype: u16) -> Vec<u8> {
        let mut frame = Header { destination, source: PROBER, ethertype }.to_bytes().to_vec();
        frame.extend(request(46, 46));
        frame
    }

    #[test]
    fn frame_is_returned_to_its_sender_with_both_timestamps() {
        let mut reply = [0; 100];
        let length = responder().reply(&asked(Framing::Ethernet, &frame(STATION, PROBE_ETHERTYPE)), &mut reply);
        assert_eq!(length, Some(14 + 46));
        let (header, payload) = Header::split(&reply[..60]).expect("a header");
        assert_eq!((header.destination, header.source), (PROBER, STATION));
        let header = ProbeHeader::read(payload).expect("a reply");
        assert_eq!(header.times(), Some((Time(5), Time(9))));
    }

    #[test]
    fn simulated_clock_has_offset_and_skew_and_its_own_clock_id() {
        let pretence = Pretence { since: Time(0), offset: Nanos::seconds(1), skew_ppm: 50.0 };
        let mut reply = [0; 100];
        for framing in [Framing::Ethernet, Framing::Udp] {
            let request = match framing {
                Framing::Ethernet => frame(STATION, PROBE_ETHERTYPE),
                _ => request(46, 46),
            };
            let asked =
                Asked { arrived: Time(2_000_000_000), now: &|| Time(2_000_000_100), ..asked(framing, &request) };
            let mut responder = Responder::new(7, Some(pretence), guard(Policy::default()), None);
            let length = responder.reply(&asked, &mut reply).expect("a reply");
            let header = ProbeHeader::read(&reply[length - 46..length]).expect("a header");
            assert_eq!(header.times(), Some((Time(3_000_100_000), Time(3_000_100_100))));
            assert_eq!(header.clock, 7);
        }
    }

    #[test]
    fn each_frame_is_in_exactly_one_counter() {
        let mut responder = responder();
        let mut reply = vec![0; 20_000];
        let mut give = |framing, bytes: &[u8]| responder.reply(&asked(framing, bytes), &mut reply);
        assert_eq!(give(Framing::Udp, &request(100, 100)), Some(100));
        assert_eq!(give(Framing::Udp, &request(100, 101)), None);
        assert_eq!(give(Framing::Ethernet, &frame(EVERYBODY, PROBE_ETHERTYPE)), None);
        assert_eq!(give(Framing::Ethernet, &frame(STATION, 0x0800)), None);
        assert_eq!(give(Framing::Icmp4, &request(100, 100)), None);
        let first_reply = ProbeHeader::request(3, 4, 100).reply(Time(5), Time(9)).expect("a reply").to_bytes();
        assert_eq!(give(Framing::Udp, &first_reply), None, "a reply is never answered");
        let guard = responder.guard.borrow();
        let refused = Refusal::ALL.map(|refusal| guard.refused(refusal));
        assert_eq!((guard.answered(), refused), (1, [1, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0]));
    }

    #[test]
    fn longer_replies_go_only_to_named_peers_up_to_a_maximum() {
        let amplified =
            vec!["10.0.0.0/24".parse().expect("a prefix"), "02:00:00:00:00:01".parse().expect("a MAC address")];
        let mut responder = Responder::new(0, None, guard(Policy { amplified, ..Policy::default() }), None);
        let mut reply = vec![0; 70_000];
        let mut give = |bytes: &[u8]| responder.reply(&asked(Framing::Udp, bytes), &mut reply);
        assert_eq!(give(&request(40, 9_216)), Some(9_216));
        assert_eq!(give(&request(40, 9_217)), None);
        assert_eq!(give(&request(60_000, 40)), Some(40));
        assert_eq!(give(&request(60_000, 60_000)), Some(60_000));
        let header = Header { destination: STATION, source: PROBER, ethertype: PROBE_ETHERTYPE };
        let frame = [&header.to_bytes()[..], &request(46, 1_500)].concat();
        assert_eq!(responder.reply(&asked(Framing::Ethernet, &frame), &mut reply), Some(1_514));
    }

    #[test]
    fn with_a_key_forged_and_replayed_requests_are_counted_and_not_answered() {
        let keys = [7, 8].map(|byte| Arc::new(Key::new(&[byte; 16]).expect("long enough")));
        let mut responder = Responder::new(5, None, guard(Policy::default()), Some(Arc::clone(&keys[0])));
        let mut reply = vec![0; 200];
        let tagged = |seq, length, response_bytes, key: &Key| {
            let mut payload = vec![0; length];
            ProbeHeader::request(3, seq, response_bytes).write(&mut payload);
            probe::authenticate(&mut payload, key);
            payload
        };
        let mut give = |bytes: &[u8]| responder.reply(&asked(Framing::Udp, bytes), &mut reply);
        assert_eq!(give(&tagged(0, 100, 100, &keys[0])), Some(100));
        assert_eq!(give(&tagged(0, 100, 100, &keys[0])), None, "replayed");
        assert_eq!(give(&tagged(1, 100, 100, &keys[1])), None, "another key");
        assert_eq!(give(&request(100, 100)), None, "no key");
        assert_eq!(give(&tagged(1, 100, 55, &keys[0])), None, "no room for the answer's tag");
        assert_eq!(give(&tagged(1, 56, 56, &keys[0])), Some(56));
        assert!(
            probe::is_authentic(&reply[..56], &keys[0])
                && ProbeHeader::read(&reply).is_some_and(|header| header.clock == 5)
        );
        let guard = responder.guard.borrow();
        let counts = [Refusal::Replayed, Refusal::Unauthenticated, Refusal::Unexpected].map(|why| guard.refused(why));
        assert_eq!((guard.answered(), counts), (2, [1, 2, 1]));
    }

    /// A reply's departure time is read after all other work.
    #[test]
    fn departure_time_is_read_after_the_request_was_checked() {
        let key = Arc::new(Key::new(&[7; 16]).expect("long enough"));
        let guard = guard(Policy::default());
        let mut responder = Responder::new(5, None, Rc::clone(&guard), Some(Arc::clone(&key)));
        let mut payload = request(100, 100);
        probe::authenticate(&mut payload, &key);
        let (answered, mut reply) = (RefCell::new(Vec::new()), [0; 100]);
        let now = || {
            answered.borrow_mut().push(guard.borrow().answered());
            Time(answered.borrow().len() as i64)
        };
        let asked = Asked { arrived: Time(0), now: &now, ..asked(Framing::Udp, &payload) };
        assert_eq!(responder.reply(&asked, &mut reply), Some(100));
        assert_eq!(*answered.borrow(), [0, 1]);
        let header = ProbeHeader::read(&reply).expect("a reply");
        assert_eq!(header.times(), Some((Time(0), Time(2))));
        assert_eq!(responder.reply(&asked, &mut reply), None, "replayed");
        assert_eq!(*answered.borrow(), [0, 1, 1]);
    }

    #[test]
    fn rate_limited_requests_start_no_session() {
        let key = Arc::new(Key::new(&[7; 16]).expect("long enough"));
        let guard = guard(Policy { peer_rate: 10, ..Policy::default() });
        let mut responder = Responder::new(5, None, Rc::clone(&guard), Some(Arc::clone(&key)));
        let mut reply = [0; 100];
        for session in 0..10_000 {
            let mut payload = vec![0; 100];
            ProbeHeader::request(session, 0, 100).write(&mut payload);
            probe::authenticate(&mut payload, &key);
            responder.reply(&asked(Framing::Udp, &payload), &mut reply);
        }
        let refused = [Refusal::Sessions, Refusal::PeerRate].map(|why| guard.borrow().refused(why));
        assert_eq!((guard.borrow().answered(), refused), (2, [0, 9_998]));
    }

    /// A frame that arrives: a request or a reply of any fields, some of whose bytes may have been changed afterwards.
    #[derive(Clone, Debug)]
    struct Arriving {
        framing: Framing,
        from: SocketAddr,
        to_group: bool,
        is_keyed: bool,
        header: ProbeHeader,
        frame: Vec<u8>,
        is_changed: bool,
    }

    const OWN_PORT: u16 = 7_707;
    /// Ports of services that answer any datagram, and our own.
    const PORTS_NOT_ANSWERED: [u16; 7] = [1_900, 3_478, 3_702, 5_353, 5_683, 11_211, OWN_PORT];

    impl Arriving {
        fn key(&self) -> Option<Arc<Key>> {
            self.is_keyed.then(|| Arc::new(Key::new(&[7; 16]).expect("long enough")))
        }

        fn asked<'a>(&self, request: &'a [u8]) -> Asked<'a> {
            let (from, to_group) = (self.from, self.to_group);
            let route = (self.framing == Framing::Udp).then_some(Route { from, to: None, to_group, hop_limit: None });
            Asked { route, ..asked(self.framing, request) }
        }

        /// Whether whoever it states to come from may be answered at all (decision 45).
        fn may_be_answered(&self) -> bool {
            if self.framing == Framing::Ethernet {
                let is_group = |at: usize| self.frame[at] & 1 == 1;
                return !is_group(0) && !is_group(6) && self.frame[6..12] != [0; 6];
            }
            let is_of_a_host = match self.from.ip() {
                IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && ip.octets()[0] != 0,
                IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
            };
            let port = self.from.port();
            !self.to_group && is_of_a_host && port >= 1_024 && !PORTS_NOT_ANSWERED.contains(&port)
        }

        /// Whether it is answered, if it was not changed.
        fn is_due(&self) -> bool {
            let ethernet_bytes = if self.framing == Framing::Ethernet { 14 } else { 0 };
            let (length, least) =
                (self.frame.len() - ethernet_bytes, if self.is_keyed { AUTHENTICATED_BYTES } else { HEADER_BYTES });
            let asks = self.header.asked_bytes().map(usize::from);
            let fits = |asks: usize| asks <= length && (asks >= least || !self.is_keyed);
            self.may_be_answered() && length >= least && asks.is_some_and(fits)
        }
    }

    /// Returns the number of answered frames, and of refused ones.
    fn counts(guard: &Guard) -> (u64, u64) {
        (guard.answered(), Refusal::ALL.into_iter().map(|refusal| guard.refused(refusal)).sum())
    }

    fn source() -> impl Strategy<Value = SocketAddr> {
        let strange = ["0.0.0.0", "0.1.2.3", "255.255.255.255", "224.0.0.1", "239.255.255.250", "::", "ff02::1"];
        let ip = prop_oneof![3 => prop::sample::select(&["10.0.0.1", "fd77::1"][..]), 1 => prop::sample::select(strange.to_vec())];
        let port = prop_oneof![3 => any::<u16>(), 1 => prop::sample::select(PORTS_NOT_ANSWERED.to_vec())];
        (ip, port).prop_map(|(ip, port)| SocketAddr::new(ip.parse().expect("an address"), port))
    }

    fn mac() -> impl Strategy<Value = [u8; 6]> {
        prop_oneof![3 => Just(PROBER.0), 1 => Just(EVERYBODY.0), 1 => Just([0; 6]), 1 => any::<[u8; 6]>()]
    }

    prop_compose! {
        fn header()(session: u64, seq: u32, response_bytes in 0..220_u16, is_reply in prop::bool::weighted(0.1), clock: u32) -> ProbeHeader {
            let request = ProbeHeader { clock, ..ProbeHeader::request(session, seq, response_bytes) };
            request.reply(Time(5), Time(9)).filter(|_| is_reply).unwrap_or(request)
        }
    }

    prop_compose! {
        fn arriving()(
            header in header(), length in prop_oneof![1 => 0..60_usize, 3 => 60..220_usize], is_ethernet: bool, is_keyed: bool,
            from in source(), to_group in prop::bool::weighted(0.1), destination in mac(), source in mac(),
            changes in prop_oneof![
                2 => Just(Vec::new()),
                1 => prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            ],
        ) -> Arriving {
            let mut payload = vec![0; length];
            header.write(&mut payload);
            if is_keyed {
                probe::authenticate(&mut payload, &Key::new(&[7; 16]).expect("long enough"));
            }
            let ethernet = Header { destination: MacAddress(destination), source: MacAddress(source), ethertype: PROBE_ETHERTYPE };
            let (framing, mut frame) = match is_ethernet {
                true => (Framing::Ethernet, [&ethernet.to_bytes()[..], &payload].concat()),
                false => (Framing::Udp, payload),
            };
            let is_changed = !changes.is_empty() && !frame.is_empty();
            for (at, byte) in changes.iter().filter(|_| is_changed) {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            Arriving { framing, from, to_group, is_keyed, header, frame, is_changed }
        }
    }

    proptest! {
        /// Each frame is in exactly one count, and answered exactly where it is due; if bytes of it were changed, never
        /// where it is not.
        #[test]
        fn mutated_frames_are_counted_once_and_answered_only_where_due(arriving in arriving()) {
            let guard = guard(Policy { own_ports: vec![OWN_PORT], ..Policy::default() });
            let mut responder = Responder::new(0, None, Rc::clone(&guard), arriving.key());
            let mut reply = vec![0xFF; 1 << 16];
            let mut give = |bytes: &[u8]| {
                let before = counts(&guard.borrow());
                let answered = responder.reply(&arriving.asked(bytes), &mut reply).map(|length| reply[..length].to_vec());
                let after = counts(&guard.borrow());
                assert_eq!(after.0 + after.1, before.0 + before.1 + 1, "in one count");
                assert_eq!(answered.is_some(), after.0 > before.0);
                answered
            };
            let answered = give(&arriving.frame);
            if !arriving.is_changed {
                prop_assert_eq!(answered.is_some(), arriving.is_due());
            }
            let Some(answer) = answered else { return Ok(()) };
            prop_assert!(arriving.may_be_answered());
            prop_assert!(answer.len() <= arriving.frame.len(), "{} bytes", answer.len());
            prop_assert!(give(&answer).is_none(), "an answer is never answered");
            prop_assert_eq!(give(&arriving.frame).is_some(), arriving.key().is_none(), "with a key, each is answered once");
        }

        /// A reply buffer of any length.
        #[test]
        fn short_reply_buffer_never_panics(arriving in arriving(), room in 0..200_usize) {
            let mut responder = Responder::new(0, None, guard(Policy::default()), arriving.key());
            let answered = responder.reply(&arriving.asked(&arriving.frame), &mut vec![0; room]);
            prop_assert!(answered.is_none_or(|length| length <= room));
        }

        /// Frames with a valid CRC, whatever length they request.
        #[test]
        fn no_answer_is_longer_than_its_request(
            length in 0..300_usize, asks: u16, session: u64, seq: u32, ethernet: bool, destination: [u8; 6], source: [u8; 6],
        ) {
            let mut payload = vec![0; length];
            ProbeHeader::request(session, seq, asks).write(&mut payload);
            let header = Header { destination: MacAddress(destination), source: MacAddress(source), ethertype: PROBE_ETHERTYPE };
            let (framing, frame) = if ethernet {
                (Framing::Ethernet, [&header.to_bytes()[..], &payload].concat())
            } else {
                (Framing::Udp, payload)
            };
            let mut reply = vec![0; 1 << 16];
            let answered = responder().reply(&asked(framing, &frame), &mut reply);
            prop_assert!(answered.is_none_or(|answer| answer <= frame.len()));
            let is_due = length >= HEADER_BYTES && usize::from(asks) <= length;
            prop_assert_eq!(answered.is_some(), is_due && (!ethernet || (destination[0] | source[0]) & 1 == 0 && source != [0; 6]));
        }
    }
}
