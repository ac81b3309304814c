//! Options of a flight recorder, parsed from strings of the command line or of a request: how much it keeps, and its triggers.

use serde_json::{Map, Value, json};
use sojourn_emulate::config::units;
use sojourn_tcplog::flight::{Flight, FlightOptions, Keep, NAMES, Triggers};
use sojourn_time::Nanos;
use sojourn_time::near::did_you_mean;

use super::arguments::FlightArguments;
use super::asked;
use crate::failure::WrongRequest;

/// The maximum number of samples per flow; a time span is limited by the memory for all flows.
const MOST: usize = 1 << 20;
/// An example of each trigger.
const WRITTEN: [&str; 6] = ["rto", "reset", "loss", "rtt>20ms", "rtt-last>20ms", "cwnd<10"];
/// A window is at least one segment, so a lower threshold would never trigger.
const LEAST_CWND: u32 = 2;

/// The columns that each trigger reads, in the order of [`NAMES`].
const LOOKS_AT: [&[&str]; 6] =
    [&["total_rto", "retransmits", "ca_state"], &[], &["total_retrans"], &["srtt_us"], &["rtt_last_us"], &["snd_cwnd"]];

/// Creates the requested flight recorder of a log with these fields.
///
/// # Errors
/// If a trigger is invalid, or needs a field that is not requested.
pub fn flight(asked: &FlightArguments, fields: &[String]) -> anyhow::Result<Option<Flight>> {
    let Some(keep) = asked.flight else { return Ok(None) };
    let on = triggers(&asked.flight_on)?;
    require(&asked.flight_on, fields)?;
    Ok(Some(Flight::new(FlightOptions { on, ..FlightOptions::keeping(keep) })))
}

/// Parses how much of each flow is kept: "100", "5s".
///
/// # Errors
/// If it is neither a number of samples nor a time span.
pub fn keep(text: &str) -> Result<Keep, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
        return number.map(Keep::Samples).ok_or_else(|| format!("expected 1 to {MOST} samples, or a time: 5s"));
    }
    match units::time(text)? {
        Nanos(1..) => units::time(text).map(Keep::Span),
        _ => Err("expected a time above 0".to_owned()),
    }
}

/// Returns the options for the header.
pub fn told(asked: &FlightArguments) -> [Value; 2] {
    let keep = match asked.flight {
        Some(Keep::Samples(most)) => json!(most),
        Some(Keep::Span(span)) => json!(units::time_text(span)),
        None => Value::Null,
    };
    [keep, json!(asked.flight.map(|_| &asked.flight_on))]
}

/// Returns the number of triggers by name, without those that did not occur; null without a recorder.
pub fn fired(flight: Option<&Flight>) -> Value {
    flight.map_or(Value::Null, |flight| {
        let fired = NAMES.into_iter().zip(flight.triggers()).filter(|(_, often)| *often > 0);
        fired.map(|(name, often)| (name.to_owned(), often.into())).collect::<Map<_, _>>().into()
    })
}

/// Refuses a trigger that needs fields which the log does not have.
fn require(words: &[String], fields: &[String]) -> anyhow::Result<()> {
    let asked = asked::field_set(fields)?;
    for word in words {
        let at = NAMES.iter().position(|name| *name == word.split(['<', '>']).next().unwrap_or_default());
        let columns = at.map_or(&[][..], |at| LOOKS_AT[at]);
        let missing: Vec<_> = columns.iter().copied().filter(|column| !asked.has(column)).collect();
        if !missing.is_empty() {
            let (fields, missing) = (fields.join(","), missing.join(","));
            let problem = format!(
                "--flight-on {word}: --fields {fields} leaves out {missing}, where it is seen: --fields {fields},{missing}"
            );
            return Err(WrongRequest(problem).into());
        }
    }
    Ok(())
}

/// Parses the triggers.
fn triggers(words: &[String]) -> anyhow::Result<Triggers> {
    let mut on = Triggers::default();
    for word in words {
        take(&mut on, word).map_err(|problem| WrongRequest(format!("--flight-on {word}: {problem}")))?;
    }
    Ok(on)
}

fn take(on: &mut Triggers, word: &str) -> Result<(), String> {
    let (name, threshold) = word.find(['<', '>']).map_or((word, ""), |at| word.split_at(at));
    match name {
        "rto" | "reset" | "loss" if !threshold.is_empty() => return Err(format!("{name} has no value")),
        "rto" => on.rto = true,
        "reset" => on.reset = true,
        "loss" => on.loss = true,
        "rtt" => set(&mut on.rtt_above, name, above(name, threshold)?)?,
        "rtt-last" => set(&mut on.rtt_last_above, name, above(name, threshold)?)?,
        "cwnd" => set(&mut on.cwnd_below, name, below(threshold)?)?,
        _ => return Err(format!("expected {}{}", WRITTEN.join(", "), did_you_mean(name, &NAMES))),
    }
    Ok(())
}

