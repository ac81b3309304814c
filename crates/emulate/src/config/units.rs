//! Parses and formats quantities: times, rates, sizes, probabilities.
//!
//! Times, rates and sizes are computed in integers: `1.1Gbit/s` is 1,100,000,000 bit/s. Fractions of a nanosecond, a
//! bit per second or a byte are rounded to the nearest. A number without a unit, or with a unit that tc and ipfw define
//! differently (`kbps`: bytes for tc, bits for ipfw), is refused unless the caller names the tool. Formatted values are
//! parsed back to exactly the same value.

use sojourn_time::Nanos;
pub use sojourn_time::text::time;
use sojourn_time::text::{split, time_in as time_of, too_large};

use super::words::Dialect;

/// Why a quantity was not understood: a clause of the message, with what to write instead.
pub type Refusal = String;

/// Parses a time in a tool's dialect: a bare number is milliseconds for dummynet, nanoseconds for current tc.
pub(super) fn time_in(text: &str, dialect: Dialect) -> Result<Nanos, Refusal> {
    let bare = match dialect {
        Dialect::Ours => None,
        Dialect::Dummynet => Some(1_000_000),
        Dialect::Netem => Some(1),
    };
    time_of(text, bare)
}

/// Parses a rate in bits per second: `10Mbit/s`, `512kbit`, `1.5GByte/s`, `10M`. A bare number is bits per second, as in both tools.
///
/// # Errors
/// Says what is wrong; refuses `kbps`, whose meaning differs between tc and ipfw.
pub fn rate(text: &str) -> Result<u64, Refusal> {
    rate_in(text, Dialect::Ours)
}

/// Parses a rate in a tool's dialect.
pub(super) fn rate_in(text: &str, dialect: Dialect) -> Result<u64, Refusal> {
    let (number, unit) = split(text).ok_or_else(|| format!("{text:?} is not a rate; write it as 10Mbit/s"))?;
    let (prefix, rest) = prefix_of(unit);
    let bits = bits_of(rest, dialect).ok_or_else(|| {
        if is_ambiguous(rest) {
            let letters = unit.strip_suffix(rest).unwrap_or_default();
            format!(
                "{text}: tc means bytes by {unit:?}, ipfw means bits; write {n}{letters}bit/s or {n}{letters}Byte/s",
                n = number.text
            )
        } else {
            format!("{unit:?} is not a unit of rate; write bit/s, Kbit/s, Mbit/s, Gbit/s or Byte/s")
        }
    })?;
    number.times(prefix * bits).and_then(|bps| u64::try_from(bps).ok()).ok_or_else(|| too_large(text))
}

/// Parses a size in bytes: `1500`, `1500B`, `30KB`, `256 MiB`. K, M and G are powers of 1024, as in tc and ipfw.
///
/// # Errors
/// Says what is wrong.
pub fn size(text: &str) -> Result<u64, Refusal> {
    let (number, unit) =
        split(text).ok_or_else(|| format!("{text:?} is not a size; write it as 1500B, 30KB or 256MB"))?;
    let unknown =
        || format!("{unit:?} is not a unit of size; write B, KB, MB or GB (1024 each, as tc and ipfw have them)");
    let factor = size_factor(unit).ok_or_else(unknown)?;
    number.times(factor).and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(|| too_large(text))
}

/// Parses a probability with a percent sign: `1%`, `0.1%`. Only 0 needs no sign.
///
/// # Errors
/// Says what is wrong; `0.01` is refused, because it means 0.01 % to tc and 1 % to dummynet.
pub fn percentage(text: &str) -> Result<f64, Refusal> {
    percentage_in(text, Dialect::Ours)
}

/// Parses a percentage in a dialect: tc needs no sign.
pub(super) fn percentage_in(text: &str, dialect: Dialect) -> Result<f64, Refusal> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let value = real(number).filter(|value| *value >= 0.0);
    let value = value.ok_or_else(|| format!("{text:?} is not a percentage; write it as 1% or 0.1%"))?;
    if number.len() == text.len() && dialect == Dialect::Ours && value != 0.0 {
        let percent = if text.contains(['e', 'E']) { (value * 100.0).to_string() } else { shifted(text, 2) };
        if value > 100.0 {
            return Err(format!("{text} has no percent sign, and {text}% is not from 0% to 100%"));
        }
        if value > 1.0 {
            return Err(format!("{text} has no percent sign: write {text}%"));
        }
        return Err(format!(
            "{text} has no percent sign: tc would take it for {text} %, dummynet's plr for {percent} %; write {text}% or {percent}%"
        ));
    }
    within_one(hundredth(number).unwrap_or(value / 100.0), text)
}

