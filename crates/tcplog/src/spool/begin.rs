//! A spool goes on in another file, which begins with what was said so far: so it can be read without those before it.
//!
//! The file is the present one only when all of that is in it. Where it cannot be written, it is removed again, and last words
//! go to the file before, which has room kept aside. Whether it has room is known before an earlier part is removed for it. Knows no events.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::parts::name_of;
use super::written::Written;
use super::{BUFFER, Health, MAGIC, Spool, SpoolError, VERSION, count, create, failure, frame, seal};
use crate::decode::Raw;
use crate::layout::{Flow, Totals};

/// Shows each flow, with its slot, to whom it is given; called twice, for they are counted first.
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
        let length =
            self.write_beginning(&path, &mut file, &said, flows).inspect_err(|_| drop(fs::remove_file(&path)))?;
        let bytes = std::mem::replace(&mut self.length, length);
        self.earlier.push(std::mem::replace(&mut self.path, path), bytes, self.written);
        (self.repeated, self.totals) = (length, Some(said));
        // Who makes records finds the new file locked before this one is free.
        let before = std::mem::replace(&mut self.file, file);
        let _ = before.unlock();
        (self.identity, self.number) = (identity, self.number + 1);
        Ok(())
    }

    /// Writes what a file begins with, and removes the oldest where all together would be too long; returns how long it is.
    fn write_beginning(
        &mut self,
        path: &Path,
        file: &mut File,
        totals: &[u8],
        flows: Flows<'_>,
    ) -> Result<u64, SpoolError> {
        let numbers = self.written.numbers();
        let said = Said { header: &self.header, lasting: &self.lasting, number: self.number + 1, numbers, totals };
        let room = self.limit.saturating_sub(self.total()).min(self.most_repeated);
        let counted = Beginning::new(path, None, room, &mut |_| Ok(())).put(&said, flows)?;
        let beside = |begun: u64| self.most_together.saturating_sub(self.length.saturating_add(begun));
        let freed = self.earlier.beyond(beside(counted));
        allocate(file, counted.saturating_sub(freed)).map_err(|source| failure("write", path, source))?;
        // Flows that began since they were counted make it longer.
        let earlier = &mut self.earlier;
        let (present, most) = (self.length, self.most_together);
        let mut make_room = |begun: u64| earlier.remove_beyond(most.saturating_sub(present.saturating_add(begun)));
        Beginning::new(path, Some(file), room, &mut make_room).put(&said, flows)
    }
}

/// Takes so much of the disk for a file, whose length stays. What is removed meanwhile gives as much as is still lacking then. Where a file
/// system cannot, nothing is taken.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let mut taken = Err(Errno::INTR);
    while taken == Err(Errno::INTR) {
        taken = fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes);
    }
    match taken {
        Err(error) if ![Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL].contains(&error) => Err(error.into()),
        _ => Ok(()),
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

/// What a file says again, but for the flows.
struct Said<'a> {
    header: &'a str,
    lasting: &'a [String],
    number: u32,
    numbers: [u64; Written::NUMBERS],
    totals: &'a [u8],
}

/// What a file begins with. Of many flows it is long: so it is written piece by piece.
struct Beginning<'a> {
    path: &'a Path,
    /// `None`: it is counted how long it would be.
    file: Option<&'a mut File>,
    buffer: Vec<u8>,
    length: u64,
    room: u64,
    /// Has files removed so that there is room for so much.
    make_room: &'a mut dyn FnMut(u64) -> Result<(), SpoolError>,
    failure: Option<SpoolError>,
}

impl<'a> Beginning<'a> {
    fn new(
        path: &'a Path,
        file: Option<&'a mut File>,
        room: u64,
        make_room: &'a mut dyn FnMut(u64) -> Result<(), SpoolError>,
    ) -> Self {
        Self { path, file, buffer: Vec::new(), length: 0, room, make_room, failure: None }
    }

    /// Puts all of it; returns how long it is.
    fn put(mut self, said: &Said<'_>, flows: Flows<'_>) -> Result<u64, SpoolError> {
        put_header(said.header, &mut self.buffer);
        self.frame(frame::PART, said.number, |bytes| said.numbers.put(bytes));
        self.frame(frame::TOTALS, 0, |bytes| bytes.extend_from_slice(said.totals));
        for note in said.lasting {
            self.frame(frame::NOTE, 0, |bytes| bytes.extend_from_slice(note.as_bytes()));
        }
        flows(&mut |slot, flow| self.frame(frame::FLOW, slot, |bytes| flow.put(bytes)));
        self.write();
        self.failure.map_or(Ok(self.length), Err)
    }

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
            self.failure = self.try_write().err();
        }
        self.buffer.clear();
    }

    fn try_write(&mut self) -> Result<(), SpoolError> {
        if self.length > self.room {
            return Err(SpoolError::Limit(self.path.to_owned()));
        }
        (self.make_room)(self.length)?;
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(&self.buffer));
        written.map_err(|source| failure("write", self.path, source))
    }
}
