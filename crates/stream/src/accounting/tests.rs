//! Every packet and every frame is in exactly one count, whatever arrives.

use proptest::prelude::*;
use sojourn_time::{Source, Stamp};

use super::*;

const KEY: SessionKey = SessionKey(0x9E37_79B9_7F4A_7C15);
const FLOWS: [u16; 3] = [1, 40_000, 7];
const PAYLOAD_BYTES: usize = 64;

/// What the path does to a packet.
#[derive(Clone, Copy, Debug)]
enum Disposition {
    Arrive,
    Vanish,
    Repeat,
    Overtaken,
    PayloadDamaged,
    HeaderDamaged,
    LocalDrop,
}

fn disposition() -> impl Strategy<Value = Disposition> {
    prop_oneof![
        10 => Just(Disposition::Arrive), 2 => Just(Disposition::Vanish),
        2 => Just(Disposition::Repeat), 2 => Just(Disposition::Overtaken),
        1 => Just(Disposition::PayloadDamaged), 1 => Just(Disposition::HeaderDamaged), 1 => Just(Disposition::LocalDrop),
    ]
}

fn counting() -> Counting {
    Counting { keep: Keep::Packets { room: 10_000 }, late_after: Nanos(1_000), clock_offset: Nanos(50) }
}

fn packet(flow: u16, seq: u64, sent: i64) -> Vec<u8> {
    let header = StreamHeader { kind: Kind::Data, node: 0, flow, key: KEY, seq, intended: Time(0), sent: Time(sent) };
    let mut payload = vec![0; PAYLOAD_BYTES];
    sojourn_wire::stream::fill(&mut payload);
    header.write(&mut payload);
    payload
}

fn received(at: i64) -> Received {
    let at = Time(at);
    Received {
        length: PAYLOAD_BYTES,
        arrived: Stamp { at, source: Source::Kernel },
        returned: at,
        from: None,
        to_group: false,
    }
}

fn offer(accounting: &mut Accounting, port: usize, payload: &[u8], at: i64) {
    match StreamHeader::read(payload) {
        Ok(header) => drop(accounting.on_packet(port, &header, payload, &received(at))),
        Err(unread) => accounting.on_unread(port, unread),
    }
}

/// Delivers the packets according to their dispositions, and returns the expected counts.
fn deliver(accounting: &mut Accounting, dispositions: &[(usize, Disposition)]) -> ([u64; 3], [ReceivedCounts; 3], u64) {
    let mut sent = [0; 3];
    let mut truth = [ReceivedCounts::default(); 3];
    let mut local_drops = 0;
    let mut held: Vec<(u16, u64)> = Vec::new();
    for (now, (place, disposition)) in dispositions.iter().enumerate() {
        let (counts, now) = (&mut truth[*place], now as i64 * 100);
        let seq = sent[*place];
        sent[*place] += 1;
        let mut payload = packet(FLOWS[*place], seq, now);
        match disposition {
            Disposition::Vanish => counts.lost += 1,
            Disposition::LocalDrop => local_drops += 1,
            Disposition::Overtaken => held.push((FLOWS[*place], seq)),
            Disposition::Arrive | Disposition::Repeat => {
                counts.first += 1;
                offer(accounting, 0, &payload, now);
                if matches!(disposition, Disposition::Repeat) {
                    counts.duplicated += 1;
                    offer(accounting, 0, &payload, now);
                }
            }
            Disposition::PayloadDamaged | Disposition::HeaderDamaged => {
                counts.corrupted += 1;
                payload[if matches!(disposition, Disposition::HeaderDamaged) { 13 } else { 50 }] ^= 4;
                offer(accounting, 0, &payload, now);
            }
        }
    }
    for (flow, seq) in held {
        let place = FLOWS.iter().position(|other| *other == flow).unwrap();
        truth[place].first += 1;
        offer(accounting, 0, &packet(flow, seq, 0), 0);
    }
    (sent, truth, local_drops)
}

use crate::{ReceivedCounts, Unexpected};

