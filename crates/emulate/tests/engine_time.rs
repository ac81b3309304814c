//! Links that change over time, compared with results computed by hand and by other methods.

mod drive;

use drive::{START, at, dispositions, endless, frame, one};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use sojourn_emulate::config::{Aqm, Codel, Delay, Link, Mask, Outage, Profile, Queue, Trace, TracePoint};
use sojourn_emulate::{Cause, Engine, Outcome, Pipe};
use sojourn_time::{Nanos, Time};

fn of(link: Link) -> sojourn_emulate::Config {
    one(Pipe { link, queue: endless(), ..Pipe::default() })
}

fn left(config: &sojourn_emulate::Config, arrivals: impl IntoIterator<Item = (i64, usize)>) -> Vec<i64> {
    dispositions(config, arrivals)
        .iter()
        .map(|disposition| (disposition.link_left.expect("a link") - START).0)
        .collect()
}

fn points(points: &[(i64, u64)], period: Option<i64>) -> Option<Trace> {
    let point = |(at, rate): &(i64, u64)| TracePoint { at: Nanos(*at), rate_bps: Some(*rate), ..TracePoint::default() };
    Some(Trace::Points { points: points.iter().map(point).collect(), period: period.map(Nanos), file: String::new() })
}

#[test]
fn changing_rate_is_integrated_also_during_serialisation() {
    // 8000 bits: 1 Mbit/s carries 3000 of them in 3 ms, 8 Mbit/s the other 5000 in 0.625 ms.
    let trace = points(&[(0, 1_000_000), (3_000_000, 8_000_000)], None);
    let config = of(Link { trace, ..Link::default() });
    assert_eq!(left(&config, [(0, 1_000), (0, 1_000)]), [3_625_000, 4_625_000]);
    // A repeating trace: 1 Mbit/s and 0, a millisecond each. 2500 bits: 1000 by 1 ms, 2000 by 3 ms, 500 more by 4.5 ms.
    let trace = points(&[(0, 1_000_000), (1_000_000, 0)], Some(2_000_000));
    let config = of(Link { trace: trace.clone(), overhead_bytes: 0, ..Link::default() });
    assert_eq!(left(&config, [(0, 125), (0, 250)]), [1_000_000, 4_000_000 + 1_000_000]);
    // A packet that takes many periods costs no more steps than one that takes few.
    let trace = points(&[(0, 1_000), (500, 0)], Some(1_000));
    let config = of(Link { trace, ..Link::default() });
    assert_eq!(left(&config, [(0, 1_000)]), [8_000 * 2_000_000 - 500]);
}

#[test]
fn outages_delay_all_packets() {
    let outages = vec![Outage { at: Nanos::millis(2), lasts: Nanos::millis(5), every: Some(Nanos::millis(100)) }];
    let config = of(Link { rate_bps: Some(1_000_000), outages: outages.clone(), ..Link::default() });
    // 1 ms each: the first leaves at 1 ms, the second at 2 ms; the third waits, as does one that arrives meanwhile.
    let arrivals = [(0, 125), (0, 125), (0, 125), (4_000_000, 125), (102_500_000, 125)];
    assert_eq!(left(&config, arrivals), [1_000_000, 2_000_000, 8_000_000, 9_000_000, 108_000_000]);
    // Without a rate only the outage delays packets.
    let config = one(Pipe { link: Link { outages, ..Link::default() }, ..Pipe::default() });
    assert_eq!(
        left(&config, [(1_000_000, 60), (2_000_000, 60), (6_999_999, 60), (7_000_000, 60)]),
        [1_000_000, 7_000_000, 7_000_000, 7_000_000]
    );
}

#[test]
fn link_with_rate_zero_resumes_when_its_rate_is_changed() {
    let stopped = Link { trace: points(&[(0, 0)], Some(1_000)), ..Link::default() };
    let going = Link { rate_bps: Some(1_000_000), ..Link::default() };
    let pipe = |link: &Link| Pipe { link: link.clone(), ..Pipe::default() };
    let mut engine = Engine::new(&one(Pipe { link: stopped, ..Pipe::default() }), START).expect("holds");
    drive::keep(&mut engine, &[0; 125], START);
    assert_eq!(engine.next(), Time::NEVER);
    engine.advance(at(5_000_000));
    engine.set("p", &pipe(&going), at(5_000_000)).expect("holds");
    assert_eq!(engine.due(at(9_000_000)).map(|departure| departure.intended), Some(at(6_000_000)));
}

