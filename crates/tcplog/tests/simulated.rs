//! Run the common suite on the simulated source, and compare its accounting with the known dispositions.

mod suite;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sojourn_tcplog::account::{Account, Disposition, Tally};
use sojourn_tcplog::layout::Options;
use sojourn_tcplog::simulated::{Met, NOTHING_ASKED, Setup, Simulated};
use sojourn_tcplog::{Prefix, Source};
use suite::{Reader, Stand};

/// Connections in virtual time.
struct Twin {
    source: Simulated,
    setup: Setup,
}

impl Twin {
    fn new(setup: Setup) -> Self {
        Self { source: Simulated::new(setup), setup }
    }
}

impl Stand for Twin {
    type Source = Simulated;

    fn source(&mut self) -> &mut Simulated {
        &mut self.source
    }

    fn carry(&mut self, connections: usize, bytes: usize, meanwhile: &mut dyn FnMut(&mut Simulated)) {
        (0..connections).for_each(|_| self.source.connect(bytes as u64));
        for step in 0_u64.. {
            if !self.source.step() {
                return;
            }
            if step.is_multiple_of(50) {
                meanwhile(&mut self.source);
            }
        }
    }

    fn rest(&mut self) {
        self.source.rest();
    }

    fn everything(&self) -> Options {
        Options { enabled: 1, ..NOTHING_ASKED }
    }

    fn port(&self) -> u16 {
        5201
    }

    fn prefix(&self) -> Prefix {
        Prefix { address: "192.0.2.0".parse().expect("is one"), length: 24 }
    }

    fn overfull_bytes(&self) -> usize {
        self.setup.ring_bytes * self.setup.cpus as usize * 8
    }
}

#[test]
fn simulated_logger_passes_the_suite() {
    suite::run(|| Twin::new(Setup { ring_bytes: 1 << 16, ..Setup::default() }));
}

#[test]
fn simulated_logger_passes_the_suite_on_one_cpu_and_on_eight() {
    for cpus in [1, 8] {
        suite::run(|| Twin::new(Setup { cpus, ring_bytes: 1 << 16, seed: u64::from(cpus), ..Setup::default() }));
    }
}

#[test]
fn full_flow_table_conserves_accounting() {
    suite::full_flow_table_conserves_accounting(Twin::new(Setup { slots: 7, ..Setup::default() }), 7);
}

/// The true dispositions, in the shape of the accounting.
fn told(truth: &[Met]) -> BTreeMap<(u64, u8, usize), Tally> {
    let mut told: BTreeMap<_, Tally> = BTreeMap::new();
    for met in truth {
        let one = Tally { packets: 1, segments: met.segments.into() };
        told.entry((met.cookie, met.way, met.disposition)).or_default().add(one);
    }
    told
}

/// The accounting in the same shape: dispositions with a flow from the flows, the others from the totals.
fn accounted(account: &Account) -> BTreeMap<(u64, u8, usize), Tally> {
    let entries = account.entries().filter_map(|entry| {
        let disposition = entry.disposition?;
        let belongs = entry.cookie.is_some() == disposition.is_of_flow();
        let way = u8::try_from(entry.direction).expect("one of two");
        (belongs && entry.tally.packets > 0)
            .then(|| ((entry.cookie.unwrap_or(0), way, disposition as usize), entry.tally))
    });
    entries.collect()
}

