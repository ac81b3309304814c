//! Queue management in a closed loop with responsive senders: the resulting delay, shares and losses.

mod queue_link;

use queue_link::discipline;
use queue_link::tcp::{Kind, Network, Seen};
use sojourn_emulate::config::{Aqm, Codel, FqCodel, Limit, Pie, Queue, Red, Scheduler};
use sojourn_emulate::select::Ecn;
use sojourn_time::{Nanos, Time};

const RATE: u64 = 20_000_000;
const RENO: (Kind, Nanos) = (Kind::Reno(Ecn::NotCapable), Nanos::millis(40));

/// The serialisation time of a full packet, in nanoseconds.
const FULL: f64 = 1514.0 * 8e9 / RATE as f64;

#[test]
fn pie_keeps_the_delay_at_its_target() {
    for (target, flows) in [(15, 10), (15, 30), (30, 20), (50, 20)] {
        let aqm = Aqm::Pie(Pie { target: Nanos::millis(target), ..Pie::default() });
        let seen = run(Queue { aqm: Some(aqm), ..Queue::default() }, &vec![RENO; flows]);
        let delay = mean_wait(&seen) / 1e6;
        println!(
            "PIE, target {target} ms, {flows} flows: {delay:.2} ms, {:.4} used, {:.4} lost",
            used(&seen),
            lost(&seen)
        );
        assert!((delay / target as f64 - 1.0).abs() < 0.2, "{delay} for {target}");
        assert!(used(&seen) > 0.97);
    }
    let without = mean_wait(&run(Queue::default(), &[RENO; 10])) / 1e6;
    assert!(without > 100.0, "a queue that nobody manages must fail this test: {without}");
}

#[test]
fn pie_marks_instead_of_losing() {
    let aqm = Aqm::Pie(Pie { ecn: true, ..Pie::default() });
    let ecn = (Kind::Reno(Ecn::Ect0), Nanos::millis(40));
    let seen = run(Queue { aqm: Some(aqm), ..Queue::default() }, &[ecn; 10]);
    let marked: u64 = seen.iter().map(|seen| seen.marked).sum();
    println!("{marked} marked, {} lost", lost(&seen));
    assert!(marked > 1000 && lost(&seen) == 0.0);
    assert!((mean_wait(&seen) / 15e6 - 1.0).abs() < 0.2);
}

#[test]
fn codel_keeps_the_minimum_delay_near_its_target() {
    let seen = run(Queue { aqm: Some(Aqm::Codel(Codel::default())), ..Queue::default() }, &[RENO; 5]);
    let delay = mean_wait(&seen) / 1e6;
    println!("CoDel: {delay:.2} ms, {:.4} used", used(&seen));
    assert!((2.0..12.0).contains(&delay) && used(&seen) > 0.9, "{delay}");
}

#[test]
fn red_keeps_the_average_queue_between_its_thresholds() {
    let red = Red { weight: 0.002, min: 20.0, max: 80.0, max_p: 0.05, gentle: true, in_bytes: false, ecn: false };
    let seen = run(Queue { aqm: Some(Aqm::Red(red)), ..Queue::default() }, &[RENO; 20]);
    let slots = mean_wait(&seen) / FULL;
    println!("RED: {slots:.1} packets");
    assert!((20.0..80.0).contains(&slots), "{slots}");
}

#[test]
fn fq_codel_sends_a_sparse_flow_at_once() {
    // Eight senders that fill the link, and one packet every 5 ms, which waits at most for the packet that is being sent.
    let mut senders = vec![RENO; 8];
    senders.push((Kind::Steady(Ecn::NotCapable, 5_000_000), Nanos::ZERO));
    let fq = Queue {
        scheduler: Scheduler::FqCodel(FqCodel { codel: Codel::default(), ..FqCodel::default() }),
        ..Queue::default()
    };
    let seen = run(fq, &senders);
    println!("FQ-CoDel: sparse p99 {} ns, worst {} ns", seen[8].wait(0.99), seen[8].wait(1.0));
    assert_eq!(seen[8].lost, 0);
    assert!(seen[8].wait(1.0) as f64 <= FULL + 1.0, "{}", seen[8].wait(1.0));
    let fifo = run(Queue { aqm: Some(Aqm::Codel(Codel::default())), ..Queue::default() }, &senders);
    assert!(fifo[8].wait(0.99) as f64 > 4.0 * FULL, "a FIFO must fail this test: {}", fifo[8].wait(0.99));
}

