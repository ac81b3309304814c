//! Parses a pipe from words: those of netem, dummynet and our own, in any combination and order.
//!
//! Words change only what they name, relative to a base, so that `set forward loss 2%` keeps the delay. A whole line of
//! either tool has that tool's meaning: in `netem delay 20ms loss 1` or `tc qdisc add dev eth1 root netem …`
//! percentages need no sign and bare times are nanoseconds; in `pipe 1 config bw 10Mbit/s delay 20 plr 0.01` bare times
//! are milliseconds. Without such a line, a number that the tools would interpret differently is refused. A word that
//! cannot be reproduced exactly (the packet-to-packet correlation of a delay) is refused with a message that says what
//! to write instead.

mod delay;
mod impair;
mod link;
mod print;
mod queue;
mod table;

use std::path::{Path, PathBuf};

use sojourn_time::Nanos;

use super::{ConfigError, Pipe, files, units};
use sojourn_time::near::did_you_mean;

pub use print::{to_stages, to_words};
pub(super) use table::{Key, words_of};
pub use table::{PipeOption, is_word, nearest_word, pipe_options};

/// The tool whose meaning applies to bare numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// None: ambiguous numbers are refused.
    #[default]
    Ours,
    /// dummynet.
    Dummynet,
    /// tc (netem).
    Netem,
}

/// Changes a pipe by words. Relative paths start at the working directory.
///
/// # Errors
/// Names the word that is not understood, and what would be.
pub fn pipe_from_words(text: &str, base: &Pipe) -> Result<Pipe, ConfigError> {
    pipe_in(text, base, Path::new("")).map_err(|problem| {
        let place = if base.name.is_empty() { "words".to_owned() } else { format!("pipe {}", base.name) };
        ConfigError { place, problem }
    })
}

/// Changes a pipe by options, each a word and its values. Relative paths start at the working directory.
///
/// # Errors
/// Names the option that is not understood, and what would be.
pub fn pipe_from_options<'a>(
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
    base: &Pipe,
) -> Result<Pipe, ConfigError> {
    let mut draft = Draft::new(base);
    let put = |(word, value)| draft.put(word, split(value)?, Path::new(""));
    let read = options.into_iter().try_for_each(put).and_then(|()| draft.finish());
    read.map_err(|problem| ConfigError { place: format!("pipe {}", base.name), problem })
}

/// Changes a pipe by words; relative paths start at `folder`.
pub(super) fn pipe_in(text: &str, base: &Pipe, folder: &Path) -> Result<Pipe, String> {
    let mut words = Words::new(split(text)?, Dialect::Ours, folder);
    words.take_head()?;
    let mut draft = Draft::new(base);
    draft.read(&mut words)?;
    draft.finish()
}

/// A parsed value, or why it was not understood.
type Read<T> = Result<T, String>;

