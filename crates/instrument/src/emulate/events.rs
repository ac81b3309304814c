//! The events beside an emulator's log: what it was asked, and since which packet. `emulation-NAME-KKK.jsonl`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sojourn_emulate::{Config, Pipe};
use sojourn_time::{Nanos, Time};

use super::compensate::Compensated;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// It began: the first line.
    Start {
        /// What it was asked.
        #[serde(deserialize_with = "config")]
        config: Box<Config>,
        /// Zero of traces and outages.
        start_ns: Time,
        /// The left port.
        left: String,
        /// The right port.
        right: String,
        /// How frames move at each.
        engine: [String; 2],
        /// How it waits.
        wait: String,
        /// What is subtracted from each departure for the path outside; earlier versions did not say.
        #[serde(default)]
        compensated: Option<Compensated>,
        /// The program.
        version: String,
        /// How that was built.
        profile: String,
    },
    /// A pipe was changed.
    Set {
        /// The first packet that it holds for.
        number: u64,
        /// When.
        at_ns: Time,
        /// Its name.
        pipe: String,
        /// What it is now.
        to: Box<Pipe>,
    },
    /// By how much `CLOCK_TAI` is ahead of the clock of all the log's times, which nobody sets: at its beginning, and after each
    /// step.
    Clock {
        /// When it was found, on the log's clock.
        at_ns: Time,
        /// To be added to a time of the log from then on.
        tai_ahead_ns: Nanos,
    },
    /// Something came up that a person should know: a port that went down, a clock that was set.
    Notice {
        /// When it was noticed.
        at_ns: Time,
        /// What.
        sentence: String,
    },
    /// A block was begun.
    Begin {
        /// Its number.
        block: i32,
        /// The first packet that belongs to it.
        number: u64,
        /// Whether its packets are logged.
        keep: bool,
    },
    /// The log ends here and the emulator goes on: the last line.
    Stopped {
        /// When.
        at_ns: Time,
        /// Rows that were written.
        written: u64,
        /// Why.
        why: String,
    },
    /// The emulator did not end, and these are the rows that could be read: the last line.
    Recovered {
        /// Rows.
        written: u64,
    },
    /// It ended well: the last line.
    End {
        /// Rows that were written.
        written: u64,
        /// Rows that could not be written in time.
        skipped: u64,
        /// Rows of blocks that were not to be logged.
        not_kept: u64,
        /// What it did.
        report: Value,
    },
}

/// Reads a configuration. An earlier version wrote whether a packet that had left a pipe was done (`one_pass`): it always is now.
fn config<'a, D: Deserializer<'a>>(from: D) -> Result<Box<Config>, D::Error> {
    let mut value = Value::deserialize(from)?;
    let one_pass = value.as_object_mut().and_then(|config| config.remove("one_pass"));
    if one_pass == Some(Value::Bool(false)) {
        return Err(D::Error::custom("one_pass = false, as an earlier version had it, is not offered any more"));
    }
    serde_json::from_value(value).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_earlier_log_is_read_unless_packets_went_from_pipe_to_pipe() {
        let mut config = serde_json::to_value(Config { seed: u64::MAX, ..Config::default() }).unwrap();
        let read = |config: &Value| {
            let line = serde_json::json!({
                "event": "start", "config": config, "start_ns": 5, "left": "a", "right": "b", "engine": ["x", "y"],
                "wait": "spin", "version": "0", "profile": "debug",
            });
            serde_json::from_str::<Event>(&line.to_string())
        };
        let is_same = |event| matches!(event, Event::Start { config, .. } if config.seed == u64::MAX);
        assert!(is_same(read(&config).unwrap()));
        config["one_pass"] = Value::Bool(true);
        assert!(is_same(read(&config).unwrap()));
        config["one_pass"] = Value::Bool(false);
        assert!(read(&config).unwrap_err().to_string().contains("one_pass = false"));
    }
}
