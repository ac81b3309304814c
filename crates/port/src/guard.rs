//! Decides which requests are answered, with how many bytes, and how often. Pure: addresses, lengths and times in,
//! decisions and counts out.
//!
//! A request's source address may be forged, so an answer may reach a host that never asked. Therefore an answer must
//! not be longer than its request, must not cause another answer, and must be limited in rate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sojourn_time::{Nanos, Time};
use sojourn_wire::{PeerAddress, Peers};

use crate::Route;

/// UDP services above port 1023 that answer any datagram. No request comes from a port below 1024.
const REFLECTORS: [u16; 6] = [1_900, 3_478, 3_702, 5_353, 5_683, 11_211];
const FIRST_PORT_TO_ASK_FROM: u16 = 1_024;

/// The longest answer to a shorter request: the largest frames in use (jumbo), with some margin.
const LONGEST_AMPLIFIED_BYTES: usize = 9_216;

/// The table of per-peer rates: this many sets, each of `WAYS` peers.
const SETS: usize = 1_024;
const WAYS: usize = 4;

/// How long a peer that was quiet may exceed its rate.
const BURST: Nanos = Nanos::millis(100);
const SECOND_NS: i64 = 1_000_000_000;

/// Which peers are answered, with how many bytes, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The peers that are answered; no others are.
    pub allowed: Vec<Peers>,
    /// The peers that may get answers longer than their requests.
    pub amplified: Vec<Peers>,
    /// The UDP source ports of our answers: no request comes from them.
    pub own_ports: Vec<u16>,
    /// The most requests per second and peer that are answered; 0: no limit.
    pub peer_rate: u32,
    /// The most requests per second of all peers that are answered; 0: no limit.
    pub rate: u32,
}

impl Default for Policy {
    fn default() -> Self {
        let (allowed, amplified, own_ports) = (vec![Peers::Any], Vec::new(), Vec::new());
        Self { allowed, amplified, own_ports, peer_rate: 0, rate: 0 }
    }
}

/// Why a received frame was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It was sent to a broadcast or multicast address.
    Group,
    /// Its source is an address that no host has.
    Source,
    /// Its source port is below 1024, that of a service that answers, or our own.
    Port,
    /// Its peer is not among those that are answered.
    NotAllowed,
    /// It is no valid request.
    Unexpected,
    /// It is not authentic: its tag does not match the key.
    Unauthenticated,
    /// It is authenticated, but was received before.
    Replayed,
    /// It may be an answer: two responders that answer answers never stop.
    Reflected,
    /// It would start a session, but the session table, or its peer's share of it, is full.
    Sessions,
    /// It requests an answer longer than itself.
    TooLong,
    /// Its peer exceeds the rate per peer.
    PeerRate,
    /// All peers together exceed the total rate.
    Rate,
}

impl Refusal {
    /// Every refusal.
    pub const ALL: [Self; 12] = [
        Self::Group,
        Self::Source,
        Self::Port,
        Self::NotAllowed,
        Self::Unexpected,
        Self::Unauthenticated,
        Self::Replayed,
        Self::Reflected,
        Self::Sessions,
        Self::TooLong,
        Self::PeerRate,
        Self::Rate,
    ];

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "to_group",
            Self::Source => "source_address",
            Self::Port => "source_port",
            Self::NotAllowed => "not_allowed",
            Self::Unexpected => "unexpected",
            Self::Unauthenticated => "unauthenticated",
            Self::Replayed => "replayed",
            Self::Reflected => "reflected",
            Self::Sessions => "sessions",
            Self::TooLong => "too_long",
            Self::PeerRate => "peer_rate",
            Self::Rate => "rate",
        }
    }

    /// Returns the description that a person reads.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Group => "to a broadcast or multicast address",
            Self::Source => "from an address that no host has",
            Self::Port => "from our own port, a port below 1024, or that of a service that answers",
            Self::NotAllowed => "from peers that --allow does not name",
            Self::Unexpected => "unexpected",
            Self::Unauthenticated => "not authenticated by the key",
            Self::Replayed => "replayed",
            Self::Reflected => "that can be answers themselves",
            Self::Sessions => "of more sessions than are remembered",
            Self::TooLong => "for a longer answer than the request (--allow-amplification)",
            Self::PeerRate => "beyond --peer-rate",
            Self::Rate => "beyond --rate",
        }
    }
}