#[test]
fn delivery_opportunities_begin_after_an_already_announced_departure() {
    let pipe = |link| Pipe { link, queue: endless(), ..Pipe::default() };
    let opportunities =
        Trace::Opportunities { at: vec![Nanos::micros(100)], period: Nanos::micros(100), file: String::new() };
    let by_opportunity = pipe(Link { trace: Some(opportunities), ..Link::default() });
    let by_rate = pipe(Link { rate_bps: Some(1_000_000), ..Link::default() });
    let mut engine = Engine::new(&one(by_rate.clone()), START).expect("holds");
    // 0.84 ms each: the departure of the first is announced at once.
    (0..3).for_each(|_| drive::keep(&mut engine, &[0; 105], START));
    engine.advance(START);
    engine.set("p", &by_opportunity, at(250_000)).expect("holds");
    // The other two see opportunities from 0.84 ms on: one each, after the first.
    let left: Vec<_> =
        std::iter::from_fn(|| engine.due(at(5_000_000))).map(|due| (due.number, (due.intended - START).0)).collect();
    assert_eq!(left, [(0, 840_000), (1, 900_000), (2, 900_000)]);
}

#[test]
fn token_bucket_does_not_fill_while_a_packet_of_an_earlier_rate_is_serialised() {
    let pipe = |link| Pipe { link, queue: endless(), ..Pipe::default() };
    let opportunities =
        Trace::Opportunities { at: vec![Nanos::seconds(1)], period: Nanos::seconds(1), file: String::new() };
    let by_opportunity = pipe(Link { trace: Some(opportunities), ..Link::default() });
    let by_rate = pipe(Link { rate_bps: Some(1_000_000), burst_bytes: 1_000, ..Link::default() });
    let mut engine = Engine::new(&one(pipe(Link { burst_bytes: 0, ..by_rate.link.clone() })), START).expect("holds");
    // 0.8 ms each.
    (0..2).for_each(|_| drive::keep(&mut engine, &[0; 100], START));
    engine.advance(START);
    for (to, micros) in [(&by_opportunity, 100), (&by_rate, 200)] {
        engine.set("p", to, at(micros * 1_000)).expect("holds");
    }
    let left: Vec<_> = std::iter::from_fn(|| engine.due(at(5_000_000))).map(|due| (due.intended - START).0).collect();
    assert_eq!(left, [800_000, 1_600_000]);
}

#[test]
fn token_bucket_fills_again_after_an_opportunity_carried_the_packet_on_the_link() {
    let pipe = |link| Pipe { link, queue: endless(), ..Pipe::default() };
    let opportunities =
        Trace::Opportunities { at: vec![Nanos::millis(1)], period: Nanos::millis(1), file: String::new() };
    let slow = pipe(Link { rate_bps: Some(8_000), burst_bytes: 15_000, ..Link::default() });
    let by_opportunity = pipe(Link { trace: Some(opportunities), burst_bytes: 15_000, ..Link::default() });
    let fast = pipe(Link { rate_bps: Some(1_000_000), burst_bytes: 15_000, ..Link::default() });
    let mut engine = Engine::new(&one(slow), START).expect("holds");
    // One second at 8 kbit/s; an opportunity carries it after 10 ms.
    drive::keep(&mut engine, &[0; 1_000], START);
    for (to, millis) in [(&by_opportunity, 10), (&fast, 20)] {
        engine.advance(at(millis * 1_000_000));
        engine.set("p", to, at(millis * 1_000_000)).expect("holds");
    }
    // Idle since 20 ms: the token bucket is full.
    drive::keep(&mut engine, &[0; 1_000], at(500_000_000));
    let left: Vec<_> = std::iter::from_fn(|| engine.due(at(900_000_000))).map(|due| (due.intended - START).0).collect();
    assert_eq!(left, [11_000_000, 500_000_000]);
}

