//! Every record is written once, is kept, or is counted as discarded.

use super::*;
use crate::layout::State;
use proptest::prelude::*;

/// A sample or, if `of` is given, a private state of that sample.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    cpu: u32,
    cookie: u64,
    number: u64,
    point: u8,
    segments: u16,
    retrans: u32,
    rto: u16,
    retransmits: u8,
    ca_state: u8,
    srtt_us8: u32,
    rtt_last_us: u32,
    cwnd: u32,
    of: Option<u64>,
}

fn bytes(made: Made) -> Vec<u8> {
    let mut event = vec![0; if made.of.is_some() { size_of::<PrivateState>() } else { size_of::<Sample>() }];
    let mut put = |at: usize, bytes: &[u8]| event[at..at + bytes.len()].copy_from_slice(bytes);
    if let Some(sample) = made.of {
        put(0, &[kind::PRIVATE]);
        put(offset_of!(PrivateState, cookie), &made.cookie.to_ne_bytes());
        put(offset_of!(PrivateState, number), &made.number.to_ne_bytes());
        put(offset_of!(PrivateState, sample), &sample.to_ne_bytes());
        return event;
    }
    put(0, &[kind::SAMPLE, made.point]);
    put(offset_of!(Sample, number), &made.number.to_ne_bytes());
    put(offset_of!(Sample, time_ns), &made.number.to_ne_bytes());
    put(offset_of!(Sample, cookie), &made.cookie.to_ne_bytes());
    put(offset_of!(Sample, segments), &made.segments.to_ne_bytes());
    let state = offset_of!(Sample, state);
    put(state + offset_of!(State, total_retrans), &made.retrans.to_ne_bytes());
    put(state + offset_of!(State, total_rto), &made.rto.to_ne_bytes());
    put(state + offset_of!(State, retransmits), &[made.retransmits]);
    put(state + offset_of!(State, ca_state), &[made.ca_state]);
    put(state + offset_of!(State, srtt_us8), &made.srtt_us8.to_ne_bytes());
    put(state + offset_of!(State, rtt_last_us), &made.rtt_last_us.to_ne_bytes());
    put(state + offset_of!(State, snd_cwnd), &made.cwnd.to_ne_bytes());
    event
}

fn packet(number: u64) -> Made {
    Made { cookie: 1, number, segments: 2, ..Made::default() }
}

/// Return the numbers of the records written.
fn fly(flight: &mut Flight, made: &[Made]) -> Vec<u64> {
    let mut out = Vec::new();
    for made in made {
        flight.take(made.cpu, &bytes(*made), &mut |_, event| out.push(u64_at(event, 8)));
    }
    out
}

fn keeping(keep: usize, after: usize) -> Flight {
    Flight::new(FlightOptions { after: Keep::Samples(after), ..FlightOptions::keeping(Keep::Samples(keep)) })
}

fn waiting_for(on: Triggers) -> Flight {
    Flight::new(FlightOptions { on, ..FlightOptions::keeping(Keep::Samples(4)) })
}

/// Return the number of triggers of a kind.
fn fired(flight: &Flight, name: &str) -> u64 {
    flight.triggers()[NAMES.iter().position(|known| *known == name).unwrap()]
}

#[test]
fn samples_of_a_flow_without_a_trigger_are_discarded_and_counted() {
    let mut flight = keeping(3, 1);
    assert!(fly(&mut flight, &(0..10).map(packet).collect::<Vec<_>>()).is_empty());
    assert_eq!((flight.kept().packets, flight.forgotten().packets), (3, 7));
    flight.end(1);
    assert_eq!((flight.kept().sum(), flight.forgotten().packets), (0, 10));
    let ten = crate::account::Tally { packets: 10, segments: 20 };
    assert_eq!(flight.left_out().sum()[0], ten);
    assert_eq!((flight.tell_end(1)[0], flight.left_out().iter().count()), (ten, 0), "nothing is held of it any more");
    assert_eq!(flight.left_out().sum()[0], ten);
}

#[test]
fn trigger_writes_the_samples_before_and_some_after_it() {
    let mut flight = keeping(3, 2);
    let mut made: Vec<_> = (0..10).map(packet).collect();
    made[5..].iter_mut().for_each(|made| made.retrans = 1);
    assert_eq!(fly(&mut flight, &made), [2, 3, 4, 5, 6, 7]);
    assert_eq!(flight.triggers(), [0, 0, 1, 0, 0, 0]);
}

