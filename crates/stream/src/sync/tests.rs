//! The sender that asks other clocks: which replies count, whose they are, and when one is missed.

use crate::{FlowRequest, Keep, Pattern, Schedule, SyncRequest};

use super::*;

fn syncer(has_stamps: bool) -> Syncer {
    let schedule = Schedule::new(Pattern::Regular, 1_000.0, 1, 1);
    let request = SendRequest {
        block: 5,
        flows: vec![FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 40, schedule }],
        keep: Keep::Histograms,
        start_in: Nanos::ZERO,
        at_most: None,
        sync: Some(SyncRequest { flows: vec![0], before: 1, during: None, after: 1, spacing: Nanos::millis(1) }),
        answers_late_after: None,
        clock: 7,
    };
    Syncer::new(&request, &[has_stamps]).unwrap()
}

fn ask(sync: &mut Syncer, at: i64) {
    sync.request(Time(at));
    sync.asked(Sent { number: at as u32, called: Time(at) });
}

/// A reply of a clock that is so many ns ahead.
fn reply(sync: &mut Syncer, number: u64, clock: u64, at: i64) {
    let mut payload = [0; sojourn_wire::stream::SYNC_BYTES];
    let (intended, sent) = (Time(at - 20), Time(at - 10));
    let header = StreamHeader { kind: Kind::SyncReply, node: 0, flow: 1, block: 5, seq: number, intended, sent };
    header.write(&mut payload);
    SyncTail { clock, source: Source::Kernel }.write(&mut payload);
    let arrived = Stamp { at: Time(at), source: Source::Kernel };
    sync.on_reply(&header, &payload, &Received { length: payload.len(), arrived, returned: Time(at) });
}

fn told(sync: Syncer) -> Vec<(u64, u64, i64, i64)> {
    sync.finish().iter().map(|one| (one.number, one.clock, one.t1.at.0, one.t4.at.0)).collect()
}

#[test]
fn each_receiver_of_a_group_is_told_by_its_clock_and_its_first_reply() {
    let mut sync = syncer(false);
    ask(&mut sync, 100);
    assert!(sync.is_waiting());
    reply(&mut sync, 0, 8, 200);
    assert!(!sync.is_waiting());
    ask(&mut sync, 1_000);
    reply(&mut sync, 1, 9, 1_100);
    // Late, of the first request, and one that its clock gave already.
    reply(&mut sync, 0, 9, 1_200);
    reply(&mut sync, 0, 8, 1_300);
    reply(&mut sync, 4, 8, 1_400);
    assert_eq!(told(sync), [(0, 8, 100, 200), (0, 9, 100, 1_200), (1, 9, 1_000, 1_100)]);
}

#[test]
fn a_late_stamp_mends_all_exchanges_of_its_request() {
    let mut sync = syncer(true);
    ask(&mut sync, 100);
    reply(&mut sync, 0, 8, 200);
    reply(&mut sync, 0, 9, 201);
    assert!(sync.is_waiting(), "for the stamp");
    let left = Stamp { at: Time(120), source: Source::Kernel };
    assert!(sync.on_stamp(0, &TransmitStamp { number: 100, left, kind: StampKind::Left }));
    assert!(!sync.is_waiting());
    assert_eq!(told(sync), [(0, 8, 120, 200), (0, 9, 120, 201)]);
}

#[test]
fn what_is_never_answered_is_given_up() {
    let mut sync = syncer(true);
    for number in 0..200 {
        ask(&mut sync, number * 1_000_000);
    }
    assert!(sync.pending.len() <= MOST_PENDING);
    sync.settle(Time(2_000_000_000));
    assert!(sync.pending.is_empty() && sync.finish().is_empty());
}
