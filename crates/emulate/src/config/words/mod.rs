//! A pipe in words: netem's, dummynet's and our own, freely mixed, in any order.
//!
//! Only what is named changes on top of a base, so that `set forward loss 2%` leaves the delay alone. A whole line of either
//! tool is taken as that tool means it: `netem delay 20ms loss 1` or `tc qdisc add dev eth1 root netem …` (percentages without
//! their sign, bare times in nanoseconds), `pipe 1 config bw 10Mbit/s delay 20 plr 0.01` (bare times in milliseconds). In words
//! of no declared tool a number that the two would read differently is refused. Where a word of a tool cannot be had exactly
//! (a correlation from packet to packet of a delay), it is refused with what to write instead.

mod delay;
mod impair;
mod link;
mod print;
mod queue;

use std::path::{Path, PathBuf};

use super::{ConfigError, Pipe};
use crate::config::units;

pub use print::to_words;

/// Whose words these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Nobody's: what is ambiguous is refused.
    #[default]
    Ours,
    /// dummynet's.
    Dummynet,
    /// tc's.
    Netem,
}

/// Changes a pipe by words. Files are looked for from the working directory on.
///
/// # Errors
/// Says in one sentence which word is not understood, and what would be.
pub fn pipe_from_words(text: &str, base: &Pipe) -> Result<Pipe, ConfigError> {
    pipe_in(text, base, Path::new("")).map_err(|problem| {
        let place = if base.name.is_empty() { "words".to_owned() } else { format!("pipe {}", base.name) };
        ConfigError { place, problem }
    })
}

/// Changes a pipe by options, each a word and what would follow it. Files are looked for from the working directory on.
///
/// # Errors
/// Says in one sentence which option is not understood, and what would be.
pub fn pipe_from_options<'a>(
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
    base: &Pipe,
) -> Result<Pipe, ConfigError> {
    let mut draft = Draft::new(base);
    let put = |(word, value)| draft.put(word, split(value)?, Path::new(""));
    let read = options.into_iter().try_for_each(put).and_then(|()| draft.finish());
    read.map_err(|problem| ConfigError { place: format!("pipe {}", base.name), problem })
}

/// Changes a pipe by words; files are looked for from `folder` on.
pub(super) fn pipe_in(text: &str, base: &Pipe, folder: &Path) -> Result<Pipe, String> {
    let mut words = Words::new(split(text)?, Dialect::Ours, folder);
    words.take_head()?;
    let mut draft = Draft::new(base);
    draft.read(&mut words)?;
    draft.finish()
}

/// Words that are still to be read.
pub(super) struct Words {
    words: Vec<String>,
    at: usize,
    pub dialect: Dialect,
    folder: PathBuf,
}

impl Words {
    pub fn new(words: Vec<String>, dialect: Dialect, folder: &Path) -> Self {
        Self { words, at: 0, dialect, folder: folder.to_owned() }
    }

    /// Takes the beginning of a whole line of a tool, and so learns whose words these are.
    fn take_head(&mut self) -> Result<(), String> {
        if self.peek() == Some("tc") {
            while self.peek().is_some_and(|word| word != "netem") {
                self.at += 1;
            }
            if self.peek().is_none() {
                return Err("this tc command has no netem in it".to_owned());
            }
        }
        if self.take("netem") {
            self.dialect = Dialect::Netem;
            return Ok(());
        }
        let after_tool = usize::from(matches!(self.peek(), Some("ipfw" | "dnctl")));
        let ahead = |n: usize| self.words.get(after_tool + n).map(String::as_str);
        if ahead(0) == Some("pipe") && ahead(2) == Some("config") {
            self.at = after_tool + 3;
            self.dialect = Dialect::Dummynet;
        }
        Ok(())
    }

