//! Reads what an emulator logged. Foreign bytes: whatever is wrong with them is told, and nothing panics.

use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_schema::ArrowError;
use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::row::packet::{CAUSES, DIRECTIONS, FATES, HEAD_BYTES, Packet};
use crate::schema::{self, PACKETS};

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refused.
    #[error("open {}: {source}", path.display())]
    File {
        /// What.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no Arrow stream, or it is damaged.
    #[error("read {}: {source}", path.display())]
    Damaged {
        /// What.
        path: PathBuf,
        /// What is wrong with it.
        source: ArrowError,
    },
    /// It is another table, or holds what cannot be.
    #[error("read {}: {problem}", path.display())]
    Foreign {
        /// What.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Rows of an emulator's log, batch by batch.
pub struct PacketReader {
    path: PathBuf,
    stream: StreamReader<BufReader<File>>,
    pipes: Vec<String>,
}

impl PacketReader {
    /// Opens a log whose pipes are these.
    ///
    /// # Errors
    /// When it is none, or one of another version.
    pub fn open(path: &Path, pipes: Vec<String>) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::File { path: path.to_owned(), source })?;
        let stream = guarded(|| StreamReader::try_new(BufReader::new(file), None))
            .map_err(|source| ReadError::Damaged { path: path.to_owned(), source })?;
        let reader = Self { path: path.to_owned(), stream, pipes };
        let found = reader.stream.schema();
        let told = |key: &str| found.metadata().get(key).cloned().unwrap_or_default();
        if told("schema") != format!("sojourn.{}", PACKETS.name) || told("version") != schema::VERSION {
            let problem = format!("expected the table packets, version {}", schema::VERSION);
            return Err(reader.foreign(problem));
        }
        Ok(reader)
    }

    /// Reads the next rows into `rows`, after what is there; `false` at the end.
    ///
    /// # Errors
    /// When the file is damaged or cut; the rows before stay good.
    pub fn next(&mut self, rows: &mut Vec<Packet>) -> Result<bool, ReadError> {
        match guarded(|| self.stream.next().transpose()) {
            Ok(None) => Ok(false),
            Err(source) => Err(ReadError::Damaged { path: self.path.clone(), source }),
            Ok(Some(batch)) => {
                let columns = Columns::of(&batch).map_err(|problem| self.foreign(problem))?;
                rows.reserve(batch.num_rows());
                for row in 0..batch.num_rows() {
                    rows.push(columns.row(row, &self.pipes).map_err(|problem| self.foreign(problem))?);
                }
                Ok(true)
            }
        }
    }

    fn foreign(&self, problem: String) -> ReadError {
        ReadError::Foreign { path: self.path.clone(), problem }
    }
}

/// Lets arrow-ipc read: it panics on some damaged lengths and offsets.
fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("its lengths cannot be".to_owned())))
}

/// The columns of a batch.
struct Columns<'a>(&'a RecordBatch);

impl<'a> Columns<'a> {
    /// Takes a batch whose columns have the types of the schema.
    fn of(batch: &'a RecordBatch) -> Result<Self, String> {
        let declared = crate::arrow::schema_of(PACKETS, &crate::Origin::default());
        for (want, found) in declared.fields().iter().zip(batch.schema().fields()) {
            if want.name() != found.name() || want.data_type() != found.data_type() {
                return Err(format!("column {} is not as declared", want.name()));
            }
        }
        match declared.fields().get(batch.num_columns()) {
            Some(missing) => Err(format!("it has no column {}: an earlier version wrote it", missing.name())),
            None if batch.num_columns() > declared.fields().len() => {
                Err("it has more columns than are known: a later version wrote it".into())
            }
            None => Ok(Self(batch)),
        }
    }

