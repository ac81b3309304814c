//! Convert a spool into records: assign flows their numbers in order of their first samples, make the rows of samples,
//! and compare the counters with the samples found.
//!
//! Memory is bounded by a batch of rows and by the number of simultaneous flows, not by their total. The spool of a
//! killed run is converted too: the latest entry of each flow then replaces the final accounting, and is older than its
//! last samples.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use sojourn_record::tcp;
use sojourn_record::{Origin, RecordError, TcpFolder, sync_folder};
use sojourn_time::Time;

use crate::account::{self, Account, Disposition, Entry, Tally};
use crate::convert::{Place, Placed, fill};
use crate::decode::{Kind, Raw, check};
use crate::gaps::Gap;
use crate::layout::{NAME_BYTES, PrivateState, Sample, Totals, point};
use crate::private::{ALGORITHMS, PrivateNames};
use crate::spool::{self, Counted, Ending, Frame, Reader, SpoolError};
use flows::{Flows, Seen, endpoints};
use parts::Parts;

mod counts;
mod flows;
mod parts;

/// How many samples are collected before they are converted column by column: few enough for the L1 cache.
const WAITING: usize = 64;
/// The batch size for rows of flows and of gaps.
const FLOWS: usize = 4096;

/// The key of a note, and the reason of an end: somebody detached the programs. The key `why` is next to it.
pub const INTERRUPTED: &str = "interrupted";

/// The maximum number of flows listed in a footer; the table has all.
pub const LISTED: usize = 65_536;

/// A spool to convert, and the names of its records.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The spool's folder.
    pub folder: &'a Path,
    /// The folder of the records.
    pub records: &'a Path,
    /// The writer, in the files' names.
    pub who: &'a str,
    /// The part, in the files' names.
    pub part: u16,
    /// The block's number.
    pub block: i32,
    /// The program that writes them.
    pub origin: &'a Origin,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Rows of `tcp_samples`.
    pub records: u64,
    /// Private states.
    pub privates: u64,
    /// Rows of `tcp_gaps`.
    pub gaps: u64,
    /// Rows of `tcp_flows`.
    pub flows: u64,
    /// The dispositions of all packets: seen and every disposition, in each direction.
    pub totals: Vec<Entry>,
    /// Whether every packet has one disposition, and every logged packet its sample.
    pub is_conserved: bool,
    /// Whether the spool had its last frame.
    pub is_whole: bool,
    /// Faults, one sentence each.
    pub problems: Vec<String>,
    /// The notes of the log.
    pub notes: Vec<String>,
    /// Whether it ended because it reached its size limit.
    pub is_limited: bool,
    /// The number of parts.
    pub parts: u32,
    /// How many parts were removed.
    pub removed: u32,
    /// Flows whose final entries were in removed parts: they are in the totals only.
    pub flows_removed: u64,
    /// How many parts could not be read.
    pub unread: u32,
    /// Flows whose final entry had no room: what was not recorded earlier is in the totals only.
    pub unrecorded: u64,
    /// The flows as `local address;port-remote address;port`, at most [`LISTED`].
    pub flow_list: Vec<String>,
}

/// Why a spool cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It cannot be read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Its records cannot be written.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The header lacks something.
    #[error("read {}: its header has no {missing}", path.display())]
    Header {
        /// The spool.
        path: PathBuf,
        /// The missing key.
        missing: &'static str,
    },
}

/// Convert the spool that a killed `tcplog run` left in its folder.
///
/// # Errors
/// When there is no spool, or it is still being written.
pub fn recover(folder: &Path, origin: &Origin) -> Result<Converted, ConvertError> {
    let (converted, spent) =
        convert(&Job { folder, records: &folder.join("records"), who: "tcplog", part: 0, block: 0, origin })?;
    spent.discard();
    Ok(converted)
}

/// A converted spool, locked until it is discarded.
#[must_use]
#[derive(Debug)]
pub struct Spent {
    folder: PathBuf,
    /// Files that could not be read.
    unread: Vec<PathBuf>,
    _held: spool::Held,
}

impl Spent {
    /// Remove the spool; call it after everything else is on the disk. An unreadable file is kept under another name.
    pub fn discard(self) {
        if spool::set_aside(&self.unread).is_ok() {
            spool::discard(&self.folder);
        }
    }
}

