//! The suite for every source: the guarantees of [`Source`] and the packet accounting, checked with connections that
//! are really made.

mod reader;

use sojourn_tcplog::account::{Account, Counters, Disposition};
use sojourn_tcplog::layout::{Options, point};
use sojourn_tcplog::{Prefix, Source};

pub use reader::Reader;

/// A source under test, and a generator of connections for it.
pub trait Stand {
    /// The type of the source.
    type Source: Source;

    /// The source under test.
    fn source(&mut self) -> &mut Self::Source;

    /// Open `connections` connections at the same time, carry `bytes` bytes over each, and close them. Call `meanwhile`
    /// repeatedly during that; it may drain the rings, change the options, or do nothing.
    fn carry(&mut self, connections: usize, bytes: usize, meanwhile: &mut dyn FnMut(&mut Self::Source));

    /// Wait until no program runs and no packet is in flight.
    fn rest(&mut self);

    /// Options that log every packet of every flow in both directions.
    fn everything(&self) -> Options;

    /// A local or remote port of the connections.
    fn port(&self) -> u16;

    /// A prefix that contains an address of some connection.
    fn prefix(&self) -> Prefix;

    /// The number of bytes with which a connection overfills the rings, if nobody drains them.
    fn overfull_bytes(&self) -> usize;
}

/// Run the whole suite, each case on a new stand.
pub fn run<S: Stand>(stand: impl Fn() -> S) {
    every_packet_meets_one_disposition(&stand);
    decimation_is_exact(&stand);
    a_stalled_reader_keeps_the_law(&stand);
    disabled_counts_nothing(&stand);
    what_is_asked_may_change(&stand);
    filters_put_packets_where_they_belong(&stand);
    events_come_too(&stand);
    slots_are_given_back(&stand);
    an_interval_is_kept(&stand);
}

/// Log every packet, every seventh, or every seventh segment, of 1 to 100 connections.
fn every_packet_meets_one_disposition<S: Stand>(stand: &impl Fn() -> S) {
    for connections in [1, 5, 20, 100] {
        for (ppl, by_segment) in [(1, 0), (7, 0), (1, 1), (7, 1)] {
            let mut stand = stand();
            let asked = Options { ppl, by_segment, ..stand.everything() };
            let (reader, account) = observe(&mut stand, &asked, connections, 100_000);
            assert!(account.flows.len() >= connections, "{} flows of {connections} connections", account.flows.len());
            assert!(seen(&account) > 10 * connections as u64);
            assert_eq!(account.full(), 0, "with a reader, nothing is lost");
            let unparsed = total(&account, Disposition::Unparsed);
            if ppl == 1 {
                let of_flows: u64 = account.flows.values().flatten().map(|counters| counters.seen.packets).sum();
                assert_eq!(total(&account, Disposition::Logged) + unparsed, of_flows);
            }
            assert_eq!(reader.packets(), total(&account, Disposition::Logged));
        }
    }
}

/// In each direction of a flow, exactly the packets whose number is a multiple are logged; by segment, those that
/// contain a multiple.
fn decimation_is_exact<S: Stand>(stand: &impl Fn() -> S) {
    for ppl in [1, 2, 7, 10, 100] {
        let mut stand = stand();
        let asked = Options { ppl, ..stand.everything() };
        let (reader, account) = observe(&mut stand, &asked, 10, 200_000);
        for (cookie, way, counters) in all_counters(&account) {
            let (seen, unparsed) = (counters.seen.packets, counters.of(Disposition::Unparsed).packets);
            let due = (0..seen).step_by(ppl as usize);
            let logged = reader.numbers(cookie, way);
            assert!(logged.iter().all(|number| number.is_multiple_of(u64::from(ppl)) && *number < seen));
            assert_eq!(logged.len() as u64 + unparsed, due.count() as u64, "flow {cookie}, way {way}, at 1 of {ppl}");
        }
    }
    by_segment_holds_every_multiple(stand);
}

/// Iterate over each direction of each flow.
fn all_counters(account: &Account) -> impl Iterator<Item = (u64, usize, &Counters)> {
    account
        .flows
        .iter()
        .flat_map(|(cookie, both)| both.iter().enumerate().map(|(way, counters)| (*cookie, way, counters)))
}

fn by_segment_holds_every_multiple<S: Stand>(stand: &impl Fn() -> S) {
    for ppl in [2, 7, 64] {
        let mut stand = stand();
        let asked = Options { ppl, by_segment: 1, ..stand.everything() };
        let (reader, account) = observe(&mut stand, &asked, 10, 200_000);
        for (cookie, way, counters) in all_counters(&account).filter(|(_, _, counters)| counters.seen.packets > 0) {
            let segments = counters.seen.segments;
            let logged = reader.numbers(cookie, way).len() as u64 + counters.of(Disposition::Unparsed).packets;
            // Each of these multiples lies in one packet; a packet may contain several.
            let multiples = segments.div_ceil(u64::from(ppl));
            assert!(logged <= multiples, "flow {cookie}: {logged} packets hold {multiples} multiples of {ppl}");
            assert!(logged > 0 && (ppl < 64 || logged * 46 * 2 >= multiples));
        }
    }
}

