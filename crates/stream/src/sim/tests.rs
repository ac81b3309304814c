//! Both engines over paths with known properties: reports are compared with the truth.

use proptest::prelude::*;
use sojourn_port::sim::{ClockStep, Delay, SenderLate};
use sojourn_time::{Clock, Nanos, Time};
use sojourn_wire::stream::{GreetingWord, Link, Tag};
use sojourn_wire::{Key, MacAddress, SessionKey};

use super::*;
use crate::{Answering, Auth, End, FlowRequest, Keep, Pattern, Phase, PortRequest, Schedule, Senders, SyncRequest};

const MAC_A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xA]);
const MAC_B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xB]);
const KEY: SessionKey = SessionKey(0x0123_4567_89AB_CDEF);
static RUNNING: AtomicBool = AtomicBool::new(false);

fn head() -> Head {
    Head::Link(Link { destination: MAC_B, source: MAC_A, tag: None })
}

fn stream(flow: u16, pattern: Pattern, rate_pps: f64, count: u64) -> FlowRequest {
    let schedule = Schedule::new(pattern, rate_pps, count, u64::from(flow));
    FlowRequest { flow, port: 0, head: head(), payload_bytes: 100, schedule }
}

fn sending(flows: Vec<FlowRequest>) -> SendRequest {
    SendRequest {
        block: 1,
        key: KEY,
        auth: Auth::default(),
        flows,
        keep: Keep::Packets { room: 1_000_000 },
        start_in: Nanos::millis(1),
        at_most: None,
        sync: None,
        answers_late_after: None,
        clock: 42,
    }
}

fn receiving(send: &SendRequest, ports: usize) -> ReceiveRequest {
    let framing = if send.flows[0].head == Head::Udp { Framing::Udp } else { Framing::Ethernet };
    ReceiveRequest {
        senders: Senders::Known(send.key),
        allowed: Vec::new(),
        seed: 1,
        auth: send.auth.clone(),
        ports: vec![PortRequest { framing, mac: MAC_B, answer: None, tx_timestamps: true }; ports],
        flows: send.flows.iter().map(|flow| flow.flow).collect(),
        keep: Keep::Packets { room: 1_000_000 },
        late_after: Nanos::seconds(1),
        clock_offset: Nanos::ZERO,
        clock: 43,
    }
}

fn run(path: &Path, send: &SendRequest) -> (SendOutcome, ReceiveOutcome) {
    simulate(path, send, &receiving(send, 1), &RUNNING).unwrap()
}