proptest! {
    #[test]
    fn every_packet_and_every_frame_is_in_exactly_one_count(
        dispositions in prop::collection::vec((0..3_usize, disposition()), 0..400), unexpected in 0..5_u64,
    ) {
        let mut accounting = Accounting::new(counting(), &FLOWS, 2, Some(KEY));
        let (sent, truth, local_drops) = deliver(&mut accounting, &dispositions);
        (0..unexpected).for_each(|_| accounting.on_unexpected(0, None));
        let count = |place: usize| SentCount { flow: FLOWS[place], port: Some(0), sent: sent[place], next: None };
        let counts = [0, 1, 2].map(count);
        let outcome = accounting.finish(&counts, &[local_drops]);
        let mut frames = 0;
        let mut dropped = 0;
        for (place, truth) in truth.iter().enumerate() {
            let told = outcome.flows[place].counts;
            prop_assert_eq!(outcome.flows[place].flow, FLOWS[place]);
            prop_assert_eq!(told.packets(), sent[place]);
            let arrived = |counts: &ReceivedCounts| (counts.first, counts.duplicated, counts.corrupted);
            prop_assert_eq!(arrived(&told), arrived(truth));
            frames += told.frames();
            dropped += told.local_drops;
        }
        prop_assert_eq!(frames, outcome.ports[0].frames);
        prop_assert_eq!(dropped, local_drops);
        prop_assert_eq!(outcome.ports[0].unexpected, Unexpected { foreign: unexpected, ..Unexpected::default() });
        prop_assert!(outcome.flows[3..].iter().all(|flow| flow.counts == ReceivedCounts::default()));
    }

    #[test]
    fn corrupted_packets_never_count_as_more_packets_than_were_sent(
        events in prop::collection::vec((0..20_u64, 0..64_usize, any::<u8>()), 0..200), sent in 20..40_u64,
        drops in 0..50_u64,
    ) {
        let mut accounting = Accounting::new(counting(), &[1], 1, Some(KEY));
        for (seq, at, by) in events {
            let mut payload = packet(1, seq, 0);
            payload[at] ^= by;
            offer(&mut accounting, 0, &payload, 0);
        }
        let outcome = accounting.finish(&[SentCount { flow: 1, port: None, sent, next: None }], &[drops]);
        prop_assert_eq!(outcome.flows[0].counts.packets(), sent);
        prop_assert_eq!(outcome.flows[0].counts.frames(), outcome.ports[0].frames);
    }

    #[test]
    fn local_drops_are_distributed_completely_over_flows(missing in prop::collection::vec(0..1_000_u64, 1..10), drops in 0..5_000_u64) {
        let mut flows: Vec<_> = missing.iter().map(|lost| {
            let mut flow = Tally::new(1, 0, 0).finish(Told::Sent { sent: 0, next: 0 });
            flow.counts.lost = *lost;
            flow
        }).collect();
        share_drops(drops, flows.iter_mut().collect());
        let shared: u64 = flows.iter().map(|flow| flow.counts.local_drops).sum();
        prop_assert_eq!(shared, drops.min(missing.iter().sum()));
        for (flow, lost) in flows.iter().zip(missing) {
            prop_assert_eq!(flow.counts.local_drops + flow.counts.lost, lost);
        }
    }
}

#[test]
fn timestamps_and_flags_are_recorded() {
    let mut accounting = Accounting::new(counting(), &[1], 1, Some(KEY));
    for (seq, sent, at) in [(0, 0, 150), (1, 100, 350), (3, 300, 400), (2, 200, 1_251), (4, 400, 500)] {
        offer(&mut accounting, 0, &packet(1, seq, sent), at);
    }
    let outcome = accounting.finish(&[], &[]);
    let flow = &outcome.flows[0];
    let flags: Vec<_> = outcome.rows.iter().map(|row| (row.seq, row.is_reordered, row.is_late)).collect();
    assert_eq!(flags, [(0, false, false), (1, false, false), (3, false, false), (2, true, true), (4, false, false)]);
    let values = |spread: &crate::Spread| spread.cells().iter().map(|cell| cell.low).collect::<Vec<_>>();
    assert_eq!(values(&flow.delay), [50, 100, 200, 1_001]);
    assert_eq!(flow.delay.count(), 5);
    assert_eq!(values(&flow.ipdv), [100], "of 0 and 1 alone: the others did not come one after the other");
    assert_eq!(flow.counts.lost, 0);
    assert_eq!(flow.payload_bytes, 5 * PAYLOAD_BYTES as u64);
}

fn rows_stop_at(room: usize, packets: u64) {
    let counting = Counting { keep: Keep::Packets { room }, ..counting() };
    let mut accounting = Accounting::new(counting, &[1], 1, Some(KEY));
    (0..packets).for_each(|seq| offer(&mut accounting, 0, &packet(1, seq, 0), 0));
    assert_eq!(accounting.progress().0, packets);
    let outcome = accounting.finish(&[], &[]);
    let not_kept = packets - room as u64;
    assert_eq!((outcome.rows.len(), outcome.not_kept, outcome.flows[0].counts.first), (room, not_kept, packets));
}