#[test]
fn each_kind_of_trigger_can_be_selected_alone() {
    let nothing = Triggers::default();
    let with = |change: fn(&mut Made), on| {
        let mut made = [packet(0), packet(1)];
        change(&mut made[1]);
        fly(&mut waiting_for(on), &made).len()
    };
    type Change = fn(&mut Made);
    let kinds: [(Change, Triggers); 4] = [
        (|made| made.rto = 1, Triggers { rto: true, ..nothing }),
        (|made| made.point = point::RESET_IN, Triggers { reset: true, ..nothing }),
        (|made| made.point = point::RESET_OUT, Triggers { reset: true, ..nothing }),
        (|made| made.retrans = 1, Triggers { loss: true, ..nothing }),
    ];
    for (change, on) in kinds {
        assert_eq!(with(change, on), 2);
        assert_eq!(with(change, nothing), 0);
        assert_eq!(with(|_| (), on), 0);
    }
}

/// Take a sample for each RTT or window; return the indices at which a trigger of this name was detected.
fn crossings<T: Copy>(name: &str, on: Triggers, values: &[T], with: fn(&mut Made, T)) -> Vec<usize> {
    let mut flight = waiting_for(on);
    let mut places = Vec::new();
    for (place, &value) in values.iter().enumerate() {
        let mut made = packet(place as u64);
        with(&mut made, value);
        let before = fired(&flight, name);
        fly(&mut flight, &[made]);
        if fired(&flight, name) > before {
            places.push(place);
        }
    }
    assert_eq!(flight.triggers().iter().sum::<u64>(), places.len() as u64, "no other kind was asked for");
    places
}

/// For each sample: its time, the state, the timeouts of the oldest segment, and the total of timeouts.
#[test]
fn timeout_triggers_once_in_any_state_and_any_order_of_samples() {
    let on = Triggers { rto: true, ..Triggers::default() };
    let shown = |values: &[(u64, u8, u8, u16)]| {
        crossings("rto", on, values, |made, (number, state, retransmits, total)| {
            (made.number, made.ca_state, made.retransmits, made.rto) = (number, state, retransmits, total);
        })
    };
    let before_the_counter = [(1, 0, 0, 0), (2, 4, 0, 0), (3, 4, 1, 1), (4, 4, 2, 2), (5, 4, 2, 2), (6, 0, 0, 2)];
    assert_eq!(shown(&before_the_counter), [2, 3]);
    assert_eq!(shown(&[(1, 0, 0, 0), (10, 4, 0, 0), (5, 0, 0, 0), (11, 4, 1, 1)]), [3], "a late sample between");
    assert_eq!(shown(&[(1, 0, 0, 0), (10, 4, 0, 0), (210, 4, 1, 1)]), [2], "a state without a timeout, then one");
    assert_eq!(shown(&[(1, 0, 0, 0), (11, 4, 1, 1), (12, 0, 0, 1), (10, 4, 0, 0)]), [1], "a late one at the end");
    assert_eq!(shown(&[(1, 0, 0, 7), (2, 0, 0, 7), (3, 4, 1, 8)]), [2], "what was there before is none");
    assert_eq!(shown(&[(1, 0, 0, 0), (2, 4, 0, 0), (3, 4, 1, 0), (4, 4, 2, 0)]), [2, 3], "a kernel without the total");
}

#[test]
fn threshold_triggers_once_for_each_crossing() {
    let above = Some(Nanos::millis(20));
    let rtts_us = [0, 5_000, 20_000, 20_001, 30_000, 90_000, 20_000, 20_001, 7_000];
    let rtt = Triggers { rtt_above: above, ..Triggers::default() };
    assert_eq!(crossings("rtt", rtt, &rtts_us, |made, us| made.srtt_us8 = us * 8), [3, 7]);
    // An eighth of a microsecond is sufficient.
    assert_eq!(crossings("rtt", rtt, &[160_000, 160_001], |made, us| made.srtt_us8 = us), [1]);
    let last = Triggers { rtt_last_above: above, ..Triggers::default() };
    assert_eq!(crossings("rtt-last", last, &rtts_us, |made, us| made.rtt_last_us = us), [3, 7]);
    assert!(crossings("rtt", rtt, &rtts_us, |made, us| made.rtt_last_us = us).is_empty());
    let cwnd = Triggers { cwnd_below: Some(10), ..Triggers::default() };
    assert_eq!(crossings("cwnd", cwnd, &[10, 40, 9, 1, 2, 9, 10, 10, 9, 30], |made, cwnd| made.cwnd = cwnd), [2, 8]);
    // A flow's first sample is no crossing; the threshold must be left first.
    assert_eq!(crossings("cwnd", cwnd, &[2, 3, 12, 3], |made, cwnd| made.cwnd = cwnd), [3]);
    assert_eq!(crossings("rtt", rtt, &[30_000, 40_000, 10_000, 30_000], |made, us| made.srtt_us8 = us * 8), [3]);
}

