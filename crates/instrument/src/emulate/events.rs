//! Events of an emulator's log: configuration changes, and the packets from which they apply. File
//! `emulation-NAME-KKK.jsonl`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sojourn_emulate::{Config, Pipe};
use sojourn_time::{Nanos, Time};

use super::compensate::Compensated;

/// An event: one line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The emulator started: the first line.
    Start {
        /// The configuration.
        #[serde(deserialize_with = "config")]
        config: Box<Config>,
        /// The time zero of traces and outages.
        start_ns: Time,
        /// The left port.
        left: String,
        /// The right port.
        right: String,
        /// The I/O backend of each port.
        engine: [String; 2],
        /// How it waits.
        wait: String,
        /// The path delay that is subtracted from each departure; missing in logs of earlier versions.
        #[serde(default)]
        compensated: Option<Compensated>,
        /// The version of the program.
        version: String,
        /// The build profile.
        profile: String,
    },
    /// A pipe was changed.
    Set {
        /// The first packet that passes the changed pipe.
        number: u64,
        /// The time of the change.
        at_ns: Time,
        /// Its name.
        pipe: String,
        /// The new settings.
        to: Box<Pipe>,
    },
    /// The offset of `CLOCK_TAI` from the log's clock, which is never set: at the start, and after each step of `CLOCK_TAI`.
    Clock {
        /// The time at which the offset was found, on the log's clock.
        at_ns: Time,
        /// The offset to add to times of the log from then on.
        tai_ahead_ns: Nanos,
    },
    /// A notice for the user: a port went down, a clock was set.
    Notice {
        /// When it was noticed.
        at_ns: Time,
        /// The notice.
        sentence: String,
    },
    /// A block began.
    Begin {
        /// Its number.
        block: i32,
        /// The first packet of the block.
        number: u64,
        /// Whether its packets are logged.
        keep: bool,
    },
    /// The log ends here while the emulator continues: the last line.
    Stopped {
        /// The time of the end.
        at_ns: Time,
        /// The number of rows written.
        written: u64,
        /// The reason.
        why: String,
    },
    /// The log was recovered after its emulator was killed: the last line.
    Recovered {
        /// The number of rows that could be read.
        written: u64,
    },
    /// The emulator ended normally: the last line.
    End {
        /// The number of rows written.
        written: u64,
        /// The number of rows that could not be written in time.
        skipped: u64,
        /// The number of rows in blocks that were not to be logged.
        not_kept: u64,
        /// The final report.
        report: Value,
    },
}

/// Parses a configuration. Earlier versions wrote `one_pass`, whether a packet is finished after its first pipe; it now always is.
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
    fn start_event_of_an_earlier_version_is_read_unless_its_pipes_were_chained() {
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
