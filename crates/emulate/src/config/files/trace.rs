//! Parses link traces: mahimahi's opportunities, and tables of time, rate, delay and loss.

use std::path::Path;

use sojourn_time::Nanos;

use super::lines;
use crate::config::words::Dialect;
use crate::config::{Trace, TracePoint, units};

/// The maximum number of lines of a trace.
const MOST: usize = 4 << 20;

/// Reads a trace: mahimahi's if the first line is a number, otherwise a table with a header.
///
/// # Errors
/// Names the line that is wrong.
pub fn read(path: &Path, name: &str) -> Result<Trace, String> {
    super::read(path, |text| parse(text, name))
}

pub(super) fn parse(text: &str, name: &str) -> Result<Trace, String> {
    let (_, first) = lines(text).next().ok_or("there is nothing in it")?;
    if first.bytes().all(|byte| byte.is_ascii_digit()) { opportunities(text, name) } else { table(text, name) }
}

/// Parses a mahimahi trace: one line per packet of up to 1500 bytes that may leave, in ms since the start; the last line is the period.
fn opportunities(text: &str, name: &str) -> Result<Trace, String> {
    let mut at: Vec<Nanos> = Vec::new();
    for (number, line) in lines(text) {
        let refusal = || format!("line {number}: {line:?} is not a time in whole ms");
        let ms: u32 = line.parse().map_err(|_| refusal())?;
        let time = Nanos::millis(i64::from(ms));
        if at.last().is_some_and(|last| *last > time) {
            return Err(format!("line {number}: goes backwards, {ms} ms after a later time"));
        }
        at.push(time);
        if at.len() > MOST {
            return Err(format!("line {number}: more than {MOST} opportunities"));
        }
    }
    let period = at.last().copied().unwrap_or_default();
    if period == Nanos::ZERO {
        return Err("the last time must be above 0: it is the length of a round".to_owned());
    }
    Ok(Trace::Opportunities { at, period, file: name.to_owned() })
}

/// A column: its quantity, and the unit in its header ("" if each cell has its own).
struct Column {
    of: Of,
    unit: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Time,
    Rate,
    Delay,
    Loss,
}

/// Parses a table: a header with `time` and any of `rate`, `delay`, `loss` (with units, as `time_ms`), then a line per
/// point. A line `repeat,60s` sets the period.
fn table(text: &str, name: &str) -> Result<Trace, String> {
    let mut lines = lines(text);
    let (number, header) = lines.next().ok_or("there is nothing in it")?;
    let columns = columns(header).map_err(|why| format!("line {number}: {why}"))?;
    let mut points: Vec<TracePoint> = Vec::new();
    let mut period = None;
    for (number, line) in lines {
        let wrong = |why: String| format!("line {number}: {why}");
        let cells: Vec<&str> = cells(line).collect();
        if period.is_some() {
            return Err(wrong("nothing may follow repeat".to_owned()));
        }
        if let ["repeat", length] = cells[..] {
            period = Some(units::time(length).map_err(wrong)?);
            continue;
        }
        let point = point(&columns, &cells).map_err(wrong)?;
        if points.last().is_some_and(|last| last.at >= point.at) {
            return Err(wrong("goes backwards; times must rise".to_owned()));
        }
        points.push(point);
        if points.len() > MOST {
            return Err(wrong(format!("more than {MOST} lines")));
        }
    }
    finish(points, period, name)
}

fn finish(mut points: Vec<TracePoint>, period: Option<Nanos>, name: &str) -> Result<Trace, String> {
    let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) else {
        return Err("there is only a header in it".to_owned());
    };
    if period.is_some_and(|period| period <= last.at) {
        return Err("repeat must be later than the last time".to_owned());
    }
    if first.at > Nanos::ZERO {
        points.insert(0, TracePoint::default());
    }
    Ok(Trace::Points { points, period, file: name.to_owned() })
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split([',', ';', '\t']).map(str::trim)
}

fn columns(header: &str) -> Result<Vec<Column>, String> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in cells(header) {
        let lower = cell.to_ascii_lowercase();
        let (name, unit) = lower.split_once('_').unwrap_or((&lower, ""));
        let of = match name {
            "time" => Of::Time,
            "rate" => Of::Rate,
            "delay" => Of::Delay,
            "loss" => Of::Loss,
            _ => return Err(format!("{cell:?} is none of time, rate, delay, loss (with a unit, as time_ms)")),
        };
        if columns.iter().any(|column| column.of == of) {
            return Err(format!("{name} is there twice"));
        }
        columns.push(Column { of, unit: unit.to_owned() });
    }
    let has_time = columns.iter().any(|column| column.of == Of::Time);
    if has_time && columns.len() > 1 {
        Ok(columns)
    } else {
        Err("a header needs time, and rate, delay or loss".to_owned())
    }
}