fn set<T>(threshold: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match threshold.replace(value) {
        Some(_) => Err(format!("{name} is named twice, and has one threshold")),
        None => Ok(()),
    }
}

fn above(name: &str, threshold: &str) -> Result<Nanos, String> {
    let value = threshold.strip_prefix('>');
    units::time(value.ok_or_else(|| format!("expected a value that it becomes larger than, in quotes: '{name}>20ms'"))?)
}

fn below(threshold: &str) -> Result<u32, String> {
    let value = threshold.strip_prefix('<');
    let value = value.ok_or("expected a number of segments that it becomes smaller than, in quotes: 'cwnd<10'")?;
    let number = value.parse().ok().filter(|number| *number >= LEAST_CWND);
    number.ok_or_else(|| format!("expected a whole number of segments from {LEAST_CWND}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Triggers, String> {
        let words: Vec<_> = words.split(',').map(str::to_owned).collect();
        triggers(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn each_trigger_is_parsed() {
        let all = Triggers {
            rtt_above: Some(Nanos::millis(20)),
            rtt_last_above: Some(Nanos::millis(20)),
            cwnd_below: Some(10),
            ..Triggers::EVENTS
        };
        assert_eq!(read(&WRITTEN.join(",")), Ok(all));
        let some = Triggers { rto: true, rtt_above: Some(Nanos::micros(1_500)), ..Triggers::default() };
        assert_eq!(read("rto,rtt>1.5ms"), Ok(some));
    }

    #[test]
    fn trigger_on_a_field_that_is_not_logged_is_refused() {
        let refused = |on: &str, fields: &[&str]| {
            let words = |words: &mut dyn Iterator<Item = &str>| words.map(str::to_owned).collect::<Vec<_>>();
            let flight_on = words(&mut on.split(','));
            let asked = FlightArguments { flight: Some(Keep::Samples(5)), flight_on };
            flight(&asked, &words(&mut fields.iter().copied())).err().map(|error| error.to_string())
        };
        assert_eq!(refused("rto,reset,loss", &[]), None);
        assert_eq!(refused("reset,rtt>20ms,cwnd<10", &["siftr"]), None);
        assert_eq!(refused("rto,loss", &["siftr", "total_retrans", "total_rto", "retransmits"]), None);
        assert_eq!(
            refused("rtt>1ms,rto", &["siftr"]).unwrap(),
            "--flight-on rto: --fields siftr leaves out total_rto,retransmits, where it is seen: --fields \
             siftr,total_rto,retransmits"
        );
        assert!(refused("rtt-last>20ms", &["siftr"]).unwrap().contains("leaves out rtt_last_us,"));
    }

    #[test]
    fn invalid_triggers_are_refused_in_one_sentence() {
        for (words, sentence) in [
            ("rain", "--flight-on rain: expected rto, reset, loss, rtt>20ms, rtt-last>20ms, cwnd<10"),
            ("rtt", "--flight-on rtt: expected a value that it becomes larger than, in quotes: 'rtt>20ms'"),
            ("rtt<20ms", "--flight-on rtt<20ms: expected a value that it becomes larger than"),
            ("rtt-last>20", "20 has no unit that I know"),
            ("cwnd>10", "--flight-on cwnd>10: expected a number of segments that it becomes smaller than"),
            ("cwnd<1", "--flight-on cwnd<1: expected a whole number of segments from 2"),
            ("rto>1s", "--flight-on rto>1s: rto has no value"),
            ("rtt>1ms,rtt>2ms", "--flight-on rtt>2ms: rtt is named twice"),
            ("cwmd<10", "did you mean \"cwnd\"?"),
        ] {
            let refused = read(words).unwrap_err();
            assert!(refused.contains(sentence), "{words}: {refused}");
        }
    }

    #[test]
    fn flight_recorder_keeps_a_number_of_samples_or_a_duration() {
        assert_eq!(keep("100"), Ok(Keep::Samples(100)));
        assert_eq!(keep(&MOST.to_string()), Ok(Keep::Samples(MOST)));
        assert_eq!(keep("1500ms"), Ok(Keep::Span(Nanos::millis(1_500))));
        for wrong in ["0", "0s", "-1", "5 parsecs", ""] {
            assert!(keep(wrong).is_err(), "{wrong}");
        }
        let refused = keep(&(MOST + 1).to_string());
        assert_eq!(refused, Err("expected 1 to 1048576 samples, or a time: 5s".to_owned()));
        let told_of = |flight| told(&FlightArguments { flight, flight_on: vec!["rto".to_owned()] });
        assert_eq!(told_of(Some(Keep::Span(Nanos::seconds(5)))), [json!("5s"), json!(["rto"])]);
        assert_eq!(told_of(Some(Keep::Samples(5))), [json!(5), json!(["rto"])]);
        assert_eq!(told_of(None), [Value::Null, Value::Null]);
    }
}