#[test]
fn delay_and_schedule_of_a_constant_path_are_exact() {
    let send = sending(vec![stream(1, Pattern::Regular, 10_000.0, 1_000)]);
    let (sent, received) = run(&Path::constant(12_345), &send);
    let (out, back) = (&sent.flows[0], &received.flows[0]);
    assert_eq!((out.counts.asked, out.counts.sent, out.counts.refused, out.counts.unsent), (1_000, 1_000, 0, 0));
    assert_eq!((back.counts.first, back.counts.lost, back.counts.reordered), (1_000, 0, 0));
    assert_eq!(back.delay.mean(), Some(12_345.0));
    assert!((out.achieved_pps - 10_000.0).abs() < 1e-6 && (back.achieved_pps() - 10_000.0).abs() < 1e-6);
    assert_eq!((out.within_1us, out.within_10us, out.pacing_error.max()), (1.0, 1.0, Some(0)));
    for (row, arrival) in sent.rows.iter().zip(&received.rows) {
        assert_eq!((row.seq, row.send_call, row.intended), (arrival.seq, arrival.sent, arrival.intended));
        assert_eq!(arrival.arrival.at - row.departure.at, Nanos(12_345));
    }
    assert_eq!(sent.started, Time(1_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn every_packet_is_accounted_for_whatever_the_path_does(
        shares in prop::array::uniform5(0.0..0.2_f64), seed: u64, udp: bool, tagged: bool, spread_ns in 1.0..1e6_f64,
        count in 1..800_u64, queue_frames in 0..50_usize, p in 0.0..0.1_f64,
    ) {
        let [loss, duplicate, reorder, corrupt, own_drop] = shares;
        let path = Path {
            loss, duplicate, reorder, corrupt, own_drop, seed, reorder_ns: 3_000_000,
            delay: Delay::Gamma(sojourn_port::sim::Gamma { shape: 2.0, scale_ns: spread_ns, shift_ns: 1_000.0 }),
            serialiser: Some(Serialiser { rate_bps: None, rate_pps: Some(25_000.0), queue_frames }),
            bursty_loss: Some(GilbertElliott { p, r: 0.2, h: 0.0, k: 1.0 }),
            ..Path::constant(0)
        };
        let mut flows = vec![
            stream(1, Pattern::Poisson, 10_000.0, count), stream(2, Pattern::Regular, 5_000.0, count / 2 + 1),
            stream(3, Pattern::Burst { size: 7 }, 1_000.0, count / 5 + 1),
        ];
        for flow in &mut flows {
            let tag = tagged.then_some(Tag { vlan: 100, priority: 5 });
            flow.head = if udp { Head::Udp } else { Head::Link(Link { destination: MAC_B, source: MAC_A, tag }) };
        }
        let (sent, received) = run(&path, &sending(flows));
        let mut frames = 0;
        for (out, back) in sent.flows.iter().zip(&received.flows) {
            prop_assert_eq!(out.counts.sent + out.counts.refused + out.counts.unsent, out.counts.asked);
            prop_assert_eq!(back.counts.packets(), out.counts.sent);
            prop_assert_eq!(back.delay.count(), back.counts.first);
            frames += back.counts.frames();
        }
        prop_assert_eq!(frames, received.ports[0].frames);
        let rows = received.rows.iter().filter(|row| !row.is_duplicate && !row.is_corrupted).count() as u64;
        prop_assert_eq!(rows, received.flows.iter().map(|flow| flow.counts.first).sum::<u64>());
        let dropped: u64 = received.flows.iter().map(|flow| flow.counts.local_drops).sum();
        let missed: u64 = received.flows.iter().map(|flow| flow.counts.lost + flow.counts.local_drops).sum();
        // A socket may also drop the duplicate of a packet that arrived.
        prop_assert_eq!(dropped, received.ports[0].local_drops.min(missed));
    }

    #[test]
    fn clock_exchanges_carry_true_delays_and_clock_errors(
        offset_ns in -5_000_000_000_i64..5_000_000_000, skew_ppm in -100.0..100.0_f64,
        there_ns in 1_000..100_000_i64, back_ns in 1_000..100_000_i64, spacing_us in 0..500_i64,
    ) {
        let receiver = Skewed { offset_ns, skew_ppm, ..Skewed::default() };
        let path = Path {
            delay_backward: Some(Delay::Constant(back_ns)),
            clocks: Clocks { receiver, ..Clocks::default() },
            ..Path::constant(there_ns)
        };
        let mut send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 100)]);
        let spacing = Nanos::micros(spacing_us);
        let during = Some(Nanos::millis(10));
        send.sync = Some(SyncRequest { flows: vec![0], before: 20, during, after: 15, spacing });
        let (sent, received) = run(&path, &send);
        let count = |phase| sent.exchanges.iter().filter(|exchange| exchange.phase == phase).count();
        prop_assert_eq!((count(Phase::Before), count(Phase::After)), (20, 15));
        prop_assert!((9..=11).contains(&count(Phase::During)), "{}", count(Phase::During));
        for exchange in &sent.exchanges {
            let arrived = exchange.t1.at + Nanos(there_ns);
            prop_assert_eq!(exchange.t2.at.0, receiver.reading(arrived.0));
            prop_assert_eq!(exchange.t3, exchange.t2);
            prop_assert_eq!(exchange.t4.at, arrived + Nanos(back_ns));
            prop_assert_eq!((exchange.clock, exchange.flow), (43, 1));
        }
        prop_assert_eq!(received.flows[0].counts.first, 100);
        prop_assert_eq!(received.ports[0].control, sent.exchanges.len() as u64);
        for row in &received.rows {
            prop_assert_eq!(row.arrival.at.0, receiver.reading(row.sent.0 + there_ns));
        }
    }
}

