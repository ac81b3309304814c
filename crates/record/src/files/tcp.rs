//! The records of a log of TCP's state.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use arrow_ipc::CompressionType;

use super::behind::Behind;
use super::{Files, Origin, RecordError, path_of};
use crate::schema::Table;
use crate::table::{Filling, Row, Rows};
use crate::tables::tcp::{Account, Flow, Gap, Private, Sample};

/// How many rows a batch has at most.
pub(super) const BATCH: usize = 65_536;

/// How the columns are compressed: most of them hardly change from row to row.
const COMPRESSION: CompressionType = CompressionType::LZ4_FRAME;

const TABLES: [Table; 5] =
    [Table::of::<Sample>(), Table::of::<Private>(), Table::of::<Flow>(), Table::of::<Account>(), Table::of::<Gap>()];

/// A folder of the records of TCP's state: `<table>-<who>-<part>.arrow`. Batches of a long log are compressed and written in a
/// second thread.
pub struct TcpFolder {
    pub(super) files: Behind,
    samples: Rows<Sample>,
    privates: Rows<Private>,
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
        Ok(Self { files: Behind::new(files), samples: Rows::new(absent), privates: Rows::new(&HashSet::new()) })
    }

    /// Removes the files of a part, as far as they are there: they were broken off, and can be made again.
    pub fn remove(folder: &Path, (who, part): (&str, u16)) {
        for table in TABLES {
            let _ = fs::remove_file(path_of(folder, &table, &suffix(who, part)));
        }
    }

    /// Adds samples, whose columns `fill` makes of them as [`Sample`] declares them; whole batches are written.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable, as after each of the following. It may be said at a later call.
    pub fn samples<S>(&mut self, mut samples: &[S], fill: impl Fn(&[S], &mut Filling<'_>)) -> Result<(), RecordError> {
        while !samples.is_empty() {
            let (now, later) = samples.split_at(samples.len().min(BATCH - self.samples.len()));
            let pushed = self.samples.push_by(now.len(), |filling| fill(now, filling));
            if pushed.is_err() || self.samples.len() == BATCH {
                let batch = self.files.take(&mut self.samples, pushed)?;
                self.files.write_later(batch)?;
            }
            samples = later;
        }
        Ok(())
    }

    /// Adds fields of private states; whole batches are written.
    ///
    /// # Errors
    /// When it cannot.
    pub fn privates(&mut self, mut rows: &[Private]) -> Result<(), RecordError> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(BATCH - self.privates.len()));
            let pushed = self.privates.push(now, &());
            if pushed.is_err() || self.privates.len() == BATCH {
                let batch = self.files.take(&mut self.privates, pushed)?;
                self.files.write_later(batch)?;
            }
            rows = later;
        }
        Ok(())
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
        if self.files.is_broken() {
            return Ok(());
        }
        if !self.samples.is_empty() {
            let batch = self.files.take(&mut self.samples, Ok(()))?;
            self.files.write(batch)?;
        }
        if !self.privates.is_empty() {
            let batch = self.files.take(&mut self.privates, Ok(()))?;
            self.files.write(batch)?;
        }
        self.files.finish()
    }

    fn write<R: Row<Context = ()>>(&mut self, rows: &[R]) -> Result<(), RecordError> {
        for rows in rows.chunks(BATCH) {
            let mut made = Rows::new(&HashSet::new());
            let pushed = made.push(rows, &());
            let batch = self.files.take(&mut made, pushed)?;
            self.files.write(batch)?;
        }
        Ok(())
    }
}

/// What the names of a part's files end with, before their kind.
fn suffix(who: &str, part: u16) -> String {
    format!("{who}-{part:03}")
}
