//! Suggests a known word for a misspelt one.

/// Returns the known word nearest to a misspelt one: at an edit distance of at most two, and less than the length of
/// either.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let slips = |other: &str| strsim::damerau_levenshtein(word, other);
    let near = known.iter().copied().min_by_key(|other| slips(other))?;
    let slips = slips(near);
    (slips <= 2 && slips < word.chars().count().min(near.len())).then_some(near)
}

/// Returns " (did you mean …?)" if a word is close to a known one.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    nearest(word, known).map_or(String::new(), |near| format!(" (did you mean {near:?}?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_made_only_for_a_likely_typing_error() {
        let known = ["delay", "jitter", "ber", "bw"];
        assert_eq!(nearest("dealy", &known), Some("delay"), "two letters that change places are one slip");
        assert_eq!(nearest("jiter", &known), Some("jitter"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("b", &known), None, "every letter of it would be a slip");
        assert_eq!(nearest("xy", &known), None);
        assert_eq!(did_you_mean("delai", &known), " (did you mean \"delay\"?)");
        assert_eq!(did_you_mean("delai", &[]), "");
    }
}
