//! Deterministic losses: which packets they hit, one by one.

mod models;

use models::{impairments, lose, stage};
use sojourn_emulate::config::{Impairments, Loss};
use sojourn_emulate::impair::Stage;
use sojourn_emulate::select::Key;
use sojourn_time::Time;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn numbers(lost: &[bool]) -> Vec<usize> {
    (1..).zip(lost).filter_map(|(number, lost)| lost.then_some(number)).collect()
}

fn segment(port: u16, flags: u8, seq: u32, data: u32) -> Key {
    Key {
        family: 4,
        protocol: 6,
        transport_at: 34,
        ports: Some((port, 80)),
        tcp_flags: flags,
        tcp_seq: seq,
        tcp_data: data,
        ..Key::default()
    }
}

fn meet(stage: &mut Stage, key: &Key) -> bool {
    stage.meet(key, Time(0), None).is_lost
}

#[test]
fn every_nth_packet_is_lost_from_the_first_on() {
    assert_eq!(numbers(&lose(&[Loss::Every { every: 4, first: 4 }], 17, 1)), [4, 8, 12, 16]);
    assert_eq!(numbers(&lose(&[Loss::Every { every: 4, first: 1 }], 17, 1)), [1, 5, 9, 13, 17]);
    assert_eq!(numbers(&lose(&[Loss::Every { every: 3, first: 10 }], 17, 1)), [10, 13, 16]);
    assert_eq!(numbers(&lose(&[Loss::Every { every: 1, first: 1 }], 4, 1)), [1, 2, 3, 4]);
    assert_eq!(lose(&[Loss::Every { every: 1000, first: 7 }], 1_000_000, 1).iter().filter(|lost| **lost).count(), 1000);
    assert!(lose(&[Loss::Every { every: 0, first: 1 }], 10, 1).iter().all(|lost| !lost));
}

#[test]
fn loss_pattern_is_followed_and_repeated() {
    let pattern = |lost: &[bool]| [Loss::Pattern { lost: lost.to_vec(), file: String::new() }];
    assert_eq!(numbers(&lose(&pattern(&[false, true, true, false, false]), 12, 1)), [2, 3, 7, 8, 12]);
    assert!(lose(&pattern(&[]), 10, 1).iter().all(|lost| !lost));
}

#[test]
fn timed_loss_pattern_is_followed_per_millisecond() {
    let lost = vec![false, true, false];
    let mut stage = stage(&impairments(&[Loss::TimePattern { lost, file: String::new() }]), 1);
    let start = 1_790_000_000_000_000_123;
    for (after, is_lost) in [
        (0, false),
        (999_999, false),
        (1_000_000, true),
        (1_000_001, true),
        (1_999_999, true),
        (2_000_000, false),
        (4_500_000, true),
        (3_000_001_500_000, true),
        (3_000_002_500_000, false),
    ] {
        assert_eq!(
            stage.meet(&Key::default(), Time(start + after), None).is_lost,
            is_lost,
            "{after} ns after the first"
        );
    }
}

#[test]
fn the_first_syns_of_each_flow_are_lost() {
    let mut stage = stage(&impairments(&[Loss::Syn { count: 2 }]), 1);
    for port in [1000, 1001] {
        let seen = [SYN, SYN, SYN, SYN].map(|flags| meet(&mut stage, &segment(port, flags, 1, 0)));
        assert_eq!(seen, [true, true, false, false], "port {port}");
    }
    assert!(!meet(&mut stage, &segment(1002, SYN | ACK, 1, 0)), "the answer is not a request");
    assert!(!meet(&mut stage, &segment(1002, ACK, 1, 100)));
    let other = Key { protocol: 17, ..segment(1002, SYN, 1, 0) };
    let fragment = Key { transport_at: 0, ..segment(1002, SYN, 1, 0) };
    assert!(!meet(&mut stage, &other) && !meet(&mut stage, &fragment), "only what is read as TCP");
    assert!(meet(&mut stage, &segment(1002, SYN, 1, 0)));
}

/// Sends segments of 100 bytes in a connection with an initial sequence number; `sent`: the segment's index at each position.
fn connection(stage: &mut Stage, port: u16, initial: u32, sent: &[u32]) -> Vec<bool> {
    assert!(!meet(stage, &segment(port, SYN, initial, 0)));
    assert!(!meet(stage, &segment(port, ACK, initial.wrapping_add(1), 0)), "acknowledgements carry nothing");
    sent.iter()
        .map(|number| meet(stage, &segment(port, ACK, initial.wrapping_add(1 + (number - 1) * 100), 100)))
        .collect()
}

