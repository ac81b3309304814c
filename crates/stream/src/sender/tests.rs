//! Tests of what the sender learns from TX timestamps, and of its report if some are missing.

use sojourn_port::Framing;
use sojourn_wire::StreamHeader;

use super::*;
use crate::{Auth, Head, Schedule};

#[test]
fn send_lead_converges_to_the_transmit_delay_and_ignores_late_packets() {
    let mut lead = Lead::default();
    for number in 0..1_000 {
        // Every fifth packet was delayed for long.
        let late = if number % 5 == 0 { Nanos::millis(1) } else { Nanos::ZERO };
        lead.learn(Nanos(1_200) - lead.0 + late);
    }
    assert!((1_190..=1_210).contains(&lead.0.0), "{lead:?}");
    (0..10_000).for_each(|_| lead.learn(Nanos(7_000)));
    assert_eq!(lead.0, Lead::MOST);
    (0..10_000).for_each(|_| lead.learn(Nanos(-1)));
    assert_eq!(lead.0, Nanos::ZERO);
}

fn sender(patterns: &[Pattern], tx_timestamps: bool) -> Sender {
    let flow = |(flow, pattern): (u16, &Pattern)| {
        let schedule = Schedule::new(*pattern, 1e4, 1_000, 1);
        FlowRequest { flow, port: 0, head: Head::Udp, payload_bytes: 42, schedule }
    };
    let request = SendRequest {
        block: 1,
        key: SessionKey(1),
        auth: Auth::default(),
        flows: (1..).zip(patterns).map(flow).collect(),
        keep: Keep::Packets { room: 300 },
        start_in: Nanos::ZERO,
        at_most: None,
        sync: None,
        answers_late_after: None,
        clock: 1,
    };
    let mut sender = Sender::new(&request, &[Capabilities { framing: Framing::Udp, max_frame: 100, tx_timestamps }]);
    sender.begin(Time(0));
    sender
}

#[test]
fn maximum_rate_stream_uses_large_batches_unless_paced_streams_run_beside_it() {
    let mut beside = sender(&[Pattern::Flood, Pattern::Regular], false);
    assert_eq!(beside.frames(0, Time(1)).0.len() / 42, BATCH_BESIDE);
    let mut flood = sender(&[Pattern::Flood], false);
    assert_eq!(flood.frames(0, Time(1)).0.len() / 42, BATCH);
    flood.flooded(0, 0, Time(1));
    flood.flooded(0, 200, Time(5));
    flood.flooded(0, 150, Time(7));
    let last = StreamHeader::read(flood.frame(0, Time(9), Time(9))).unwrap();
    assert_eq!(last.seq, 350);
    let (flows, rows, not_kept) = flood.finish();
    let counts = flows[0].counts;
    assert_eq!((counts.sent, counts.unsent, rows.len(), not_kept), (350, 650, 300, 50));
    assert!((0..).zip(&rows).all(|(seq, row)| row.seq == seq && row.send_call == Time(if seq < 200 { 5 } else { 7 })));
    assert_eq!((flows[0].first, flows[0].last), (Some(Time(5)), Some(Time(7))));
    assert_eq!((flows[0].inter_departure.count(), flows[0].inter_departure.max()), (349, Some(2)));
}

#[test]
fn rate_counts_all_packets_although_some_tx_timestamps_are_missing() {
    let mut sender = sender(&[Pattern::Regular], true);
    for number in 0..1_000_u32 {
        let at = Time(i64::from(number) * 100_000);
        sender.departed(0, at, Sent { number, called: at });
        // Some TX timestamps in the middle and the last ones are missing.
        if number < 950 && number % 20 > 0 {
            let left = Stamp { at: at + Nanos(500), source: Source::Kernel };
            sender.on_stamp(0, &TxTimestamp { number, left, kind: StampKind::Left });
        }
    }
    let (flows, ..) = sender.finish();
    assert!(flows[0].is_by_stamps && (flows[0].achieved_pps / 1e4 - 1.0).abs() < 1e-6, "{}", flows[0].achieved_pps);
}
