//! Parses delay distributions: iproute2's `.dist` tables, and measured ones.

use std::path::{Path, PathBuf};

use sojourn_time::Nanos;

use super::lines;
use crate::config::units;
use crate::config::words::Dialect;

/// Limit on a table's values; iproute2 has 4096, the kernel accepts up to 16384.
const MOST_VALUES: usize = 16_384;
/// Limit on the points of a user's distribution.
const MOST_POINTS: usize = 1 << 20;
/// One standard deviation in a table.
const SCALE: f64 = 8192.0;
/// Folders in which distributions of Linux install iproute2's tables.
const FOLDERS: [&str; 3] = ["/usr/lib/tc", "/usr/lib64/tc", "/lib/tc"];

/// Returns netem's table by name: built in for `pareto` and `paretonormal`, otherwise from a file, or from iproute2's folders.
///
/// # Errors
/// Says what was not found, or names the wrong line.
pub fn table(name: &str, path: &Path) -> Result<Vec<i16>, String> {
    match name {
        "pareto" => return Ok(built_in(pareto)),
        "paretonormal" => return Ok(built_in(|u| (normal_quantile(u) + 3.0 * pareto(u)) / 4.0)),
        _ => {}
    }
    let installed = FOLDERS.iter().map(|folder| PathBuf::from(folder).join(format!("{name}.dist")));
    let found = std::iter::once(path.to_owned()).chain(installed).find(|path| path.is_file());
    let path = found.ok_or_else(|| {
        format!("distribution: {name:?} is neither uniform, normal, exponential, pareto, paretonormal, \"lomax SHAPE\" or \"gamma SHAPE\" nor a file")
    })?;
    super::read(&path, parse_table)
}

/// Parses a `.dist` table: integers between comments. They are sorted: a table is a set of equally likely values.
pub(super) fn parse_table(text: &str) -> Result<Vec<i16>, String> {
    let mut values = Vec::new();
    for (number, line) in lines(text) {
        for word in line.split_whitespace() {
            let value = word
                .parse()
                .map_err(|_| format!("line {number}: {word:?} is not a whole number from -32768 to 32767"))?;
            values.push(value);
        }
        if values.len() > MOST_VALUES {
            return Err(format!("line {number}: more than {MOST_VALUES} values"));
        }
    }
    if values.is_empty() {
        return Err("there is no value in it".to_owned());
    }
    values.sort_unstable();
    Ok(values)
}

/// Reads a user's distribution: `probability delay` on each line (ascending, up to 1), or one delay per line (a
/// sample). A bare delay is in ms.
///
/// # Errors
/// Names the line that is wrong.
pub fn empirical(path: &Path) -> Result<Vec<(f64, Nanos)>, String> {
    super::read(path, parse_empirical)
}

pub(super) fn parse_empirical(text: &str) -> Result<Vec<(f64, Nanos)>, String> {
    let mut points = Vec::new();
    let mut sample = Vec::new();
    for (number, line) in lines(text) {
        let at = |why: String| format!("line {number}: {why}");
        let words: Vec<&str> = line.split([' ', '\t', ',', ';']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            [delay] => sample.push(units::time_in(delay, Dialect::Dummynet).map_err(at)?),
            [share, delay] => points
                .push((units::fraction(share).map_err(at)?, units::time_in(delay, Dialect::Dummynet).map_err(at)?)),
            _ => return Err(at("neither \"probability delay\" nor one delay".to_owned())),
        }
        if points.len().max(sample.len()) > MOST_POINTS {
            return Err(at(format!("more than {MOST_POINTS} points")));
        }
        if let [.., before, last] = points[..]
            && (last.0 < before.0 || last.1 < before.1)
        {
            return Err(at("goes backwards; both columns must rise".to_owned()));
        }
    }
    match (points.is_empty(), sample.is_empty()) {
        (false, true) => completed(points),
        (true, false) => of_sample(sample),
        (true, true) => Err("there is no delay in it".to_owned()),
        (false, false) => Err("some lines have one column, others two".to_owned()),
    }
}

/// Extends points to the range from 0 to 1: below the first point the distribution has that point's delay.
fn completed(mut points: Vec<(f64, Nanos)>) -> Result<Vec<(f64, Nanos)>, String> {
    if let Some(&(share, delay)) = points.first()
        && share > 0.0
    {
        points.insert(0, (0.0, delay));
    }
    match points.last() {
        Some(&(1.0, _)) if points.len() > 1 => Ok(points),
        _ => Err("the last probability must be 1".to_owned()),
    }
}

