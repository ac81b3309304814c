//! Continue a spool in another file. It begins with the state so far, so it can be read without the earlier files.
//!
//! The new file becomes the current one only after all of that is written. Where that fails, it is removed, and final
//! entries go to the previous file, which has reserved space. Disk space is checked before an earlier part is removed
//! to make room. This module handles no events.

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

/// Call the given function for each flow, with its slot. Used twice: the flows are counted first.
pub type Flows<'a> = &'a mut dyn FnMut(&mut dyn FnMut(u32, &Flow));

impl Spool {
    /// End this file and continue in another that can be read without it: it begins with the counters so far, in total
    /// and of each open flow.
    ///
    /// # Errors
    /// When that fails: events are then only counted, as after any failed write, and final entries go to the previous
    /// file.
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

    /// Continue in a file that has been created.
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
        // A converter finds the new file locked before the old one is unlocked.
        let before = std::mem::replace(&mut self.file, file);
        let _ = before.unlock();
        (self.identity, self.number) = (identity, self.number + 1);
        Ok(())
    }

    /// Write the beginning of a file, removing the oldest files where the total would be too large; return its length.
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
        // Flows created since the count make it longer.
        let earlier = &mut self.earlier;
        let (present, most) = (self.length, self.most_together);
        let mut make_room = |begun: u64| earlier.remove_beyond(most.saturating_sub(present.saturating_add(begun)));
        Beginning::new(path, Some(file), room, &mut make_room).put(&said, flows)
    }
}

/// Allocate disk space for a file without changing its length. Space that is still missing comes from files removed
/// later. On a file system without support, nothing is allocated.
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

/// Append the header of a file.
pub(super) fn put_header(header: &str, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&MAGIC);
    VERSION.put(bytes);
    count(header.len()).put(bytes);
    bytes.extend_from_slice(header.as_bytes());
    crc32fast::hash(header.as_bytes()).put(bytes);
}

/// Return the size of the header.
pub(crate) const fn header_bytes(header: &str) -> u64 {
    (MAGIC.len() + 3 * size_of::<u32>() + header.len()) as u64
}

/// The repeated state except the flows.
struct Said<'a> {
    header: &'a str,
    lasting: &'a [String],
    number: u32,
    numbers: [u64; Written::NUMBERS],
    totals: &'a [u8],
}

/// The beginning of a file, written in pieces because it is long where there are many flows.
struct Beginning<'a> {
    path: &'a Path,
    /// `None`: only the length is computed.
    file: Option<&'a mut File>,
    buffer: Vec<u8>,
    length: u64,
    room: u64,
    /// Removes files to make room for this many bytes.
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

    /// Write all of it; return its length.
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