#[test]
fn token_bucket_fills_up_to_the_burst_while_idle() {
    // 8 Mbit/s: a byte per microsecond. Idle for 1.5 ms at first, and for 10 ms later.
    let config = of(Link { rate_bps: Some(8_000_000), burst_bytes: 2_500, ..Link::default() });
    let arrivals = [
        (1_500_000, 1_000),
        (1_500_000, 1_000),
        (1_500_000, 1_000),
        (13_000_000, 1_000),
        (13_000_000, 1_000),
        (13_000_000, 1_000),
    ];
    assert_eq!(left(&config, arrivals), [1_500_000, 2_000_000, 3_000_000, 13_000_000, 13_000_000, 13_500_000]);
}

#[test]
fn profile_adds_delay_and_drops_packets_above_its_loss_level() {
    let samples: Vec<_> = (0..100).map(|n| Nanos(n * 1_000)).collect();
    let profile = Some(Profile { name: "p".to_owned(), loss_level: 0.9, samples });
    let config = of(Link { rate_bps: Some(1_000_000_000), profile, ..Link::default() });
    let packets = 100_000;
    let dispositions = dispositions(&config, (0..packets).map(|n| (n * 1_000_000, 125)));
    let extra = |disposition: &sojourn_emulate::Disposition| {
        (disposition.link_left.expect("a link") - disposition.arrived).0 - 1_000
    };
    let mut counts = [0_i64; 100];
    for disposition in &dispositions {
        counts[(extra(disposition) / 1_000) as usize] += 1;
        let lost = if extra(disposition) >= 90_000 { Outcome::Lost(Cause::Profile) } else { Outcome::Sent };
        assert_eq!(disposition.outcome, lost);
    }
    // Chi-square of 100 equal shares: above 163 with probability 10⁻⁴.
    let expected = packets / 100;
    let chi: f64 = counts.iter().map(|count| ((count - expected) * (count - expected)) as f64 / expected as f64).sum();
    assert!(chi < 163.0, "{chi}");
}

#[test]
fn delay_and_loss_of_a_trace_are_taken_at_the_time_of_leaving_the_link() {
    let point = |at, delay, loss| TracePoint { at: Nanos::millis(at), delay, loss, rate_bps: None };
    let points = vec![point(0, None, None), point(10, Some(Nanos::millis(3)), None), point(20, None, Some(1.0))];
    let trace = Some(Trace::Points { points, period: Some(Nanos::millis(30)), file: String::new() });
    let delay = Delay { constant: Nanos::millis(1), ..Delay::default() };
    let config = one(Pipe { link: Link { trace, ..Link::default() }, delay, ..Pipe::default() });
    let dispositions = dispositions(&config, (0..6).map(|n| (n * 10_000_000 + 5, 60)));
    let told: Vec<_> = dispositions.iter().map(|disposition| disposition.drawn.ok_or(disposition.outcome)).collect();
    let round = [Ok(Nanos::millis(1)), Ok(Nanos::millis(3)), Err(Outcome::Lost(Cause::After))];
    assert_eq!(told, [round, round].concat());
}

/// mahimahi's link, as its `rationalize` and `read_packet` do: each opportunity carries 1500 bytes of the queue, and an
/// incomplete packet continues at the next opportunity.
fn mahimahi(times: &[i64], period: i64, arrivals: &[(i64, usize)]) -> Vec<i64> {
    let (mut queue, mut left) = (std::collections::VecDeque::new(), Vec::new());
    let mut arrivals = arrivals.iter().copied().peekable();
    let all = (0..).flat_map(|round| times.iter().map(move |at| round * period + at));
    let (mut rest, count) = (0_i64, arrivals.len());
    for now in all {
        while let Some((_, bytes)) = arrivals.next_if(|(at, _)| *at < now) {
            queue.push_back(bytes as i64 - 14);
        }
        let mut room = 1_500;
        while room > 0 {
            if rest == 0 {
                let Some(next) = queue.pop_front() else { break };
                rest = next;
            }
            let used = rest.min(room);
            (rest, room) = (rest - used, room - used);
            if rest == 0 {
                left.push(now);
            }
        }
        if left.len() == count {
            return left;
        }
    }
    unreachable!("opportunities go on for ever")
}