fn point(columns: &[Column], cells: &[&str]) -> Result<TracePoint, String> {
    if cells.len() != columns.len() {
        return Err(format!("{} cells where the header has {}", cells.len(), columns.len()));
    }
    let mut point = TracePoint::default();
    for (column, cell) in columns.iter().zip(cells) {
        if cell.is_empty() && column.of != Of::Time {
            continue;
        }
        let is_bare =
            cell.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
        let unit = if is_bare { column.unit.as_str() } else { "" };
        match column.of {
            Of::Time => point.at = units::time(&format!("{cell}{unit}"))?,
            Of::Delay => point.delay = Some(units::time(&format!("{cell}{unit}"))?),
            // In a file's header bps means bits per second, as in our records.
            Of::Rate => point.rate_bps = Some(units::rate_in(&format!("{cell}{unit}"), Dialect::Dummynet)?),
            Of::Loss => point.loss = Some(share(cell, unit)?),
        }
    }
    Ok(point)
}

fn share(cell: &str, unit: &str) -> Result<f64, String> {
    match unit {
        "percent" | "%" => units::percentage(&format!("{cell}%")),
        "fraction" => units::fraction(cell),
        _ => units::percentage(cell),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mahimahi_trace_is_parsed() {
        let Trace::Opportunities { at, period, .. } = parse("0\n1\n1\n12\n", "up").unwrap() else { panic!("a table") };
        assert_eq!(at, [0, 1, 1, 12].map(Nanos::millis));
        assert_eq!(period, Nanos::millis(12));
        assert_eq!(parse("5\n4\n", "up").unwrap_err(), "line 2: goes backwards, 4 ms after a later time");
        assert_eq!(parse("0\n0\n", "up").unwrap_err(), "the last time must be above 0: it is the length of a round");
        assert!(parse("1\n99999999999999\n", "up").unwrap_err().starts_with("line 2"));
    }

    #[test]
    fn traces_with_too_many_lines_are_refused() {
        let Trace::Opportunities { at, .. } = parse(&"7\n".repeat(MOST), "up").unwrap() else { panic!("a table") };
        assert_eq!(at.len(), MOST);
        let refused = parse(&"7\n".repeat(MOST + 1), "up").unwrap_err();
        assert_eq!(refused, "line 4194305: more than 4194304 opportunities");
        let table = (0..=MOST).fold("time_us,loss\n".to_owned(), |text, at| text + &at.to_string() + ",0\n");
        assert_eq!(parse(&table, "up").unwrap_err(), "line 4194306: more than 4194304 lines");
    }

    #[test]
    fn table_of_rates_over_time_is_parsed() {
        let text = "time_ms, rate, delay_us, loss\n0, 10Mbit/s, 500, 1%\n20.5, , 1ms, \n100, 0, , 0\nrepeat, 1s\n";
        let Trace::Points { points, period, .. } = parse(text, "up").unwrap() else { panic!("mahimahi") };
        assert_eq!(period, Some(Nanos::seconds(1)));
        assert_eq!(
            points[0],
            TracePoint {
                at: Nanos::ZERO,
                rate_bps: Some(10_000_000),
                delay: Some(Nanos::micros(500)),
                loss: Some(0.01)
            }
        );
        assert_eq!(
            points[1],
            TracePoint { at: Nanos::micros(20_500), delay: Some(Nanos::millis(1)), ..TracePoint::default() }
        );
        assert_eq!((points[2].rate_bps, points[2].loss), (Some(0), Some(0.0)));
    }

    #[test]
    fn trace_that_starts_later_uses_the_values_of_the_pipe_until_then() {
        let Trace::Points { points, period, .. } = parse("time_s;rate_bps\n1;1000000\n", "up").unwrap() else {
            panic!("mahimahi")
        };
        assert_eq!(
            (points.len(), points[0], points[1].rate_bps, period),
            (2, TracePoint::default(), Some(1_000_000), None)
        );
    }

    #[test]
    fn error_names_what_is_wrong_with_a_table() {
        for (text, sentence) in [
            ("time,rate\n2s,1M\n1s,1M\n", "line 3: goes backwards; times must rise"),
            ("time,rate\n1s\n", "line 2: 1 cells where the header has 2"),
            ("time,colour\n", "line 1: \"colour\" is none of time, rate, delay, loss (with a unit, as time_ms)"),
            ("time\n1s\n", "line 1: a header needs time, and rate, delay or loss"),
            ("time,rate\n", "there is only a header in it"),
            ("time,rate\n0,1M\n5s,2M\nrepeat,5s\n", "repeat must be later than the last time"),
            ("time,time\n", "line 1: time is there twice"),
        ] {
            assert_eq!(parse(text, "up").unwrap_err(), sentence, "{text}");
        }
        assert!(parse("time,rate\n5,1M\n", "up").unwrap_err().contains("write 5ms, 5us, 5ns, 5s, 5min or 5h"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "((time|rate|delay|loss|time_ms)[,]?){1,4}\n([0-9.%a-z]{0,5}[,\n]){0,20}", any in ".{0,100}", numbers in "([0-9]{1,12}\n){0,9}") {
            for text in [text, any, numbers] {
                if let Ok(Trace::Points { points, .. }) = parse(&text, "x") {
                    prop_assert!(points[0].at == Nanos::ZERO && points.is_sorted_by(|a, b| a.at < b.at));
                }
            }
        }
    }
}