/// What a decision about a received frame depends on.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The sender.
    pub peer: PeerAddress,
    /// Whether other hosts received it too.
    pub to_group: bool,
    /// The time of the decision.
    pub now: Time,
}

impl Case {
    /// Returns the case of a datagram that was received by `route`.
    pub fn datagram(route: Route, now: Time) -> Self {
        Self { peer: PeerAddress::Internet(route.from), to_group: route.to_group, now }
    }

    /// Returns the key that per-peer limits use: an IPv4 host, an IPv6 /64 network (one host may own all of its
    /// addresses), or a MAC address.
    pub fn identity(&self) -> u128 {
        let tagged = |tag: u128, bits: u128| tag << 64 | bits;
        match self.peer {
            PeerAddress::Internet(address) => match address.ip() {
                IpAddr::V4(ip) => tagged(1, u32::from(ip).into()),
                IpAddr::V6(ip) => tagged(2, u128::from(ip) >> 64),
            },
            PeerAddress::Ethernet(mac) => tagged(3, mac.0.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))),
        }
    }
}

/// The lengths of a request and of its answer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of the request.
    pub request: usize,
    /// Length of its answer.
    pub answer: usize,
}

/// Decides on received requests, and counts the decisions.
#[derive(Debug)]
pub struct Guard {
    policy: Policy,
    seed: u64,
    peers: Vec<[Bucket; WAYS]>,
    all: Bucket,
    answered: u64,
    refused: BTreeMap<Refusal, u64>,
}

/// A token bucket, kept as the time at which it is full again (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug)]
struct Bucket {
    peer: u128,
    full_at: Time,
}

impl Guard {
    /// Starts with all counts at 0. `seed` is random, so that nobody can choose peers that share a set of the table.
    pub fn new(policy: Policy, seed: u64) -> Self {
        let unused = Bucket { peer: 0, full_at: Time(i64::MIN) };
        Self { policy, seed, peers: vec![[unused; WAYS]; SETS], all: unused, answered: 0, refused: BTreeMap::new() }
    }

    /// Decides whether a request is answered and counts the decision. If its sender may be answered, `accepts` parses
    /// the request and returns its length and that of the answer, or why there is none. Until then nothing but the
    /// counts changes. `takes`, called last, is the only one to remember the request; it returns what the answer needs.
    pub fn admits<A, T>(
        &mut self,
        case: &Case,
        accepts: impl FnOnce() -> Result<(A, Lengths), Refusal>,
        takes: impl FnOnce(A) -> Result<T, Refusal>,
    ) -> Option<T> {
        let judged = self.judge(case, accepts, takes);
        match judged {
            Ok(_) => self.answered += 1,
            Err(refusal) => *self.refused.entry(refusal).or_default() += 1,
        }
        judged.ok()
    }

    /// Adds a UDP port that answers are sent from.
    pub fn add_own_port(&mut self, port: u16) {
        self.policy.own_ports.push(port);
    }

