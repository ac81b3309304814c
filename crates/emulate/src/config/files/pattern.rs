//! Parses loss patterns: a character for each packet, or each millisecond.

use std::path::Path;

use super::lines;

/// Reads a pattern: `0` or `.` is delivered, `1` or `x` is lost; white space is ignored, `#` begins a comment.
///
/// # Errors
/// Names the line that is wrong.
pub fn read(path: &Path) -> Result<Vec<bool>, String> {
    super::read(path, parse)
}

pub(super) fn parse(text: &str) -> Result<Vec<bool>, String> {
    let mut lost = Vec::new();
    for (number, line) in lines(text) {
        for letter in line.chars().filter(|letter| !letter.is_whitespace()) {
            lost.push(match letter {
                '0' | '.' => false,
                '1' | 'x' | 'X' => true,
                other => return Err(format!("line {number}: {other:?} is neither 0 (goes through) nor 1 (lost)")),
            });
        }
    }
    if lost.is_empty() { Err("there is no pattern in it".to_owned()) } else { Ok(lost) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loss_pattern_is_parsed() {
        assert_eq!(parse("0.1 # one in three\nx").unwrap(), [false, false, true, true]);
        assert_eq!(parse("01\n02").unwrap_err(), "line 2: '2' is neither 0 (goes through) nor 1 (lost)");
        assert_eq!(parse("# only words").unwrap_err(), "there is no pattern in it");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,100}") {
            let _ = parse(&text);
        }
    }
}
