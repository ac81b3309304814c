//! The records of a log of TCP's state.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use arrow_ipc::CompressionType;

use super::{Files, Origin, RecordError, path_of};
use crate::schema::Table;
use crate::table::{Row, Rows};
use crate::tables::tcp::{Account, Flow, Gap, Private, Sample};

/// How many rows a batch has at most.
pub(super) const BATCH: usize = 65_536;

/// How the columns are compressed: most of them hardly change from row to row.
const COMPRESSION: CompressionType = CompressionType::LZ4_FRAME;

const TABLES: [Table; 5] =
    [Table::of::<Sample>(), Table::of::<Private>(), Table::of::<Flow>(), Table::of::<Account>(), Table::of::<Gap>()];

/// A folder of the records of TCP's state: `<table>-<who>-<part>.arrow`.
pub struct TcpFolder {
    pub(super) files: Files,
    samples: Rows<Sample>,
    privates: Vec<Private>,
}

impl TcpFolder {
    /// Creates the files of a part, written by `who`, in `folder`, and the folder where it is missing. Columns of samples
    /// that are named in `absent` are null: the kernel has no such field.
    ///
    /// # Errors
    /// When a file is already there or cannot be made; then no file of ours is left.
    pub fn create(
        folder: &Path,
        (who, part): (&str, u16),
        absent: &HashSet<String>,
        origin: &Origin,
    ) -> Result<Self, RecordError> {
        let files = Files::create(folder, &TABLES, &suffix(who, part), (origin, Some(COMPRESSION)))?;
        Ok(Self { files, samples: Rows::new(absent), privates: Vec::new() })
    }

    /// Removes the files of a part, as far as they are there: they were broken off, and can be made again.
    pub fn remove(folder: &Path, (who, part): (&str, u16)) {
        for table in TABLES {
            let _ = fs::remove_file(path_of(folder, &table, &suffix(who, part)));
        }
    }

    /// Adds samples; whole batches are written.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable, as after each of the following.
    pub fn samples(&mut self, mut rows: &[Sample]) -> Result<(), RecordError> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(BATCH - self.samples.len()));
            let pushed = self.samples.push(now, &());
            if pushed.is_err() || self.samples.len() == BATCH {
                let batch = self.files.take(&mut self.samples, pushed)?;
                self.files.write(&[batch])?;
            }
            rows = later;
        }
        Ok(())
    }

    /// Adds fields of private states; whole batches are written.
    ///
    /// # Errors
    /// When it cannot.
    pub fn private(&mut self, row: Private) -> Result<(), RecordError> {
        self.privates.push(row);
        if self.privates.len() == BATCH { self.write_privates() } else { Ok(()) }
    }

    /// Writes flows.
    ///
    /// # Errors
    /// When it cannot.
    pub fn flows(&mut self, rows: &[Flow]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// Writes the account.
    ///
    /// # Errors
    /// When it cannot.
    pub fn account(&mut self, rows: &[Account]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// Writes gaps.
    ///
    /// # Errors
    /// When it cannot.
    pub fn gaps(&mut self, rows: &[Gap]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        if self.files.is_broken {
            return Ok(());
        }
        if self.samples.len() > 0 {
            let batch = self.files.take(&mut self.samples, Ok(()))?;
            self.files.write(&[batch])?;
        }
        self.write_privates()?;
        self.files.finish()
    }

    fn write_privates(&mut self) -> Result<(), RecordError> {
        let rows = std::mem::take(&mut self.privates);
        self.write(&rows)
    }

    fn write<R: Row<Context = ()>>(&mut self, rows: &[R]) -> Result<(), RecordError> {
        for rows in rows.chunks(BATCH) {
            let batch = self.files.batch(rows, &())?;
            self.files.write(&[batch])?;
        }
        Ok(())
    }
}

/// What the names of a part's files end with, before their kind.
fn suffix(who: &str, part: u16) -> String {
    format!("{who}-{part:03}")
}