/// The words still to be parsed.
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

    /// Parses the head of a tool's whole line, and sets the dialect accordingly.
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

    /// Takes the next word.
    pub fn any(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Takes the next word if it equals `word`.
    pub fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Returns whether the next word starts like a number.
    pub fn is_number(&self) -> bool {
        self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    }

    /// Takes the next word if it starts like a number.
    pub fn number(&mut self) -> Option<String> {
        if self.is_number() { self.any() } else { None }
    }

    /// Takes the argument of `word`.
    pub fn argument(&mut self, word: &str, example: &str) -> Result<String, String> {
        self.any().ok_or_else(|| format!("{word} needs a value, as in \"{word} {example}\""))
    }

    /// Takes the argument of `word` and parses it with `read`.
    pub fn value<T>(&mut self, word: &str, example: &str, read: impl Fn(&str) -> Result<T, String>) -> Read<T> {
        let text = self.argument(word, example)?;
        read(&text).map_err(|why| format!("{word}: {why}"))
    }

    /// Takes and parses another argument of `word` if a number is next.
    pub fn value_if<T>(&mut self, word: &str, read: impl Fn(&str) -> Result<T, String>) -> Read<Option<T>> {
        self.number().map(|text| read(&text).map_err(|why| format!("{word}: {why}"))).transpose()
    }

    /// Takes "none", or what `read` parses.
    pub fn or_none<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.take("none") { Ok(None) } else { read(self).map(Some) }
    }

    /// If `name` is next, takes it and what `read` parses after it.
    pub fn behind<T>(&mut self, name: &str, read: impl FnOnce(&mut Self, &str) -> Read<T>) -> Read<Option<T>> {
        if self.take(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    /// Takes names with their values, in any order, until `read` does not know a name.
    pub fn each(&mut self, mut read: impl FnMut(&mut Self, &str) -> Read<bool>) -> Read<()> {
        while let Some(name) = self.any() {
            if !read(self, &name)? {
                self.at -= 1;
                break;
            }
        }
        Ok(())
    }

    pub fn time(&mut self, word: &str) -> Read<Nanos> {
        let dialect = self.dialect;
        self.value(word, "20ms", |text| units::time_in(text, dialect))
    }

    /// Takes a time if a number is next.
    pub fn time_if(&mut self, word: &str) -> Read<Option<Nanos>> {
        let dialect = self.dialect;
        self.value_if(word, |text| units::time_in(text, dialect))
    }

    pub fn percentage(&mut self, word: &str) -> Read<f64> {
        let dialect = self.dialect;
        self.value(word, "1%", |text| units::percentage_in(text, dialect))
    }

    /// Takes a percentage if a number is next.
    pub fn percentage_if(&mut self, word: &str) -> Read<Option<f64>> {
        let dialect = self.dialect;
        self.value_if(word, |text| units::percentage_in(text, dialect))
    }

    pub fn whole<N: std::str::FromStr>(&mut self, word: &str, example: &str) -> Read<N> {
        self.value(word, example, units::whole)
    }

    pub fn real(&mut self, word: &str, example: &str) -> Read<f64> {
        self.value(word, example, |text| units::real(text).ok_or_else(|| format!("{text:?} is not a number")))
    }

    /// Takes a file name; returns it as written, and its path.
    pub fn file(&mut self, word: &str, example: &str) -> Read<(String, PathBuf)> {
        let name = self.argument(word, example)?;
        let path = files::find(&self.folder, &name);
        Ok((name, path))
    }
}

/// A pipe under change, with state that is only resolved at the end.
#[derive(Default)]
pub(super) struct Draft {
    pub pipe: Pipe,
    delay: delay::Pending,
    impair: impair::Pending,
    link: link::Pending,
    queue: queue::Pending,
}

impl Draft {
    pub fn new(base: &Pipe) -> Self {
        Self { pipe: base.clone(), ..Self::default() }
    }

    /// Parses all words.
    pub fn read(&mut self, words: &mut Words) -> Result<(), String> {
        while let Some(word) = words.any() {
            self.word(&word, words)?;
        }
        Ok(())
    }

    /// Parses one word with all of its arguments.
    pub fn put(&mut self, word: &str, arguments: Vec<String>, folder: &Path) -> Result<(), String> {
        let mut words = Words::new(arguments, Dialect::Ours, folder);
        self.word(word, &mut words)?;
        if word == "aqm" {
            // `aqm` is followed by another word.
            return self.read(&mut words);
        }
        match words.peek() {
            None => Ok(()),
            Some(more) => Err(format!("{word}: {more:?} is more than it takes")),
        }
    }

    /// Parses one word with its arguments.
    pub fn word(&mut self, word: &str, words: &mut Words) -> Result<(), String> {
        let known = table::find(word).ok_or_else(|| unknown(word))?;
        if !known.is_of_class {
            self.queue.leave_class();
        }
        (known.read)(self, word, words)
    }

    /// Resolves what depends on several words.
    pub fn finish(mut self) -> Result<Pipe, String> {
        self.delay.finish(&mut self.pipe)?;
        self.queue.finish(&mut self.pipe.queue);
        Ok(self.pipe)
    }
}

/// Returns the message for an unknown word.
fn unknown(word: &str) -> String {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("{word} has no word before it that takes a value; write what it is, as in \"delay {word}\"");
    }
    format!(
        "{word:?} is not a word that I know{}; the first words are delay, jitter, loss, rate and queue",
        did_you_mean(word, &words_of(|_| true))
    )
}

/// Splits a line into words; quotes enclose a name with spaces.
///
/// # Errors
/// If a quote is not closed.
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
