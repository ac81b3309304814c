//! Where records go: a run folder, or memory. A block is written whole or not at all, so that a full disk or a crash
//! leaves a readable file behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};

use crate::arrow;
use crate::row::packet::Packet;
use crate::row::stream::StreamBlock;
use crate::row::{Block, Probe};
use crate::schema::{BLOCKS, PACKETS, PROBES, STREAM_TABLES, Table};

mod readings;

pub use readings::ReadingFile;

/// Something that keeps records.
pub trait RecordSink {
    /// Writes one block and its probes.
    ///
    /// # Errors
    /// When it cannot; nothing of this block is then kept.
    fn write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError>;

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    fn finish(&mut self) -> Result<(), RecordError>;
}

/// Who writes the records.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The instrument's version.
    pub instrument: String,
    /// How it was built: release or debug.
    pub profile: String,
    /// Whether its times are simulated.
    pub is_simulated: bool,
}

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file is already there: records are written once.
    #[error("create {}: it exists already; records are written once: give another folder or --part", .0.display())]
    Exists(PathBuf),
    /// The disk is full.
    #[error("write {}: the disk is full; what was recorded before this block stays readable", .0.display())]
    Full(PathBuf),
    /// Another failure of the file system.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rows do not fit the schema: a mistake of ours.
    #[error("encode records: {0}")]
    Encode(#[from] ArrowError),
    /// An earlier write failed, so the stream cannot go on.
    #[error("write records: an earlier write failed")]
    Broken,
}

/// A folder of records: `probes-KKK.arrow` and `blocks-KKK.arrow`.
pub struct RunFolder {
    probes: Stream,
    blocks: Stream,
    is_broken: bool,
}

impl RunFolder {
    /// Creates the two files of a part in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(folder: &Path, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        fs::create_dir_all(folder).map_err(|source| failure("create", folder, source))?;
        let probes = Stream::create(folder, PROBES, &format!("{part:03}"), origin)?;
        let blocks = Stream::create(folder, BLOCKS, &format!("{part:03}"), origin)?;
        Ok(Self { probes, blocks, is_broken: false })
    }

    fn try_write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError> {
        self.probes.write(&arrow::probes(&self.probes.schema, block.block, probes)?)?;
        self.blocks.write(&arrow::block(&self.blocks.schema, block)?)
    }
}

impl RecordSink for RunFolder {
    fn write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let before = (self.probes.length, self.blocks.length);
        self.try_write(block, probes).inspect_err(|_| {
            self.is_broken = true;
            self.probes.cut(before.0);
            self.blocks.cut(before.1);
        })
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        if self.is_broken {
            return Ok(());
        }
        // Either failure leaves a file without its end mark, which readers accept.
        self.is_broken = true;
        self.probes.finish()?;
        self.blocks.finish()
    }
}

/// A folder of the records of streams as one end sees them: the files of all [`STREAM_TABLES`],
/// `<table>-<who>-<part>.arrow`, one for each end and process, so that several write into one folder at once.
pub struct StreamFolder {
    tables: Vec<Stream>,
    is_broken: bool,
}

impl StreamFolder {
    /// Creates the files of a part, written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(folder: &Path, who: &str, part: u16, origin: &Origin) -> Result<Self, RecordError> {
        fs::create_dir_all(folder).map_err(|source| failure("create", folder, source))?;
        let suffix = format!("{who}-{part:03}");
        let open = |table| Stream::create(folder, table, &suffix, origin);
        let tables = STREAM_TABLES.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { tables, is_broken: false })
    }

    /// Writes all rows of a block, or none.
    ///
    /// # Errors
    /// When it cannot; nothing of this block is then kept.
    pub fn write(&mut self, block: &StreamBlock) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let before: Vec<u64> = self.tables.iter().map(|stream| stream.length).collect();
        self.try_write(block).inspect_err(|_| {
            self.is_broken = true;
            for (stream, length) in self.tables.iter_mut().zip(before) {
                stream.cut(length);
            }
        })
    }

    /// Ends the records.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        if self.is_broken {
            return Ok(());
        }
        self.is_broken = true;
        self.tables.iter_mut().try_for_each(Stream::finish)
    }

    fn try_write(&mut self, block: &StreamBlock) -> Result<(), RecordError> {
        for (table, stream) in self.tables.iter_mut().enumerate() {
            if let Some(batch) = arrow::stream::batch(table, &stream.schema, block)? {
                stream.write(&batch)?;
            }
        }
        Ok(())
    }
}

/// The log of an emulator: `packets-<who>-<part>.arrow`.
pub struct PacketFile {
    stream: Stream,
    pipes: Vec<String>,
    is_broken: bool,
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
        fs::create_dir_all(folder).map_err(|source| failure("create", folder, source))?;
        let stream = Stream::create(folder, PACKETS, &format!("{who}-{part:03}"), origin)?;
        Ok(Self { stream, pipes, is_broken: false })
    }

    /// Writes all these rows, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, rows: &[Packet]) -> Result<(), RecordError> {
        if self.is_broken {
            return Err(RecordError::Broken);
        }
        let before = self.stream.length;
        let batch = arrow::packet::batch(&self.stream.schema, rows, &self.pipes)?;
        self.stream.write(&batch).inspect_err(|_| {
            self.is_broken = true;
            self.stream.cut(before);
        })
    }

    /// Ends the log.
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

mod tcp;

pub use tcp::TcpFolder;

/// One Arrow IPC stream in a file. Encoded in memory and written whole, so that the file's length is always known.
struct Stream {
    path: PathBuf,
    file: File,
    length: u64,
    schema: SchemaRef,
    encoder: StreamWriter<Vec<u8>>,
}

impl Stream {
    fn create(folder: &Path, table: Table, suffix: &str, origin: &Origin) -> Result<Self, RecordError> {
        Self::create_as(folder, table, suffix, (origin, None))
    }

    fn create_as(
        folder: &Path,
        table: Table,
        suffix: &str,
        (origin, compression): (&Origin, Option<CompressionType>),
    ) -> Result<Self, RecordError> {
        let path = folder.join(format!("{}-{suffix}.arrow", table.name));
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                RecordError::Exists(path.clone())
            } else {
                failure("create", &path, source)
            }
        })?;
        let schema = arrow::schema_of(table, origin);
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let encoder = StreamWriter::try_new_with_options(Vec::new(), &schema, options)?;
        let mut stream = Self { path, file, length: 0, schema, encoder };
        stream.flush()?;
        Ok(stream)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), RecordError> {
        self.encoder.write(batch)?;
        self.flush()
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        self.encoder.finish()?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        let bytes = self.encoder.get_mut();
        self.file.write_all(bytes).map_err(|source| failure("write", &self.path, source))?;
        self.length += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }

    /// Takes back what was written beyond `length`. Best effort: a torn batch at the end is read as truncated.
    fn cut(&mut self, length: u64) {
        let _ = self.file.set_len(length);
    }
}

fn failure(operation: &'static str, path: &Path, source: io::Error) -> RecordError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RecordError::Full(path),
        _ => RecordError::File { operation, path, source },
    }
}

/// Records in memory, for tests and summaries.
#[derive(Debug, Default)]
pub struct Memory {
    /// All that was written.
    pub blocks: Vec<(Block, Vec<Probe>)>,
}

impl RecordSink for Memory {
    fn write(&mut self, block: &Block, probes: &[Probe]) -> Result<(), RecordError> {
        self.blocks.push((block.clone(), probes.to_vec()));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