/// Nobody reads until the rings are overfull: the accounting adds up, and the gaps equal the records without room.
fn a_stalled_reader_keeps_the_law<S: Stand>(stand: &impl Fn() -> S) {
    for private_every in [0, 3] {
        let mut stand = stand();
        let asked = Options { private_every, points: u32::MAX, ..stand.everything() };
        let bytes = stand.overfull_bytes();
        let mut reader = Reader::default();
        begin(&mut stand, &asked);
        let mut calls = 0;
        stand.carry(4, bytes, &mut |source| {
            calls += 1;
            // The reader runs occasionally, so that there are several gaps.
            if calls % 400 == 0 {
                reader.read(source);
            }
        });
        let account = end(&mut stand, &mut reader);
        assert!(total(&account, Disposition::Full) > 0, "the rings were to be overfull");
        assert!(reader.missing() > 0 && !reader.gaps.is_empty());
        assert_eq!(reader.unexpected(), 0);
    }
}

/// With logging disabled, nothing is counted or logged.
fn disabled_counts_nothing<S: Stand>(stand: &impl Fn() -> S) {
    let mut stand = stand();
    let asked = Options { enabled: 0, ..stand.everything() };
    let (reader, account) = observe(&mut stand, &asked, 5, 50_000);
    assert_eq!((reader.packets(), seen(&account), account.numbers), (0, 0, 0));
    assert!(account.flows.is_empty());
}

/// Options change all the time, including `enabled`: nothing is lost or counted twice.
fn what_is_asked_may_change<S: Stand>(stand: &impl Fn() -> S) {
    let mut stand = stand();
    let everything = stand.everything();
    let mut reader = Reader::default();
    begin(&mut stand, &everything);
    let mut calls = 0_u32;
    stand.carry(10, 300_000, &mut |source| {
        calls += 1;
        let asked = turned(&everything, calls);
        source.ask(&asked, &[]).expect("takes what is asked");
        reader.read(source);
    });
    let account = end(&mut stand, &mut reader);
    assert!(calls > 20, "changed {calls} times only");
    assert_eq!(account.full(), 0);
    assert!(total(&account, Disposition::Decimated) > 0);
}

/// Different options for each turn.
fn turned(everything: &Options, turn: u32) -> Options {
    let (ppl, by_segment) = [(1, 0), (2, 1), (7, 0), (100, 1)][turn as usize / 5 % 4];
    Options {
        ppl,
        by_segment,
        points: if turn.is_multiple_of(3) { everything.points } else { u32::MAX },
        enabled: u32::from(!turn.is_multiple_of(11)),
        changes: turn.is_multiple_of(4).into(),
        min_interval_ns: if turn.is_multiple_of(6) { 50_000 } else { 0 },
        ..*everything
    }
}

/// No two samples of a flow are closer than the interval, whichever CPUs process its packets.
fn an_interval_is_kept<S: Stand>(stand: &impl Fn() -> S) {
    const INTERVAL_NS: u64 = 200_000;
    let mut stand = stand();
    let asked = Options { min_interval_ns: INTERVAL_NS, ..stand.everything() };
    let (reader, account) = observe(&mut stand, &asked, 10, 300_000);
    assert!(total(&account, Disposition::Early) > 0);
    assert_apart(&reader, INTERVAL_NS);
}

/// Assert that the samples of each flow are at least the interval apart.
pub fn assert_apart(reader: &Reader, interval_ns: u64) {
    for mut times in reader.times_of_packets() {
        times.sort_unstable();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= interval_ns), "{times:?}");
    }
}

/// Exactly the flows that do not match the filters are filtered.
fn filters_put_packets_where_they_belong<S: Stand>(stand: &impl Fn() -> S) {
    let filtered = |change: &dyn Fn(&S, &mut Options) -> Vec<Prefix>| {
        let mut stand = stand();
        let mut asked = stand.everything();
        let prefixes = change(&stand, &mut asked);
        let mut reader = Reader::default();
        begin_with(&mut stand, &asked, &prefixes);
        stand.carry(10, 50_000, &mut |source| reader.read(source));
        let account = end(&mut stand, &mut reader);
        let of_flows: u64 = account.flows.values().flatten().map(|counters| counters.seen.packets).sum();
        (
            total(&account, Disposition::Filtered),
            total(&account, Disposition::Logged) + total(&account, Disposition::Unparsed),
            of_flows,
        )
    };
    let with_port = |port: &dyn Fn(&S) -> u16| {
        filtered(&|stand, asked| {
            (asked.ports, asked.port[0]) = (1, port(stand));
            Vec::new()
        })
    };
    let (none, logged, of_flows) = with_port(&|_| 1);
    assert_eq!((none, logged), (of_flows, 0), "nobody uses port 1");
    let (_, logged, of_flows) = with_port(&S::port);
    assert!(logged > 0 && logged <= of_flows);
    let elsewhere = Prefix { address: "203.0.113.0".parse().expect("is one"), length: 24 };
    let (none, logged, of_flows) = filtered(&|_, _| vec![elsewhere]);
    assert_eq!((none, logged), (of_flows, 0), "nobody is there");
    let (_, logged, _) = filtered(&|stand, _| vec![elsewhere, stand.prefix()]);
    assert!(logged > 0);
    let (none, logged, of_flows) = filtered(&|_, asked| {
        asked.algorithm[..4].copy_from_slice(b"none");
        Vec::new()
    });
    assert_eq!((none, logged), (of_flows, 0), "nobody controls congestion so");
    let (filtered, logged, of_flows) = filtered(&|_, asked| {
        asked.points = 1 << point::OUT;
        Vec::new()
    });
    assert!(filtered > 0 && logged > 0);
    assert_eq!(filtered + logged, of_flows, "what is on its way in is not asked for");
}

