//! A spool goes on in another file, which begins with what was said so far: so it can be read without those before it.
//!
//! The file is the present one only when all of that is in it. Where it cannot be written, it is removed again, and last words
//! go to the file before, which has room kept aside. Knows no events.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::parts::name_of;
use super::{BUFFER, Health, MAGIC, Spool, SpoolError, VERSION, count, create, failure, frame, seal};
use crate::decode::Raw;
use crate::layout::{Flow, Totals};

/// Shows each flow, with its slot, to whom it is given.
pub type Flows<'a> = &'a mut dyn FnMut(&mut dyn FnMut(u32, &Flow));

impl Spool {
    /// Ends this file and goes on in another, which can be read without it: it begins with what was counted so far, in total and of
    /// each flow that is open.
    ///
    /// # Errors
    /// When it cannot: then events are only counted, as where a file cannot be written, and last words go to this one.
    pub fn begin_part(&mut self, totals: &[Totals], flows: Flows<'_>) -> Result<(), SpoolError> {
        self.flush()?;
        if self.state != Health::Good {
            return Ok(());
        }
        let path = self.path.with_file_name(name_of(self.number + 1));
        let begun = create(&path).and_then(|made| self.begin_in(path, made, totals, flows));
        if let Err(problem) = &begun {
            self.state = Health::Broken;
            self.is_limited = matches!(problem, SpoolError::Limit(_));
        }
        begun
    }

    /// The same in a file that was made.
    pub(super) fn begin_in(
        &mut self,
        path: PathBuf,
        (mut file, identity): (File, (u64, u64)),
        totals: &[Totals],
        flows: Flows<'_>,
    ) -> Result<(), SpoolError> {
        let mut said = Vec::new();
        totals.iter().for_each(|one| one.put(&mut said));
        let room = self.limit.saturating_sub(self.total()).min(self.most_repeated);
        let (earlier, present, most) = (&mut self.earlier, self.length, self.most_together);
        let mut make_room = |begun: u64| earlier.remove_beyond(most.saturating_sub(present.saturating_add(begun)));
        let mut beginning = Beginning {
            path: &path,
            file: &mut file,
            buffer: Vec::new(),
            length: 0,
            room,
            make_room: &mut make_room,
            failure: None,
        };
        put_header(&self.header, &mut beginning.buffer);
        let numbers = self.written.numbers();
        beginning.frame(frame::PART, self.number + 1, |bytes| numbers.put(bytes));
        beginning.frame(frame::TOTALS, 0, |bytes| bytes.extend_from_slice(&said));
        for note in &self.lasting {
            beginning.frame(frame::NOTE, 0, |bytes| bytes.extend_from_slice(note.as_bytes()));
        }
        flows(&mut |slot, flow| beginning.frame(frame::FLOW, slot, |bytes| flow.put(bytes)));
        let length = beginning.end().inspect_err(|_| drop(fs::remove_file(&path)))?;
        let bytes = std::mem::replace(&mut self.length, length);
        self.earlier.push(std::mem::replace(&mut self.path, path), bytes, self.written);
        (self.repeated, self.totals) = (length, Some(said));
        // Who makes records finds the new file locked before this one is free.
        let before = std::mem::replace(&mut self.file, file);
        let _ = before.unlock();
        (self.identity, self.number) = (identity, self.number + 1);
        Ok(())
    }
}

/// Puts what every file begins with.
pub(super) fn put_header(header: &str, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&MAGIC);
    VERSION.put(bytes);
    count(header.len()).put(bytes);
    bytes.extend_from_slice(header.as_bytes());
    crc32fast::hash(header.as_bytes()).put(bytes);
}

/// How much of a file that takes.
pub(crate) const fn header_bytes(header: &str) -> u64 {
    (MAGIC.len() + 3 * size_of::<u32>() + header.len()) as u64
}

/// What a file begins with. Of many flows it is long: so it is written piece by piece.
struct Beginning<'a> {
    path: &'a Path,
    file: &'a mut File,
    buffer: Vec<u8>,
    length: u64,
    room: u64,
    /// Has files removed so that there is room for so much.
    make_room: &'a mut dyn FnMut(u64) -> Result<(), SpoolError>,
    failure: Option<SpoolError>,
}

impl Beginning<'_> {
    fn frame(&mut self, kind: u32, from: u32, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        [kind, from, 0, 0].put(&mut self.buffer);
        put(&mut self.buffer);
        seal(&mut self.buffer[start..]);
        if self.buffer.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        self.length += self.buffer.len() as u64;
        if self.failure.is_none() {
            let is_too_long = self.length > self.room;
            let written = if is_too_long {
                Err(SpoolError::Limit(self.path.to_owned()))
            } else {
                let write =
                    |()| self.file.write_all(&self.buffer).map_err(|source| failure("write", self.path, source));
                (self.make_room)(self.length).and_then(write)
            };
            self.failure = written.err();
        }
        self.buffer.clear();
    }

    /// Writes the rest; returns how long all of it is.
    fn end(mut self) -> Result<u64, SpoolError> {
        self.write();
        self.failure.map_or(Ok(self.length), Err)
    }
}
