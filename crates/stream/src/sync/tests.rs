//! Tests of the sender's time exchanges: which replies count, whose they are, and when one is missing.

use crate::{FlowRequest, Keep, Pattern, Schedule, SyncRequest};

use super::*;

const KEY: SessionKey = SessionKey(5);

fn syncer(has_stamps: bool) -> Syncer {
    let schedule = Schedule::new(Pattern::Regular, 1_000.0, 1, 1);
    let request = SendRequest {
        block: 5,
        key: KEY,
        auth: Auth::default(),
        flows: vec![FlowRequest { flow: 1, port: 0, head: Head::Udp, payload_bytes: 42, schedule }],
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

/// Makes a replier's message of an exchange: the request arrived at `at - 20`, and its reply departed at `left`.
fn told_by(kind: Kind, number: u64, clock: u64, (at, left): (i64, i64)) -> (StreamHeader, Vec<u8>) {
    let mut payload = vec![0; sojourn_wire::stream::SYNC_BYTES];
    let (intended, sent) = (Time(at - 20), Time(left));
    let header = StreamHeader { kind, node: 0, flow: 1, key: KEY, seq: number, intended, sent };
    header.write(&mut payload);
    SyncTail { clock, source: Source::Kernel, follows_up: clock >= FOLLOWS_UP }.write(&mut payload);
    (header, payload)
}

/// Clocks with this id or a higher one promise follow-ups.
const FOLLOWS_UP: u64 = 10;

fn follow_up(sync: &mut Syncer, number: u64, clock: u64, times: (i64, i64)) {
    let (header, payload) = told_by(Kind::SyncFollowUp, number, clock, times);
    sync.on_follow_up(&header, &payload);
}

/// Delivers the reply of a clock, which was sent 10 ns before its arrival.
fn reply(sync: &mut Syncer, number: u64, clock: u64, at: i64) {
    let (header, payload) = told_by(Kind::SyncReply, number, clock, (at, at - 10));
    let arrived = Stamp { at: Time(at), source: Source::Kernel };
    sync.on_reply(
        &header,
        &payload,
        &Received { length: payload.len(), arrived, returned: Time(at), from: None, to_group: false },
    );
}

fn told(sync: Syncer) -> Vec<(u64, u64, i64, i64)> {
    sync.finish().iter().map(|one| (one.number, one.clock, one.t1.at.0, one.t4.at.0)).collect()
}

#[test]
fn each_receiver_of_a_group_is_identified_by_clock_and_counts_its_first_reply() {
    let mut sync = syncer(false);
    ask(&mut sync, 100);
    assert!(sync.is_waiting());
    reply(&mut sync, 0, 8, 200);
    assert!(!sync.is_waiting());
    ask(&mut sync, 1_000);
    reply(&mut sync, 1, 9, 1_100);
    // Late: replies to the first request from another clock and from one that has replied; and one without a request.
    reply(&mut sync, 0, 9, 1_200);
    reply(&mut sync, 0, 8, 1_300);
    reply(&mut sync, 4, 8, 1_400);
    assert_eq!(told(sync), [(0, 8, 100, 200), (0, 9, 100, 1_200), (1, 9, 1_000, 1_100)]);
}

#[test]
fn replies_of_many_clocks_to_each_request_are_bounded() {
    let mut sync = syncer(false);
    (0..5).for_each(|at| ask(&mut sync, at));
    for clock in 0..4 * MOST_CLOCKS as u64 {
        (0..5).for_each(|number| reply(&mut sync, number, 100 + clock, 200));
    }
    assert_eq!(told(sync).len(), 5 * MOST_CLOCKS);
}

fn stamp(sync: &mut Syncer, number: u32, at: i64) -> bool {
    let left = Stamp { at: Time(at), source: Source::Kernel };
    sync.on_stamp(0, &TxTimestamp { number, left, kind: StampKind::Left })
}

/// Returns t1 and t3 of each exchange.
fn departures(sync: Syncer) -> Vec<(Stamp, Stamp)> {
    sync.finish().iter().map(|one| (one.t1, one.t3)).collect()
}

const fn by(source: Source, at: i64) -> Stamp {
    Stamp { at: Time(at), source }
}

#[test]
fn tx_timestamp_and_follow_up_give_driver_times_for_both_departures() {
    let mut sync = syncer(true);
    ask(&mut sync, 100);
    reply(&mut sync, 0, 10, 200);
    reply(&mut sync, 0, 11, 201);
    assert!(stamp(&mut sync, 100, 120));
    follow_up(&mut sync, 0, 10, (200, 195));
    assert!(sync.is_waiting(), "for the other follow-up");
    follow_up(&mut sync, 0, 11, (201, 196));
    assert!(!sync.is_waiting());
    let kernel = |t1, t3| (by(Source::Kernel, t1), by(Source::Kernel, t3));
    assert_eq!(departures(sync), [kernel(120, 195), kernel(120, 196)]);
}

#[test]
fn without_tx_timestamp_or_follow_up_both_departures_are_send_call_times() {
    for (stamped, followed) in [(true, false), (false, true), (false, false)] {
        let mut sync = syncer(true);
        ask(&mut sync, 100);
        reply(&mut sync, 0, 10, 200);
        if stamped {
            stamp(&mut sync, 100, 120);
        }
        if followed {
            follow_up(&mut sync, 0, 10, (200, 195));
        }
        let lags: Vec<_> = sync.exchanges.iter().map(|held| held.t1.map(|left| left.at.0)).collect();
        assert_eq!(lags, [stamped.then_some(120)]);
        assert_eq!(departures(sync), [(by(Source::User, 100), by(Source::User, 190))]);
    }
}

#[test]
fn impossible_follow_ups_are_ignored() {
    let mut sync = syncer(true);
    ask(&mut sync, 100);
    // Before its reply; without an exchange; of another clock; of another arrival; before the call; too late; then a valid one, and a second.
    follow_up(&mut sync, 0, 10, (200, 195));
    reply(&mut sync, 0, 10, 200);
    stamp(&mut sync, 100, 120);
    follow_up(&mut sync, 7, 10, (200, 195));
    follow_up(&mut sync, 0, 12, (200, 195));
    follow_up(&mut sync, 0, 10, (201, 195));
    follow_up(&mut sync, 0, 10, (200, 189));
    follow_up(&mut sync, 0, 10, (200, 190 + STAMP_PATIENCE.0));
    assert!(sync.is_waiting());
    follow_up(&mut sync, 0, 10, (200, 196));
    follow_up(&mut sync, 0, 10, (200, 197));
    assert!(!sync.is_waiting());
    assert_eq!(departures(sync), [(by(Source::Kernel, 120), by(Source::Kernel, 196))]);
}

#[test]
fn unanswered_requests_expire() {
    let mut sync = syncer(true);
    for number in 0..200 {
        ask(&mut sync, number * 1_000_000);
    }
    assert!(sync.pending.len() <= MOST_PENDING);
    sync.expire(Time(2_000_000_000));
    assert!(sync.pending.is_empty() && sync.finish().is_empty());
}

#[test]
fn beyond_the_limit_of_outstanding_requests_the_oldest_is_forgotten() {
    let mut sync = syncer(false);
    for number in 0..MOST_PENDING as i64 + 3 {
        ask(&mut sync, number * 1_000);
    }
    assert_eq!(sync.pending.len(), MOST_PENDING);
    for number in [0, 2, 3, MOST_PENDING as u64 + 2] {
        reply(&mut sync, number, 8, 200_000);
    }
    let numbers: Vec<u64> = sync.finish().iter().map(|exchange| exchange.number).collect();
    assert_eq!(numbers, [3, MOST_PENDING as u64 + 2], "the reply to a forgotten one does not count");
}

/// As who has the session's key could make them: by replies of many clocks.
#[test]
fn exchanges_of_a_block_are_bounded() {
    let mut sync = syncer(false);
    let ask_and_reply = |sync: &mut Syncer, number: u64| {
        ask(sync, 1_000 * number as i64);
        reply(sync, number, 1, 1_000 * number as i64 + 100);
        assert!(!sync.is_waiting());
    };
    ask_and_reply(&mut sync, 0);
    let first = sync.exchanges[0].exchange;
    let forged = |clock| Held { exchange: Exchange { clock, ..first }, t1: None, t3: None };
    sync.exchanges.extend((2..(MOST_EXCHANGES - MOST_AFTER) as u64).map(forged));
    (1..4).for_each(|number| ask_and_reply(&mut sync, number));
    assert_eq!(sync.exchanges.len(), MOST_EXCHANGES - MOST_AFTER);
    let last = |sync: &Syncer| sync.exchanges.last().map(|held| held.exchange.number);
    assert_eq!(last(&sync), Some(1));
    sync.enter(Phase::After);
    ask_and_reply(&mut sync, 4);
    assert_eq!(last(&sync), Some(4));
}
