//! Read the records of a tap.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_ipc::reader::StreamReader;
use sojourn_time::{Source, Stamp, Time};

use super::{Columns, Names, ReadError, begin, file, guarded};
use crate::TapAbout;
use crate::schema::SIMULATED;
use crate::tables::taps::{TAP_DIRECTIONS, TapCounts, Tapped};

/// Reads the rows of a tap's file, batch by batch.
pub struct TapReader {
    path: PathBuf,
    stream: StreamReader<BufReader<File>>,
    version: u32,
    about: TapAbout,
    is_simulated: bool,
    /// The batch of which some rows have not been returned yet.
    batch: Option<Batch>,
    counts: Option<StreamReader<BufReader<File>>>,
}

/// The files of a tap, opened but not read, so that privileges can be dropped before their content is parsed.
#[derive(Debug)]
pub struct TapFiles {
    path: PathBuf,
    taps: File,
    /// The file of its counters, if it exists.
    counts: Option<File>,
}

impl TapFiles {
    /// Open the files.
    ///
    /// # Errors
    /// When the tap's file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let counts = counts_of(path).and_then(|path| File::open(path).ok());
        Ok(Self { path: path.to_owned(), taps: file(path)?, counts })
    }

    /// Start reading the files.
    ///
    /// # Errors
    /// When they are not the files of a tap.
    pub fn read(self) -> Result<TapReader, ReadError> {
        TapReader::of(self)
    }
}

impl TapReader {
    /// Open the file of a tap.
    ///
    /// # Errors
    /// When the file is not one of a tap.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        TapFiles::open(path)?.read()
    }

    fn of(TapFiles { path, taps, counts }: TapFiles) -> Result<Self, ReadError> {
        let (stream, version) = begin::<Tapped>(taps, &path)?;
        let schema = stream.schema();
        let about = TapAbout::of(|name| schema.metadata().get(name));
        let clock = schema.field_with_name("time_ns").ok().and_then(|field| field.metadata().get("clock").cloned());
        let is_simulated = clock.is_some_and(|clock| clock == SIMULATED);
        let counts = counts.and_then(|counts| begin::<TapCounts>(counts, &path).ok()).map(|(counts, _)| counts);
        Ok(Self { path, stream, version, about, is_simulated, batch: None, counts })
    }

    /// Return how many packets the tap lost, from the file of its counters; only the first call reads it. `None` if the
    /// file is missing or damaged, or the tap was not closed.
    pub fn dropped(&mut self) -> Option<u64> {
        let mut counts = self.counts.take()?;
        let batch = guarded(|| counts.next().transpose()).ok()??;
        let column = batch.column_by_name("dropped")?.as_primitive_opt::<Int64Type>()?;
        column
            .iter()
            .map(|dropped| u64::try_from(dropped?).ok())
            .try_fold(0, |sum: u64, dropped| sum.checked_add(dropped?))
    }

    /// Return the description of the tap.
    pub fn about(&self) -> &TapAbout {
        &self.about
    }

    /// Return whether timestamps are simulated.
    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Call `each` for the next rows, at most `most`; return `false` at the end.
    ///
    /// # Errors
    /// When the file is damaged or cut; earlier rows remain valid.
    pub fn next(&mut self, most: usize, mut each: impl FnMut(&Tapped)) -> Result<bool, ReadError> {
        let Self { batch, stream, path, version, .. } = self;
        let foreign = |problem| ReadError::Foreign { path: path.clone(), problem };
        let rows = match batch {
            Some(rows) if rows.at < rows.rows => rows,
            _ => match guarded(|| stream.next().transpose()) {
                Ok(None) => return Ok(false),
                Err(source) => return Err(ReadError::Damaged { path: path.clone(), source }),
                Ok(Some(read)) => batch.insert(Batch::of(&read, *version).map_err(foreign)?),
            },
        };
        let end = rows.rows.min(rows.at.saturating_add(most));
        for row in std::mem::replace(&mut rows.at, end)..end {
            match rows.row(row) {
                Ok(tapped) => each(&tapped),
                Err(problem) => {
                    rows.at = rows.rows; // no row of this batch is returned twice
                    return Err(foreign(problem));
                }
            }
        }
        Ok(true)
    }
}

/// Return the path of the counters that belong to a tap's file.
fn counts_of(path: &Path) -> Option<PathBuf> {
    let rest = path.file_name()?.to_str()?.strip_prefix("taps-")?;
    Some(path.with_file_name(format!("tap_counts-{rest}")))
}

/// The rows of a batch, converted to [`Tapped`] one by one.
struct Batch {
    rows: usize,
    /// The number of rows read.
    at: usize,
    times: PrimitiveArray<Int64Type>,
    digests: PrimitiveArray<Int64Type>,
    lengths: PrimitiveArray<Int32Type>,
    sources: PrimitiveArray<Int8Type>,
    of_source: Vec<Source>,
    directions: PrimitiveArray<Int8Type>,
    of_direction: Vec<Option<&'static str>>,
    /// The flags fragment, super-packet and truncated; `None` if no row has the flag, as in most batches.
    flags: [Option<BooleanArray>; 3],
}

