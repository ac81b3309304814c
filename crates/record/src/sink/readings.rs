//! Where readings of TCP_INFO go: `tcp_readings-<who>-<part>.arrow`, a block whole or not at all.

use std::fs;
use std::path::Path;

use super::{Origin, RecordError, Stream, failure};
use crate::arrow;
use crate::row::tcp_readings::Reading;
use crate::schema::TCP_READINGS;

/// What one process read of its sockets.
pub struct ReadingFile {
    stream: Stream,
    is_broken: bool,
}

impl ReadingFile {
    /// Creates the file of a part, written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When the file is already there or cannot be made.
    pub fn create(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        fs::create_dir_all(folder).map_err(|source| failure("create", folder, source))?;
        let stream = Stream::create(folder, TCP_READINGS, &format!("{who}-{part:03}"), origin)?;
        Ok(Self { stream, is_broken: false })
    }

    /// Writes all readings of a block, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, block: u32, rows: &[Reading]) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let before = self.stream.length;
        let batch = arrow::tcp_readings::batch(&self.stream.schema, block, rows)?;
        self.stream.write(&batch).inspect_err(|_| {
            self.is_broken = true;
            self.stream.cut(before);
        })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        if self.is_broken {
            return Ok(());
        }
        self.is_broken = true;
        self.stream.finish()
    }
}
