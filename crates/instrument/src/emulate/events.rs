//! The events beside an emulator's log: what it was asked, and since which packet. `emulation-NAME-KKK.jsonl`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sojourn_emulate::{Config, Pipe};
use sojourn_time::Time;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// It began: the first line.
    Start {
        /// What it was asked.
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