/// Convert a spool; it stays until the caller discards it.
///
/// # Errors
/// When nothing of it can be read, it is locked, or the records cannot be written; no records are left then.
pub fn convert(job: &Job<'_>) -> Result<(Converted, Spent), ConvertError> {
    let (held, files) = spool::hold(job.folder)?;
    let header = Header::of(job.folder, &files)?;
    let name = (job.who, job.part);
    if job.records.starts_with(job.folder) {
        // They must be from an interrupted conversion: the spool would be gone if they were complete.
        TcpFolder::remove(job.records, name);
    }
    let sink = TcpFolder::create(job.records, name, &header.absent, job.origin)?;
    let (converted, unread) = Work::new(job.block, &header, sink)
        .make(&files, header.file_bytes)
        .inspect_err(|_| TcpFolder::remove(job.records, name))?;
    // The records are on the disk; now their folder is, too.
    sync_folder(job.records.parent().unwrap_or(Path::new("")))?;
    Ok((converted, Spent { folder: job.folder.to_owned(), unread, _held: held }))
}

/// The keys of the JSON header that are used.
struct Header {
    hz: u32,
    absent: HashSet<String>,
    /// Whether private states are from the running kernel release, as far as the header tells.
    is_this_kernel: bool,
    /// The size of a file's header.
    file_bytes: u64,
}

impl Header {
    /// Read the header of the first readable file: all files have the same.
    fn of(folder: &Path, files: &[PathBuf]) -> Result<Self, ConvertError> {
        let mut refused = None;
        for path in files {
            match Reader::open(path) {
                Ok(reader) => return Self::read(reader.header(), path),
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        Err(refused.unwrap_or_else(|| SpoolError::Nothing(folder.to_owned())).into())
    }

    fn read(text: &str, path: &Path) -> Result<Self, ConvertError> {
        let missing = |missing| ConvertError::Header { path: path.to_owned(), missing };
        let json: serde_json::Value = serde_json::from_str(text).map_err(|_| missing("JSON"))?;
        let hz = json["hz"].as_u64().and_then(|hz| u32::try_from(hz).ok()).filter(|hz| *hz > 0);
        let absent = json["absent"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            hz: hz.ok_or_else(|| missing("hz"))?,
            absent: absent.map(str::to_owned).collect(),
            is_this_kernel: json["kernel"].as_str().is_none_or(|release| release.trim() == kernel.trim()),
            file_bytes: spool::header_bytes(text),
        })
    }
}

struct Work {
    block: i32,
    hz: u32,
    sink: TcpFolder,
    names: PrivateNames,
    /// The names of the fields of each algorithm's private state, and the values of the last one.
    fields: HashMap<[u8; NAME_BYTES], tcp::FieldNames>,
    /// How often `names` had forgotten all when these were made.
    forgotten: u64,
    values: Vec<i64>,
    samples: Vec<Placed>,
    flows: Flows,
    totals: Vec<Totals>,
    /// The sum of the recorded counters of flows, and of their packets that were left out.
    told: Account,
    left_out: Vec<(Disposition, [Tally; 2])>,
    /// Rows that wait.
    rows_of_flows: Vec<tcp::Flow>,
    account: Vec<tcp::Account>,
    is_lawful: bool,
    counted: Option<Counted>,
    gaps: Vec<tcp::Gap>,
    parts: Parts,
    /// Missing records in gaps, and those of gaps that had no room because of a limit.
    missing: u64,
    missing_beyond: u64,
    converted: Converted,
}

impl Work {
    fn new(block: i32, header: &Header, sink: TcpFolder) -> Self {
        Self {
            block,
            hz: header.hz,
            sink,
            names: if header.is_this_kernel { PrivateNames::of_kernel() } else { PrivateNames::default() },
            fields: HashMap::new(),
            forgotten: 0,
            values: Vec::new(),
            samples: Vec::with_capacity(WAITING),
            flows: Flows::default(),
            totals: Vec::new(),
            told: Account::default(),
            left_out: Vec::new(),
            rows_of_flows: Vec::new(),
            account: Vec::new(),
            is_lawful: true,
            counted: None,
            gaps: Vec::new(),
            parts: Parts::default(),
            missing: 0,
            missing_beyond: 0,
            converted: Converted::default(),
        }
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), RecordError> {
        match frame {
            Frame::Events(cpu, records) => {
                let mut outcome = Ok(());
                let is_whole = records.each(|bytes| {
                    if outcome.is_ok() {
                        outcome = self.event(cpu, bytes);
                    }
                });
                if !is_whole {
                    self.problem("a frame of records does not hold what it says".to_owned());
                }
                return outcome;
            }
            Frame::Flow(slot, flow) => self.flows.tell(slot, &flow, false),
            Frame::Gone(slot, flow) => {
                self.flows.tell(slot, &flow, true);
                self.parts.gone += 1;
                return self.tell_ended();
            }
            Frame::LeftOut(cookie, disposition, tallies) => {
                self.parts.note_left_out(disposition, tallies);
                self.flows.leave_out(cookie, disposition, tallies);
            }
            Frame::Totals(totals) => self.totals = totals,
            Frame::Gap(gap) => return self.gap(&gap),
            Frame::Note(text) => self.note(text),
            Frame::Limited(missing) => {
                self.missing_beyond = missing;
                self.converted.is_limited = true;
            }
            Frame::Part(number, before) => self.take_part(number, &before),
            Frame::Account(counted) => self.counted = Some(counted),
            Frame::End => self.converted.is_whole = true,
        }
        Ok(())
    }