#[test]
fn the_kth_segment_and_its_retransmissions_are_lost_in_each_flow() {
    let mut stage = stage(&impairments(&[Loss::Segment { index: 3, retransmissions: 2 }]), 1);
    // Also with sequence numbers that wrap within the segment, and before it.
    for (port, initial) in [(1, 5000), (2, u32::MAX - 250), (3, u32::MAX - 201), (4, u32::MAX)] {
        let seen = connection(&mut stage, port, initial, &[1, 2, 3, 4, 5, 1, 3, 6, 3, 3, 3, 7]);
        assert_eq!(numbers(&seen), [3, 7, 9], "from {initial}: the third, sent at places 3, 7, 9, 10, 11");
    }
}

#[test]
fn interleaved_flows_are_distinguished() {
    let mut stage = stage(&impairments(&[Loss::Segment { index: 2, retransmissions: 0 }]), 1);
    for number in 0..4_u32 {
        for port in 0..500 {
            let lost = meet(&mut stage, &segment(port, ACK, 7 + u32::from(port) + number * 10, 10));
            assert_eq!(lost, number == 1, "port {port}, segment {number}");
        }
    }
}

#[test]
fn resegmented_retransmission_counts_if_it_carries_part_of_the_segment() {
    let mut stage = stage(&impairments(&[Loss::Segment { index: 2, retransmissions: 3 }]), 1);
    assert!(!meet(&mut stage, &segment(9, ACK, 0, 100)));
    assert!(meet(&mut stage, &segment(9, ACK, 100, 100)), "the second");
    assert!(!meet(&mut stage, &segment(9, ACK, 50, 50)), "all before it");
    assert!(meet(&mut stage, &segment(9, ACK, 50, 51)), "its first byte");
    assert!(meet(&mut stage, &segment(9, ACK, 199, 1)), "its last byte");
    assert!(!meet(&mut stage, &segment(9, ACK, 200, 50)), "what is behind it");
    assert!(meet(&mut stage, &segment(9, ACK, 100, 400)), "all of it and something new");
    assert!(!meet(&mut stage, &segment(9, ACK, 100, 100)), "the fourth retransmission is let through");
}

#[test]
fn reused_ports_are_a_new_connection() {
    let mut stage = stage(&impairments(&[Loss::Segment { index: 1, retransmissions: 0 }]), 1);
    assert_eq!(connection(&mut stage, 1, 1000, &[1, 1, 2]), [true, false, false]);
    assert!(!meet(&mut stage, &segment(1, SYN, 1000, 0)), "a late SYN starts no connection");
    assert!(!meet(&mut stage, &segment(1, ACK, 1001, 100)));
    assert_eq!(connection(&mut stage, 1, 90_000, &[1, 1, 2]), [true, false, false]);
}

#[test]
fn data_in_a_syn_counts_and_a_keepalive_does_not() {
    let mut stage = stage(&impairments(&[Loss::Segment { index: 2, retransmissions: 5 }]), 1);
    assert!(!meet(&mut stage, &segment(1, SYN, 100, 50)), "the first");
    assert!(!meet(&mut stage, &segment(1, ACK, 150, 1)), "a retransmitted byte");
    assert!(meet(&mut stage, &segment(1, ACK, 151, 10)), "the second");
}

#[test]
fn unchanged_targeted_losses_keep_their_state_and_changed_ones_restart() {
    let losses = |second| impairments(&[Loss::Every { every: 5, first: 5 }, second]);
    let mut stage = stage(&losses(Loss::Every { every: 100, first: 3 }), 1);
    let mut seen = Vec::new();
    for number in 1..=12 {
        if number == 4 {
            stage.set(&losses(Loss::Every { every: 100, first: 4 }));
        }
        if number == 9 {
            stage.set(&Impairments { duplication: Some(0.0), ..losses(Loss::Every { every: 100, first: 4 }) });
        }
        seen.push(meet(&mut stage, &Key::default()));
    }
    assert_eq!(numbers(&seen), [3, 5, 7, 10]);
    stage.set(&Impairments::default());
    assert!((0..100).all(|_| !meet(&mut stage, &Key::default())));
}