    /// Returns the policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the number of answered requests.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the number of requests that were refused for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused.get(&refusal).copied().unwrap_or_default()
    }

    fn judge<A, T>(
        &mut self,
        case: &Case,
        accepts: impl FnOnce() -> Result<(A, Lengths), Refusal>,
        takes: impl FnOnce(A) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if case.to_group {
            return Err(Refusal::Group);
        }
        self.judge_source(case.peer)?;
        if !self.policy.allowed.iter().any(|peers| peers.have(case.peer)) {
            return Err(Refusal::NotAllowed);
        }
        let (accepted, Lengths { request, answer }) = accepts()?;
        let is_amplified = self.policy.amplified.iter().any(|peers| peers.have(case.peer));
        if answer > request && !(is_amplified && answer <= LONGEST_AMPLIFIED_BYTES) {
            return Err(Refusal::TooLong);
        }
        self.judge_rates(case)?;
        let taken = takes(accepted)?;
        self.take_rates(case);
        Ok(taken)
    }

    fn judge_source(&self, peer: PeerAddress) -> Result<(), Refusal> {
        match peer {
            PeerAddress::Ethernet(mac) if mac.0[0] & 1 == 1 || mac.0 == [0; 6] => Err(Refusal::Source),
            PeerAddress::Ethernet(_) => Ok(()),
            PeerAddress::Internet(address) => {
                let ip = address.ip();
                if ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) {
                    return Err(Refusal::Source);
                }
                let port = address.port();
                let answers = port < FIRST_PORT_TO_ASK_FROM || REFLECTORS.contains(&port);
                if answers || self.policy.own_ports.contains(&port) { Err(Refusal::Port) } else { Ok(()) }
            }
        }
    }

    fn judge_rates(&mut self, case: &Case) -> Result<(), Refusal> {
        let Policy { peer_rate, rate, .. } = self.policy;
        if !self.all.has_room(rate, case.now) {
            return Err(Refusal::Rate);
        }
        if peer_rate > 0 && !self.bucket(case.identity()).has_room(peer_rate, case.now) {
            return Err(Refusal::PeerRate);
        }
        Ok(())
    }

    fn take_rates(&mut self, case: &Case) {
        let Policy { peer_rate, rate, .. } = self.policy;
        if peer_rate > 0 {
            self.bucket(case.identity()).take(peer_rate, case.now);
        }
        self.all.take(rate, case.now);
    }

    /// The bucket of a peer: its own in its set, or else the one that is full the longest, which it replaces.
    fn bucket(&mut self, peer: u128) -> &mut Bucket {
        let set = &mut self.peers[mixed(peer, self.seed) as usize % SETS];
        let nth = set.iter().position(|bucket| bucket.peer == peer).unwrap_or_else(|| {
            let quietest = set.iter().enumerate().min_by_key(|(_, bucket)| bucket.full_at).map_or(0, |(nth, _)| nth);
            set[quietest] = Bucket { peer, full_at: Time(i64::MIN) };
            quietest
        });
        &mut set[nth]
    }
}

impl Bucket {
    /// Whether a token is left; always `true` without a limit. A clock that was set back refills the bucket.
    fn has_room(&mut self, rate: u32, now: Time) -> bool {
        if rate == 0 {
            return true;
        }
        let owed = self.full_at.0.saturating_sub(now.0);
        if owed > BURST.0 + 2 * period(rate).0 {
            self.full_at = now;
            return true;
        }
        owed <= BURST.0
    }

    fn take(&mut self, rate: u32, now: Time) {
        if rate > 0 {
            self.full_at = self.full_at.max(now) + period(rate);
        }
    }
}

/// The time between two tokens.
fn period(rate: u32) -> Nanos {
    Nanos(SECOND_NS / i64::from(rate))
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast() || ip.octets()[0] == 0)
}

