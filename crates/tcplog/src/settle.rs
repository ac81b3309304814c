//! A spool into records: flows get their numbers in order of their first sample, samples their rows, and what was counted is
//! held against what is there.
//!
//! Memory is bounded by a batch of rows and by the number of flows. A spool that a killed run left is settled too: its last
//! words on each flow must then do for the account, and are of a moment before its last samples.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sojourn_record::tcp::{self, FATES};
use sojourn_record::{Origin, RecordError, TcpFolder};
use sojourn_time::Time;

use crate::account::{Account, Entry, Fate, Tally};
use crate::convert::{Place, row};
use crate::decode::{Event, decode};
use crate::gaps::Gap;
use crate::layout::{PrivateState, Sample, Totals, point};
use crate::private::PrivateNames;
use crate::spool::{self, Counted, Ending, Frame, Reader, SpoolError};
use flows::{Flows, endpoints};

mod flows;

/// How many rows wait before they are turned into columns.
const ROWS: usize = 512;

/// What is to be settled, and how the records are called.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The spool's folder.
    pub folder: &'a Path,
    /// Where the records go.
    pub records: &'a Path,
    /// Who wrote them, in the files' names.
    pub who: &'a str,
    /// The part, in the files' names.
    pub part: u16,
    /// The block's number.
    pub block: i32,
    /// Who writes them.
    pub origin: &'a Origin,
}

/// What became of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Rows of `tcp_samples`.
    pub records: u64,
    /// Private states.
    pub privates: u64,
    /// Rows of `tcp_gaps`.
    pub gaps: u64,
    /// Rows of `tcp_flows`.
    pub flows: u64,
    /// What became of all packets, in total: seen and every fate, each way.
    pub totals: Vec<Entry>,
    /// Whether every packet met one fate, and each that was logged is there.
    pub is_conserved: bool,
    /// Whether the spool had its last frame.
    pub is_whole: bool,
    /// What is not as it should be, a sentence each.
    pub problems: Vec<String>,
    /// The notes that were kept.
    pub notes: Vec<String>,
    /// Each flow: local address;port-remote address;port.
    pub flow_list: Vec<String>,
}

/// Why a spool cannot be settled.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// It cannot be read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Its records cannot be written.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// What it was created with says too little.
    #[error("read {}: its header has no {missing}", path.display())]
    Header {
        /// The spool.
        path: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
}

/// Makes records of the spool that a killed run of `tcplog run` left in its folder.
///
/// # Errors
/// When there is none, or it goes on.
pub fn recover(folder: &Path, origin: &Origin) -> Result<Settled, SettleError> {
    settle(&Job { folder, records: &folder.join("records"), who: "tcplog", part: 0, block: 0, origin })
}

/// Makes records of a spool, and removes it when all of them are written.
///
/// # Errors
/// When it cannot be read, somebody holds it, or the records cannot be written; the spool then stays, and no records.
pub fn settle(job: &Job<'_>) -> Result<Settled, SettleError> {
    let path = job.folder.join(spool::NAME);
    let _held = spool::hold(&path)?;
    let reader = Reader::open(&path)?;
    let header = Header::read(reader.header(), &path)?;
    let name = (job.who, job.part);
    if job.records.starts_with(job.folder) {
        // Nobody but an attempt that was broken off can have left them there: the spool goes when they are whole.
        TcpFolder::remove(job.records, name);
    }
    let sink = TcpFolder::create(job.records, name, &header.absent, job.origin)?;
    let settled =
        make(reader, Work::new(job.block, &header, sink)).inspect_err(|_| TcpFolder::remove(job.records, name))?;
    spool::discard(job.folder);
    Ok(settled)
}

fn make(mut reader: Reader, mut work: Work) -> Result<Settled, SettleError> {
    while let Some(frame) = reader.next_frame()? {
        work.take(frame)?;
    }
    Ok(work.finish(reader.ending().cloned().unwrap_or(Ending::Unfinished))?)
}

/// What is needed of the JSON that the spool was created with.
struct Header {
    hz: u32,
    absent: HashSet<String>,
    /// Whether private states are those of the kernel that runs now.
    is_this_kernel: bool,
}

