//! Read the log of an emulator and the records of taps. Input is untrusted: any fault is reported, and nothing panics.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, StringArray, new_null_array};
use arrow_ipc::reader::StreamReader;
use arrow_schema::ArrowError;
use sojourn_time::{Nanos, Source, Stamp, Time};

use crate::files::type_of;
use crate::schema::Field;
use crate::table::{Row, fields_of};
use crate::tables::packets::{CAUSES, DIRECTIONS, DISPOSITIONS, Head, Packet};

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A call of the file system failed.
    #[error("open {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not an Arrow stream, or is damaged.
    #[error("read {}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ArrowError,
    },
    /// The file holds another table, or an invalid value.
    #[error("read {}: {problem}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Reads the rows of an emulator's log, batch by batch.
pub struct PacketReader {
    path: PathBuf,
    stream: StreamReader<BufReader<File>>,
    pipes: Vec<String>,
    version: u32,
}

impl PacketReader {
    /// Open a log of an emulator with these pipes.
    ///
    /// # Errors
    /// When the file is not such a log.
    pub fn open(path: &Path, pipes: Vec<String>) -> Result<Self, ReadError> {
        Self::of((file(path)?, path), pipes)
    }

    /// Read a log from an open file; `path` is used in messages.
    ///
    /// # Errors
    /// When the file is not such a log.
    pub fn of((file, path): (File, &Path), pipes: Vec<String>) -> Result<Self, ReadError> {
        let (stream, version) = begin::<Packet>(file, path)?;
        Ok(Self { path: path.to_owned(), stream, pipes, version })
    }

    /// Append the next rows to `rows`; return `false` at the end.
    ///
    /// # Errors
    /// When the file is damaged or cut; earlier rows remain valid.
    pub fn next(&mut self, rows: &mut Vec<Packet>) -> Result<bool, ReadError> {
        match guarded(|| self.stream.next().transpose()) {
            Ok(None) => Ok(false),
            Err(source) => Err(ReadError::Damaged { path: self.path.clone(), source }),
            Ok(Some(batch)) => {
                rows.reserve(batch.num_rows());
                let read =
                    Columns::of::<Packet>(&batch, self.version).and_then(|columns| columns.rows(&self.pipes, rows));
                read.map_err(|problem| self.foreign(problem))?;
                Ok(true)
            }
        }
    }

    fn foreign(&self, problem: String) -> ReadError {
        ReadError::Foreign { path: self.path.clone(), problem }
    }
}

fn file(path: &Path) -> Result<File, ReadError> {
    File::open(path).map_err(|source| ReadError::File { path: path.to_owned(), source })
}

/// Start reading the file of a table; also return its version.
fn begin<R: Row>(mut file: File, path: &Path) -> Result<(StreamReader<BufReader<File>>, u32), ReadError> {
    let failed = |source| ReadError::File { path: path.to_owned(), source };
    let foreign = |problem| ReadError::Foreign { path: path.to_owned(), problem };
    // The length of a pipe is unknown.
    let is_file = file.metadata().map_err(failed)?.is_file();
    if is_file && let Some(problem) = oversized(&mut file).map_err(failed)? {
        return Err(foreign(problem));
    }
    let stream = guarded(|| StreamReader::try_new(BufReader::new(file), None))
        .map_err(|source| ReadError::Damaged { path: path.to_owned(), source })?;
    let found = stream.schema();
    let told = |key: &str| found.metadata().get(key).map_or("", String::as_str);
    match told("version").parse() {
        Ok(version) if told("schema") == format!("sojourn.{}", R::NAME) => Ok((stream, version)),
        _ => Err(foreign(format!("expected the table {}", R::NAME))),
    }
}

/// The maximum length of an incomplete message in a cut file; those of Sojourn have a thirtieth of it at most.
const LONGEST_CUT: u64 = 64 << 20;

/// Return the problem if rows are compressed, or if a message requests more memory than the file has bytes, because
/// arrow-ipc allocates it before reading. Leaves the file at its beginning.
fn oversized(file: &mut File) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(&mut *file);
    let mut at = 0;
    let problem = loop {
        let mut word = [0; 4];
        if reader.read_exact(&mut word).is_err() {
            break None;
        }
        at += 4;
        if word == [0xFF; 4] {
            if reader.read_exact(&mut word).is_err() {
                break None;
            }
            at += 4;
        }
        let about = u64::from(u32::from_le_bytes(word));
        if about == 0 {
            break None;
        }
        if about > length - at {
            break (about > LONGEST_CUT)
                .then(|| format!("a message says that it has {about} bytes, the file has {length}"));
        }
        let mut head = vec![0; usize::try_from(about).unwrap_or(0)];
        reader.read_exact(&mut head)?;
        at += about;
        // An invalid message is reported when it is read.
        let Ok(message) = arrow_ipc::root_as_message(&head) else { break None };
        let batch = message.header_as_record_batch().or_else(|| message.header_as_dictionary_batch()?.data());
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            break Some("its rows are compressed, which those of a log never are".to_owned());
        }
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > length - at {
            break (body > LONGEST_CUT)
                .then(|| format!("a batch says that it has {body} bytes, the file has {length}"));
        }
        at += body;
        reader.seek_relative(body.cast_signed())?;
    };
    file.seek(SeekFrom::Start(0))?;
    Ok(problem)
}

/// Call arrow-ipc, which panics on some damaged lengths and offsets.
fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ArrowError::IpcError("its lengths cannot be".to_owned())))
}

