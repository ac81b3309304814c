//! Numbers as people read them.

/// "12,345".
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time with three digits and the unit that suits it.
pub fn span(ns: i64) -> String {
    let size = ns.unsigned_abs();
    let (scale, unit) = match size {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / scale;
    let digits = if value.abs() < 9.995 { 2 } else { usize::from(value.abs() < 99.95) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_people_read_them() {
        assert_eq!(["0", "999", "1,000", "12,345,678"], [0, 999, 1_000, 12_345_678].map(grouped)[..]);
        let told = [-40, 1_234, 99_960, -27_000, 1_500_000, 2_000_000_000].map(span);
        assert_eq!(told, ["-40 ns", "1.23 µs", "100 µs", "-27.0 µs", "1.50 ms", "2.00 s"]);
    }
}