#[test]
fn fq_codel_isolates_from_a_flood() {
    // One sender at twice the link's rate; four others still get their fifths.
    let mut senders = vec![RENO; 4];
    senders.push((Kind::Flood((FULL / 2.0) as i64), Nanos::ZERO));
    let codel = Codel::default();
    let fq = Queue {
        scheduler: Scheduler::FqCodel(FqCodel { codel, limit: 1000, ..FqCodel::default() }),
        ..Queue::default()
    };
    let seen = run(fq, &senders);
    let total: u64 = seen.iter().map(|seen| seen.bytes).sum();
    let shares: Vec<_> = seen.iter().map(|seen| seen.bytes as f64 / total as f64).collect();
    println!("FQ-CoDel: {shares:.3?}");
    assert!(shares[..4].iter().all(|share| (share - 0.2).abs() < 0.02), "{shares:?}");
    let fifo = run(Queue { aqm: Some(Aqm::Codel(codel)), ..Queue::default() }, &senders);
    let flood = bytes(&fifo[4..]) / bytes(&fifo);
    assert!(flood > 0.8, "a FIFO must fail this test: {flood}");
}

#[test]
fn dual_pi2_keeps_low_latency_low() {
    let (classic, low) = dual(Nanos::millis(1), 5, 5);
    let worst = low.iter().map(|seen| seen.wait(0.99)).max().unwrap_or_default() as f64 / 1e6;
    let ratio = bytes(&classic) / bytes(&low);
    println!("DualPI2: classic {:.2} ms, low latency p99 {worst:.3} ms, bytes {ratio:.2}", mean_wait(&classic) / 1e6);
    assert!((mean_wait(&classic) / 15e6 - 1.0).abs() < 0.1);
    assert!(worst < 1.5, "{worst}");
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
}

#[test]
fn dual_pi2_couples_the_probabilities_by_the_square_root() {
    // With a step that is never reached, marks come only from the coupling: p_L = k √p_C; slightly less over time, as
    // the mean of a root is less than the root of the mean.
    for (few, many) in [(5, 5), (2, 8), (8, 2)] {
        let (classic, low) = dual(Nanos::millis(100), few, many);
        let (p_classic, p_low) = (lost(&classic), marked(&low));
        let ratio = bytes(&classic) / bytes(&low) * many as f64 / few as f64;
        println!("p_C {p_classic:.5}, p_L {p_low:.4}, 2 root p_C {:.4}, a flow's {ratio:.2}", 2.0 * p_classic.sqrt());
        assert!((p_low / (2.0 * p_classic.sqrt()) - 0.93).abs() < 0.07, "{p_low} {p_classic}");
        assert!((0.6..1.7).contains(&ratio), "{ratio}");
    }
}

#[test]
fn dual_pi2_protects_the_classic_queue_from_a_flood_of_low_latency() {
    // Both are unresponsive: the low-latency sender alone would fill the link four times, the classic one once. Marks
    // do not help any more, so both have the same losses.
    let senders = [(Kind::Flood(FULL as i64), Nanos::ZERO), (Kind::Steady(Ecn::Ect1, 20_000), Nanos::ZERO)];
    let seen = run(dual_queue(Nanos::millis(1)), &senders);
    let share = bytes(&seen[..1]) / bytes(&seen);
    println!("classic share {share:.4}, low-latency lost {:.3}, marked {:.3}", lost(&seen[1..]), marked(&seen[1..]));
    assert!((share - 0.2).abs() < 0.02, "{share}");
    assert!(marked(&seen[1..]) > 0.999);
}

fn dual_queue(step: Nanos) -> Queue {
    Queue { scheduler: Scheduler::DualPi2 { target: Nanos::millis(15), step, coupling: 2.0 }, ..Queue::default() }
}

/// Runs a number of classic and of scalable senders.
fn dual(step: Nanos, classic: usize, scalable: usize) -> (Vec<Seen>, Vec<Seen>) {
    let mut senders = vec![RENO; classic];
    senders.extend(vec![(Kind::Scalable, Nanos::millis(40)); scalable]);
    let mut seen = run(dual_queue(step), &senders);
    let low = seen.split_off(classic);
    (seen, low)
}

fn bytes(seen: &[Seen]) -> f64 {
    seen.iter().map(|seen| seen.bytes).sum::<u64>() as f64
}

/// Runs for a minute, of which the last 45 s are evaluated.
fn run(queue: Queue, senders: &[(Kind, Nanos)]) -> Vec<Seen> {
    let limit = Limit { slots: Some(1000), bytes: None };
    let queue = discipline(&queue, limit, Some(RATE));
    Network::new(queue, RATE, senders).run(Time(15_000_000_000), Time(60_000_000_000))
}

fn mean_wait(seen: &[Seen]) -> f64 {
    let served: u64 = seen.iter().map(|seen| seen.served).sum();
    seen.iter().map(|seen| seen.mean_wait() * seen.served as f64).sum::<f64>() / served as f64
}

fn used(seen: &[Seen]) -> f64 {
    bytes(seen) * 8.0 / 45.0 / RATE as f64
}

fn lost(seen: &[Seen]) -> f64 {
    seen.iter().map(|seen| seen.lost).sum::<u64>() as f64 / seen.iter().map(|seen| seen.sent).sum::<u64>() as f64
}

fn marked(seen: &[Seen]) -> f64 {
    seen.iter().map(|seen| seen.marked).sum::<u64>() as f64 / seen.iter().map(|seen| seen.served).sum::<u64>() as f64
}
