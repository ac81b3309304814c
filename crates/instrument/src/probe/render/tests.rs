//! Tests of the text and the JSON output against a simulated line with known delays.

use std::sync::atomic::AtomicBool;

use sojourn_port::sim::{Hold, Line};
use sojourn_probe::respond::ClockState;
use sojourn_probe::{FarEnd, Kind, Shape, Simulated, To};
use sojourn_time::Wait;
use sojourn_wire::stamp::{Format, Scale};

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
fn report_is_an_aligned_table() {
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
    assert_eq!(text(&request, &measured, &findings(&request, &measured)), expected);
}

#[test]
fn highest_percentile_depends_on_the_sample_size() {
    let request = request(Line::constant(5_000, 5_000), 10_000);
    let measured = measure(&request);
    let text = text(&request, &measured, &[]);
    assert!(text.contains("p99.99"), "{text}");
    let json = json(&request, &measured, &[], &PLACE);
    assert_eq!(json["rtt"]["p99_9_ns"], 10_000);
}

#[test]
fn findings_are_printed_beside_the_figures() {
    let line = Line {
        loss: 0.2,
        duplicate: 0.2,
        sender_late: Some(sojourn_port::sim::SenderLate { probability: 0.5, by_ns: 2_000_000 }),
        clock_step: Some(sojourn_port::sim::ClockStep { at_ns: 500_000_000, by_ns: 3_000_000 }),
        ..Line::constant(5_000, 5_000)
    };
    let request = request(line, 100);
    let measured = measure(&request);
    let found = findings(&request, &measured);
    let names: Vec<_> = found.iter().map(|found| found.finding.name()).collect();
    assert_eq!(names, ["clock_stepped", "sender_late", "loss", "duplication"]);
    let json = json(&request, &measured, &found, &PLACE);
    assert_eq!(json["findings"][0]["severity"], "invalid");
    assert_eq!(json["lost"].as_u64().zip(json["received"].as_u64()).map(|(lost, got)| lost + got), Some(100));
}

/// Measures a block with a Poisson schedule, and alters the result by `alter`.
fn poisson(alter: impl Fn(&mut Measured)) -> (Value, String) {
    let mut request = request(Line::constant(5_000, 5_000), 400);
    request.shape.schedule = sojourn_probe::Schedule::Poisson;
    request.shape.seed = 7;
    let mut measured = measure(&request);
    alter(&mut measured);
    let found = findings(&request, &measured);
    (json(&request, &measured, &found, &PLACE), text(&request, &measured, &found))
}

#[test]
fn poisson_departures_are_tested_and_the_statistic_is_printed() {
    let (told, text) = poisson(|_| ());
    assert!(text.contains("the gaps as sent fit an exponential distribution (Anderson–Darling: A² = "), "{text}");
    assert!(text.contains("critical value 1.96 at 1 %, p = 0.") && text.contains(", n = 399)"), "{text}");
    assert_eq!(told["findings"], json!([]));
    assert!(told["anderson_darling"]["p"].as_f64().unwrap() > 0.01, "{told}");
    let (told, text) = poisson(|measured| {
        for (place, probe) in measured.probes.iter_mut().enumerate() {
            probe.departure.at = sojourn_time::Time(place as i64 * 10_000_000);
            probe.intended = probe.departure.at;
        }
    });
    assert_eq!(told["findings"][0]["name"], "poisson_misfit", "{text}");
    assert!(text.contains("note: the gaps as sent are not exponentially distributed (Anderson"), "{text}");
    let (told, text) = {
        let regular = request(Line::constant(5_000, 5_000), 400);
        let measured = measure(&regular);
        (json(&regular, &measured, &[], &PLACE), super::text(&regular, &measured, &[]))
    };
    assert!(told.get("anderson_darling").is_none() && !text.contains("Anderson"), "{text}");
}

