//! Configurations in three syntaxes, with their recorded results: `corpus/configurations.txt`.
//!
//! A case is a line `KIND: TEXT` followed by its result: `=` the pipe or the configuration, without default values; `>`
//! the pipe as words; `!` the refusal. `\n` in a text is a line break. To record a result, write a case without one and
//! copy it from the message of the failing test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;

use serde_json::{Value, json};
use sojourn_emulate::ConfigError;
use sojourn_emulate::config::{
    Config, Match, Pipe, check, check_pipe, config_from_dummynet, load, pipe_from_options, pipe_from_words, to_words,
};

const RECORDED: &str = include_str!("corpus/configurations.txt");

#[test]
fn configurations_parse_as_recorded_in_the_corpus() {
    let cases: Vec<&str> = RECORDED.lines().filter_map(|line| kind_of(line).map(|_| line)).collect();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let mut now: String =
        RECORDED.lines().take_while(|line| kind_of(line).is_none()).map(|line| format!("{line}\n")).collect();
    cases.iter().for_each(|case| now += &format!("{case}\n{}", answer(case)));
    if now != RECORDED {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configurations.txt");
        std::fs::write(&path, &now).unwrap();
        let (was, is) = RECORDED.lines().zip(now.lines()).find(|(was, is)| was != is).unwrap_or_default();
        panic!("recorded: {was}\nread now: {is}\nall of it: {}", path.display());
    }
}

/// Splits a case into kind and text; `None`: the line is not a case.
fn kind_of(line: &str) -> Option<(&str, &str)> {
    let (kind, text) = line.split_once(':')?;
    ["words", "change", "options", "toml", "lines"].contains(&kind).then(|| (kind, text.trim_start()))
}

fn answer(case: &str) -> String {
    let (kind, text) = kind_of(case).unwrap();
    let text = text.replace("\\n", "\n");
    let idle = Pipe { name: "p".to_owned(), ..Pipe::default() };
    match kind {
        "words" => of_pipe(pipe_from_words(&text, &idle)),
        "change" => {
            let (base, words) = text.split_once(" => ").unwrap();
            of_pipe(pipe_from_words(words, &pipe_from_words(base, &idle).unwrap()))
        }
        "options" => {
            let pairs = text.split(" | ").map(|pair| pair.split_once('=').unwrap());
            of_pipe(pipe_from_options(pairs, &idle))
        }
        "lines" => of_config(config_from_dummynet(&text)),
        _ => of_config(loaded(&text)),
    }
}

/// Parses TOML from a file; a refusal names it FILE.
fn loaded(text: &str) -> Result<Config, ConfigError> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configuration.toml");
    std::fs::write(&path, text).unwrap();
    load(&path).map_err(|error| ConfigError::new(error.place.replace(path.to_str().unwrap(), "FILE"), error.problem))
}

fn of_pipe(read: Result<Pipe, ConfigError>) -> String {
    let pipe = match read {
        Ok(pipe) => pipe,
        Err(error) => return format!("! {error}\n"),
    };
    let words = to_words(&pipe);
    // Profiles and files appear in words as the names they were read from, which may not exist here.
    if pipe.link.profile.is_none() {
        let base = Pipe { name: pipe.name.clone(), ..Pipe::default() };
        assert_eq!(pipe_from_words(&words, &base).unwrap(), pipe, "{words}");
    }
    let checked = check_pipe(&pipe).err().map_or(String::new(), |error| format!("! {error}\n"));
    let told = without(json!(pipe), &json!(Pipe { name: pipe.name.clone(), ..Pipe::default() }));
    format!("= {told}\n{}\n{checked}", format!("> {words}").trim_end())
}

fn of_config(read: Result<Config, ConfigError>) -> String {
    let config = match read {
        Ok(config) => config,
        Err(error) => return format!("! {error}\n"),
    };
    let mut told = without(json!(config), &json!(Config::default()));
    for pipe in told.get_mut("pipes").and_then(Value::as_array_mut).into_iter().flatten() {
        *pipe = without(pipe.take(), &json!(Pipe::default()));
    }
    for rule in told.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
        rule["on"] = without(rule["on"].take(), &json!(Match::default()));
    }
    let rules: String = config.rules.iter().map(|rule| format!("> {rule}\n")).collect();
    let checked = check(&config).err().map_or(String::new(), |error| format!("! {error}\n"));
    format!("= {told}\n{rules}{checked}")
}

/// Removes default values, and the middle of long lists.
fn without(value: Value, default: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, field)| default.get(name) != Some(field))
            .map(|(name, field)| {
                let default = default.get(&name).unwrap_or(&Value::Null);
                (name, without(field, default))
            })
            .collect(),
        Value::Array(values) if values.len() > 16 => {
            let sum: f64 =
                values.iter().zip(1..).map(|(value, at)| f64::from(at) * value.as_f64().unwrap_or(0.5)).sum();
            json!({ "values": values.len(), "first": values[0], "last": values[values.len() - 1], "weighted_sum": sum })
        }
        Value::Array(values) => values.into_iter().map(|value| without(value, &Value::Null)).collect(),
        other => other,
    }
}
