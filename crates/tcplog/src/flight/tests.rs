//! Every record goes out once, is kept, or is counted as forgotten.

use super::*;
use proptest::prelude::*;

/// A sample or, if `of` is said, a private state of that sample.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    cpu: u32,
    cookie: u64,
    number: u64,
    point: u8,
    segments: u16,
    retrans: u32,
    rto: u16,
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
    event
}

fn packet(number: u64) -> Made {
    Made { cookie: 1, number, segments: 2, ..Made::default() }
}

/// The numbers that come out.
fn fly(flight: &mut Flight, made: &[Made]) -> Vec<u64> {
    let mut out = Vec::new();
    for made in made {
        flight.take(made.cpu, &bytes(*made), &mut |_, event| out.push(u64_at(event, 8)));
    }
    out
}

fn keeping(keep: usize, after: usize) -> Flight {
    Flight::new(FlightOptions { keep, after, ..FlightOptions::keeping(keep) })
}

#[test]
fn a_flow_without_a_trigger_is_forgotten_and_counted() {
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
fn a_trigger_gives_out_what_was_before_and_some_after() {
    let mut flight = keeping(3, 2);
    let mut made: Vec<_> = (0..10).map(packet).collect();
    made[5..].iter_mut().for_each(|made| made.retrans = 1);
    assert_eq!(fly(&mut flight, &made), [2, 3, 4, 5, 6, 7]);
    assert_eq!(flight.triggers(), 1);
}

#[test]
fn each_kind_of_trigger_is_asked_for_alone() {
    let nothing = Triggers { rto: false, reset: false, loss: false };
    let with = |change: fn(&mut Made), on| {
        let mut made = [packet(0), packet(1)];
        change(&mut made[1]);
        let mut flight = Flight::new(FlightOptions { on, ..FlightOptions::keeping(4) });
        fly(&mut flight, &made).len()
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

#[test]
fn what_happened_before_it_was_seen_is_no_trigger() {
    let mut made: Vec<_> = (0..4).map(packet).collect();
    made.iter_mut().for_each(|made| (made.retrans, made.rto) = (7, 3));
    assert!(fly(&mut keeping(2, 2), &made).is_empty());
}

#[test]
fn somebody_may_ask() {
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
fn a_private_state_goes_where_its_sample_goes() {
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
    let mut flight = Flight::new(FlightOptions { limit_bytes, ..FlightOptions::keeping(1000) });
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
    (who, 0_u32..4, 0_u16..3, prop::option::weighted(0.2, 0_u64..40)).prop_map(
        |((cpu, cookie, number, point, segments), retrans, rto, of)| Made {
            cpu,
            cookie,
            number,
            point,
            segments,
            retrans,
            rto,
            of,
        },
    )
}

proptest! {
    /// Whatever comes in whatever order, with flows that end and people who ask: every record goes out once, is kept, or
    /// is counted as forgotten; its bytes unchanged, packets by flow and direction.
    #[test]
    fn every_record_goes_out_or_is_counted(
        made in prop::collection::vec((any_made(), 0_u8..30), 0..400),
        keep in 1_usize..12,
        after in 0_usize..6,
        limit in 1_usize..40,
    ) {
        let limit_bytes = limit * size_of::<Sample>();
        let mut flight = Flight::new(FlightOptions { keep, after, on: Triggers::ANY, limit_bytes });
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
            prop_assert!(at.is_some(), "what goes out has come in");
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