impl Batch {
    fn of(batch: &RecordBatch, version: u32) -> Result<Self, String> {
        let columns = Columns::of::<Tapped>(batch, version)?;
        let (sources, directions) = (columns.names("time_source")?, columns.names("direction")?);
        Ok(Self {
            rows: batch.num_rows(),
            at: 0,
            times: columns.int64("time_ns").clone(),
            digests: columns.int64("digest").clone(),
            lengths: columns.int32("length_bytes").clone(),
            of_source: sources.each(Names::source_of)?,
            sources: sources.column.keys().clone(),
            of_direction: directions.each(Names::tap_direction)?,
            directions: directions.column.keys().clone(),
            flags: ["fragment", "super_packet", "truncated"].map(|name| {
                let flags = columns.column(name).as_boolean();
                (flags.true_count() > 0).then(|| flags.clone())
            }),
        })
    }

    #[inline]
    fn row(&self, row: usize) -> Result<Tapped, String> {
        let source = key(&self.sources, row).and_then(|key| self.of_source.get(key).copied());
        let length = self.lengths.value(row);
        // Not a `map` over the three, which would cost a call per row.
        let is = |place: usize| self.flags[place].as_ref().is_some_and(|flags| flags.value(row));
        let (is_fragment, is_super_packet, is_truncated) = (is(0), is(1), is(2));
        Ok(Tapped {
            at: Stamp {
                at: Time(self.times.value(row)),
                source: source.ok_or_else(|| format!("row {row}: a name is missing"))?,
            },
            digest: self.digests.is_valid(row).then(|| self.digests.value(row).cast_unsigned()),
            length_bytes: u32::try_from(length).map_err(|_| format!("row {row}: length_bytes is {length}"))?,
            direction: key(&self.directions, row).and_then(|key| *self.of_direction.get(key)?),
            is_fragment,
            is_super_packet,
            is_truncated,
        })
    }
}

#[inline]
fn key(keys: &PrimitiveArray<Int8Type>, row: usize) -> Option<usize> {
    keys.is_valid(row).then(|| usize::try_from(keys.value(row)).ok()).flatten()
}

impl Names<'_> {
    /// Convert every name of the dictionary once.
    fn each<T>(&self, read: impl Fn(&Self, &str) -> Result<T, String>) -> Result<Vec<T>, String> {
        (0..self.names.len()).map(|place| read(self, self.names.value(place))).collect()
    }

    fn source_of(&self, name: &str) -> Result<Source, String> {
        let all = Source::ALL;
        all.into_iter().find(|source| source.name() == name).ok_or_else(|| self.unknown(name))
    }

    fn tap_direction(&self, name: &str) -> Result<Option<&'static str>, String> {
        let known = TAP_DIRECTIONS.into_iter().find(|known| *known == name);
        known.map(Some).ok_or_else(|| self.unknown(name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Origin, TapFolder};

    #[test]
    fn tap_records_are_read_as_written() {
        let folder = std::env::temp_dir().join(format!("sojourn-taps-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let about = TapAbout {
            tap: "before".to_owned(),
            interface: "eth1".to_owned(),
            host: "box".to_owned(),
            key: "router".to_owned(),
            most: Some(96),
            clock_id: 0x0123_4567_89AB,
        };
        let row = |number: u64| Tapped {
            at: Stamp { at: Time(number.cast_signed()), source: Source::Kernel },
            digest: (!number.is_multiple_of(5)).then_some(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            length_bytes: 60 + number as u32,
            direction: [None, Some("in"), Some("out")][number as usize % 3],
            is_fragment: number.is_multiple_of(7),
            is_super_packet: number.is_multiple_of(11),
            is_truncated: number.is_multiple_of(13),
        };
        let rows: Vec<Tapped> = (0..1_000).map(row).collect();
        let mut files = TapFolder::create(&folder, ("before", "000"), &about, &Origin::default()).unwrap();
        files.write(&rows[..300]).unwrap();
        files.write(&rows[300..]).unwrap();
        files.finish(&TapCounts { seen: 1_007, dropped: 7, ..TapCounts::default() }).unwrap();
        let mut reader = TapReader::open(&folder.join("taps-before-000.arrow")).unwrap();
        assert_eq!((reader.about(), reader.is_simulated()), (&about, false));
        let mut read = Vec::new();
        while reader.next(7, |row| read.push(*row)).unwrap() {}
        assert_eq!((read, reader.dropped()), (rows, Some(7)));
        let counts = folder.join("tap_counts-before-000.arrow");
        let whole = fs::read(&counts).unwrap();
        fs::write(&counts, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(TapReader::open(&folder.join("taps-before-000.arrow")).unwrap().dropped(), None);
        fs::write(&counts, whole).unwrap();
        let other = TapReader::open(&folder.join("tap_counts-before-000.arrow"));
        assert!(matches!(other, Err(ReadError::Foreign { .. })));
        fs::remove_dir_all(folder).unwrap();
    }
}