#[test]
fn delivery_opportunities_during_an_outage_are_lost() {
    let trace =
        Some(Trace::Opportunities { at: vec![Nanos::millis(1)], period: Nanos::millis(1), file: String::new() });
    let outages = vec![Outage { at: Nanos::micros(1_500), lasts: Nanos::millis(2), every: None }];
    let config = of(Link { trace, outages, ..Link::default() });
    assert_eq!(left(&config, [(0, 1_514), (0, 1_514), (0, 1_514)]), [1_000_000, 4_000_000, 5_000_000]);
}

proptest! {
    #[test]
    fn delivery_opportunities_behave_as_in_mahimahi(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut times: Vec<i64> = (0..random.random_range(1..40)).map(|_| random.random_range(1..30) * 1_000_000).collect();
        times.sort_unstable();
        let period = times[times.len() - 1];
        let mut now = 0;
        let arrivals: Vec<_> = (0..200).map(|_| {
            now += random.random_range(0..5) * 400_000;
            (now, random.random_range(60..9_000))
        }).collect();
        let at = times.iter().map(|at| Nanos(*at)).collect();
        let trace = Some(Trace::Opportunities { at, period: Nanos(period), file: String::new() });
        let config = of(Link { trace, ..Link::default() });
        prop_assert_eq!(left(&config, arrivals.clone()), mahimahi(&times, period, &arrivals));
    }

    #[test]
    fn trace_carries_the_integral_of_its_rates(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let steps: Vec<(i64, u64)> = (0..random.random_range(1..20)).map(|n| (n * 700_000, random.random_range(0..4) * 3_333_333)).collect();
        let period = random.random::<bool>().then_some(steps.len() as i64 * 700_000);
        prop_assume!(steps[if period.is_some() { 0 } else { steps.len() - 1 }].1 > 0);
        let config = of(Link { trace: points(&steps, period), ..Link::default() });
        let arrivals: Vec<_> = (0..40).map(|n| (n * 100_000, random.random_range(60..1_500))).collect();
        let rate = |now: i64| {
            let now = period.map_or(now, |period| now % period);
            steps[(now / 700_000).min(steps.len() as i64 - 1) as usize].1
        };
        // A busy link, nanobit by nanobit in intervals of 100 us.
        let departures = left(&config, arrivals.clone());
        let mut free = (0_i64, 0_u128);
        for ((at, bytes), left) in arrivals.iter().zip(departures) {
            if *at > free.0 { free = (*at, 0); }
            let (mut now, mut work) = (free.0, free.1 + *bytes as u128 * 8_000_000_000);
            loop {
                let until = (now / 100_000 + 1) * 100_000;
                let room = u128::from(rate(now)) * (until - now) as u128;
                if work < room || (work == room && rate(now) > 0) { break }
                (now, work) = (until, work - room);
            }
            free = (now + (work / u128::from(rate(now))) as i64, work % u128::from(rate(now)));
            prop_assert_eq!(free.0, left);
        }
    }
}

#[test]
fn marked_frames_have_a_correct_checksum() {
    let codel = Codel { target: Nanos::micros(100), interval: Nanos::millis(1), ecn: true };
    let queue = Queue { aqm: Some(Aqm::Codel(codel)), ..endless() };
    let link = Link { rate_bps: Some(10_000_000), ..Link::default() };
    let mut engine = Engine::new(&one(Pipe { link, queue, ..Pipe::default() }), START).expect("holds");
    engine.keep_dispositions(true);
    (0..500).for_each(|n| drive::keep(&mut engine, &frame::udp(1_000, n), at(i64::from(n) * 700_000)));
    let mut marks = 0;
    while let Some(departure) = engine.due(at(10_000_000_000)) {
        let sent = engine.frame(&departure);
        assert_eq!(frame::checksum(&sent[14..34]), 0);
        let is_marked = sent[15] & 3 == 3;
        engine.departed(departure, departure.intended);
        let disposition = engine.dispositions().next_back().expect("it has ended");
        assert_eq!((disposition.is_marked, disposition.head()[15] & 3), (is_marked, 2), "the head is as it came");
        marks += u64::from(is_marked);
    }
    assert!(marks > 10, "{marks}");
    assert_eq!((engine.report().pipes[0].counts.marked, engine.report().pipes[0].counts.sent), (marks, 500));
}

