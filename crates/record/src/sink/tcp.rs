//! The records of a log of TCP's state.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_schema::{ArrowError, SchemaRef};

use super::{Origin, RecordError, Stream, failure};
use crate::arrow::tcp::{Samples, account, flows, gaps, privates};
use crate::row::tcp::{Account, Flow, Gap, Private, Sample};
use crate::schema::TCP_TABLES;

/// How many rows a batch has at most.
const BATCH: usize = 65_536;

/// How the columns are compressed: most of them hardly change from row to row.
const COMPRESSION: CompressionType = CompressionType::LZ4_FRAME;

/// Places among [`TCP_TABLES`].
const SAMPLES: usize = 0;
const PRIVATE: usize = 1;
const FLOWS: usize = 2;
const ACCOUNT: usize = 3;
const GAPS: usize = 4;

/// A folder of the records of TCP's state: the files of all [`TCP_TABLES`], `<table>-<who>-<part>.arrow`.
pub struct TcpFolder {
    tables: Vec<Stream>,
    samples: Samples,
    privates: Vec<Private>,
    is_broken: bool,
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
        fs::create_dir_all(folder).map_err(|source| failure("create", folder, source))?;
        let suffix = suffix(who, part);
        let open = |table| Stream::create_as(folder, table, &suffix, (origin, Some(COMPRESSION)));
        let mut tables: Vec<Stream> = Vec::new();
        for table in TCP_TABLES {
            let opened = open(table).inspect_err(|error| {
                tables.iter().for_each(|made| drop(fs::remove_file(&made.path)));
                // Begun, but not somebody else's.
                if !matches!(error, RecordError::Exists(_)) {
                    let _ = fs::remove_file(folder.join(format!("{}-{suffix}.arrow", table.name)));
                }
            });
            tables.push(opened?);
        }
        let samples = Samples::new(&tables[SAMPLES].schema, absent, BATCH);
        Ok(Self { tables, samples, privates: Vec::new(), is_broken: false })
    }

    /// Removes the files of a part, as far as they are there: they were broken off, and can be made again.
    pub fn remove(folder: &Path, (who, part): (&str, u16)) {
        let suffix = suffix(who, part);
        for table in TCP_TABLES {
            let _ = fs::remove_file(folder.join(format!("{}-{suffix}.arrow", table.name)));
        }
    }

    /// Adds samples; whole batches are written.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable, as after each of the following.
    pub fn samples(&mut self, mut rows: &[Sample]) -> Result<(), RecordError> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(BATCH - self.samples.len()));
            self.samples.push(now);
            if self.samples.len() == BATCH {
                self.write_samples()?;
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
        self.write(FLOWS, rows, flows)
    }

    /// Writes the account.
    ///
    /// # Errors
    /// When it cannot.
    pub fn account(&mut self, rows: &[Account]) -> Result<(), RecordError> {
        self.write(ACCOUNT, rows, account)
    }

    /// Writes gaps.
    ///
    /// # Errors
    /// When it cannot.
    pub fn gaps(&mut self, rows: &[Gap]) -> Result<(), RecordError> {
        self.write(GAPS, rows, gaps)
    }

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        if self.is_broken {
            return Ok(());
        }
        self.write_samples()?;
        self.write_privates()?;
        self.is_broken = true;
        self.tables.iter_mut().try_for_each(Stream::finish)
    }

    fn write_samples(&mut self) -> Result<(), RecordError> {
        if self.samples.len() == 0 {
            return Ok(());
        }
        let batch = self.samples.batch(&self.tables[SAMPLES].schema);
        self.put(SAMPLES, &batch?)
    }

    fn write_privates(&mut self) -> Result<(), RecordError> {
        let rows = std::mem::take(&mut self.privates);
        self.write(PRIVATE, &rows, privates)
    }

    fn write<R>(
        &mut self,
        table: usize,
        rows: &[R],
        batch: fn(&SchemaRef, &[R]) -> Result<RecordBatch, ArrowError>,
    ) -> Result<(), RecordError> {
        for rows in rows.chunks(BATCH) {
            let batch = batch(&self.tables[table].schema, rows)?;
            self.put(table, &batch)?;
        }
        Ok(())
    }

    fn put(&mut self, table: usize, batch: &RecordBatch) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let stream = &mut self.tables[table];
        let before = stream.length;
        stream.write(batch).inspect_err(|_| {
            self.is_broken = true;
            stream.cut(before);
        })
    }
}

/// What the names of a part's files end with, before their kind.
fn suffix(who: &str, part: u16) -> String {
    format!("{who}-{part:03}")
}

#[cfg(test)]
mod tests;