/// The columns of a batch by name, each with its declaration; columns newer than the file's version are null.
struct Columns(HashMap<&'static str, (ArrayRef, Field)>);

impl Columns {
    fn of<R: Row>(batch: &RecordBatch, version: u32) -> Result<Self, String> {
        let column = |field: Field| {
            let want = type_of(field.kind);
            let former = || batch.column_by_name(field.was?);
            match batch.column_by_name(field.name).or_else(former) {
                Some(found) if *found.data_type() == want => Ok((field.name, (Arc::clone(found), field))),
                Some(_) => Err(format!("column {} is not as declared", field.name)),
                None if field.since > version => Ok((field.name, (new_null_array(&want, batch.num_rows()), field))),
                None => Err(format!("it has no column {}", field.name)),
            }
        };
        fields_of::<R>().into_iter().map(column).collect::<Result<_, _>>().map(Self)
    }

    fn rows(&self, pipes: &[String], rows: &mut Vec<Packet>) -> Result<(), String> {
        let (blocks, numbers, copies) = (self.int32("block"), self.int64("number"), self.int64("copy_of"));
        let (directions, of_pipes, flows) =
            (self.names("direction")?, self.column("pipe").as_string::<i32>(), self.int64("flow"));
        let (frames, heads) = (self.int32("frame_bytes"), self.column("head").as_binary::<i32>());
        let (arrivals, sources, entered) =
            (self.int64("arrival_ns"), self.names("arrival_source")?, self.int64("entered_ns"));
        let (dispositions, causes, drawn) = (self.names("disposition")?, self.names("cause")?, self.int64("drawn_ns"));
        let (left, intended, departures) =
            (self.int64("link_left_ns"), self.int64("intended_ns"), self.int64("departure_ns"));
        let (marked, flipped) = (self.column("marked").as_boolean(), self.int32("flipped"));
        let reordered = self.column("reordered").as_boolean();
        let (slots, bytes, classes) = (self.int32("queue_slots"), self.int64("queue_bytes"), self.int64("class"));
        for row in 0..blocks.len() {
            rows.push(Packet {
                block: blocks.value(row),
                number: numbers.value(row).cast_unsigned(),
                copy_of: given(copies, row).map(i64::cast_unsigned),
                direction: directions.one_of(row, &DIRECTIONS)?,
                pipe: pipe(of_pipes.value(row), pipes).map_err(|problem| format!("row {row}: {problem}"))?,
                flow: flows.value(row).cast_unsigned(),
                frame_bytes: count(frames, row, "frame_bytes")?,
                head: Head::of(if heads.is_valid(row) { heads.value(row) } else { &[] }),
                arrival: Stamp { at: Time(arrivals.value(row)), source: sources.source(row)? },
                entered: Time(entered.value(row)),
                disposition: dispositions.one_of(row, &DISPOSITIONS)?,
                cause: causes.one_of(row, &CAUSES)?,
                drawn: given(drawn, row).map(Nanos),
                link_left: given(left, row).map(Time),
                intended: given(intended, row).map(Time),
                departure: given(departures, row).map(Time),
                is_marked: marked.value(row),
                flipped: count(flipped, row, "flipped")?,
                is_reordered: reordered.value(row),
                queue_slots: count(slots, row, "queue_slots")?,
                queue_bytes: bytes.value(row).cast_unsigned(),
                class: classes.value(row).cast_unsigned(),
            });
        }
        Ok(())
    }

    fn column(&self, name: &str) -> &ArrayRef {
        &self.0[name].0
    }

    fn int32(&self, name: &str) -> &PrimitiveArray<Int32Type> {
        self.column(name).as_primitive()
    }

    fn int64(&self, name: &str) -> &PrimitiveArray<Int64Type> {
        self.column(name).as_primitive()
    }

    fn names(&self, title: &'static str) -> Result<Names<'_>, String> {
        let column = self.column(title).as_dictionary::<Int8Type>();
        let (names, renamed) = (column.values().as_any().downcast_ref::<StringArray>(), self.0[title].1.renamed);
        names
            .map(|names| Names { title, column, names, renamed })
            .ok_or_else(|| "a dictionary is not of text".to_owned())
    }
}

/// A column of names.
struct Names<'a> {
    title: &'static str,
    column: &'a DictionaryArray<Int8Type>,
    names: &'a StringArray,
    renamed: &'static [(&'static str, &'static str)],
}

impl Names<'_> {
    fn at(&self, row: usize) -> Result<&str, String> {
        let key = self.column.key(row).filter(|key| *key < self.names.len());
        let name = key.map(|key| self.names.value(key)).ok_or_else(|| format!("row {row}: a name is missing"))?;
        Ok(self.renamed.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new))
    }

    fn one_of(&self, row: usize, all: &[&'static str]) -> Result<&'static str, String> {
        let name = self.at(row)?;
        all.iter().copied().find(|known| *known == name).ok_or_else(|| self.unknown(name))
    }

    fn source(&self, row: usize) -> Result<Source, String> {
        let name = self.at(row)?;
        let all = Source::ALL;
        all.into_iter().find(|source| source.name() == name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> String {
        format!("{} {name:?} is unknown", self.title)
    }
}

fn given(column: &PrimitiveArray<Int64Type>, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}

fn count(column: &PrimitiveArray<Int32Type>, row: usize, title: &str) -> Result<u32, String> {
    let value = column.value(row);
    u32::try_from(value).map_err(|_| format!("row {row}: {title} is {value}"))
}

/// Return the index of a pipe; `None` if the packet passed none.
fn pipe(name: &str, pipes: &[String]) -> Result<Option<u16>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    let place = pipes.iter().position(|pipe| pipe == name).and_then(|place| u16::try_from(place).ok());
    place.map(Some).ok_or_else(|| format!("pipe {name:?} is not in the configuration"))
}

mod taps;

pub use taps::{TapFiles, TapReader};

#[cfg(test)]
mod tests;