#[test]
fn shared_clock_is_reported_as_shared() {
    let clocks = Clocks { sender: Skewed { skew_ppm: 50.0, ..Skewed::default() }, shared: true, ..Clocks::default() };
    let mut send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 10)]);
    send.sync = Some(SyncRequest { flows: vec![0], before: 3, during: None, after: 0, spacing: Nanos::ZERO });
    let (sent, received) = run(&Path { clocks, ..Path::constant(1_000) }, &send);
    assert!(sent.exchanges.len() == 3 && sent.exchanges.iter().all(|exchange| exchange.clock == 42));
    assert_eq!(received.flows[0].delay.mean(), Some(1_000.0));
}

#[test]
fn clock_set_back_ends_the_stream_with_the_rest_unsent() {
    let step = Some(ClockStep { at_ns: 50_000_000, by_ns: -3_600_000_000_000 });
    let clocks = Clocks { sender: Skewed { step, ..Skewed::default() }, ..Clocks::default() };
    let (sent, received) =
        run(&Path { clocks, ..Path::constant(1_000) }, &sending(vec![stream(1, Pattern::Regular, 1_000.0, 1_000)]));
    let counts = sent.flows[0].counts;
    assert!((48..=52).contains(&counts.sent) && counts.unsent == 1_000 - counts.sent, "{counts:?}");
    assert_eq!(received.flows[0].counts.packets(), counts.sent);
}

#[test]
fn maximum_rate_stream_is_limited_by_the_path_and_its_losses_counted() {
    let serialiser = Some(Serialiser { rate_bps: Some(1e9), rate_pps: None, queue_frames: 100 });
    let (sent, received) =
        run(&Path { serialiser, ..Path::constant(0) }, &sending(vec![stream(1, Pattern::Flood, 0.0, 100_000)]));
    assert_eq!(sent.flows[0].counts.sent, 100_000);
    assert!((sent.flows[0].achieved_pps / 2e6 - 1.0).abs() < 1e-3, "{}", sent.flows[0].achieved_pps);
    let back = &received.flows[0];
    // On the wire, frames have 118 bytes with FCS: the serialiser carries 1 Gbit/s.
    let truth = 1e9 / (118.0 * 8.0);
    assert!((back.achieved_pps() / truth - 1.0).abs() < 1e-3, "{} {truth}", back.achieved_pps());
    assert_eq!(back.counts.packets(), 100_000);
    assert!(back.counts.lost > 40_000);
    assert_eq!(back.loss_run.mean().map(|mean| mean * back.loss_run.count() as f64), Some(back.counts.lost as f64));
}

#[test]
fn maximum_rate_stream_does_not_delay_paced_streams() {
    let flows = vec![stream(1, Pattern::Flood, 0.0, 10_000), stream(2, Pattern::Regular, 1_000.0, 5)];
    let (sent, _) = run(&Path { send_ns: 400, ..Path::constant(0) }, &sending(flows));
    assert_eq!((sent.flows[0].counts.sent, sent.flows[1].counts.sent), (10_000, 5));
    assert!(sent.flows[1].pacing_error.max() <= Some(1_000), "{:?}", sent.flows[1].pacing_error.max());
}

#[test]
fn poisson_streams_fit_unless_the_sender_is_late() {
    let p = |path: &Path, seed: u16| {
        let (sent, _) = run(path, &sending(vec![stream(seed, Pattern::Poisson, 10_000.0, 5_000)]));
        sent.flows[0].fit.unwrap().p
    };
    let quiet = (1..40).filter(|seed| p(&Path::constant(0), *seed) < 0.05).count();
    assert!(quiet <= 7, "{quiet} of 39 below 5 %");
    let late = Some(SenderLate { probability: 0.02, by_ns: 2_000_000 });
    assert!(p(&Path { sender_late: late, ..Path::constant(0) }, 1) < 1e-3);
}

