//! The files of each instrument.

use std::path::Path;
use std::slice;

use super::{Batch, Files, Origin, RecordError};
use crate::schema::Table;
use crate::table::Row;
use crate::tables::packets::Packet;
use crate::tables::probes::{Block, Probe};
use crate::tables::streams::{Arrival, Bin, ClockLine, Exchange, Send, Stream, StreamBlock};
use crate::tables::tcp_readings::Reading;

/// The folder of a prober's records: `probes-KKK.arrow` and `blocks-KKK.arrow`.
pub struct RunFolder(pub(super) Files);

impl RunFolder {
    /// Create the two files of a part in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When a file exists already or cannot be created.
    pub fn create(folder: &Path, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        Self::create_so(folder, &format!("{part:03}"), origin)
    }

    /// Create `probes-<who>-KKK.arrow` and `blocks-<who>-KKK.arrow`, for several probers that run at once.
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

    /// Write one block and its probes.
    ///
    /// # Errors
    /// When writing fails; then nothing of this block is kept.
    pub fn write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError> {
        let probes = self.0.batch(probes, &block.block)?;
        let block = self.0.batch(slice::from_ref(block), &())?;
        self.0.write(&[probes, block])
    }

    /// End the records.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}

/// The folder of the stream records of one end: `<table>-<who>-<part>.arrow`, separate for each end and process, so
/// that several can write to one folder.
pub struct StreamFolder(pub(super) Files);

impl StreamFolder {
    /// Create the files of a part, written by `who`, in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When a file exists already or cannot be created.
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

    /// Write all rows of a block, or none.
    ///
    /// # Errors
    /// When writing fails; then nothing of this block is kept.
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

    /// End the records.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
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
    /// Create the file of a part, written by `who`, in `folder`; create the folder if it is missing. Rows refer to
    /// `pipes` by index.
    ///
    /// # Errors
    /// When the file exists already or cannot be created.
    pub fn create(
        folder: &Path,
        (who, part): (&str, u16),
        pipes: Vec<String>,
        origin: &Origin,
    ) -> Result<Self, RecordError> {
        let files = Files::create(folder, &[Table::of::<Packet>()], &format!("{who}-{part:03}"), (origin, None))?;
        Ok(Self { files, pipes })
    }

    /// Write all these rows, or none.
    ///
    /// # Errors
    /// When writing fails; what was written before stays readable.
    pub fn write(&mut self, rows: &[Packet]) -> Result<(), RecordError> {
        let batch = self.files.batch(rows, &self.pipes)?;
        self.files.write(&[batch])
    }

    /// Return the size of the file.
    pub fn length(&self) -> u64 {
        self.files.length()
    }

    /// Set the size limit: rows that would exceed it are refused, and end the file.
    pub fn limit_to(&mut self, bytes: u64) {
        self.files.limit_to(bytes);
    }

    /// End the log.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.files.finish()
    }

    /// Flush what was written to the disk, even if nothing more could be written.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn sync(&self) -> Result<(), RecordError> {
        self.files.sync()
    }
}

/// The TCP_INFO readings of one process: `tcp_readings-<who>-<part>.arrow`.
pub struct ReadingFile(Files);

impl ReadingFile {
    /// Create the file of a part, written by `who`, in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When the file exists already or cannot be created.
    pub fn create(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        Files::create(folder, &[Table::of::<Reading>()], &format!("{who}-{part:03}"), (origin, None)).map(Self)
    }

    /// Write all readings of a block, or none.
    ///
    /// # Errors
    /// When writing fails; what was written before stays readable.
    pub fn write(&mut self, block: u32, rows: &[Reading]) -> Result<(), RecordError> {
        let batch = self.0.batch(rows, &block)?;
        self.0.write(&[batch])
    }

    /// End the file.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}