    fn row(&self, row: usize, pipes: &[String]) -> Result<Packet, String> {
        let head = self.head(row);
        let mut packet = Packet {
            block: self.0.column(0).as_primitive::<Int32Type>().value(row),
            number: self.int64(1, row).unwrap_or_default().cast_unsigned(),
            copy_of: self.int64(2, row).map(i64::cast_unsigned),
            direction: self.name(3, row, &DIRECTIONS)?,
            pipe: self.pipe(row, pipes)?,
            flow: self.int64(5, row).unwrap_or_default().cast_unsigned(),
            frame_bytes: self.int32(6, row)?,
            head: [0; HEAD_BYTES],
            head_bytes: head.len().min(HEAD_BYTES) as u8,
            arrival: Stamp { at: self.time(8, row), source: self.source(row)? },
            entered: self.time(10, row),
            fate: self.name(11, row, &FATES)?,
            cause: self.name(12, row, &CAUSES)?,
            drawn: self.int64(13, row).map(Nanos),
            link_left: self.int64(14, row).map(Time),
            intended: self.int64(15, row).map(Time),
            departure: self.int64(16, row).map(Time),
            is_marked: self.0.column(17).as_boolean().value(row),
            flipped: self.int32(18, row)?,
            is_reordered: self.0.column(19).as_boolean().value(row),
            queue_slots: self.int32(20, row)?,
            queue_bytes: self.int64(21, row).unwrap_or_default().cast_unsigned(),
            lane: self.int64(22, row).unwrap_or_default().cast_unsigned(),
        };
        let length = usize::from(packet.head_bytes);
        packet.head[..length].copy_from_slice(&head[..length]);
        Ok(packet)
    }

    fn int32(&self, column: usize, row: usize) -> Result<u32, String> {
        let value = self.0.column(column).as_primitive::<Int32Type>().value(row);
        u32::try_from(value).map_err(|_| format!("row {row}: {} is {value}", self.title(column)))
    }

    fn int64(&self, column: usize, row: usize) -> Option<i64> {
        let column: &PrimitiveArray<Int64Type> = self.0.column(column).as_primitive();
        column.is_valid(row).then(|| column.value(row))
    }

    fn time(&self, column: usize, row: usize) -> Time {
        Time(self.int64(column, row).unwrap_or_default())
    }

    fn head(&self, row: usize) -> &'a [u8] {
        let column = self.0.column(7).as_binary::<i32>();
        if column.is_valid(row) { column.value(row) } else { &[] }
    }

    fn pipe(&self, row: usize, pipes: &[String]) -> Result<Option<u16>, String> {
        let name = self.0.column(4).as_string::<i32>().value(row);
        if name.is_empty() {
            return Ok(None);
        }
        let place = pipes.iter().position(|pipe| pipe == name).and_then(|place| u16::try_from(place).ok());
        place.map(Some).ok_or_else(|| format!("row {row}: pipe {name:?} is not in the configuration"))
    }

    fn source(&self, row: usize) -> Result<Source, String> {
        let name = text(self.0.column(9), row)?;
        crate::arrow::SOURCES.into_iter().find(|source| source.name() == name).ok_or_else(|| unknown("source", name))
    }

    /// The name of a dictionary column, as one of ours.
    fn name(&self, column: usize, row: usize, all: &[&'static str]) -> Result<&'static str, String> {
        let name = text(self.0.column(column), row)?;
        all.iter().copied().find(|known| *known == name).ok_or_else(|| unknown(&self.title(column), name))
    }

    fn title(&self, column: usize) -> String {
        self.0.schema().field(column).name().clone()
    }
}

fn text(column: &ArrayRef, row: usize) -> Result<&str, String> {
    let column = column.as_dictionary::<Int8Type>();
    let names = column.values().as_any().downcast_ref::<StringArray>();
    let names = names.ok_or_else(|| "a dictionary is not of text".to_owned())?;
    let key = column.key(row).filter(|key| *key < names.len());
    key.map(|key| names.value(key)).ok_or_else(|| format!("row {row}: a name is missing"))
}

fn unknown(what: &str, name: &str) -> String {
    format!("{what} {name:?} is unknown")
}

#[cfg(test)]
mod tests;