/// Spreads bits as SplitMix64 does.
fn mixed(bits: u128, seed: u64) -> u64 {
    let mut value = (bits as u64 ^ (bits >> 64) as u64).wrapping_add(seed);
    value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_wire::MacAddress;

    use super::*;

    fn case(from: &str) -> Case {
        let peer = PeerAddress::Internet(from.parse().expect("an address"));
        Case { peer, to_group: false, now: Time(SECOND_NS) }
    }

    type Bytes = Result<(usize, usize), Refusal>;
    const ALIKE: Bytes = Ok((100, 100));

    impl Guard {
        fn judge_bytes(&mut self, case: &Case, bytes: Bytes) -> Result<(), Refusal> {
            self.judge(case, || bytes.map(|(request, answer)| ((), Lengths { request, answer })), Ok)
        }

        fn admits_bytes(&mut self, case: &Case, bytes: Bytes) -> bool {
            self.admits(case, || bytes.map(|(request, answer)| ((), Lengths { request, answer })), Ok).is_some()
        }
    }

    fn judged(policy: Policy, case: &Case) -> Result<(), Refusal> {
        Guard::new(policy, 1).judge_bytes(case, ALIKE)
    }

    #[test]
    fn rate_limited_requests_keep_no_state_and_replays_consume_no_rate() {
        let mut guard = Guard::new(Policy { peer_rate: 10, ..Policy::default() }, 1);
        let accepts = || Ok(((), Lengths { request: 100, answer: 100 }));
        let mut remembered = 0;
        for _ in 0..1_000 {
            let refused = guard.judge(&case("10.0.0.1:40000"), accepts, |()| Err::<(), _>(Refusal::Replayed));
            assert_eq!(refused, Err(Refusal::Replayed));
        }
        for _ in 0..1_000 {
            guard.admits(&case("10.0.0.1:40000"), accepts, |()| {
                remembered += 1;
                Ok(())
            });
        }
        assert!((1..=2).contains(&remembered), "{remembered}");
        assert_eq!(guard.refused(Refusal::PeerRate), 1_000 - remembered);
    }

    #[test]
    fn each_refusal_has_its_own_reason() {
        let good = case("10.0.0.1:40000");
        let policy = Policy { own_ports: vec![7_707], ..Policy::default() };
        let judge = |case: &Case| judged(policy.clone(), case);
        assert_eq!(judge(&good), Ok(()));
        assert_eq!(judge(&Case { to_group: true, ..good }), Err(Refusal::Group));
        for from in [
            "0.0.0.0:40000",
            "0.1.2.3:40000",
            "255.255.255.255:40000",
            "239.1.2.3:40000",
            "[ff02::1]:40000",
            "[::]:40000",
        ] {
            assert_eq!(judge(&case(from)), Err(Refusal::Source), "{from}");
        }
        for port in [0, 7, 19, 53, 123, 862, 1023, 1900, 5353, 7707, 11211] {
            assert_eq!(judge(&case(&format!("10.0.0.1:{port}"))), Err(Refusal::Port), "{port}");
        }
        for port in [1024, 7706, 7708, 32768, 65535] {
            assert_eq!(judge(&case(&format!("10.0.0.1:{port}"))), Ok(()), "{port}");
        }
        let judge_bytes = |bytes| Guard::new(Policy::default(), 1).judge_bytes(&good, bytes);
        assert_eq!(judge_bytes(Err(Refusal::Unexpected)), Err(Refusal::Unexpected));
        assert_eq!(judge_bytes(Ok((100, 101))), Err(Refusal::TooLong));
        for (mac, expected) in
            [([2, 0, 0, 0, 0, 1], Ok(())), ([3, 0, 0, 0, 0, 1], Err(Refusal::Source)), ([0; 6], Err(Refusal::Source))]
        {
            assert_eq!(judge(&Case { peer: PeerAddress::Ethernet(MacAddress(mac)), ..good }), expected);
        }
    }

    #[test]
    fn only_allowed_peers_get_replies_and_only_named_ones_longer_replies() {
        let allowed = vec!["10.0.0.0/24".parse().expect("a prefix"), "fd77::/64".parse().expect("a prefix")];
        let amplified = vec!["10.0.0.9".parse().expect("an address")];
        let policy = Policy { allowed, amplified, ..Policy::default() };
        let judge = |case: &Case| judged(policy.clone(), case);
        assert_eq!(judge(&case("10.0.0.1:40000")), Ok(()));
        assert_eq!(judge(&case("[fd77::1]:40000")), Ok(()));
        assert_eq!(judge(&case("10.0.1.1:40000")), Err(Refusal::NotAllowed));
        let peer = PeerAddress::Ethernet(MacAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!(judge(&Case { peer, ..case("10.0.0.1:1") }), Err(Refusal::NotAllowed));
        let longer = |from: &str| Guard::new(policy.clone(), 1).judge_bytes(&case(from), Ok((40, 9_000)));
        assert_eq!(longer("10.0.0.9:40000"), Ok(()));
        assert_eq!(longer("10.0.0.8:40000"), Err(Refusal::TooLong));
    }

    #[test]
    fn each_peer_has_its_own_rate_and_burst() {
        let mut guard = Guard::new(Policy { peer_rate: 1_000, ..Policy::default() }, 1);
        let mut ask =
            |from: &str, at: i64| guard.admits_bytes(&Case { now: Time(SECOND_NS + at), ..case(from) }, ALIKE);
        // Ten times the rate, for 10 s: admits the rate, plus one burst of 100 ms.
        let taken = (0..100_000).filter(|nth| ask("10.0.0.1:40000", nth * 100_000)).count();
        assert!((10_000..=10_102).contains(&taken), "{taken}");
        assert!(ask("10.0.0.2:40000", 10 * SECOND_NS));
        assert!(!ask("10.0.0.1:40001", 10 * SECOND_NS - 100_000), "another port is the same peer");
        // A peer at its rate is always answered.
        assert_eq!((0..5_000).filter(|nth| ask("10.0.0.3:40000", nth * 1_000_000)).count(), 5_000);
        assert_eq!(guard.refused(Refusal::PeerRate) + guard.answered(), 105_002);
    }

    #[test]
    fn total_rate_of_all_peers_is_limited() {
        let mut guard = Guard::new(Policy { rate: 10_000, peer_rate: 1_000, ..Policy::default() }, 1);
        let mut taken = 0;
        for nth in 0..1_000_000_i64 {
            let peer = PeerAddress::Internet((std::net::Ipv4Addr::from(0x0A00_0000 + nth as u32), 40_000).into());
            let now = Time(SECOND_NS + nth * 1_000);
            taken += u64::from(guard.admits_bytes(&Case { peer, now, ..case("10.0.0.1:1") }, ALIKE));
        }
        assert!((10_000..=11_002).contains(&taken), "{taken}");
        assert_eq!(guard.refused(Refusal::Rate), 1_000_000 - taken);
    }

    #[test]
    fn many_spoofed_senders_do_not_block_a_peer_within_its_rate() {
        let mut guard = Guard::new(Policy { peer_rate: 1_000, ..Policy::default() }, 7);
        let mut lost = 0;
        for nth in 0..200_000_i64 {
            let peer = PeerAddress::Internet((std::net::Ipv4Addr::from(0x2000_0000 + nth as u32 * 7), 40_000).into());
            let now = Time(SECOND_NS + nth * 10_000);
            guard.admits_bytes(&Case { peer, now, ..case("10.0.0.1:1") }, ALIKE);
            if nth % 100 == 0 {
                lost += u64::from(!guard.admits_bytes(&Case { now, ..case("10.0.0.1:40000") }, ALIKE));
            }
        }
        assert_eq!(lost, 0);
    }

    #[test]
    fn clock_set_back_blocks_no_peer() {
        let mut guard = Guard::new(Policy { peer_rate: 10, rate: 10, ..Policy::default() }, 1);
        let mut ask =
            |at: i64| guard.admits_bytes(&Case { now: Time(at * SECOND_NS), ..case("10.0.0.1:40000") }, ALIKE);
        assert!(ask(1_000_000) && ask(3) && ask(4));
    }

    proptest! {
        /// Each request is in exactly one count, and no answer is longer than its request.
        #[test]
        fn each_request_is_in_exactly_one_counter(
            cases in prop::collection::vec((any::<[u8; 4]>(), any::<u16>(), any::<bool>(), any::<Option<(u8, u8)>>(), 0..2_i64 * SECOND_NS), 0..200),
            peer_rate in 0..50_u32, rate in 0..100_u32,
        ) {
            let mut guard = Guard::new(Policy { peer_rate, rate, ..Policy::default() }, 1);
            for (ip, port, to_group, bytes, at) in &cases {
                let peer = PeerAddress::Internet((*ip, *port).into());
                let bytes = bytes.map(|(request, answer)| (usize::from(request), usize::from(answer)));
                let case = Case { peer, to_group: *to_group, now: Time(*at) };
                let admitted = guard.admits_bytes(&case, bytes.ok_or(Refusal::Unexpected));
                prop_assert!(!admitted || bytes.is_some_and(|(request, answer)| answer <= request));
            }
            let refused: u64 = Refusal::ALL.into_iter().map(|refusal| guard.refused(refusal)).sum();
            prop_assert_eq!(guard.answered() + refused, cases.len() as u64);
        }
    }
}
