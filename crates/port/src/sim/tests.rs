//! Compares the simulated link with its parameters.

use super::*;
use proptest::prelude::*;

fn request(seq: u32, response_bytes: u16) -> Vec<u8> {
    ProbeHeader::request(1, seq, response_bytes).to_bytes().to_vec()
}

fn sim(line: &Line, carrier: Carrier) -> Sim {
    Sim::new(&SimulatedClock::default(), line, carrier).expect("a line that can be")
}

/// Sends one request and returns when its reply arrived, and the reply.
fn round_trip(sim: &mut Sim, frame: &[u8]) -> Option<(Nanos, Vec<u8>)> {
    let sent = sim.transmit(frame).unwrap();
    sim.wait(sent.called + Nanos::seconds(5)).unwrap();
    let mut buffer = vec![0; 2000];
    let received = sim.receive(&mut buffer).unwrap()?;
    buffer.truncate(received.length);
    Some((received.arrived.at - sent.called, buffer))
}

#[test]
fn delays_add_up_over_bytes_and_directions() {
    let line = Line { per_byte_ns: 2.0, responder_ns: 700, ..Line::constant(5_000, 9_000) };
    let (delay, reply) = round_trip(&mut sim(&line, Carrier::Udp4), &request(0, 100)).unwrap();
    // The request frame has 86 bytes, the reply 146.
    assert_eq!(delay, Nanos(5_000 + 9_000 + 700 + 2 * (86 + 146)));
    let (arrival, departure) = ProbeHeader::read(&reply).unwrap().times().unwrap();
    assert_eq!(arrival, Time(5_000 + 2 * 86));
    assert_eq!(departure - arrival, Nanos(700));
    assert_eq!(reply.len(), 100);
}

#[test]
fn a_lossy_line_loses_everything() {
    let line = Line { loss: 1.0, ..Line::constant(1, 1) };
    assert_eq!(round_trip(&mut sim(&line, Carrier::Udp4), &request(0, 40)), None);
}

#[test]
fn every_nth_request_is_held() {
    let line = Line { hold: Some(Hold { every: 3, for_ns: 100 }), ..Line::constant(10, 10) };
    let mut sim = sim(&line, Carrier::Udp4);
    let delays: Vec<i64> = (0..6).filter_map(|seq| round_trip(&mut sim, &request(seq, 40))).map(|(d, _)| d.0).collect();
    assert_eq!(delays, [20, 20, 120, 20, 20, 120]);
}

#[test]
fn a_ramp_rises_again_in_each_period_for_every_nth_request() {
    let ramp = Ramp { every_ns: 10_000, for_ns: 4_000, to_ns: 400, nth: 2 };
    let mut sim = sim(&Line { ramp: Some(ramp), ..Line::constant(10, 10) }, Carrier::Udp4);
    let delays: Vec<i64> = (0..24)
        .filter_map(|seq| {
            sim.clock().wait_until(Time(i64::from(seq) * 1_000), Nanos::ZERO);
            round_trip(&mut sim, &request(seq, 40))
        })
        .map(|(delay, _)| delay.0 - 20)
        .collect();
    // A request every 1,000 ns: the 2nd, the 4th, … depart at 1,000, 3,000, … ns of a period.
    assert_eq!(delays[..12], [0, 100, 0, 300, 0, 0, 0, 0, 0, 0, 0, 100]);
    assert_eq!(delays[..10], delays[10..20]);
}

#[test]
fn stall_releases_all_packets_at_its_end() {
    let line = Line { stall: Some(Stall { at_ns: 0, for_ns: 1_000 }), ..Line::constant(10, 10) };
    let mut sim = sim(&line, Carrier::Udp4);
    assert_eq!(round_trip(&mut sim, &request(0, 40)).unwrap().0, Nanos(1_020));
    assert_eq!(round_trip(&mut sim, &request(1, 40)).unwrap().0, Nanos(20));
}

#[test]
fn drift_grows_with_time() {
    let line = Line { drift_ns_per_s: 500.0, ..Line::constant(1_000, 0) };
    let mut sim = sim(&line, Carrier::Udp4);
    sim.clock().wait_until(Time(4_000_000_000), Nanos::ZERO);
    assert_eq!(round_trip(&mut sim, &request(0, 40)).unwrap().0, Nanos(3_000));
}

#[test]
fn block_number_determines_the_random_draws() {
    let line = Line { forward: Delay::Normal(Normal { mean_ns: 1e6, sd_ns: 1e5 }), ..Line::constant(0, 0) };
    let delay = |block| {
        let mut sim = sim(&line, Carrier::Udp4);
        sim.begin_block(block);
        round_trip(&mut sim, &request(0, 40)).unwrap().0
    };
    assert_eq!(delay(3), delay(3));
    assert_ne!(delay(3), delay(4));
}

#[test]
fn a_line_with_impossible_values_is_refused() {
    let refused = Line { loss: 1.5, ..Line::constant(0, 0) }.check().unwrap_err();
    assert_eq!(refused.to_string(), "line: loss is 1.5; expected a probability from 0 to 1");
    assert!(Line { per_byte_ns: f64::NAN, ..Line::constant(0, 0) }.check().is_err());
    assert!(Line { hold: Some(Hold { every: 0, for_ns: 1 }), ..Line::constant(0, 0) }.check().is_err());
    let ramp = Ramp { every_ns: 10, for_ns: 11, to_ns: 1, nth: 1 };
    let refused = Line { ramp: Some(ramp), ..Line::constant(0, 0) }.check().unwrap_err();
    assert_eq!(refused.to_string(), "line: ramp.for_ns is 11; expected more than 0, and at most ramp.every_ns");
}

proptest! {
    #[test]
    fn arbitrary_frames_never_panic(frame: Vec<u8>, carrier in 0..5_usize) {
        let carrier = [Carrier::Icmp4, Carrier::Icmp6, Carrier::Udp4, Carrier::Udp6, Carrier::Ethernet][carrier];
        let mut sim = sim(&Line::constant(1, 1), carrier);
        round_trip(&mut sim, &frame);
    }
}
