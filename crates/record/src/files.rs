//! Write records to the files of a run folder, one for each table. Rows that belong together are written completely or
//! not at all, so that a full disk or a crash leaves readable files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::private;
use crate::schema::{self, Kind, Table};
use crate::table::{Row, Rows, Unfit};

mod behind;
mod folders;
mod taps;
mod tcp;

pub use folders::{PacketFile, ReadingFile, RunFolder, StreamFolder};
pub use taps::{CrossingFolder, TapAbout, TapFolder};
pub use tcp::TcpFolder;

/// The program that writes the records.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The instrument's version.
    pub instrument: String,
    /// How it was built: release or debug.
    pub profile: String,
    /// Whether timestamps are simulated.
    pub is_simulated: bool,
    /// The clock of the timestamps, if it differs from the table's declaration: of captures, `CLOCK_REALTIME`.
    pub clock: Option<&'static str>,
    /// Further metadata of the files.
    pub about: Vec<(&'static str, String)>,
}

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file exists already: records are written once.
    #[error("create {}: it exists already; records are written once: give another folder or --part", .0.display())]
    Exists(PathBuf),
    /// The disk is full.
    #[error("write {}: the disk is full; what was recorded before this block stays readable", .0.display())]
    Full(PathBuf),
    /// The size limit is reached.
    #[error("write {}: the limit of its size is reached", .0.display())]
    Limit(PathBuf),
    /// Another failure of the file system.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// Its object.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A count is too large for its column, or a name is unknown.
    #[error("write {}: {} has no room for {}", path.display(), .unfit.column, value_of(.unfit))]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The value and its column.
        unfit: Unfit,
    },
    /// The rows do not match the schema: a bug.
    #[error("encode records: {0}")]
    Encode(#[from] ArrowError),
    /// An earlier write failed, so the stream cannot go on.
    #[error("write records: an earlier write failed")]
    Broken,
}

fn value_of(unfit: &Unfit) -> String {
    unfit.value.map_or_else(|| "a missing value".to_owned(), |value| value.to_string())
}

/// Files whose batches are written together or not at all.
pub(crate) struct Files {
    files: Vec<TableFile>,
    /// Opened in advance: without root's privileges, a folder of another user can no longer be opened.
    folder: File,
    is_broken: bool,
}

/// The index of a file, and a batch for it.
pub(crate) type Batch = (usize, RecordBatch);

impl Files {
    /// Create the files of these tables, whose names end in `suffix`, in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When a file exists already or cannot be created; then no created file remains.
    pub(crate) fn create(
        folder: &Path,
        tables: &[Table],
        suffix: &str,
        (origin, compression): (&Origin, Option<CompressionType>),
    ) -> Result<Self, RecordError> {
        private::create_folder(folder).map_err(|source| failure("create", folder, source))?;
        let mut files: Vec<TableFile> = Vec::new();
        for table in tables {
            let path = path_of(folder, table, suffix);
            let made = TableFile::create(path.clone(), table, (origin, compression)).inspect_err(|error| {
                files.iter().for_each(|made| drop(fs::remove_file(&made.shape.path)));
                // Created by this call, and not somebody else's.
                if !matches!(error, RecordError::Exists(_)) {
                    let _ = fs::remove_file(path);
                }
            });
            files.push(made?);
        }
        let folder = File::open(folder).map_err(|source| failure("open", folder, source))?;
        Ok(Self { files, folder, is_broken: false })
    }

    /// Return the batch of these rows.
    ///
    /// # Errors
    /// When a value does not fit its column.
    pub(crate) fn batch<R: Row>(&self, rows: &[R], context: &R::Context) -> Result<Batch, RecordError> {
        let mut made = Rows::new(&Default::default());
        let pushed = made.push(rows, context);
        self.take(&mut made, pushed)
    }

    /// Return the batch of rows that were pushed.
    ///
    /// # Errors
    /// When a value does not fit its column.
    fn take<R: Row>(&self, rows: &mut Rows<R>, pushed: Result<(), Unfit>) -> Result<Batch, RecordError> {
        let at = self.files.iter().position(|file| file.shape.table == R::NAME).ok_or(RecordError::Broken)?;
        self.files[at].shape.take(at, rows, pushed)
    }

    /// Return what is needed to make batches for the files, in the files' order.
    fn shapes(&self) -> Vec<Shape> {
        self.files.iter().map(|file| file.shape.clone()).collect()
    }

    /// Write all these batches, or none.
    ///
    /// # Errors
    /// When writing fails; earlier batches stay readable.
    pub(crate) fn write(&mut self, batches: &[Batch]) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let before: Vec<u64> = self.files.iter().map(|file| file.length).collect();
        let written = batches.iter().try_for_each(|(at, batch)| self.files[*at].write(batch));
        written.inspect_err(|_| {
            self.is_broken = true;
            for (file, length) in self.files.iter_mut().zip(before) {
                file.cut(length);
            }
        })
    }

    /// End the files. After a failure, a file may lack its end mark, which readers accept. On return, the files are on
    /// the disk, so their source may be removed.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub(crate) fn finish(&mut self) -> Result<(), RecordError> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Ok(());
        }
        self.files.iter_mut().try_for_each(TableFile::finish)?;
        self.sync_names()
    }

    /// Flush the files to the disk, including broken ones.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn sync(&self) -> Result<(), RecordError> {
        self.files.iter().try_for_each(TableFile::sync)?;
        self.sync_names()
    }

    fn sync_names(&self) -> Result<(), RecordError> {
        let path = || self.files.first().and_then(|file| file.shape.path.parent()).unwrap_or(Path::new(""));
        self.folder.sync_all().map_err(|source| failure("sync", path(), source))
    }

    /// Return the total size of the files.
    pub(crate) fn length(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// Set a size limit for each of the files.
    pub(crate) fn limit_to(&mut self, bytes: u64) {
        self.files.iter_mut().for_each(|file| file.limit = bytes);
    }
}