#[test]
fn a_late_departure_makes_no_other_one_late() {
    let late = Some(SenderLate { probability: 0.1, by_ns: 20_000 });
    let (sent, _) =
        run(&Path { sender_late: late, ..Path::constant(0) }, &sending(vec![stream(1, Pattern::Regular, 1e4, 1_000)]));
    let out = &sent.flows[0];
    assert!((out.within_1us - 0.9).abs() < 0.04 && out.within_1us == out.within_10us, "{}", out.within_1us);
    assert_eq!(out.pacing_error.quantile(1.0).map(|ns| ns / 100), Some(200));
    assert!((out.achieved_pps / 1e4 - 1.0).abs() < 1e-3);
}

#[test]
fn packets_not_sent_in_time_are_unsent() {
    let mut send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 100), stream(2, Pattern::Regular, 500.0, 100)]);
    send.at_most = Some(Nanos::micros(20_500));
    let (sent, received) = run(&Path::constant(5), &send);
    let told: Vec<_> = sent.flows.iter().map(|flow| (flow.counts.sent, flow.counts.unsent)).collect();
    assert_eq!(told, [(21, 79), (11, 89)]);
    assert_eq!((received.flows[0].counts.first, received.flows[1].counts.first), (21, 11));
    let stopped = simulate(&Path::constant(5), &send, &receiving(&send, 1), &AtomicBool::new(true)).unwrap();
    assert_eq!((stopped.0.flows[0].counts.sent, stopped.0.flows[0].counts.unsent), (0, 100));
}

#[test]
fn receivers_of_a_group_are_counted_by_node() {
    let mut send = sending(vec![stream(1, Pattern::Regular, 100.0, 50)]);
    send.answers_late_after = Some(Nanos::millis(100));
    let mut receive = receiving(&send, 3);
    for (node, port) in receive.ports.iter_mut().enumerate() {
        port.answer = Some(Answering { node: node as u8 + 1, payload_bytes: 46 });
    }
    let (sent, received) = simulate(&Path { loss: 0.2, ..Path::constant(700) }, &send, &receive, &RUNNING).unwrap();
    let answers = sent.answers.unwrap();
    assert_eq!(answers.flows.iter().map(|flow| flow.node).collect::<Vec<_>>(), {
        let mut nodes: Vec<_> = answers.flows.iter().map(|flow| flow.node).collect();
        nodes.sort_unstable();
        nodes
    });
    for node in 1..=3_u8 {
        let there = &received.flows[usize::from(node) - 1];
        let back = answers.flows.iter().find(|flow| flow.node == node).unwrap();
        assert_eq!((there.counts.packets(), back.counts.packets()), (50, 50));
        assert_eq!(back.counts.first, there.counts.first, "answers are not lost on the way back");
        assert_eq!(back.delay.mean(), Some(1_400.0));
    }
}

#[test]
fn several_ports_send_to_one_receiver() {
    let mut flows: Vec<_> = (1..=6).map(|flow| stream(flow, Pattern::Poisson, 2_000.0, 300)).collect();
    flows.iter_mut().enumerate().for_each(|(port, flow)| flow.port = port);
    let (sent, received) = run(&Path::constant(100), &sending(flows));
    assert!(sent.flows.iter().all(|flow| flow.counts.sent == 300));
    assert!(received.flows.iter().all(|flow| flow.counts.first == 300));
    assert!(sent.rows.is_sorted_by_key(|row| row.intended));
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let path = Path { loss: 0.1, reorder: 0.1, reorder_ns: 1_000_000, seed: 3, ..Path::constant(100) };
    let send = sending(vec![stream(1, Pattern::Poisson, 1e4, 500)]);
    let (one, other) = (run(&path, &send), run(&path, &send));
    assert_eq!((&one.0.rows, &one.1.rows), (&other.0.rows, &other.1.rows));
    let third = run(&path, &SendRequest { block: 2, ..send });
    assert_ne!(one.1.rows, third.1.rows);
}