/// A departure without a TX timestamp has the time of its send call; mixed with TX timestamps, that distorts the
/// inter-departure times.
#[test]
fn departures_without_tx_timestamps_are_excluded_from_the_poisson_test() {
    let late = |measured: &mut Measured| {
        for (place, probe) in measured.probes.iter_mut().enumerate() {
            probe.departure.source = if place % 2 == 0 { Source::Kernel } else { Source::User };
            // Simulates a driver that holds each frame for twenty intervals; half of the departures lack that delay.
            let held = if place % 2 == 0 { Nanos::millis(200) } else { Nanos::ZERO };
            probe.departure.at = probe.send_call + held;
        }
    };
    let (told, text) = poisson(late);
    assert_eq!(told["anderson_darling"]["source"], "user");
    assert!(text.contains("fit an exponential") && text.contains("; of the calls to send"), "{text}");
    assert!(!text.contains("poisson_misfit"), "{text}");
    let (told, text) = poisson(|measured| {
        (measured.block.counts.local_drops, measured.block.counts.sent) = (3, measured.block.counts.sent - 2);
    });
    assert!(told["anderson_darling"].is_null(), "{told}");
    assert!(text.contains("dropped 3 frames and did not send 2 of the probes"), "{text}");
    // Dropped replies leave all departures known.
    let (told, _) = poisson(|measured| measured.block.counts.local_drops = 3);
    assert_eq!(told["anderson_darling"]["n"], 399, "{told}");
}

/// Measures a session whose reflector's clock is off by `off`; returns JSON and text.
fn session(own: Scale, is_ptp: bool, off: Nanos, is_shared: bool) -> (Value, String) {
    let to = To::Sim(Simulated { line: Box::new(Line::constant(5_000, 6_250)), carries: None });
    let shape = Shape::regular(100, Nanos::millis(10), Nanos::seconds(1));
    let mut request = Request::new(0, to, Kind::RequestResponse, 56, shape);
    let mut measured = measure(&request);
    request.stamp.shared_clock = is_shared;
    for reply in measured.probes.iter_mut().filter_map(|probe| probe.reply.as_mut()) {
        reply.responder = reply.responder.map(|(arrived, left)| (arrived + off, left + off));
    }
    let mut far = FarEnd::default();
    far.is_ptp = is_ptp;
    measured.far = Some((far, ClockState::new(own, true, Nanos::micros(70))));
    let found = findings(&request, &measured);
    (json(&request, &measured, &found, &PLACE), text(&request, &measured, &found))
}

#[test]
fn one_way_delays_need_a_kernel_with_the_tai_offset() {
    for (format, tai_offset_s, is_ptp, is_shared, told) in [
        (Format::Ntp, 0, false, false, true),
        (Format::Ntp, 0, true, false, false),
        (Format::Ptp, 0, false, false, false),
        (Format::Ntp, 0, true, true, true),
        (Format::Ptp, 37, true, false, true),
    ] {
        let (json, text) = session(Scale { format, tai_offset_s }, is_ptp, Nanos::ZERO, is_shared);
        assert_eq!(json["one_way"].is_object(), told, "{text}");
        assert_eq!(text.contains("TAI"), !told, "{text}");
        assert_eq!(json["findings"], serde_json::json!([]));
    }
}

#[test]
fn negative_one_way_delays_are_a_finding_that_names_its_cause() {
    let utc = Scale { format: Format::Ntp, tai_offset_s: 37 };
    for (off, is_shared, why) in [
        (Nanos::seconds(-37), false, "does not explain them"),
        (Nanos::micros(40), false, "and that explains them"),
        (Nanos::micros(40), true, "--shared-clock"),
    ] {
        let (json, text) = session(utc, true, off, is_shared);
        assert_eq!(json["findings"][0]["name"], "negative_delay", "{text}");
        assert!(text.contains("doubtful: 100 delays there or back are negative") && text.contains(why), "{text}");
    }
    assert_eq!(session(utc, true, Nanos::micros(4), false).0["findings"], serde_json::json!([]));
}