#[test]
fn counting_continues_after_the_last_row_that_fits() {
    rows_stop_at(3, 10);
}

#[test]
#[ignore = "proof: as many rows as there may be, and more"]
fn rows_are_capped_at_the_maximum() {
    rows_stop_at(16_000_000, 16_000_100);
}

#[test]
fn replies_are_counted_per_node() {
    let mut accounting = Accounting::new(counting(), &[1], 1, Some(KEY));
    for (seq, node) in [(0, 3), (0, 5), (1, 3), (1, 5), (1, 5)] {
        let mut payload = packet(1, seq, 0);
        StreamHeader { kind: Kind::Answer, node, ..StreamHeader::read(&payload).unwrap() }.write(&mut payload);
        offer(&mut accounting, 0, &payload, 0);
    }
    let outcome = accounting.finish(&[SentCount { flow: 1, port: None, sent: 3, next: None }], &[]);
    let told: Vec<_> =
        outcome.flows.iter().map(|f| (f.node, f.counts.first, f.counts.duplicated, f.counts.lost)).collect();
    assert_eq!(told, [(3, 2, 0, 1), (5, 2, 1, 1)]);
}

#[test]
fn hundreds_of_flows_are_counted_separately() {
    let flows: Vec<u16> = (0..300).collect();
    let mut accounting = Accounting::new(counting(), &flows, 1, Some(KEY));
    for flow in [299, 255, 999] {
        offer(&mut accounting, 0, &packet(flow, 0, 0), 10);
    }
    let outcome = accounting.finish(&[], &[]);
    let came: Vec<_> = outcome.flows.iter().filter(|flow| flow.counts.first > 0).map(|flow| flow.flow).collect();
    assert_eq!((came, outcome.ports[0].unexpected.packets), (vec![255, 299], 1));
}

/// Arrivals contradict the sender's report: no count is negative, and the excess is reported.
#[test]
fn more_packets_than_were_sent_are_an_excess_and_never_a_loss() {
    let arriving = |seqs: &[u64], sent| {
        let mut accounting = Accounting::new(counting(), &[1], 1, Some(KEY));
        seqs.iter().for_each(|seq| offer(&mut accounting, 0, &packet(1, *seq, 0), 0));
        accounting.finish(&[SentCount { flow: 1, port: None, sent, next: None }], &[7]).flows[0].counts
    };
    let told = |counts: ReceivedCounts| (counts.first, counts.lost, counts.local_drops, counts.excess);
    assert_eq!(told(arriving(&[0, 1, 2], 3)), (3, 0, 0, 0));
    assert_eq!(told(arriving(&[0, 1, 2], 1)), (3, 0, 0, 2));
    assert_eq!(told(arriving(&[0, 1, 2], 0)), (3, 0, 0, 3));
    assert_eq!(told(arriving(&[0, 9], 3)), (2, 0, 1, 1), "a number that was never sent");
}

#[test]
fn a_frame_of_another_key_is_in_no_flow() {
    let mut accounting = Accounting::new(counting(), &[1, 2], 1, Some(KEY));
    for key in [SessionKey(0), SessionKey(KEY.0 ^ 1), SessionKey(u64::MAX)] {
        for (flow, seq) in [(1, 0), (2, 0), (1, 1 << 47)] {
            let mut forged = packet(flow, seq, i64::MIN);
            StreamHeader { key, ..StreamHeader::read(&forged).unwrap() }.write(&mut forged);
            offer(&mut accounting, 0, &forged, 0);
            forged[22] ^= 1;
            offer(&mut accounting, 0, &forged, 0);
        }
    }
    let outcome = accounting.finish(&[SentCount { flow: 1, port: None, sent: 0, next: None }], &[]);
    // Damaged frames whose key is close to ours count as damaged frames of its streams; a guessed key is never close.
    let counted = outcome.flows.iter().map(|flow| flow.counts.duplicated + flow.counts.corrupted).sum::<u64>();
    assert_eq!((counted, outcome.rows.len(), outcome.flows[0].counts.first), (3, 0, 0));
    let unexpected = outcome.ports[0].unexpected;
    assert_eq!((unexpected.packets, unexpected.foreign, unexpected.total()), (9, 6, 15));
}
