//! The files that each instrument writes.

use std::path::Path;
use std::slice;

use super::{Batch, Files, Origin, RecordError};
use crate::schema::Table;
use crate::table::Row;
use crate::tables::packets::Packet;
use crate::tables::probes::{Block, Probe};
use crate::tables::streams::{Arrival, Bin, ClockLine, Exchange, Send, Stream, StreamBlock};
use crate::tables::tcp_readings::Reading;

/// A folder of records of probes: `probes-KKK.arrow` and `blocks-KKK.arrow`.
pub struct RunFolder(pub(super) Files);

impl RunFolder {
    /// Creates the two files of a part in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(folder: &Path, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        Self::create_so(folder, &format!("{part:03}"), origin)
    }

    /// Creates `probes-<who>-KKK.arrow` and `blocks-<who>-KKK.arrow`, as several probers at once need them.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_of(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        Self::create_so(folder, &format!("{who}-{part:03}"), origin)
    }

    fn create_so(folder: &Path, ending: &str, origin: &Origin) -> Result<Self, RecordError> {
        let tables = [Table::of::<Probe>(), Table::of::<Block>()];
        Files::create(folder, &tables, ending, (origin, None)).map(Self)
    }

    /// Writes one block and its probes.
    ///
    /// # Errors
    /// When it cannot; nothing of this block is then kept.
    pub fn write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError> {
        let probes = self.0.batch(probes, &block.block)?;
        let block = self.0.batch(slice::from_ref(block), &())?;
        self.0.write(&[probes, block])
    }

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}

/// A folder of the records of streams as one end sees them: `<table>-<who>-<part>.arrow`, one for each end and process, so that
/// several write into one folder at once.
pub struct StreamFolder(pub(super) Files);

impl StreamFolder {
    /// Creates the files of a part, written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        let tables = [
            Table::of::<Send>(),
            Table::of::<Arrival>(),
            Table::of::<Stream>(),
            Table::of::<Bin>(),
            Table::of::<Exchange>(),
            Table::of::<ClockLine>(),
        ];
        Files::create(folder, &tables, &format!("{who}-{part:03}"), (origin, None)).map(Self)
    }

    /// Writes all rows of a block, or none.
    ///
    /// # Errors
    /// When it cannot; nothing of this block is then kept.
    pub fn write(&mut self, block: &StreamBlock) -> Result<(), RecordError> {
        let mut batches = Vec::new();
        let number = block.block;
        self.add(&mut batches, &block.sends, number)?;
        self.add(&mut batches, &block.arrivals, number)?;
        self.add(&mut batches, &block.streams, number)?;
        self.add(&mut batches, &block.histograms, number)?;
        self.add(&mut batches, &block.exchanges, number)?;
        self.add(&mut batches, &block.clock_lines, number)?;
        self.0.write(&batches)
    }

    fn add<R: Row<Context = u32>>(&self, to: &mut Vec<Batch>, rows: &[R], block: u32) -> Result<(), RecordError> {
        if !rows.is_empty() {
            to.push(self.0.batch(rows, &block)?);
        }
        Ok(())
    }

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}

/// The log of an emulator: `packets-<who>-<part>.arrow`.
pub struct PacketFile {
    files: Files,
    pipes: Vec<String>,
}

impl PacketFile {
    /// Creates the file of a part, written by `who`, in `folder`, and the folder where it is missing. Rows name `pipes` by
    /// their place.
    ///
    /// # Errors
    /// When the file is already there or cannot be made.
    pub fn create(
        folder: &Path,
        (who, part): (&str, u16),
        pipes: Vec<String>,
        origin: &Origin,
    ) -> Result<Self, RecordError> {
        let files = Files::create(folder, &[Table::of::<Packet>()], &format!("{who}-{part:03}"), (origin, None))?;
        Ok(Self { files, pipes })
    }

    /// Writes all these rows, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, rows: &[Packet]) -> Result<(), RecordError> {
        let batch = self.files.batch(rows, &self.pipes)?;
        self.files.write(&[batch])
    }

    /// Returns how long the file is.
    pub fn length(&self) -> u64 {
        self.files.length()
    }

    /// Lets the file be no longer than this: rows that would make it so are refused, and end it.
    pub fn limit_to(&mut self, bytes: u64) {
        self.files.limit_to(bytes);
    }

    /// Ends the log.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.files.finish()
    }

    /// Makes what was written outlive a loss of power, also where no more could be written.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn sync(&self) -> Result<(), RecordError> {
        self.files.sync()
    }
}

/// What one process read of its sockets: `tcp_readings-<who>-<part>.arrow`.
pub struct ReadingFile(Files);

impl ReadingFile {
    /// Creates the file of a part, written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When the file is already there or cannot be made.
    pub fn create(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        Files::create(folder, &[Table::of::<Reading>()], &format!("{who}-{part:03}"), (origin, None)).map(Self)
    }

    /// Writes all readings of a block, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, block: u32, rows: &[Reading]) -> Result<(), RecordError> {
        let batch = self.0.batch(rows, &block)?;
        self.0.write(&[batch])
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}