impl Header {
    fn read(text: &str, path: &Path) -> Result<Self, SettleError> {
        let missing = |missing| SettleError::Header { path: path.to_owned(), missing };
        let json: serde_json::Value = serde_json::from_str(text).map_err(|_| missing("JSON"))?;
        let hz = json["hz"].as_u64().and_then(|hz| u32::try_from(hz).ok()).filter(|hz| *hz > 0);
        let absent = json["absent"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            hz: hz.ok_or_else(|| missing("hz"))?,
            absent: absent.map(str::to_owned).collect(),
            is_this_kernel: json["kernel"].as_str().is_none_or(|told| told.contains(kernel.trim())),
        })
    }
}

struct Work {
    block: i32,
    hz: u32,
    sink: TcpFolder,
    names: PrivateNames,
    texts: Texts,
    rows: Vec<tcp::Sample>,
    flows: Flows,
    events: u64,
    totals: Vec<Totals>,
    counted: Option<Counted>,
    gaps: Vec<tcp::Gap>,
    missing: u64,
    settled: Settled,
}

impl Work {
    fn new(block: i32, header: &Header, sink: TcpFolder) -> Self {
        Self {
            block,
            hz: header.hz,
            sink,
            names: if header.is_this_kernel { PrivateNames::of_kernel() } else { PrivateNames::default() },
            texts: Texts::default(),
            rows: Vec::with_capacity(ROWS),
            flows: Flows::default(),
            events: 0,
            totals: Vec::new(),
            counted: None,
            gaps: Vec::new(),
            missing: 0,
            settled: Settled::default(),
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
            Frame::Flow(slot, flow) => self.flows.tell(slot, &flow),
            Frame::Totals(totals) => self.totals = totals,
            Frame::Gap(gap) => self.gap(&gap),
            Frame::Note(text) => self.settled.notes.push(text),
            Frame::Account(counted) => self.counted = Some(counted),
            Frame::End => self.settled.is_whole = true,
        }
        Ok(())
    }

    fn event(&mut self, cpu: u32, bytes: &[u8]) -> Result<(), RecordError> {
        match decode(bytes) {
            Ok(Event::Sample(sample)) => self.sample(cpu, &sample),
            Ok(Event::Private(state)) => self.private(cpu, &state),
            Err(error) => {
                self.problem(error.to_string());
                Ok(())
            }
        }
    }

    fn sample(&mut self, cpu: u32, sample: &Sample) -> Result<(), RecordError> {
        let flow = self.flows.number(sample.cookie, sample.slot, sample.time_ns);
        self.settled.records += 1;
        if matches!(sample.point, point::IN | point::OUT) {
            self.flows.log(flow, usize::from(sample.point), sample.segments.into());
        } else {
            self.events += 1;
        }
        self.rows.push(row(sample, Place { block: self.block, flow, cpu, hz: self.hz }));
        if self.rows.len() == ROWS { self.write_rows() } else { Ok(()) }
    }

    fn private(&mut self, cpu: u32, state: &PrivateState) -> Result<(), RecordError> {
        let flow = self.flows.number(state.cookie, state.slot, state.time_ns);
        self.settled.privates += 1;
        let algorithm = self.texts.share(0, &text_of(&state.algorithm));
        let (block, sink, texts) = (self.block, &mut self.sink, &mut self.texts);
        let mut outcome = Ok(());
        let mut place = 0;
        self.names.decode(&state.algorithm, &state.bytes, &mut |field, value| {
            place += 1;
            let row = tcp::Private {
                block,
                flow,
                cpu,
                number: state.sample,
                time: Time(state.time_ns.cast_signed()),
                algorithm: Arc::clone(&algorithm),
                field: texts.share(place, field),
                value,
            };
            if outcome.is_ok() {
                outcome = sink.private(row);
            }
        });
        outcome
    }

    fn gap(&mut self, gap: &Gap) {
        let [after, before] = [gap.after_ns, gap.before_ns].map(|time| time.map(|time| Time(time.cast_signed())));
        self.missing += gap.missing;
        self.gaps.push(tcp::Gap {
            block: self.block,
            cpu: gap.cpu,
            number: gap.number,
            missing: gap.missing,
            after,
            before,
        });
    }

    fn write_rows(&mut self) -> Result<(), RecordError> {
        self.sink.samples(&self.rows)?;
        self.rows.clear();
        Ok(())
    }