    pub fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    /// Takes the next word, whatever it is.
    pub fn any(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Takes the next word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Takes the next word if it begins as a number does.
    pub fn number(&mut self) -> Option<String> {
        let is_number = self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
        if is_number { self.any() } else { None }
    }

    /// Takes the argument of `word`.
    pub fn argument(&mut self, word: &str, example: &str) -> Result<String, String> {
        self.any().ok_or_else(|| format!("{word} needs a value, as in \"{word} {example}\""))
    }

    pub fn time(&mut self, word: &str) -> Result<sojourn_time::Nanos, String> {
        let text = self.argument(word, "20ms")?;
        units::time_in(&text, self.dialect).map_err(|why| format!("{word}: {why}"))
    }

    /// Takes a time if a number is next.
    pub fn time_if(&mut self, word: &str) -> Result<Option<sojourn_time::Nanos>, String> {
        match self.number() {
            None => Ok(None),
            Some(text) => units::time_in(&text, self.dialect).map(Some).map_err(|why| format!("{word}: {why}")),
        }
    }

    pub fn percentage(&mut self, word: &str) -> Result<f64, String> {
        let text = self.argument(word, "1%")?;
        units::percentage_in(&text, self.dialect).map_err(|why| format!("{word}: {why}"))
    }

    /// Takes a percentage if a number is next.
    pub fn percentage_if(&mut self, word: &str) -> Result<Option<f64>, String> {
        match self.number() {
            None => Ok(None),
            Some(text) => units::percentage_in(&text, self.dialect).map(Some).map_err(|why| format!("{word}: {why}")),
        }
    }

    pub fn whole<N: std::str::FromStr>(&mut self, word: &str, example: &str) -> Result<N, String> {
        let text = self.argument(word, example)?;
        units::whole(&text).map_err(|why| format!("{word}: {why}"))
    }

    pub fn real(&mut self, word: &str, example: &str) -> Result<f64, String> {
        let text = self.argument(word, example)?;
        units::real(&text).ok_or_else(|| format!("{word}: {text:?} is not a number"))
    }

    /// Returns where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A pipe that is being changed, with what can only be settled at the end.
pub(super) struct Draft {
    pub pipe: Pipe,
    delay: delay::Pending,
    impair: impair::Pending,
    link: link::Pending,
    queue: queue::Pending,
}

impl Draft {
    pub fn new(base: &Pipe) -> Self {
        Self {
            pipe: base.clone(),
            delay: delay::Pending::default(),
            impair: impair::Pending::default(),
            link: link::Pending::default(),
            queue: queue::Pending::default(),
        }
    }

    /// Reads words to their end.
    pub fn read(&mut self, words: &mut Words) -> Result<(), String> {
        while let Some(word) = words.any() {
            self.word(&word, words)?;
        }
        Ok(())
    }

    /// Reads one word with all of its arguments.
    pub fn put(&mut self, word: &str, arguments: Vec<String>, folder: &Path) -> Result<(), String> {
        let mut words = Words::new(arguments, Dialect::Ours, folder);
        self.word(word, &mut words)?;
        if word == "aqm" {
            // It says only what kind of word comes next.
            return self.read(&mut words);
        }
        match words.peek() {
            None => Ok(()),
            Some(more) => Err(format!("{word}: {more:?} is more than it takes")),
        }
    }

    /// Reads one word with its arguments.
    pub fn word(&mut self, word: &str, words: &mut Words) -> Result<(), String> {
        let is_of_path = self.delay.word(word, words, &mut self.pipe)?
            || self.impair.word(word, words, &mut self.pipe)?
            || self.link.word(word, words, &mut self.pipe)?;
        if is_of_path {
            self.queue.leave_class();
            return Ok(());
        }
        if self.queue.word(word, words, &mut self.pipe)? { Ok(()) } else { Err(unknown(word)) }
    }

    /// Settles what depends on several words.
    pub fn finish(mut self) -> Result<Pipe, String> {
        self.delay.finish(&mut self.pipe)?;
        self.queue.finish(&mut self.pipe)?;
        Ok(self.pipe)
    }
}

/// Says what is wrong with a word that nothing knows.
fn unknown(word: &str) -> String {
    match word {
        "seed" => {
            "seed: the seed is the emulator's, not a pipe's; give it as --seed or beside the pipes in a file".to_owned()
        }
        "slot" => "slot: netem's slots are not offered; a profile or a trace file says when a medium lets packets go"
            .to_owned(),
        "weight" => "weight: weights belong to classes; write \"class NAME weight N\"".to_owned(),
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{word} has no word before it that takes a value; write what it is, as in \"delay {word}\"")
        }
        _ => format!(
            "{word:?} is not a word that I know{}; the first words are delay, jitter, loss, rate and queue",
            did_you_mean(word, &first_words(|_| true))
        ),
    }
}

/// Where a configuration file may have a first word as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Nowhere: it has a meaning among other words alone.
    Text,
    /// In a pipe.
    Pipe,
    /// In a pipe, and in its table `after`.
    Impairment,
    /// In a pipe, and in its classes.
    Queue,
}

/// The words that others follow as their values.
const FIRST_WORDS: &[(&str, Key)] = &[
    ("after", Key::Text),
    ("aqm", Key::Pipe),
    ("atm", Key::Pipe),
    ("bandwidth", Key::Pipe),
    ("before", Key::Text),
    ("ber", Key::Impairment),
    ("burst", Key::Pipe),
    ("bw", Key::Pipe),
    ("cell", Key::Pipe),
    ("class", Key::Text),
    ("classes", Key::Text),
    ("codel", Key::Queue),
    ("corrupt", Key::Impairment),
    ("delay", Key::Pipe),
    ("distribution", Key::Pipe),
    ("drop", Key::Pipe),
    ("drr", Key::Pipe),
    ("dualpi2", Key::Pipe),
    ("duplicate", Key::Impairment),
    ("ecdf", Key::Pipe),
    ("ecn", Key::Pipe),
    ("ethernet", Key::Pipe),
    ("fifo", Key::Text),
    ("fq_codel", Key::Pipe),
    ("gap", Key::Text),
    ("gred", Key::Queue),
    ("half-life", Key::Pipe),
    ("jitter", Key::Pipe),
    ("limit", Key::Pipe),
    ("loss", Key::Impairment),
    ("mask", Key::Pipe),
    ("order", Key::Pipe),
    ("outage", Key::Pipe),
    ("overhead", Key::Pipe),
    ("pie", Key::Queue),
    ("plr", Key::Impairment),
    ("profile", Key::Pipe),
    ("queue", Key::Queue),
    ("rate", Key::Pipe),
    ("red", Key::Queue),
    ("reorder", Key::Pipe),
    ("trace", Key::Pipe),
    ("type", Key::Pipe),
    ("weight", Key::Text),
];

/// Returns the first words of some kinds.
pub(super) fn first_words(of: impl Fn(Key) -> bool) -> Vec<&'static str> {
    FIRST_WORDS.iter().filter(|(_, key)| of(*key)).map(|(word, _)| *word).collect()
}

/// Returns " (did you mean …?)" where a word is nearly one of those that are known.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    let edits = |other: &str| strsim::damerau_levenshtein(word, other);
    let near = known.iter().min_by_key(|other| edits(other));
    let near = near.filter(|other| edits(other) <= 2 && edits(other) < word.chars().count().min(other.len()));
    near.map_or(String::new(), |near| format!(" (did you mean {near:?}?)"))
}

/// Splits a line into words; quotes hold a name with spaces together.
///
/// # Errors
/// A quote that is not closed.
pub(super) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