#[test]
fn each_flow_has_its_own_link_and_flows_over_the_limit_share_one() {
    let mask = Some(Mask { source_port: 0xFFFF, most: 2, ..Mask::default() });
    let link = Link { rate_bps: Some(8_000_000), ..Link::default() };
    let mut engine = Engine::new(&one(Pipe { mask, link, ..Pipe::default() }), START).expect("holds");
    engine.keep_dispositions(true);
    let mut round = |start: Time, flows: &[u16]| {
        flows.iter().for_each(|flow| drive::keep(&mut engine, &frame::udp(1_000, *flow), start));
        let departures: Vec<_> = std::iter::from_fn(|| engine.due(start + Nanos::seconds(1))).collect();
        departures.iter().for_each(|departure| engine.departed(*departure, departure.intended));
        let mut dispositions: Vec<_> = engine.dispositions().collect();
        dispositions.sort_by_key(|disposition| disposition.number);
        let told = dispositions.iter().map(|disposition| {
            ((disposition.intended.expect("sent") - start).0 / 1_000_000, disposition.flow == u64::MAX)
        });
        (told.collect::<Vec<_>>(), engine.report().pipes[0].clone())
    };
    let (told, report) = round(START, &[1, 2, 1, 3, 4]);
    assert_eq!(told, [(1, false), (1, false), (2, false), (1, true), (2, true)]);
    assert_eq!((report.flows, report.counts.over_flow_limit), (3, 2));
    // Not idle for long enough; then the flow idle for longest is evicted.
    let (told, _) = round(at(999_000_000), &[2, 3]);
    assert_eq!(told, [(1, false), (1, true)]);
    let (told, report) = round(at(1_500_000_000), &[3, 1]);
    assert_eq!(told, [(1, false), (1, true)]);
    assert_eq!((report.flows, report.counts.over_flow_limit), (3, 4));
}

#[test]
fn a_mask_without_a_limit_has_4096_flows() {
    let mask = Some(Mask { source_port: 0xFFFF, ..Mask::default() });
    let pipe = Pipe { mask, delay: Delay { constant: Nanos::millis(1), ..Delay::default() }, ..Pipe::default() };
    let mut engine = Engine::new(&one(pipe), START).expect("holds");
    (0..4_100).for_each(|flow| drive::keep(&mut engine, &frame::udp(100, flow), START));
    let report = engine.report().pipes[0].clone();
    assert_eq!((report.flows, report.counts.over_flow_limit), (4_096 + 1, 4));
}

#[test]
fn waiting_times_are_those_of_an_m_d_1_queue() {
    let seed = 20_261_121;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for load in [0.3, 0.6, 0.8] {
        // 1 ms of service.
        let config = of(Link { rate_bps: Some(8_000_000), ..Link::default() });
        let mut now = 0.0;
        let arrivals: Vec<_> = (0..1_000_000)
            .map(|_| {
                now += -(1.0 - random.random::<f64>()).ln() * 1e6 / load;
                (now as i64, 1_000)
            })
            .collect();
        let waits: Vec<_> = dispositions(&config, arrivals)
            .iter()
            .map(|disposition| (disposition.intended.expect("sent") - disposition.arrived).0 as f64 / 1e6 - 1.0)
            .collect();
        let truth = load / (2.0 * (1.0 - load));
        // Means of batches that are long compared with a busy period are nearly independent.
        let means: Vec<_> = waits.chunks(20_000).map(|batch| batch.iter().sum::<f64>() / batch.len() as f64).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let variance = means.iter().map(|batch| (batch - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
        let error = (variance / means.len() as f64).sqrt();
        assert!(
            (mean - truth).abs() < 4.0 * error,
            "load {load}: {mean} ms, and {truth} by Pollaczek and Khinchine, ± {error}"
        );
        assert!(error < 0.02 * truth, "it says something: {error}");
    }
}