    fn event(&mut self, cpu: u32, bytes: &[u8]) -> Result<(), RecordError> {
        match check(bytes) {
            Ok(Kind::Sample) => self.sample(cpu, Raw::take(&mut &*bytes)),
            Ok(Kind::Private) => self.private(cpu, &Raw::take(&mut &*bytes)),
            Err(error) => {
                self.problem(error.to_string());
                Ok(())
            }
        }
    }

    fn sample(&mut self, cpu: u32, sample: Sample) -> Result<(), RecordError> {
        let is_of_packet = matches!(sample.point, point::IN | point::OUT);
        let packet = is_of_packet.then(|| (usize::from(sample.point), u64::from(sample.segments)));
        let flow = self.flows.take(sample.cookie, sample.slot, sample.time_ns, packet);
        self.converted.records += 1;
        self.samples.push(Placed { sample, place: Place { block: self.block, flow, cpu, hz: self.hz } });
        if self.samples.len() == WAITING { self.write_samples() } else { Ok(()) }
    }

    fn private(&mut self, cpu: u32, state: &PrivateState) -> Result<(), RecordError> {
        let flow = self.flows.take(state.cookie, state.slot, state.time_ns, None);
        self.converted.privates += 1;
        let Self { names, fields, forgotten, values, .. } = self;
        values.clear();
        names.decode(&state.algorithm, &state.bytes, &mut |_, value| values.push(value));
        let is_full = fields.len() == ALGORITHMS && !fields.contains_key(&state.algorithm);
        if is_full || *forgotten != names.forgotten() {
            // What is found anew may have other fields.
            *forgotten = names.forgotten();
            fields.clear();
        }
        let names = fields.entry(state.algorithm).or_insert_with(|| names_of(names, state));
        let (number, time) = (state.sample, Time(state.time_ns.cast_signed()));
        self.sink.private(&tcp::PrivateFields { block: self.block, flow, cpu, number, time, names, values })
    }

    fn gap(&mut self, gap: &Gap) -> Result<(), RecordError> {
        let [after, before] = [gap.after_ns, gap.before_ns].map(|time| time.map(|time| Time(time.cast_signed())));
        self.missing = self.missing.saturating_add(gap.missing);
        self.converted.gaps += 1;
        self.gaps.push(tcp::Gap {
            block: self.block,
            cpu: gap.cpu,
            number: gap.number,
            missing: gap.missing,
            after,
            before,
        });
        if self.gaps.len() < FLOWS {
            return Ok(());
        }
        self.sink.gaps(&self.gaps)?;
        self.gaps.clear();
        Ok(())
    }

    fn write_samples(&mut self) -> Result<(), RecordError> {
        self.sink.samples(&self.samples, fill)?;
        self.samples.clear();
        Ok(())
    }