/// Makes a distribution from a sample: its order statistics at equal steps.
fn of_sample(mut sample: Vec<Nanos>) -> Result<Vec<(f64, Nanos)>, String> {
    if sample.len() < 2 {
        return Err("a sample needs two delays or more".to_owned());
    }
    sample.sort_unstable();
    let steps = (sample.len() - 1) as f64;
    Ok(sample.into_iter().enumerate().map(|(at, delay)| (at as f64 / steps, delay)).collect())
}

/// Makes a table as iproute2's generators do: at 4096 equal steps of the probability, truncated at 4 standard deviations.
fn built_in(quantile: impl Fn(f64) -> f64) -> Vec<i16> {
    // Casts of floats saturate: this truncates the table.
    (0..4096).map(|at| (quantile(f64::from(at) / 4096.0) * SCALE).round() as i16).collect()
}

/// The quantile function of netem's Pareto distribution: shape 3, shifted to mean 0; `(u^(-1/3) − 1.5) × 4/3` with u from the upper tail.
fn pareto(u: f64) -> f64 {
    ((1.0 - u).powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0
}

/// The quantile function of the standard normal distribution, by bisection; tables are truncated at -4.
fn normal_quantile(u: f64) -> f64 {
    let (mut low, mut high) = (-4.0, 4.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < u { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn built_in_tables_are_those_of_iproute2() {
        // The first and last values that iproute2's generators print: 4096 of them, ascending, truncated at 4 standard deviations.
        let values = table("pareto", Path::new("")).unwrap();
        assert_eq!((values.len(), values[0], values[4095]), (4096, -5461, i16::MAX));
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 4096.0 / SCALE;
        assert!((-0.1..0.0).contains(&mean), "{mean}: cut above, so below 0");
        let both = table("paretonormal", Path::new("")).unwrap();
        assert_eq!(both.len(), 4096);
        assert!(both.is_sorted() && both[4095] > 25_000 && both[0] < -10_000);
    }

    #[test]
    fn installed_tables_agree_with_ours_where_there_are_any() {
        for name in ["pareto", "paretonormal"] {
            let path = PathBuf::from(FOLDERS[0]).join(format!("{name}.dist"));
            let Ok(text) = super::super::text(&path) else { continue };
            let theirs = parse_table(&text).unwrap();
            let ours = table(name, Path::new("")).unwrap();
            assert_eq!(theirs.len(), ours.len());
            // iproute2 computes its normal distribution in steps of 0.00005 and starts its table at -10.
            let far =
                ours.iter().zip(&theirs).skip(1).filter(|(a, b)| (i32::from(**a) - i32::from(**b)).abs() > 40).count();
            assert!(far <= 4, "{name}: {far} values are apart");
        }
    }

    #[test]
    fn tables_and_samples_with_too_many_values_are_refused() {
        let table = |values: usize| parse_table(&"7\n".repeat(values));
        assert_eq!(table(MOST_VALUES).unwrap().len(), MOST_VALUES);
        assert_eq!(table(MOST_VALUES + 1).unwrap_err(), "line 16385: more than 16384 values");
        assert_eq!(parse_table(&"7 ".repeat(MOST_VALUES + 1)).unwrap_err(), "line 1: more than 16384 values");
        let sample = parse_empirical(&"1\n".repeat(MOST_POINTS + 1)).unwrap_err();
        assert_eq!(sample, "line 1048577: more than 1048576 points");
    }

    #[test]
    fn empirical_distribution_is_monotonic() {
        assert_eq!(
            parse_empirical("0 1ms\n0.5 2 # bare: ms\n1 10ms\n").unwrap(),
            [(0.0, Nanos::millis(1)), (0.5, Nanos::millis(2)), (1.0, Nanos::millis(10))]
        );
        assert_eq!(parse_empirical("3\n1\n2\n").unwrap()[1], (0.5, Nanos::millis(2)));
        assert_eq!(parse_empirical("0.5 2\n0.4 3").unwrap_err(), "line 2: goes backwards; both columns must rise");
        assert_eq!(parse_empirical("0 1\n0.4 3").unwrap_err(), "the last probability must be 1");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[-0-9 .,\n#a-z%]{0,200}", any in ".{0,200}") {
            for text in [text, any] {
                let _ = parse_table(&text).map(|values| assert!(values.is_sorted()));
                if let Ok(points) = parse_empirical(&text) {
                    prop_assert!(points.len() > 1 && points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
                    prop_assert!(points[0].0 == 0.0 && points[points.len() - 1].0 == 1.0);
                }
            }
        }
    }
}
