//! The true arrival and departure of each frame. Kept in memory, written once at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sojourn_time::{Stamp, Time};

const ROOM: usize = 1 << 20;

/// The frames of one direction, in order of departure.
pub struct Log {
    near: String,
    direction: &'static str,
    entries: Vec<Entry>,
    /// The transmission number of the first entry.
    first: Option<u32>,
}

/// One frame.
pub struct Entry {
    pub frame_bytes: usize,
    pub arrived: Stamp,
    pub due: Time,
    pub left: Option<Stamp>,
}

impl Log {
    pub fn new(near: &str, direction: &'static str) -> Self {
        Self { near: near.to_owned(), direction, entries: Vec::with_capacity(ROOM), first: None }
    }

    /// Adds the frame that was sent with this number: one more than the last one's.
    pub fn add(&mut self, number: u32, entry: Entry) {
        self.first.get_or_insert(number);
        self.entries.push(entry);
    }

    /// Records the departure of the frame with this number.
    pub fn left(&mut self, number: u32, left: Stamp) {
        let index = number.wrapping_sub(self.first.unwrap_or(number));
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.left = Some(left);
        }
    }
}

/// Writes every direction of every path and returns the number of frames.
pub fn write<'a>(path: &Path, logs: impl IntoIterator<Item = &'a Log>) -> io::Result<usize> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "near,direction,frame_bytes,arrived_ns,arrived_source,due_ns,left_ns,left_source")?;
    let mut count = 0;
    for log in logs {
        count += log.entries.len();
        for Entry { frame_bytes, arrived, due, left } in &log.entries {
            write!(
                file,
                "{},{},{frame_bytes},{},{},{}",
                log.near,
                log.direction,
                arrived.at.0,
                arrived.source.name(),
                due.0
            )?;
            match left {
                Some(left) => writeln!(file, ",{},{}", left.at.0, left.source.name())?,
                None => writeln!(file, ",,")?,
            }
        }
    }
    file.flush()?;
    Ok(count)
}
