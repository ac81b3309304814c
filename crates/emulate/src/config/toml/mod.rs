//! Parses a configuration in TOML.
//!
//! ```toml
//! seed = 7
//! memory = "1GB"
//!
//! [forward]                  # or [backward], [both], or [[pipe]] with a name
//! delay = "20ms"
//! jitter = "2ms"
//! distribution = "normal"
//! loss = ["1%", "burst 0.1% 5"]
//! rate = "10Mbit/s"
//! codel = { target = "5ms", ecn = true }
//!
//! [forward.after]
//! loss = "0.1%"
//!
//! [[rule]]
//! source = "10.0.0.0/8"
//! destination_port = "80-90"
//! tcp = "syn,!ack"
//! pipe = "forward"
//! ```
//!
//! A key of a pipe is the word of the same name, and its value is the word's arguments, so that both forms have the
//! same meaning. Unknown keys are refused with their line.

mod rule;

use std::path::Path;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::words::{Dialect, Draft, Key, Words, split, words_of};
use super::{Config, ConfigError, Pipe, units};
use sojourn_time::near::did_you_mean;

/// A refusal with its position in the text, in bytes.
struct Wrong {
    at: usize,
    problem: String,
}

type Entry<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// Parses TOML; relative paths in it start at `folder`.
pub(super) fn parse(text: &str, name: &str, folder: &Path) -> Result<Config, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        located(text, name, Wrong { at, problem: format!("this is not TOML: {}", error.message()) })
    })?;
    config(table.get_ref(), folder).map_err(|wrong| located(text, name, wrong))
}

fn located(text: &str, name: &str, wrong: Wrong) -> ConfigError {
    let before = text.as_bytes().get(..wrong.at).unwrap_or_default();
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    ConfigError::new(format!("{name} line {line}"), wrong.problem)
}

fn config(table: &DeTable<'_>, folder: &Path) -> Result<Config, Wrong> {
    let mut config = Config::default();
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "seed" => config.seed = whole(value)?,
            "memory" => config.memory_bytes = units::size(&scalar(value)?).map_err(|why| at(value, why))?,
            "budget" => config.budget = units::time(&scalar(value)?).map_err(|why| at(value, why))?,
            "forward" | "backward" | "both" => {
                config.pipes.push(pipe(table_of(value)?, Some(key.get_ref()), key.span().start, folder)?)
            }
            "pipe" => {
                for one in list(value)? {
                    config.pipes.push(pipe(table_of(one)?, None, one.span().start, folder)?);
                }
            }
            "rule" => {
                for one in list(value)? {
                    rule::rule(table_of(one)?, one.span().start, &mut config.rules)?;
                }
            }
            other => {
                return Err(at(
                    key,
                    format!(
                        "{other:?} is not known here; there are seed, memory, budget, forward, backward, both, pipe and rule"
                    ),
                ));
            }
        }
    }
    Ok(config)
}

fn pipe(table: &DeTable<'_>, name: Option<&str>, start: usize, folder: &Path) -> Result<Pipe, Wrong> {
    let mut name = name.map(str::to_owned);
    if let Some((key, value)) = in_order(table).into_iter().find(|(key, _)| key.get_ref() == "name") {
        let given = value.get_ref().as_str().ok_or_else(|| at(value, "a name is a string"))?;
        if name.replace(given.to_owned()).is_some() {
            return Err(at(key, "this table is named by its heading; leave the name out"));
        }
    }
    let name = name.ok_or_else(|| Wrong { at: start, problem: "this pipe has no name; give it one".to_owned() })?;
    let mut draft = Draft::new(&Pipe { name, ..Pipe::default() });
    let keys = words_of(|key| key != Key::Text);
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "name" | "after" | "class" => {}
            "words" => read_words(value, &mut draft, folder)?,
            _ => put(known(key, &keys)?, value, &mut draft, folder)?,
        }
    }
    // Keys that change the meaning of later words are processed last.
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "after" => after(table_of(value)?, &mut draft, folder)?,
            "class" => list(value)?.into_iter().try_for_each(|one| class(one, &mut draft, folder))?,
            _ => {}
        }
    }
    draft.finish().map_err(|problem| Wrong { at: start, problem })
}

fn read_words(value: &Spanned<DeValue<'_>>, draft: &mut Draft, folder: &Path) -> Result<(), Wrong> {
    let words = split(&scalar(value)?).map_err(|why| at(value, why))?;
    draft.read(&mut Words::new(words, Dialect::Ours, folder)).map_err(|why| at(value, why))
}