#[test]
fn end_message_is_repeated_until_acknowledged() {
    let conclude = |path: &Path| {
        let send = sending(vec![stream(7, Pattern::Regular, 1e4, 1)]);
        let receiver = Receiver::new(&receiving(&send, 1));
        let line = Rc::new(RefCell::new(Line::new(path, 1, receiver, 1, 1).unwrap()));
        let clock = NearClock::new(Rc::clone(&line));
        let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
        let end = End { sent: 3, next: None, clock: None, pacing_error_ns: None, of: None };
        let heard = driver::conclude(
            &mut near,
            &clock,
            driver::Ended { head: head(), key: KEY, flow: 7, auth: &Auth::default() },
            &end,
            Nanos::millis(10),
        )
        .unwrap();
        let outcome = line.borrow_mut().finish(&[]);
        (heard, outcome.flows[0].counts.lost, clock.now())
    };
    assert_eq!(conclude(&Path::constant(1_000)), (true, 3, Time(2_000)));
    let (heard, lost, at) = conclude(&Path { loss: 1.0, ..Path::constant(1_000) });
    assert_eq!((heard, lost), (false, 0));
    assert!(at >= Time(50_000_000), "{at:?}");
}

#[test]
fn receiver_is_greeted_until_it_replies_and_counts_one_sender_per_flow() {
    let send = sending(vec![stream(7, Pattern::Regular, 1e4, 1)]);
    let request = ReceiveRequest { senders: Senders::Greeting { secret: [9; 32] }, ..receiving(&send, 1) };
    let greet = |path: &Path, senders: &[(SessionKey, u16)]| {
        let line = Rc::new(RefCell::new(Line::new(path, 1, Receiver::new(&request), 1, 1).unwrap()));
        let clock = NearClock::new(Rc::clone(&line));
        let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
        let greet = |(key, flow): &(SessionKey, u16)| {
            let greeting =
                driver::Greeting { head: head(), key: *key, flow: *flow, auth: &Auth::default(), is_group: false };
            driver::greet(&mut near, &clock, greeting, Nanos::seconds(2), &RUNNING).unwrap()
        };
        let said: Vec<_> = senders.iter().map(greet).collect();
        let said: Vec<_> = said.iter().map(|said| (said.receivers(), said.refusal)).collect();
        (said, clock.now(), line.borrow_mut().finish(&[]).ports[0].unexpected.greetings)
    };
    let (first, second) = (KEY, SessionKey(8));
    let (said, at, _) = greet(&Path::constant(1_000), &[(first, 7)]);
    assert_eq!((said, at), (vec![(1, None)], Time(4_000)), "there and back, twice");
    let (said, _, refused) = greet(&Path::constant(1_000), &[(first, 7), (second, 7), (second, 8), (first, 7)]);
    let refusals = [None, Some(GreetingWord::Taken), Some(GreetingWord::NoSuchFlow), None];
    assert_eq!((said, refused), (refusals.map(|word| (usize::from(word.is_none()), word)).to_vec(), 2));
    for seed in 0..20 {
        let (said, ..) = greet(&Path { loss: 0.3, seed, ..Path::constant(300_000_000) }, &[(first, 7)]);
        assert_eq!(said, [(1, None)], "a far and lossy path, seed {seed}");
    }
    let (said, at, _) = greet(&Path { loss: 1.0, ..Path::constant(1_000) }, &[(first, 7)]);
    assert_eq!(said, [(0, None)]);
    assert!((Time(2_000_000_000)..Time(2_100_000_000)).contains(&at), "{at:?}");
}