#[test]
fn late_sample_triggers_no_threshold() {
    let mut flight = waiting_for(Triggers { cwnd_below: Some(10), ..Triggers::default() });
    let at = |number, cwnd| Made { cwnd, ..packet(number) };
    fly(&mut flight, &[at(1, 40), at(5, 40), at(3, 4), at(6, 40), at(7, 4), at(6, 40), at(8, 4)]);
    assert_eq!(fired(&flight, "cwnd"), 1, "at 7, and neither at 3 nor again at 8");
}

#[test]
fn recorder_with_a_duration_keeps_the_samples_within_it() {
    let span = |ns| Keep::Span(Nanos(ns));
    let mut flight = Flight::new(FlightOptions { after: span(5), ..FlightOptions::keeping(span(10)) });
    let mut made: Vec<_> = [0, 10, 20, 25, 30, 31, 34, 35, 36].map(packet).to_vec();
    made[4..].iter_mut().for_each(|made| made.retrans = 1);
    assert_eq!(fly(&mut flight, &made), [20, 25, 30, 31, 34], "10 before 30, and less than 5 after it");
    assert_eq!((flight.kept().packets, flight.forgotten().packets), (2, 2));
    fly(&mut flight, &[Made { retrans: 1, ..packet(1_000) }]);
    assert_eq!((flight.kept().packets, flight.forgotten().packets), (1, 4), "what is too old goes when another comes");
    let mut flight = Flight::new(FlightOptions::keeping(span(10)));
    fly(&mut flight, &[packet(0), Made { cookie: 77, ..packet(1_000) }]);
    let mut written = 0;
    flight.dump(None, &mut |_, _| written += 1);
    assert_eq!((written, flight.forgotten().packets), (1, 1), "an idle flow's go when all are asked for");
}

#[test]
fn recorder_with_a_duration_has_bounded_memory() {
    let limit_bytes = 100 * size_of::<Sample>();
    let options = FlightOptions::keeping(Keep::Span(Nanos::seconds(1)));
    let mut flight = Flight::new(FlightOptions { limit_bytes, ..options });
    for number in 0..3_000 {
        fly(&mut flight, &[packet(number)]);
        assert!(flight.kept_bytes <= limit_bytes);
    }
    assert!(flight.kept().sum() > 50);
    assert_eq!(flight.kept().sum() + flight.forgotten().sum(), 3_000);
}

#[test]
fn retransmissions_before_the_first_sample_do_not_trigger() {
    let mut made: Vec<_> = (0..4).map(packet).collect();
    made.iter_mut().for_each(|made| (made.retrans, made.rto) = (7, 3));
    assert!(fly(&mut keeping(2, 2), &made).is_empty());
}

#[test]
fn dump_request_writes_the_kept_samples() {
    let mut flight = keeping(2, 1);
    fly(&mut flight, &[packet(0), packet(1), packet(2)]);
    let mut out = 0;
    flight.dump(Some(9), &mut |_, _| out += 1);
    assert_eq!(out, 0);
    flight.dump(None, &mut |_, _| out += 1);
    assert_eq!(out, 2);
    assert_eq!(fly(&mut flight, &[packet(3), packet(4)]), [3], "one more passes");
}

#[test]
fn private_state_is_kept_or_written_with_its_sample() {
    let private = |number, of| Made { cookie: 1, number, of: Some(of), ..Made::default() };
    let mut trigger = packet(4);
    trigger.retrans = 1;
    let mut flight = keeping(1, 0);
    let made = [packet(0), private(1, 0), packet(2), private(3, 2), trigger, private(5, 4), packet(6), private(7, 0)];
    assert_eq!(fly(&mut flight, &made), [2, 3, 4, 5]);
    assert_eq!(flight.forgotten(), Recorded { packets: 1, events: 0, privates: 2 });
}