/// Samples at events are logged besides those of packets, and are numbered with them.
fn events_come_too<S: Stand>(stand: &impl Fn() -> S) {
    let mut stand = stand();
    let asked = Options { points: u32::MAX, private_every: 2, ppl: 10, ..stand.everything() };
    let (reader, account) = observe(&mut stand, &asked, 5, 100_000);
    assert!(reader.events(point::RTT) > 0 && reader.events(point::STATE) > 0 && reader.events(point::DESTROY) > 0);
    assert!(reader.privates() > 0);
    assert!(reader.privates() <= reader.packets());
    assert_eq!(reader.records(), account.numbers);
}

/// The slots of ended flows are freed; their counters stay in the accounting.
fn slots_are_given_back<S: Stand>(stand: &impl Fn() -> S) {
    let mut stand = stand();
    let asked = Options { ppl: 3, ..stand.everything() };
    let mut reader = Reader::default();
    begin(&mut stand, &asked);
    for _ in 0..5 {
        stand.carry(8, 20_000, &mut |source| reader.read(source));
        stand.rest();
        reader.release_ended(stand.source());
    }
    assert!(reader.released.len() >= 8 * 4, "{} flows were released", reader.released.len());
    let account = end(&mut stand, &mut reader);
    assert_eq!(account.full(), 0);
    assert!(account.flows.len() >= 40);
}

/// With more flows than slots, those without room are counted, and the accounting adds up. After ended flows are
/// released, others find room.
pub fn full_flow_table_conserves_accounting<S: Stand>(mut stand: S, slots: usize) {
    let mut reader = Reader::default();
    let asked = stand.everything();
    begin(&mut stand, &asked);
    stand.carry(slots * 3, 30_000, &mut |source| reader.read(source));
    stand.rest();
    let full = Account::read(stand.source(), &Account::default()).expect("counts");
    assert!(total(&full, Disposition::NoRoom) > 0);
    assert_eq!(full.flows.len(), slots);
    reader.release_ended(stand.source());
    assert_eq!(reader.released.len(), slots, "all of them have ended");
    stand.carry(1, 30_000, &mut |source| reader.read(source));
    let account = end(&mut stand, &mut reader);
    assert!(account.flows.len() > slots);
    assert_eq!(account.full(), 0);
}

/// Set the options, carry traffic, and check the accounting.
pub fn observe<S: Stand>(stand: &mut S, asked: &Options, connections: usize, bytes: usize) -> (Reader, Account) {
    let mut reader = Reader::default();
    begin(stand, asked);
    stand.carry(connections, bytes, &mut |source| reader.read(source));
    let account = end(stand, &mut reader);
    (reader, account)
}

fn begin<S: Stand>(stand: &mut S, asked: &Options) {
    begin_with(stand, asked, &[]);
}

fn begin_with<S: Stand>(stand: &mut S, asked: &Options, prefixes: &[Prefix]) {
    stand.source().ask(asked, prefixes).expect("takes what is asked");
}

/// Disable logging, wait until nothing changes, and read the rest. Return the accounting, which has been checked and
/// agrees with the records.
fn end<S: Stand>(stand: &mut S, reader: &mut Reader) -> Account {
    let disabled = Options { enabled: 0, ..stand.everything() };
    stand.source().ask(&disabled, &[]).expect("takes what is asked");
    stand.rest();
    let source = stand.source();
    reader.read(source);
    reader.finish(&source.totals().expect("counts"));
    let (account, is_still) =
        Account::read_still(source, &reader.account_of_released(), 3, &mut || ()).expect("counts");
    account.check().expect("accounting is conserved");
    account.check_gaps(reader.missing()).expect("the gaps add up");
    assert!(is_still, "nothing is counted any more");
    reader.agrees_with(&account);
    account
}

fn seen(account: &Account) -> u64 {
    account.all.iter().map(|counters| counters.seen.packets).sum()
}

fn total(account: &Account, disposition: Disposition) -> u64 {
    account.all.iter().map(|counters| counters.of(disposition).packets).sum()
}