/// Parses a probability as dummynet's plr: a fraction from 0 to 1, or a percentage with its sign.
///
/// # Errors
/// Says what is wrong.
pub fn fraction(text: &str) -> Result<f64, Refusal> {
    if text.ends_with('%') {
        return percentage(text);
    }
    let value = real(text).ok_or_else(|| format!("{text:?} is not a probability; write it as 0.01 or 1%"))?;
    within_one(value, text)
}

/// Parses a finite number.
pub(super) fn real(text: &str) -> Option<f64> {
    let first = text.bytes().next()?;
    // `f64` also parses "inf" and "nan".
    (first.is_ascii_digit() || matches!(first, b'.' | b'-'))
        .then(|| text.parse().ok())
        .flatten()
        .filter(|v: &f64| v.is_finite())
}

/// Parses an integer.
pub(super) fn whole<N: std::str::FromStr>(text: &str) -> Result<N, Refusal> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number in range"))
}

/// Formats a time in its largest unit: `20ms`, `1.5us`.
pub fn time_text(time: Nanos) -> String {
    let sign = if time.0 < 0 { "-" } else { "" };
    format!("{sign}{}", in_largest(time.0.unsigned_abs(), ["ns", "us", "ms", "s"]))
}

/// Formats a rate in its largest unit: `10Mbit/s`.
pub fn rate_text(bps: u64) -> String {
    in_largest(bps, ["bit/s", "Kbit/s", "Mbit/s", "Gbit/s"])
}

/// Formats a size in bytes, or in the largest unit that divides it.
pub fn size_text(bytes: u64) -> String {
    for (shift, name) in [(30, "GB"), (20, "MB"), (10, "KB")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{name}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// Formats a probability as a percentage.
pub fn percentage_text(probability: f64) -> String {
    format!("{}%", shifted(&probability.to_string(), 2))
}

/// Splits a unit of rate into the factor of its prefix and the rest.
fn prefix_of(unit: &str) -> (u128, &str) {
    let power = match unit.as_bytes().first().map(u8::to_ascii_lowercase) {
        Some(b'k') => 1,
        Some(b'm') => 2,
        Some(b'g') => 3,
        Some(b't') => 4,
        _ => return (1, unit),
    };
    match unit[1..].strip_prefix(['i', 'I']).filter(|rest| !rest.is_empty()) {
        Some(rest) => (1024_u128.pow(power), rest),
        None => (1000_u128.pow(power), &unit[1..]),
    }
}

/// Returns the bits per unit of rate, without its prefix.
fn bits_of(rest: &str, dialect: Dialect) -> Option<u128> {
    match rest {
        // `B/s` with a capital B is bytes in every dialect.
        "B/s" => return Some(8),
        "" => return Some(1),
        _ => {}
    }
    match (rest.to_ascii_lowercase().as_str(), dialect) {
        ("bit" | "bits" | "bit/s" | "bits/s", _) => Some(1),
        ("byte/s" | "bytes/s" | "byte" | "bytes", _) => Some(8),
        ("bps", Dialect::Netem) => Some(8),
        ("bps", Dialect::Dummynet) => Some(if rest.starts_with('B') { 8 } else { 1 }),
        _ => None,
    }
}

fn is_ambiguous(rest: &str) -> bool {
    matches!(rest.to_ascii_lowercase().as_str(), "bps" | "b" | "b/s")
}

fn size_factor(unit: &str) -> Option<u128> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => Some(1),
        "k" | "kb" | "kib" | "kbyte" | "kbytes" => Some(1 << 10),
        "m" | "mb" | "mib" | "mbyte" | "mbytes" => Some(1 << 20),
        "g" | "gb" | "gib" | "gbyte" | "gbytes" => Some(1 << 30),
        _ => None,
    }
}

/// Parses a hundredth of a number exactly, if the number has no exponent.
fn hundredth(number: &str) -> Option<f64> {
    (!number.contains(['e', 'E'])).then(|| format!("{number}e-2").parse().ok()).flatten()
}

fn within_one(value: f64, text: &str) -> Result<f64, Refusal> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("{text} is not from 0% to 100%")) }
}

/// Formats a value in full, in the largest of units that differ by factors of 1000.
fn in_largest(value: u64, names: [&str; 4]) -> String {
    let step = (value.max(1).ilog10() / 3).min(3);
    let (unit, digits) = (1000_u64.pow(step), 3 * step as usize);
    let fraction = format!(".{:0digits$}", value % unit);
    format!("{}{}{}", value / unit, fraction.trim_end_matches('0').trim_end_matches('.'), names[step as usize])
}