/// Generate options, including disabled ones.
fn options() -> impl Strategy<Value = Options> {
    let decimation = (prop_oneof![Just(1_u32), 2_u32..20], 0_u32..2, 0_u32..4);
    let rest = (0_u64..4, prop_oneof![Just(0), 1_u64..200_000], 1_u32..4, 0_u32..3, 0_u64..3);
    (decimation, rest).prop_map(
        |((ppl, by_segment, points), (changes, min_interval_ns, one_in_flows, private_every, netns))| Options {
            enabled: u32::from(points != 3),
            points: [3, u32::MAX, 2, 3][points as usize],
            ppl,
            by_segment,
            changes,
            min_interval_ns,
            one_in_flows,
            private_every,
            netns,
            ..NOTHING_ASKED
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    (1_u32..5, 9_u32..16, 1_u32..30, 0_u64..60, 0_u64..200, any::<u64>()).prop_map(
        |(cpus, ring, slots, losses_permille, strange_permille, seed)| Setup {
            cpus,
            ring_bytes: 1 << ring,
            slots,
            losses_permille,
            strange_permille,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 3))]

    /// For any interleaving, with full rings, a full table, flows that end and are released, and changing options: the
    /// accounting equals the true dispositions, the gaps equal the records without room, and every record belongs to a
    /// logged packet.
    #[test]
    fn accounting_equals_the_simulated_truth(
        setup in setup(),
        asked in prop::collection::vec(options(), 1..6),
        connections in 1_usize..25,
        bytes in 0_u64..60_000,
        rhythm in 1_u64..600,
    ) {
        let mut source = Simulated::new(setup);
        let mut reader = Reader::default();
        (0..connections).for_each(|_| source.connect(bytes));
        let mut asked = asked.iter().cycle();
        for step in 0_u64.. {
            if step.is_multiple_of(rhythm * 3) {
                source.ask(asked.next().expect("goes round"), &[]).expect("takes it");
            }
            if step.is_multiple_of(rhythm) {
                reader.read(&mut source);
                reader.release_ended(&mut source);
            }
            if !source.step() {
                break;
            }
        }
        reader.read(&mut source);
        reader.finish(&source.totals().expect("counts"));
        let (account, is_still) = Account::read_still(&source, &reader.account_of_released(), 2, &mut || ()).expect("counts");
        prop_assert_eq!(account.check(), Ok(()));
        prop_assert!(is_still);
        prop_assert_eq!(account.check_gaps(reader.missing()), Ok(()));
        reader.agrees_with(&account);
        prop_assert_eq!(accounted(&account), told(source.truth()));
    }

    /// With constant options and enough room, exactly the packets selected by sampling are logged in each flow, however
    /// programs interrupt each other: by packet, the multiples; by segment, the packets that contain one.
    #[test]
    fn sampling_selects_exactly_one_packet_in_n(setup in setup(), ppl in 1_u32..40, by_segment in 0_u32..2, connections in 1_usize..12) {
        let mut source = Simulated::new(Setup { ring_bytes: 1 << 24, slots: 64, ..setup });
        let asked = Options { enabled: 1, ppl, by_segment, ..NOTHING_ASKED };
        source.ask(&asked, &[]).expect("takes it");
        (0..connections).for_each(|_| source.connect(50_000));
        source.run();
        let mut reader = Reader::default();
        reader.read(&mut source);
        for met in source.truth().iter().filter(|met| met.cookie != 0) {
            let (first, count) =
                if by_segment == 0 { (met.packet, 1) } else { (met.segment, u64::from(met.segments)) };
            let is_due = (first..first + count).any(|number| number.is_multiple_of(u64::from(ppl)));
            let is_logged = reader.numbers(met.cookie, met.way.into()).contains(&met.packet);
            let is_unparsed = met.disposition == Disposition::Unparsed as usize;
            prop_assert_eq!(is_due, is_logged || is_unparsed, "{:?}", met);
        }
    }

    /// No two samples of a flow are closer than the interval, even if programs on several CPUs interrupt each other.
    #[test]
    fn minimum_interval_between_samples_holds(setup in setup(), interval in 1_u64..2_000_000, connections in 1_usize..6) {
        let mut source = Simulated::new(Setup { slots: 64, ..setup });
        let asked = Options { enabled: 1, ppl: 1, min_interval_ns: interval, ..NOTHING_ASKED };
        source.ask(&asked, &[]).expect("takes it");
        (0..connections).for_each(|_| source.connect(50_000));
        source.run();
        let mut reader = Reader::default();
        reader.read(&mut source);
        suite::assert_apart(&reader, interval);
    }

    /// The same seed gives the same packets and dispositions.
    #[test]
    fn same_seed_gives_the_same_result(setup in setup()) {
        let truth = || {
            let mut source = Simulated::new(setup);
            source.ask(&Options { enabled: 1, ppl: 3, ..NOTHING_ASKED }, &[]).expect("takes it");
            (0..5).for_each(|_| source.connect(20_000));
            source.run();
            source.truth().to_vec()
        };
        prop_assert_eq!(truth(), truth());
    }
}
