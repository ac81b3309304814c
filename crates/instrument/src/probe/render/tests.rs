//! What a person and a program read, held to a line of known truth.

use std::sync::atomic::AtomicBool;

use sojourn_port::sim::{Hold, Line};
use sojourn_probe::{Kind, Shape, Simulated, To};
use sojourn_time::Wait;

use super::*;
use crate::probe::measure::Session;

const PLACE: Place = Place { cpu: None, is_real_time: false, nice: 0, wait: Wait::SleepThenSpin, is_locked: false };

fn request(line: Line, count: u32) -> Request {
    let to = To::Sim(Simulated { line: Box::new(line), carries: None });
    Request::new(0, to, Kind::Icmp, 56, Shape::regular(count, Nanos::millis(10), Nanos::seconds(1)))
}

fn measure(request: &Request) -> Measured {
    Session::new(PLACE, None).measure(request, &AtomicBool::new(false)).unwrap()
}

#[test]
fn a_person_reads_an_aligned_table() {
    let line = Line { hold: Some(Hold { every: 50, for_ns: 100_000 }), ..Line::constant(5_000, 6_250) };
    let request = request(line, 100);
    let measured = measure(&request);
    let expected = "\
icmp to a simulated line (sim): 64 ICMP bytes, regular schedule, every 10 ms
100 sent, 100 received, 0 lost (0.00 %, 95 % CI 0.00–3.70 %)

µs                        min        mean         p50         p90         p99         max          sd
rtt                    11.250      13.250      11.250      11.250     111.250     111.250      14.071
rtt from intended      11.250      13.250      11.250      11.250     111.250     111.250      14.071
rtt in user space      11.250      13.250      11.250      11.250     111.250     111.250      14.071
pacing error            0.000       0.000       0.000       0.000       0.000       0.000       0.000
timestamps: departures simulated, arrivals simulated; waiting: simulated
";
    assert_eq!(text(&request, &measured, &findings(&measured)), expected);
}

#[test]
fn percentiles_go_as_far_as_the_sample_allows() {
    let request = request(Line::constant(5_000, 5_000), 10_000);
    let measured = measure(&request);
    let text = text(&request, &measured, &[]);
    assert!(text.contains("p99.99"), "{text}");
    let json = json(&request, &measured, &[], &PLACE);
    assert_eq!(json["rtt"]["p99_9_ns"], 10_000);
}

#[test]
fn findings_are_told_beside_the_figures() {
    let line = Line {
        loss: 0.2,
        duplicate: 0.2,
        sender_late: Some(sojourn_port::sim::SenderLate { probability: 0.5, by_ns: 2_000_000 }),
        clock_step: Some(sojourn_port::sim::ClockStep { at_ns: 500_000_000, by_ns: 3_000_000 }),
        ..Line::constant(5_000, 5_000)
    };
    let request = request(line, 100);
    let measured = measure(&request);
    let found = findings(&measured);
    let names: Vec<_> = found.iter().map(|found| found.finding.name()).collect();
    assert_eq!(names, ["clock_stepped", "sender_late", "loss", "duplication"]);
    let json = json(&request, &measured, &found, &PLACE);
    assert_eq!(json["findings"][0]["severity"], "invalid");
    assert_eq!(json["lost"].as_u64().zip(json["received"].as_u64()).map(|(lost, got)| lost + got), Some(100));
}
