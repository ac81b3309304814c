//! The records of a log of TCP's state.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use arrow_ipc::CompressionType;

use super::behind::Behind;
use super::{Files, Origin, RecordError, path_of};
use crate::schema::Table;
use crate::table::{Filling, Row, Rows};
use crate::tables::tcp::{Account, Flow, Gap, Private, PrivateFields, Sample};

/// The maximum number of rows in a batch.
pub(super) const BATCH: usize = 65_536;

/// The compression of columns, most of which hardly change from row to row.
const COMPRESSION: CompressionType = CompressionType::LZ4_FRAME;

const TABLES: [Table; 5] =
    [Table::of::<Sample>(), Table::of::<Private>(), Table::of::<Flow>(), Table::of::<Account>(), Table::of::<Gap>()];

/// The folder of the records of TCP's state: `<table>-<who>-<part>.arrow`. Batches of a long log are compressed and
/// written in a second thread.
pub struct TcpFolder {
    pub(super) files: Behind,
    samples: Rows<Sample>,
    privates: Rows<Private>,
}

impl TcpFolder {
    /// Create the files of a part, written by `who`, in `folder`; create the folder if it is missing. The columns of
    /// samples named in `absent` are null, because the log has no such field.
    ///
    /// # Errors
    /// When a file exists already or cannot be created; then no created file remains.
    pub fn create(
        folder: &Path,
        (who, part): (&str, u16),
        absent: &HashSet<String>,
        origin: &Origin,
    ) -> Result<Self, RecordError> {
        let files = Files::create(folder, &TABLES, &suffix(who, part), (origin, Some(COMPRESSION)))?;
        Ok(Self { files: Behind::new(files), samples: Rows::new(absent), privates: Rows::new(&HashSet::new()) })
    }

    /// Remove the existing files of a part: they are incomplete and can be made again.
    pub fn remove(folder: &Path, (who, part): (&str, u16)) {
        for table in TABLES {
            let _ = fs::remove_file(path_of(folder, &table, &suffix(who, part)));
        }
    }

    /// Add samples, which `fill` converts into the columns that [`Sample`] declares; full batches are written.
    ///
    /// # Errors
    /// When writing fails; what was written before stays readable. Here and below, the error may be returned by a later
    /// call.
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

    /// Add the fields of a private state; full batches are written.
    ///
    /// # Errors
    /// When writing fails.
    pub fn private(&mut self, state: &PrivateFields<'_>) -> Result<(), RecordError> {
        let mut from = 0;
        while from < state.values.len() {
            let to = state.values.len().min(from + BATCH - self.privates.len());
            let pushed = self.privates.push_by(to - from, |filling| state.fill(from..to, filling));
            if pushed.is_err() || self.privates.len() == BATCH {
                let batch = self.files.take(&mut self.privates, pushed)?;
                self.files.write_later(batch)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Write flows.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flows(&mut self, rows: &[Flow]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// Write the packet accounting.
    ///
    /// # Errors
    /// When writing fails.
    pub fn account(&mut self, rows: &[Account]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// Write gaps.
    ///
    /// # Errors
    /// When writing fails.
    pub fn gaps(&mut self, rows: &[Gap]) -> Result<(), RecordError> {
        self.write(rows)
    }

    /// End the records.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
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

/// Return the ending of a part's file names, without the extension.
fn suffix(who: &str, part: u16) -> String {
    format!("{who}-{part:03}")
}