/// Moves the decimal point of a plain number to the right.
fn shifted(number: &str, places: usize) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let padded = format!("{fraction:0<places$}");
    let (up, rest) = padded.split_at(places);
    let whole = format!("{whole}{up}");
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_parsed_exactly() {
        assert_eq!(time("1.5us"), Ok(Nanos(1_500)));
        assert_eq!(time("20ms"), Ok(Nanos::millis(20)));
        assert_eq!(time("0.1s"), Ok(Nanos::millis(100)));
        assert_eq!(time("1e-3 s"), Ok(Nanos::millis(1)));
        assert_eq!(time("2min"), Ok(Nanos::seconds(120)));
        assert_eq!(time("0"), Ok(Nanos::ZERO));
        assert_eq!(time("0.4999ns"), Ok(Nanos::ZERO));
        assert_eq!(time("0.5ns"), Ok(Nanos(1)));
        assert_eq!(time("3.141592653589793s"), Ok(Nanos(3_141_592_654)));
    }

    #[test]
    fn times_without_a_unit_have_the_unit_of_the_tool_or_are_refused() {
        assert_eq!(time_in("20", Dialect::Dummynet), Ok(Nanos::millis(20)));
        assert_eq!(time_in("20", Dialect::Netem), Ok(Nanos(20)));
        assert_eq!(time("20").unwrap_err(), "20 has no unit that I know; write 20ms, 20us, 20ns, 20s, 20min or 20h");
        assert!(time("99999999999h").unwrap_err().contains("too large"));
    }

    #[test]
    fn rates_have_the_meaning_of_each_tool() {
        assert_eq!(rate("1.1Gbit/s"), Ok(1_100_000_000));
        assert_eq!(rate("10Mbit/s"), Ok(10_000_000));
        assert_eq!(rate("100000000bit/s"), Ok(100_000_000));
        assert_eq!(rate("512kbit"), Ok(512_000));
        assert_eq!(rate("1Kibit"), Ok(1_024));
        assert_eq!(rate("10M"), Ok(10_000_000));
        assert_eq!(rate("1MByte/s"), Ok(8_000_000));
        assert_eq!(rate("1KB/s"), Ok(8_000));
        assert_eq!(rate("64000"), Ok(64_000));
        assert_eq!(rate_in("1kbps", Dialect::Netem), Ok(8_000));
        assert_eq!(rate_in("1KBps", Dialect::Netem), Ok(8_000));
        assert_eq!(rate_in("10Mbps", Dialect::Dummynet), Ok(10_000_000));
    }

    #[test]
    fn ambiguous_rates_are_refused_and_the_error_names_both_alternatives() {
        assert_eq!(
            rate("10kbps").unwrap_err(),
            "10kbps: tc means bytes by \"kbps\", ipfw means bits; write 10kbit/s or 10kByte/s"
        );
        assert!(rate("10mb/s").unwrap_err().contains("10mbit/s or 10mByte/s"));
        assert!(rate("10apples").unwrap_err().contains("not a unit of rate"));
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("3000B"), Ok(3_000));
        assert_eq!(size("30Kbytes"), Ok(30_720));
        assert_eq!(size("256 MiB"), Ok(256 << 20));
        assert_eq!(size("1MB"), Ok(1 << 20));
        assert_eq!(size("1.5K"), Ok(1_536));
    }

    #[test]
    fn shares_above_one_without_a_percent_sign_are_refused() {
        assert_eq!(percentage("1%"), Ok(0.01));
        assert_eq!(percentage("0.1%"), Ok(0.001));
        assert_eq!(percentage("0"), Ok(0.0));
        assert_eq!(percentage_in("1", Dialect::Netem), Ok(0.01));
        assert_eq!(
            percentage("0.01").unwrap_err(),
            "0.01 has no percent sign: tc would take it for 0.01 %, dummynet's plr for 1 %; write 0.01% or 1%"
        );
        assert_eq!(percentage("2").unwrap_err(), "2 has no percent sign: write 2%");
        assert_eq!(percentage("100").unwrap_err(), "100 has no percent sign: write 100%");
        assert_eq!(percentage("150").unwrap_err(), "150 has no percent sign, and 150% is not from 0% to 100%");
        assert!(percentage("1e-5").unwrap_err().ends_with("write 1e-5% or 0.001%"));
        assert_eq!(fraction("0.01"), Ok(0.01));
        assert_eq!(fraction("1%"), Ok(0.01));
        assert!(fraction("1.5").is_err());
        assert!(percentage("101%").is_err());
        assert!(percentage("nan%").is_err());
    }

    proptest! {
        #[test]
        fn printed_values_parse_to_the_same_values(ns in 0_i64.., bps: u64, bytes: u64, p in 0.0..=1.0_f64) {
            prop_assert_eq!(time(&time_text(Nanos(ns))), Ok(Nanos(ns)));
            prop_assert_eq!(rate(&rate_text(bps)), Ok(bps));
            prop_assert_eq!(size(&size_text(bytes)), Ok(bytes));
            prop_assert_eq!(percentage(&percentage_text(p)), Ok(p));
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}", digits in "[0-9.eE+-]{0,30}[a-zA-Zµ/%]{0,6}") {
            for text in [text, digits] {
                let _ = (time(&text), rate(&text), size(&text), percentage(&text), fraction(&text));
            }
        }
    }
}