    fn finish(mut self, ending: Ending) -> Result<Converted, RecordError> {
        self.write_samples()?;
        match ending {
            Ending::Whole => {}
            Ending::Unfinished => self.problem("the log has no end: the program that wrote it was killed".to_owned()),
            Ending::Torn(at) => {
                let which = self.parts.named();
                self.problem(format!("{which} is cut or damaged after {at} bytes"));
            }
        }
        let is_cut = ending != Ending::Whole;
        let rest = self.flows.give_up_all();
        // The rows on all packets come first.
        let of_flows = std::mem::take(&mut self.account);
        // Where a limit left no room for a flow's final entry, its latest entry is older than its last samples, too.
        let lacks_ends = self.converted.is_limited || self.parts.is_partial();
        rest.iter().for_each(|seen| self.tell(seen, is_cut || (lacks_ends && !seen.is_over())));
        let of_rest = std::mem::replace(&mut self.account, of_flows);
        let mut counted = self.counted.take().unwrap_or_else(|| self.reckon(is_cut));
        self.parts.leave_out_lost(&mut counted.entries, self.flows.logged());
        self.check(&counted);
        self.converted.is_conserved = self.is_lawful && !is_cut;
        (self.converted.parts, self.converted.removed) = (self.parts.begun(), self.parts.removed_parts());
        let totals: Vec<_> = counted.entries.iter().filter_map(|entry| self.account_row(None, entry)).collect();
        self.converted.totals = counted.entries;
        self.write_flows()?;
        self.sink.account(&totals)?;
        self.sink.account(&of_rest)?;
        self.sink.gaps(&self.gaps)?;
        self.sink.finish()?;
        Ok(self.converted)
    }

    /// Make the rows of a flow, and compare its counters with its samples. In a log that was cut off, a flow's latest
    /// entry is older than its last samples, which are added.
    fn tell(&mut self, seen: &Seen, is_cut: bool) {
        let is_told = seen.counted().is_some();
        let mut both = seen.counted().unwrap_or_default();
        seen.add_left_out(&mut self.left_out);
        let is_rough = is_cut && !(is_told && seen.is_over());
        if is_rough {
            both.iter_mut().zip(seen.logged).for_each(|(counters, found)| counters.find(found));
        }
        self.parts.leave_out_missing(&mut both, seen.logged);
        if is_told && !is_rough {
            if let Err(breach) = account::check_flow(seen.cookie, &both) {
                self.breach(breach.to_string());
            }
            for (direction, counters) in both.iter().enumerate() {
                self.compare(Some(seen.number), direction, seen.logged[direction], counters.of(Disposition::Logged));
            }
        }
        self.told.add_told(seen.cookie, &both);
        let entries = if is_told || is_cut { Some(account::rows(Some(seen.cookie), &both)) } else { None };
        let rows: Vec<_> =
            entries.into_iter().flatten().filter_map(|entry| self.account_row(Some(seen.number), &entry)).collect();
        self.account.extend(rows);
        let row = seen.row(self.block);
        if self.converted.flow_list.len() < LISTED {
            self.converted.flow_list.push(endpoints(&row));
        }
        self.converted.flows += 1;
        self.rows_of_flows.push(row);
    }

    /// Make the rows of flows that ended long ago.
    fn tell_ended(&mut self) -> Result<(), RecordError> {
        while let Some(seen) = self.flows.give_up() {
            self.tell(&seen, false);
        }
        if self.rows_of_flows.len() >= FLOWS { self.write_flows() } else { Ok(()) }
    }

    fn write_flows(&mut self) -> Result<(), RecordError> {
        self.sink.flows(&self.rows_of_flows)?;
        self.sink.account(&self.account)?;
        self.rows_of_flows.clear();
        self.account.clear();
        Ok(())
    }

    /// Keep a note; a note of an interruption means that packets passed uncounted.
    fn note(&mut self, text: String) {
        let note: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if let Some(why) = note[INTERRUPTED]["why"].as_str() {
            // Every following part repeats it.
            if self.converted.notes.contains(&text) {
                return;
            }
            self.breach(format!("{why}: what passed from then on was not seen"));
        }
        self.converted.notes.push(text);
    }

    /// Record a failed check of the packet accounting.
    fn breach(&mut self, text: String) {
        self.is_lawful = false;
        self.problem(text);
    }

    /// Record a fault; only the first 20 are kept.
    fn problem(&mut self, text: String) {
        if self.converted.problems.len() < 20 {
            self.converted.problems.push(text);
        }
    }
}

/// Return the names of an algorithm and of the fields of its private state.
fn names_of(names: &mut PrivateNames, state: &PrivateState) -> tcp::FieldNames {
    let mut fields = Vec::new();
    names.decode(&state.algorithm, &state.bytes, &mut |field, _| fields.push(field.to_owned()));
    tcp::FieldNames::new(&text_of(&state.algorithm), &fields)
}

/// Return the text before the first zero byte.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests;