    fn finish(mut self, ending: Ending) -> Result<Settled, RecordError> {
        self.write_rows()?;
        match ending {
            Ending::Whole => {}
            Ending::Unfinished => self.problem("the log has no end: the program that wrote it was killed".to_owned()),
            Ending::Torn(at) => self.problem(format!("the log is cut or damaged after {at} bytes")),
        }
        let counted = self.counted.take().unwrap_or_else(|| self.reckon(&ending));
        // Those that have no sample, and whoever else is counted, get their numbers last.
        counted.entries.iter().filter_map(|entry| entry.cookie).for_each(|cookie| self.flows.mention(cookie));
        self.settled.is_conserved = self.check(&counted) && ending == Ending::Whole;
        let account: Vec<_> = counted.entries.iter().filter_map(|entry| self.account_row(entry)).collect();
        let flows = self.flows.rows(self.block);
        self.settled.flow_list = flows.iter().map(endpoints).collect();
        self.settled.flows = flows.len() as u64;
        self.settled.gaps = self.gaps.len() as u64;
        self.settled.totals = counted.entries.into_iter().filter(|entry| entry.cookie.is_none()).collect();
        self.sink.flows(&flows)?;
        self.sink.account(&account)?;
        self.sink.gaps(&self.gaps)?;
        self.sink.finish()?;
        Ok(self.settled)
    }

    /// Makes an account of the last words on flows and totals, where there is none. Of a log that was cut off, they are of a
    /// moment before its last samples, which are added; what else was seen since nobody knows.
    fn reckon(&mut self, ending: &Ending) -> Counted {
        let mut account = Account::default();
        self.totals.iter().for_each(|totals| account.add_totals(totals));
        self.flows.told().for_each(|flow| account.add_flow(flow));
        let mut counted = Counted {
            entries: account.entries().collect(),
            events: account.events,
            full: account.full(),
            breach: account.check().err().map(|breach| breach.to_string()).unwrap_or_default(),
        };
        if *ending != Ending::Whole {
            let added = self.flows.amend(&mut counted.entries);
            (counted.breach, counted.full) = (String::new(), self.missing);
            self.problem(format!(
                "its last account was written before the last {added} packets were logged: they were added"
            ));
        }
        counted
    }

    fn account_row(&self, entry: &Entry) -> Option<tcp::Account> {
        // A flow's fates that nothing met are many and say nothing.
        let is_told = entry.cookie.is_none()
            || entry.tally != Tally::default()
            || matches!(entry.fate, None | Some(Fate::Logged));
        let name = entry.fate.map_or(FATES[0], Fate::name);
        let fate = FATES.iter().position(|known| *known == name)?;
        is_told.then(|| tcp::Account {
            block: self.block,
            flow: entry.cookie.and_then(|cookie| self.flows.known(cookie)),
            way: u8::try_from(entry.direction).unwrap_or_default(),
            fate: u8::try_from(fate).unwrap_or_default(),
            packets: entry.tally.packets,
            segments: entry.tally.segments,
        })
    }

    /// Holds what was counted against what is there.
    fn check(&mut self, counted: &Counted) -> bool {
        let before = self.settled.problems.len();
        if !counted.breach.is_empty() {
            self.problem(counted.breach.clone());
        }
        let there = self.flows.logged();
        for entry in counted.entries.iter().filter(|entry| entry.fate == Some(Fate::Logged)) {
            let flow = entry.cookie.and_then(|cookie| self.flows.known(cookie));
            let found = there.get(&flow).map(|both| both[entry.direction]).unwrap_or_default();
            if found != entry.tally {
                let whose = flow.map_or("all flows".to_owned(), |flow| format!("flow {flow}"));
                let (found, said, way) = (found.packets, entry.tally.packets, tcp::WAYS[entry.direction]);
                self.problem(format!("{whose}, {way}: {found} samples where {said} packets were logged"));
            }
        }
        if self.missing != counted.full {
            let problem = format!("gaps of {} records where {} had no room", self.missing, counted.full);
            self.problem(problem);
        }
        self.settled.problems.len() == before
    }

    /// Keeps a sentence; of many, the first.
    fn problem(&mut self, text: String) {
        if self.settled.problems.len() < 20 {
            self.settled.problems.push(text);
        }
    }
}

/// Texts that come again and again in the same places.
#[derive(Default)]
struct Texts(Vec<Arc<str>>);

impl Texts {
    /// Returns the text, shared with the last one in this place if it is the same.
    fn share(&mut self, place: usize, text: &str) -> Arc<str> {
        if self.0.len() <= place {
            self.0.resize(place + 1, Arc::from(""));
        }
        let last = &mut self.0[place];
        if **last != *text {
            *last = Arc::from(text);
        }
        Arc::clone(last)
    }
}

/// Returns the text before the first zero.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests;