fn after(table: &DeTable<'_>, draft: &mut Draft, folder: &Path) -> Result<(), Wrong> {
    let mut nothing = Words::new(Vec::new(), Dialect::Ours, folder);
    let mut place =
        |word: &str, draft: &mut Draft| draft.word(word, &mut nothing).map_err(|problem| Wrong { at: 0, problem });
    place("after", draft)?;
    let keys = words_of(|key| key == Key::Impairment);
    for (key, value) in in_order(table) {
        put(known(key, &keys)?, value, draft, folder)?;
    }
    place("before", draft)
}

fn class(value: &Spanned<DeValue<'_>>, draft: &mut Draft, folder: &Path) -> Result<(), Wrong> {
    let table = table_of(value)?;
    let field = |name: &str| {
        in_order(table).into_iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| scalar(value)).transpose()
    };
    let name = field("name")?.ok_or_else(|| at(value, "this class has no name; give it one"))?;
    let weight = field("weight")?.unwrap_or_else(|| "1".to_owned());
    let mut head = Words::new(vec![name, "weight".to_owned(), weight], Dialect::Ours, folder);
    draft.word("class", &mut head).map_err(|why| at(value, why))?;
    let keys = words_of(|key| key == Key::Queue);
    for (key, value) in in_order(table) {
        if !matches!(key.get_ref().as_ref(), "name" | "weight") {
            put(known(key, &keys)?, value, draft, folder)?;
        }
    }
    Ok(())
}

/// Passes a value to a word as the word's arguments.
fn put(word: &str, value: &Spanned<DeValue<'_>>, draft: &mut Draft, folder: &Path) -> Result<(), Wrong> {
    if let DeValue::Array(values) = value.get_ref() {
        if values.is_empty() {
            return draft.put(word, vec!["none".to_owned()], folder).map_err(|why| at(value, why));
        }
        return values.iter().try_for_each(|one| put(word, one, draft, folder));
    }
    let arguments = match value.get_ref() {
        DeValue::Boolean(true) => Vec::new(),
        DeValue::Boolean(false) => return Ok(()),
        DeValue::Table(options) => of_options(options)?,
        _ => split(&scalar(value)?).map_err(|why| at(value, why))?,
    };
    draft.put(word, arguments, folder).map_err(|why| at(value, why))
}

/// Converts `{ target = "5ms", ecn = true }` to words.
fn of_options(options: &DeTable<'_>) -> Result<Vec<String>, Wrong> {
    let mut words = Vec::new();
    for (key, value) in in_order(options) {
        let name = key.get_ref();
        match value.get_ref() {
            DeValue::Boolean(true) => words.push(name.to_string()),
            DeValue::Boolean(false) => words.push(format!("no{name}")),
            _ => {
                words.push(name.to_string());
                words.extend(split(&scalar(value)?).map_err(|why| at(value, why))?);
            }
        }
    }
    Ok(words)
}

/// Returns the known word of a key: `half_life` is `half-life`.
fn known(key: &Spanned<std::borrow::Cow<'_, str>>, words: &[&'static str]) -> Result<&'static str, Wrong> {
    let (name, dashed) = (key.get_ref().as_ref(), key.get_ref().replace('_', "-"));
    words.iter().find(|word| **word == dashed || **word == name).copied().ok_or_else(|| {
        let near = did_you_mean(name, words);
        at(key, format!("{name:?} is not known here{near}; there are {}", words.join(", ")))
    })
}

/// Returns the entries in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Entry<'a, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn at<T>(place: &Spanned<T>, problem: impl Into<String>) -> Wrong {
    Wrong { at: place.span().start, problem: problem.into() }
}

fn table_of<'a, 'i>(value: &'a Spanned<DeValue<'i>>) -> Result<&'a DeTable<'i>, Wrong> {
    value.get_ref().as_table().ok_or_else(|| at(value, "a table is expected here"))
}

fn list<'a, 'i>(value: &'a Spanned<DeValue<'i>>) -> Result<Vec<&'a Spanned<DeValue<'i>>>, Wrong> {
    let refusal = || at(value, "a list of tables is expected here: a heading in double brackets");
    Ok(value.get_ref().as_array().ok_or_else(refusal)?.iter().collect())
}

/// Returns the text of a string or a number.
fn scalar(value: &Spanned<DeValue<'_>>) -> Result<String, Wrong> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(at(value, "a string or a number is expected here")),
    }
}

fn whole<N: std::str::FromStr>(value: &Spanned<DeValue<'_>>) -> Result<N, Wrong> {
    units::whole(&scalar(value)?).map_err(|why| at(value, why))
}

#[cfg(test)]
mod tests;