#[test]
fn shared_key_does_not_change_results_and_excludes_other_senders() {
    let key = |secret: &[u8]| Auth::from(Some(Key::new(secret).unwrap()));
    let (ours, theirs) = (key(b"0123456789abcdef"), key(b"0123456789abcdeF"));
    let mut send = sending(vec![stream(7, Pattern::Regular, 1e4, 100)]);
    send.sync = Some(SyncRequest { flows: vec![0], before: 20, during: None, after: 5, spacing: Nanos::millis(1) });
    let plain = run(&Path::constant(1_000), &send);
    let with = |sender: &Auth, receiver: &Auth| {
        let send = SendRequest { auth: sender.clone(), ..send.clone() };
        let receive = ReceiveRequest { auth: receiver.clone(), ..receiving(&send, 1) };
        let (sent, received) = simulate(&Path::constant(1_000), &send, &receive, &RUNNING).unwrap();
        (sent.exchanges, received.flows[0].counts.first, received.ports[0].unexpected.exchanges)
    };
    assert_eq!(with(&ours, &ours), (plain.0.exchanges, 100, 0));
    for (sender, receiver) in [(&ours, &theirs), (&theirs, &ours), (&Auth::default(), &ours)] {
        assert_eq!(with(sender, receiver), (Vec::new(), 100, 25));
    }
    // Packets carry no tag; a greeting or an end without a valid tag is ignored.
    for (sender, receiver, is_heard) in
        [(&ours, &ours, true), (&theirs, &ours, false), (&Auth::default(), &ours, false)]
    {
        let request = ReceiveRequest {
            senders: Senders::Greeting { secret: [9; 32] },
            auth: receiver.clone(),
            ..receiving(&send, 1)
        };
        let path = Path::constant(1_000);
        let line = Rc::new(RefCell::new(Line::new(&path, 1, Receiver::new(&request), 1, 1).unwrap()));
        let clock = NearClock::new(Rc::clone(&line));
        let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
        let greeting = driver::Greeting { head: head(), key: KEY, flow: 7, auth: sender, is_group: false };
        let greeted = driver::greet(&mut near, &clock, greeting, Nanos::seconds(1), &RUNNING).unwrap();
        let ended = driver::Ended { head: head(), key: KEY, flow: 7, auth: sender };
        let end = End { sent: 3, next: None, clock: None, pacing_error_ns: None, of: None };
        let heard = driver::conclude(&mut near, &clock, ended, &end, Nanos::millis(10)).unwrap();
        assert_eq!((greeted.receivers() > 0, heard), (is_heard, is_heard));
    }
}

#[test]
fn each_receiver_of_a_group_is_greeted() {
    let send = sending(vec![stream(7, Pattern::Regular, 1e4, 1)]);
    let request = ReceiveRequest { senders: Senders::Greeting { secret: [9; 32] }, ..receiving(&send, 3) };
    let line = Rc::new(RefCell::new(Line::new(&Path::constant(1_000), 1, Receiver::new(&request), 3, 1).unwrap()));
    let clock = NearClock::new(Rc::clone(&line));
    let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
    let greeting = driver::Greeting { head: head(), key: KEY, flow: 7, auth: &Auth::default(), is_group: true };
    let said = driver::greet(&mut near, &clock, greeting, Nanos::seconds(2), &RUNNING).unwrap();
    // Three ports of one receiver, which has a single cookie for one sender.
    assert_eq!((said.receivers(), said.refusal), (1, None));
    assert!((Time(300_000_000)..Time(400_000_000)).contains(&clock.now()), "listens for others {:?}", clock.now());
    // Each port gets four greetings to all, and the cookie once, no matter which port's reply returned it.
    let heard: Vec<_> = line.borrow_mut().finish(&[]).ports.iter().map(|port| port.control).collect();
    assert_eq!(heard, [5, 5, 5]);
}

#[test]
fn stopped_sender_sends_no_more_greetings() {
    let send = sending(vec![stream(7, Pattern::Regular, 1e4, 1)]);
    let receiver = Receiver::new(&receiving(&send, 1));
    let path = Path { loss: 1.0, ..Path::constant(1_000) };
    let line = Rc::new(RefCell::new(Line::new(&path, 1, receiver, 1, 1).unwrap()));
    let clock = NearClock::new(Rc::clone(&line));
    let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
    let greeting = driver::Greeting { head: head(), key: KEY, flow: 7, auth: &Auth::default(), is_group: false };
    let said = driver::greet(&mut near, &clock, greeting, Nanos::seconds(2), &AtomicBool::new(true)).unwrap();
    assert_eq!((said.receivers(), clock.now()), (0, Time(0)));
}