/// Flush the names of a folder's files to the disk.
///
/// # Errors
/// When the file system refuses.
pub fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    // The parent of a bare file name is empty.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| failure("sync", folder, source))
}

/// Return the path of a table's file.
fn path_of(folder: &Path, table: &Table, suffix: &str) -> PathBuf {
    folder.join(format!("{}-{suffix}.arrow", table.name))
}

/// One Arrow IPC stream in a file. It is encoded in memory and written in one piece, so that the file's length is
/// always known.
struct TableFile {
    shape: Shape,
    file: File,
    length: u64,
    /// The size limit.
    limit: u64,
    encoder: StreamWriter<Vec<u8>>,
}

/// What is needed to make a batch for a file, independent of the file itself.
#[derive(Clone)]
struct Shape {
    table: &'static str,
    path: PathBuf,
    schema: SchemaRef,
}

impl Shape {
    /// Return the batch of rows that were pushed, for the file with index `at`.
    fn take<R: Row>(&self, at: usize, rows: &mut Rows<R>, pushed: Result<(), Unfit>) -> Result<Batch, RecordError> {
        pushed.map_err(|unfit| RecordError::Unfit { path: self.path.clone(), unfit })?;
        Ok((at, rows.batch(&self.schema)?))
    }
}

impl TableFile {
    fn create(
        path: PathBuf,
        table: &Table,
        (origin, compression): (&Origin, Option<CompressionType>),
    ) -> Result<Self, RecordError> {
        let file = private::create_file(&path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                RecordError::Exists(path.clone())
            } else {
                failure("create", &path, source)
            }
        })?;
        let schema = schema_of(table, origin);
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let encoder = StreamWriter::try_new_with_options(Vec::new(), &schema, options)?;
        let shape = Shape { table: table.name, path, schema };
        let mut made = Self { shape, file, length: 0, limit: u64::MAX, encoder };
        made.flush()?;
        Ok(made)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), RecordError> {
        self.encoder.write(batch)?;
        self.flush()
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        self.encoder.finish()?;
        self.flush()?;
        self.sync()
    }

    fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_all().map_err(|source| failure("sync", &self.shape.path, source))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let bytes = self.encoder.get_mut();
        if self.length + bytes.len() as u64 > self.limit {
            bytes.clear();
            return Err(RecordError::Limit(self.shape.path.clone()));
        }
        self.file.write_all(bytes).map_err(|source| failure("write", &self.shape.path, source))?;
        self.length += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }

    /// Truncate the file to `length`. Best effort: readers treat a partial batch at the end as truncated.
    fn cut(&mut self, length: u64) {
        let _ = self.file.set_len(length);
    }
}

/// Return the Arrow schema of a table; its metadata holds what is common to all rows.
pub(crate) fn schema_of(table: &Table, origin: &Origin) -> SchemaRef {
    let fields: Vec<Field> = (table.fields)().iter().map(|field| field_of(field, origin)).collect();
    let mut metadata = HashMap::from([
        ("schema".to_owned(), format!("sojourn.{}", table.name)),
        ("version".to_owned(), schema::version().to_string()),
        ("instrument".to_owned(), origin.instrument.clone()),
        ("profile".to_owned(), origin.profile.clone()),
    ]);
    metadata.extend(origin.about.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

fn field_of(field: &schema::Field, origin: &Origin) -> Field {
    let mut metadata = HashMap::from([("unit".to_owned(), field.unit.to_owned())]);
    if let Some(clock) = field.clock {
        let clock = if origin.is_simulated { schema::SIMULATED } else { origin.clock.unwrap_or(clock) };
        metadata.insert("clock".to_owned(), clock.to_owned());
    }
    if let Some(source) = field.source {
        metadata.insert("source".to_owned(), source.to_owned());
    }
    Field::new(field.name, type_of(field.kind), field.nullable).with_metadata(metadata)
}

pub(crate) fn type_of(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::Float64 => DataType::Float64,
        Kind::Utf8 => DataType::Utf8,
        Kind::Binary => DataType::Binary,
        Kind::Utf8Dictionary => DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
    }
}

/// Convert an error of the file system; a full disk has a variant of its own.
pub fn failure(operation: &'static str, path: &Path, source: io::Error) -> RecordError {
    let path = path.to_owned();
    if is_full(&source) { RecordError::Full(path) } else { RecordError::File { operation, path, source } }
}

/// Whether there is no room: on the disk, within a quota, or within this process's limit of file sizes.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests;
