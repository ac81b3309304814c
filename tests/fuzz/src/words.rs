//! Texts: configuration strings of pipes, configurations in TOML and in ipfw's syntax, times, rates.

use sojourn_emulate::config::{Config, Pipe, config_from_dummynet, load, pipe_from_words, to_words, units};
use sojourn_emulate::{Direction, Engine};
use sojourn_time::{Nanos, Time, text};

use crate::Target;
use crate::files::with_file;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "pipe-words", read: pipe_words, seeds: words },
    Target { name: "configuration", read: configuration, seeds: configurations },
    Target { name: "units", read: unit, seeds: units_seeds },
];

/// A parsed pipe can be converted to text and back, and carries packets.
fn pipe_words(bytes: &[u8]) {
    let Some(text) = harmless(bytes) else { return };
    let base = Pipe { name: "both".to_owned(), ..Pipe::default() };
    let Ok(pipe) = pipe_from_words(text, &base) else { return };
    let words = to_words(&pipe);
    let again = pipe_from_words(&words, &base);
    assert_eq!(again.as_ref(), Ok(&pipe), "{words}");
    let mut config = Config { pipes: vec![pipe], ..Config::default() };
    config.select_by_name();
    carry(&config);
}

fn configuration(bytes: &[u8]) {
    let Some(text) = harmless(bytes) else { return };
    if let Ok(config) = config_from_dummynet(text) {
        carry(&config);
    }
    with_file(text.as_bytes(), |path| {
        if let Ok(config) = load(path) {
            carry(&config);
        }
    });
}

/// Returns the text unless it may name a device file: the contents of files are another target.
pub(crate) fn harmless(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('/') || !text.contains("dev"))
}

/// Sends a hundred packets through the configuration, a millisecond apart, and waits a second for their departure.
fn carry(config: &Config) {
    let start = Time(1_000_000_000);
    let config = Config { memory_bytes: config.memory_bytes.min(1 << 20), ..config.clone() };
    let Ok(mut engine) = Engine::new(&config, start) else { return };
    let mut now = start;
    for nth in 0..100_u8 {
        now = now + Nanos::millis(1);
        let direction = if nth % 3 == 0 { Direction::Backward } else { Direction::Forward };
        engine.arrive(direction, &[nth; 90], now);
        while let Some(departure) = engine.due(now) {
            engine.departed(departure, now);
        }
    }
    now = now + Nanos::seconds(1);
    for _ in 0..10_000 {
        let Some(departure) = engine.due(now) else { break };
        engine.departed(departure, now);
    }
    engine.report();
}

fn unit(bytes: &[u8]) {
    let Ok(said) = std::str::from_utf8(bytes) else { return };
    let _ = text::time(said);
    let _ = units::rate(said);
    let _ = units::size(said);
    let _ = units::percentage(said);
    let _ = units::fraction(said);
}

const RECORDED: &str = include_str!("../../../crates/emulate/tests/corpus/configurations.txt");

/// Returns the cases of these kinds from the emulator's corpus.
fn cases(kinds: &[&str]) -> Vec<Vec<u8>> {
    let of = |line: &str| {
        let (kind, text) = line.split_once(':')?;
        kinds.contains(&kind).then(|| text.trim_start().replace("\\n", "\n").into_bytes())
    };
    RECORDED.lines().filter_map(of).collect()
}

fn words() -> Vec<Vec<u8>> {
    cases(&["words"])
}

fn configurations() -> Vec<Vec<u8>> {
    cases(&["toml", "lines"])
}

fn units_seeds() -> Vec<Vec<u8>> {
    ["1.5ms", "10Mbit/s", "64KiB", "0.1%", "1e-6", "250us"].map(|text| text.as_bytes().to_vec()).to_vec()
}