#[test]
fn memory_is_bounded() {
    let limit_bytes = 100 * size_of::<Sample>();
    let mut flight = Flight::new(FlightOptions { limit_bytes, ..FlightOptions::keeping(Keep::Samples(1000)) });
    for number in 0..3000 {
        fly(&mut flight, &[Made { cookie: number % 7, ..packet(number) }]);
        assert!(flight.kept_bytes <= limit_bytes);
    }
    let alone: Vec<_> = (3000..4000).map(|number| Made { cookie: 99, ..packet(number) }).collect();
    fly(&mut flight, &alone);
    assert!(flight.kept_bytes <= limit_bytes && flight.kept().sum() > 50);
    assert_eq!(flight.kept().sum() + flight.forgotten().sum(), 4000);
}

fn any_made() -> impl Strategy<Value = Made> {
    let who = (0_u32..3, 1_u64..5, 0_u64..40, 0_u8..9, 1_u16..46);
    (who, 0_u32..4, 0_u16..3, 0_u32..20, prop::option::weighted(0.2, 0_u64..40)).prop_map(
        |((cpu, cookie, number, point, segments), retrans, rto, cwnd, of)| Made {
            cpu,
            cookie,
            number,
            point,
            segments,
            retrans,
            rto,
            cwnd,
            of,
            ..Made::default()
        },
    )
}

proptest! {
    /// For any records in any order, with flows that end and requests to dump: every record is written once, is kept,
    /// or is counted as discarded. Its bytes are unchanged, and packets are counted by flow and direction.
    #[test]
    fn every_record_is_written_or_counted(
        made in prop::collection::vec((any_made(), 0_u8..30), 0..400),
        keep in prop_oneof![(1_usize..12).prop_map(Keep::Samples), (0_i64..40).prop_map(|ns| Keep::Span(Nanos(ns)))],
        after in prop_oneof![(0_usize..6).prop_map(Keep::Samples), (0_i64..20).prop_map(|ns| Keep::Span(Nanos(ns)))],
        limit in 1_usize..40,
    ) {
        let limit_bytes = limit * size_of::<Sample>();
        let on = Triggers { cwnd_below: Some(5), ..Triggers::EVENTS };
        let mut flight = Flight::new(FlightOptions { keep, after, on, limit_bytes });
        let mut taken = Recorded::default();
        let mut packets: HashMap<(u64, usize), u64> = HashMap::new();
        let mut out = Vec::new();
        for (made, then) in &made {
            taken.privates += u64::from(made.of.is_some());
            taken.packets += u64::from(made.of.is_none() && made.point < 2);
            taken.events += u64::from(made.of.is_none() && made.point >= 2);
            if made.of.is_none() && made.point < 2 {
                *packets.entry((made.cookie, usize::from(made.point))).or_default() += u64::from(made.segments);
            }
            flight.take(made.cpu, &bytes(*made), &mut |cpu, event| out.push((cpu, event.to_vec())));
            match then {
                0 => flight.end(made.cookie),
                1 => flight.dump(Some(made.cookie), &mut |cpu, event| out.push((cpu, event.to_vec()))),
                2 => flight.dump(None, &mut |cpu, event| out.push((cpu, event.to_vec()))),
                _ => {}
            }
            prop_assert!(flight.kept_bytes <= limit_bytes);
        }
        prop_assert_eq!(out.len() as u64 + flight.kept().sum() + flight.forgotten().sum(), taken.sum());
        flight.finish();
        prop_assert_eq!(flight.kept_bytes, 0);
        let mut waiting: Vec<_> = made.iter().map(|(made, _)| (made.cpu, bytes(*made))).collect();
        for record in &out {
            let at = waiting.iter().position(|one| one == record);
            prop_assert!(at.is_some(), "every packet sent was received before");
            waiting.swap_remove(at.unwrap());
            let event = &record.1;
            if event[0] == kind::SAMPLE && event[1] < 2 {
                let key = (u64_at(event, offset_of!(Sample, cookie)), usize::from(event[1]));
                *packets.get_mut(&key).unwrap() -= u64::from(u16_at(event, offset_of!(Sample, segments)));
            }
        }
        prop_assert_eq!(waiting.len() as u64, flight.forgotten().sum());
        for (cookie, tallies) in flight.left_out().iter() {
            for (direction, tally) in tallies.into_iter().enumerate() {
                prop_assert_eq!(packets.remove(&(cookie, direction)).unwrap_or(0), tally.segments);
            }
        }
        prop_assert!(packets.values().all(|&segments| segments == 0));
    }
}