#[test]
fn paths_round_trip_as_json_and_wrong_ones_are_refused_by_key() {
    let text = r#"{"delay":{"constant_ns":5},"serialiser":{"rate_bps":1e9,"queue_frames":100},
        "bursty_loss":{"p":0.1,"r":0.5},
        "clocks":{"receiver":{"skew_ppm":20.0,"temperature":{"amplitude_ppm":1,"period_s":60}}}}"#;
    let path: Path = serde_json::from_str(text).unwrap();
    assert_eq!(path.check(), Ok(()));
    assert_eq!(path.bursty_loss.unwrap().k, 1.0);
    assert_eq!(serde_json::from_str::<Path>(&serde_json::to_string(&path).unwrap()).unwrap(), path);
    assert!(serde_json::from_str::<Path>(r#"{"delay":{"constant_ns":5},"los":1}"#).is_err());
    let wrong = Path { loss: 1.5, ..Path::constant(0) };
    assert_eq!(wrong.check().unwrap_err().to_string(), "path: loss is 1.5; expected a probability from 0 to 1");
    let both = Serialiser { rate_bps: Some(1.0), rate_pps: Some(1.0), queue_frames: 0 };
    assert!(Path { serialiser: Some(both), ..Path::constant(0) }.check().is_err());
    assert!(
        Path {
            clocks: Clocks { receiver: Skewed { skew_ppm: f64::NAN, ..Skewed::default() }, ..Clocks::default() },
            ..Path::constant(0)
        }
        .check()
        .is_err()
    );
}

#[test]
fn maximum_rate_stream_waits_for_its_start() {
    let (sent, _) = run(&Path::constant(5), &sending(vec![stream(1, Pattern::Flood, 0.0, 10)]));
    assert_eq!((sent.started, sent.flows[0].first), (Time(1_000_000), Some(Time(1_000_000))));
}

#[test]
fn missing_replies_are_counted_only_at_the_port_that_sent_the_stream() {
    let mut flows: Vec<_> = (1..=2).map(|flow| stream(flow, Pattern::Regular, 1_000.0, 20)).collect();
    flows[1].port = 1;
    let send = SendRequest { answers_late_after: Some(Nanos::millis(100)), ..sending(flows) };
    let mut receive = receiving(&send, 1);
    receive.ports[0].answer = Some(Answering { node: 1, payload_bytes: 46 });
    let (sent, _) = simulate(&Path::constant(700), &send, &receive, &RUNNING).unwrap();
    let told: Vec<_> =
        sent.answers.unwrap().flows.iter().map(|f| (f.port, f.flow, f.counts.first, f.counts.lost)).collect();
    assert_eq!(told, [(0, 1, 20, 0), (0, 2, 0, 0), (1, 1, 0, 0), (1, 2, 20, 0)]);
}

#[test]
fn unread_frames_do_not_delay_the_sender() {
    let send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 20)]);
    let mut receive = receiving(&send, 1);
    receive.ports[0].answer = Some(Answering { node: 1, payload_bytes: 46 });
    let (sent, _) = simulate(&Path::constant(700), &send, &receive, &RUNNING).unwrap();
    assert_eq!((sent.flows[0].counts.sent, sent.flows[0].within_1us), (20, 1.0));
}

