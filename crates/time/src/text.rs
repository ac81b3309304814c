//! Parses times and packet rates. Times are calculated in integers, to the nearest nanosecond. A number without a unit
//! is an error unless the caller defines its unit.

use crate::Nanos;

/// Parses a time: `20ms`, `1.5us`, `100ns`, `2s`, `1min`, `1h`. 0 needs no unit.
///
/// # Errors
/// Describes what is wrong with it.
pub fn time(text: &str) -> Result<Nanos, String> {
    time_in(text, None)
}

/// As [`time`]; a number without a unit counts in units of `bare` nanoseconds, for tools that define one.
///
/// # Errors
/// Describes what is wrong with it.
pub fn time_in(text: &str, bare: Option<u128>) -> Result<Nanos, String> {
    let (number, unit) = split(text).ok_or_else(|| match text.strip_prefix('-').and_then(split) {
        Some(_) => format!("{text}: a time cannot be below zero; write it as {}", &text[1..]),
        None => format!("{text:?} is not a time; write it as 20ms, 1.5us or 2s"),
    })?;
    let bare = match bare {
        Some(bare) => bare,
        None if number.is_zero() => 1,
        None => {
            return nanoseconds(&number, unit, text).unwrap_or_else(|| {
                Err(format!(
                    "{text} has no unit that I know; write {number}ms, {number}us, {number}ns, {number}s, {number}min or {number}h",
                    number = number.text
                ))
            });
        }
    };
    if unit.is_empty() {
        return exact(&number, bare).map(Nanos).ok_or_else(|| too_large(text));
    }
    nanoseconds(&number, unit, text)
        .unwrap_or_else(|| Err(format!("{unit:?} is not a unit of time; write ns, us, ms, s, min or h")))
}

/// A parsed decimal number: digits × 10^exponent.
pub struct Number<'a> {
    /// Its text.
    pub text: &'a str,
    digits: u128,
    exponent: i32,
}

impl Number<'_> {
    const fn is_zero(&self) -> bool {
        self.digits == 0
    }

    /// Returns its product with `unit`, rounded to an integer; `None`: too large.
    pub fn times(&self, unit: u128) -> Option<u128> {
        let product = self.digits.checked_mul(unit)?;
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs());
        match (power, self.exponent < 0) {
            (Some(power), true) => Some(product / power + u128::from(product % power >= power.div_ceil(2))),
            (Some(power), false) => product.checked_mul(power),
            (None, true) => Some(0),
            (None, false) => self.is_zero().then_some(0),
        }
    }
}

/// Parses a rate in packets per second: `20000`, `20k`, `20kpps`, `0.5Mpps`; `None` where it is invalid.
pub fn packet_rate(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let zeros = match unit.strip_suffix("pps").unwrap_or(unit) {
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        _ => return None,
    };
    // Parsed from text, since a product of rounded factors may not be the nearest number.
    let exponent = number.exponent.checked_add(zeros)?;
    format!("{}e{exponent}", number.digits).parse().ok().filter(|rate: &f64| rate.is_finite())
}

/// Splits "1.5e3 ms" into its number and its unit; `None`: it does not start with a number.
pub fn split(text: &str) -> Option<(Number<'_>, &str)> {
    let bytes = text.as_bytes();
    let mut digits = 0_u128;
    let mut exponent = 0_i32;
    let (mut at, mut seen, mut point) = (0, 0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => {
                digits = digits.checked_mul(10)?.checked_add(u128::from(byte - b'0'))?;
                exponent -= i32::from(point);
                seen += 1;
            }
            b'.' if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    let power = power_of(&bytes[at..]);
    exponent = exponent.checked_add(power.map_or(0, |(power, _)| power))?;
    at += power.map_or(0, |(_, length)| length);
    let number = Number { text: text.get(..at)?, digits, exponent };
    (seen > 0).then(|| Some((number, text.get(at..)?.trim())))?
}

/// Parses "e-9": the power, and the number of bytes used.
fn power_of(bytes: &[u8]) -> Option<(i32, usize)> {
    let rest = bytes.strip_prefix(b"e").or_else(|| bytes.strip_prefix(b"E"))?;
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    let digits = rest.iter().skip(sign).take_while(|byte| byte.is_ascii_digit()).count();
    let text = std::str::from_utf8(rest.get(..sign + digits)?).ok()?;
    let power = text.parse().ok().filter(|power: &i32| (-400..=400).contains(power))?;
    (digits > 0).then_some((power, 1 + sign + digits))
}

fn exact(number: &Number<'_>, unit: u128) -> Option<i64> {
    number.times(unit).and_then(|value| i64::try_from(value).ok())
}

/// Converts a number with a unit to a time; `None`: the unit is unknown.
fn nanoseconds(number: &Number<'_>, unit: &str, text: &str) -> Option<Result<Nanos, String>> {
    let factor = match unit.to_ascii_lowercase().as_str() {
        "ns" | "nsec" | "nsecs" => 1,
        "us" | "usec" | "usecs" | "µs" | "μs" => 1_000,
        "ms" | "msec" | "msecs" => 1_000_000,
        "s" | "sec" | "secs" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    Some(exact(number, factor).map(Nanos).ok_or_else(|| too_large(text)))
}

/// Returns the error message of a value that is too large.
pub fn too_large(text: &str) -> String {
    format!("{text} is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_rates_are_the_nearest_number() {
        for (text, expected) in [
            ("20000", 2e4),
            ("20k", 2e4),
            ("1.1kpps", 1_100.0),
            ("0.1Mpps", 1e5),
            ("2 Gpps", 2e9),
            ("1e3pps", 1e3),
            ("0", 0.0),
        ] {
            assert_eq!(packet_rate(text), Some(expected), "{text}");
        }
        for refused in ["", "pps", "k", "-1", "infpps", "nan", "1e400", "1xpps", "1ppsk", "\u{e9}kpps", "1kbit/s"] {
            assert_eq!(packet_rate(refused), None, "{refused}");
        }
    }

    #[test]
    fn times_carry_their_unit() {
        assert_eq!(time("10ms"), Ok(Nanos::millis(10)));
        assert_eq!(time("0.5us"), Ok(Nanos(500)));
        assert_eq!(time("1s"), Ok(Nanos::seconds(1)));
        assert_eq!(time("2min"), Ok(Nanos::seconds(120)));
        assert_eq!(time("1.5h"), Ok(Nanos::seconds(5_400)));
        for refused in ["10", "ms", "-1ms", "NaNs", "1e300s", ""] {
            assert!(time(refused).is_err(), "{refused}");
        }
    }
}