#[test]
fn clock_set_back_during_the_clock_exchanges_ends_them() {
    let step = Some(ClockStep { at_ns: 50_000_000, by_ns: -3_600_000_000_000 });
    let clocks = Clocks { sender: Skewed { step, ..Skewed::default() }, ..Clocks::default() };
    let path = Path { clocks, ..Path::constant(1_000) };
    let mut send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 10)]);
    send.sync = Some(SyncRequest { flows: vec![0], before: 50, during: None, after: 9, spacing: Nanos::millis(2) });
    let (sent, _) = run(&path, &send);
    assert_eq!((sent.flows[0].counts.sent, sent.flows[0].counts.unsent), (0, 10));
    assert!(sent.ended < Time(0), "{:?}", sent.ended);
    let receiver = Receiver::new(&receiving(&send, 1));
    let line = Rc::new(RefCell::new(Line::new(&Path { loss: 1.0, ..path }, 1, receiver, 1, 1).unwrap()));
    let clock = NearClock::new(Rc::clone(&line));
    let mut near = Near::new(Rc::clone(&line), 0, Framing::Ethernet);
    let end = End { sent: 3, next: None, clock: None, pacing_error_ns: None, of: None };
    assert!(
        !driver::conclude(
            &mut near,
            &clock,
            driver::Ended { head: head(), key: KEY, flow: 7, auth: &Auth::default() },
            &end,
            Nanos::millis(20)
        )
        .unwrap()
    );
    assert!(clock.now() < Time(0), "{:?}", clock.now());
}

/// Extreme numbers that JSON and the checks of single keys allow: the simulation ends for any combination.
fn odd() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(-1),
        Just(i64::MAX),
        Just(i64::MIN),
        Just(32_000_000_000_000_000),
        Just(-32_000_000_000_000_000),
        any::<i64>(),
        0..1_000_000_i64
    ]
}

prop_compose! {
    fn odd_clock()(
        offset_ns in odd(), skew_ppm in -10_001.0..10_001.0_f64, drift_ppm_per_s in -11.0..11.0_f64,
        swings: bool, amplitude_ppm in -10_001.0..10_001.0_f64, period_s in prop_oneof![Just(1e-300), Just(1e300), 0.1..10.0_f64],
        steps: bool, at_ns in odd(), by_ns in odd(),
    ) -> Skewed {
        let temperature = swings.then_some(Sinusoid { amplitude_ppm, period_s });
        Skewed { offset_ns, skew_ppm, drift_ppm_per_s, temperature, step: steps.then_some(ClockStep { at_ns, by_ns }) }
    }
}

proptest! {
    #[test]
    fn a_path_of_any_numbers_is_simulated_to_its_end_or_refused(
        delay in odd(), back in odd(), per_byte_ns in prop_oneof![Just(0.0), Just(3.2e16), Just(f64::MAX), 0.0..100.0_f64],
        rate in prop_oneof![Just(None), Just(Some(1e-300)), Just(Some(1e300)), (1.0..1e9_f64).prop_map(Some)], by_bits: bool,
        queue_frames in prop_oneof![Just(0), Just(usize::MAX), 0..10_usize],
        (duplicate, reorder, corrupt, loss) in (0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, 0.0..0.5_f64),
        (reorder_ns, send_ns, late) in (odd(), odd(), odd()), (sender, receiver, shared) in (odd_clock(), odd_clock(), any::<bool>()),
        seed: u64,
    ) {
        let serialiser = rate.map(|rate| Serialiser {
            rate_bps: by_bits.then_some(rate),
            rate_pps: (!by_bits).then_some(rate),
            queue_frames,
        });
        let path = Path {
            delay_backward: Some(Delay::Constant(back)),
            per_byte_ns, serialiser, duplicate, reorder, corrupt, loss, reorder_ns, send_ns, seed,
            clocks: Clocks { sender, receiver, shared },
            sender_late: Some(SenderLate { probability: 0.5, by_ns: late }),
            ..Path::constant(delay)
        };
        let send = sending(vec![stream(1, Pattern::Regular, 1_000.0, 20)]);
        if let Ok((sent, received)) = simulate(&path, &send, &receiving(&send, 1), &RUNNING) {
            // A clock that is set back by more than it had run leaves packets unsent.
            let counts = sent.flows[0].counts;
            prop_assert_eq!((counts.refused, counts.sent + counts.unsent), (0, 20));
            prop_assert!(counts.unsent == 0 || sender.step.is_some(), "{counts:?}");
            prop_assert!(received.flows.len() <= 1);
        }
    }
}
