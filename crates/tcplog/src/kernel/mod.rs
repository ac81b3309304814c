//! The programs in the kernel: loaded from the object that the build compiled from `bpf/`, and attached to a cgroup and
//! to tracepoints by links that end with this process, however it ends.
//!
//! This module hides libbpf. Nothing is pinned, so nothing stays behind. It does not process the samples.

mod attach;
mod load;
mod ring;
mod rings;
mod sys;
mod table;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, Object};
use serde::{Deserialize, Serialize};

use crate::decode::{Raw, whole};
use crate::layout::{Flow, Options, Totals, slots};
use crate::{Columns, FieldSet, Prefix, Source, SourceError};
use attach::Links;
pub use attach::{Cgroup, cgroup_root, find_root};
use load::{Asked, Facts};
use rings::Rings;
use table::{Table, completed_totals};

/// Options that are fixed while the programs are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// The cgroup to attach to; the programs see all of its descendants. `None`: the root, found in the mount table.
    pub attach: Option<PathBuf>,
    /// The maximum number of flows at once.
    pub flows: u32,
    /// The maximum size of each CPU's ring in bytes ([`slots`]).
    pub ring_bytes: usize,
    /// The kernel's type information, if not in `/sys/kernel/btf/vmlinux`.
    pub btf: Option<PathBuf>,
    /// The fields of the control block to read.
    pub fields: FieldSet,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self { attach: None, flows: 65_536, ring_bytes: 8 << 20, btf: None, fields: FieldSet::default() }
    }
}

/// The programs that are attached to the cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The logging programs, enabled.
    #[default]
    On,
    /// The logging programs, disabled: they return at once.
    Disabled,
    /// No programs.
    Off,
    /// The null programs, which return at once and contain nothing else.
    Empty,
    /// The placebo: programs that run a busy loop of [`Options::burn`] turns and do nothing else.
    Placebo,
}

/// The clock of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleClock {
    /// `TAI` or, before Linux 6.1, `MONOTONIC`.
    pub name: &'static str,
    /// The offset from `CLOCK_MONOTONIC` to this clock; 0 if it is that clock.
    pub minus_monotonic_ns: i64,
}

/// The cost of a program since it was loaded, during the periods in which the kernel measured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The program's name.
    pub name: String,
    /// The number of runs.
    pub runs: u64,
    /// The time of all runs; it includes the cost of measuring, so subtract what the null program shows.
    pub run_ns: u64,
    /// How often the kernel skipped it because it was running on that CPU already; always counted.
    pub missed: u64,
}

/// The loaded programs; dropping it unloads them.
#[derive(Debug)]
pub struct Kernel {
    // Dropped before the cgroup that they are attached to.
    links: Links,
    object: Object,
    /// Why the kernel refused the fast path.
    refusal: Option<String>,
    cgroup: Cgroup,
    rings: Rings,
    table: Table,
    room: u32,
    fields: FieldSet,
    mode: Mode,
    asked: Options,
    asked_enabled: u32,
    which: u32,
    measuring: Option<OwnedFd>,
}

impl Kernel {
    /// Load the programs. They are not attached yet ([`Self::set_mode`]), and logging is not enabled.
    ///
    /// # Errors
    /// When this machine does not support them: missing capabilities, type information or cgroup2, or a kernel that is
    /// too old.
    pub fn open(options: &KernelOptions) -> Result<Self, KernelError> {
        let cgroup = Cgroup::open(options.attach.as_deref())?;
        let room = options.flows.max(1);
        let slots = slots(options.ring_bytes);
        let (object, refusal) =
            load::load(Asked { flows: room, slots, fields: options.fields }, options.btf.as_deref())?;
        let rings = Rings::open(&object, slots)?;
        let table = Table::open(&object, room)?;
        let asked = Options { ppl: 1, one_in_flows: 1, ..Options::take(&mut [].as_slice()) };
        Ok(Self {
            links: Links::default(),
            object,
            refusal,
            cgroup,
            rings,
            table,
            room,
            fields: options.fields,
            mode: Mode::Off,
            asked,
            asked_enabled: 0,
            which: 0,
            measuring: None,
        })
    }

    /// Change the attached programs. All flows end when the logging programs are detached; their counters remain.
    ///
    /// # Errors
    /// When the kernel refuses; no program is attached then.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), KernelError> {
        let was = self.mode;
        if was.is_ours() && !mode.is_ours() || was != mode && !was.is_ours() {
            self.links.clear();
            self.rings.wait_grace_period(&self.object)?;
            if was.is_ours() {
                self.table.end_all(self.used()?);
            }
            self.mode = Mode::Off;
        }
        self.mode = mode;
        self.put()?;
        let hung = self.links.hang(&self.object, &self.cgroup, mode, self.asked.points);
        if hung.is_err() {
            self.links.clear();
            self.mode = Mode::Off;
        }
        hung
    }

    /// Return the mode.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Return the cgroup that the programs are attached to.
    pub fn cgroup(&self) -> &Path {
        self.cgroup.path()
    }

    /// Return why the kernel refused the fast path, if it did. Then the fallback runs, which tests for each field
    /// before reading it and costs more.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Return the names of the attached programs.
    pub fn programs(&self) -> Vec<&'static str> {
        self.links.names()
    }

    /// Return which program was detached by somebody else: the cgroup was removed, or the program detached or replaced.
    pub fn taken_away(&self) -> Option<String> {
        self.links.taken_away(&self.cgroup)
    }

    /// Return the columns of a sample's state: those present in its log, and those absent.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn columns(&self) -> Result<Columns, KernelError> {
        Ok(self.fields.columns(&self.facts()?.present))
    }

    /// Return the clock of the samples, with its current offset.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clock(&self) -> Result<SampleClock, KernelError> {
        let facts = self.facts()?;
        let name = if facts.has_tai { "TAI" } else { "MONOTONIC" };
        Ok(SampleClock { name, minus_monotonic_ns: facts.offset_ns.cast_signed() })
    }

    /// Start or stop the kernel's measurement of program run times. It covers all programs of the host and has a small
    /// cost.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn measure_cost(&mut self, wanted: bool) -> Result<(), KernelError> {
        let failed = |error| KernelError::io("measure", "the cost of programs", error);
        self.measuring = if wanted { Some(sys::measure_cost().map_err(failed)?) } else { None };
        Ok(())
    }

    /// Return the cost of each program so far.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cost(&self) -> Result<Vec<Cost>, KernelError> {
        let failed = |error| KernelError::io("measure", "the cost of programs", error);
        self.object
            .progs()
            // A program whose tracepoint this kernel lacks was not loaded.
            .filter(|program| program.autoload())
            .map(|program| {
                let name = program.name().to_string_lossy().into_owned();
                let measured = sys::measured(program.as_fd()).map_err(failed)?;
                Ok(Cost { name, runs: measured.runs, run_ns: measured.run_ns, missed: measured.missed })
            })
            .collect()
    }

    /// Change the options: write the half of `control` that is not in use, then switch to it. When this returns, no
    /// program that uses the old options is running.
    fn put(&mut self) -> Result<(), KernelError> {
        self.asked.generation += 1;
        self.asked.enabled = u32::from(self.asked_enabled != 0 && self.mode == Mode::On);
        self.asked.offset_ns = self.facts()?.offset_ns;
        let next = 1 - self.which;
        let map = load::map(&self.object, ".data.control")?;
        let failed = |error: libbpf_rs::Error| KernelError::system("change", "what is asked", &error);
        let zero = 0_u32.to_ne_bytes();
        let mut value = map.lookup(&zero, MapFlags::ANY).map_err(failed)?.ok_or(KernelError::Damaged("control"))?;
        let size = size_of::<Options>();
        let mut asked = Vec::with_capacity(size);
        self.asked.put(&mut asked);
        value[next as usize * size..][..size].copy_from_slice(&asked);
        map.update(&zero, &value, MapFlags::ANY).map_err(failed)?;
        value[2 * size..][..4].copy_from_slice(&next.to_ne_bytes());
        map.update(&zero, &value, MapFlags::ANY).map_err(failed)?;
        self.which = next;
        self.rings.wait_grace_period(&self.object)
    }

    fn facts(&self) -> Result<Facts, KernelError> {
        Facts::find(&self.object)
    }

    /// Return how many slots have been assigned at least once.
    fn used(&self) -> Result<u32, KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::system("read", "the number of flows", &error);
        let value =
            load::map(&self.object, ".data.handed_out")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        let bytes = value.and_then(|value| value.first_chunk().copied()).ok_or(KernelError::Damaged("handed_out"))?;
        Ok(u32::from_ne_bytes(bytes).min(self.room))
    }

    /// Replace the prefixes.
    fn set_prefixes(&self, prefixes: &[Prefix]) -> Result<(), KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::system("change", "the prefixes", &error);
        for name in ["prefixes4", "prefixes6"] {
            let map = load::map(&self.object, name)?;
            let wanted: Vec<_> = prefixes.iter().filter(|prefix| prefix.map() == name).map(Prefix::key).collect();
            for key in map.keys().filter(|key| !wanted.contains(key)).collect::<Vec<_>>() {
                map.delete(&key).map_err(failed)?;
            }
            for key in wanted {
                map.update(&key, &[1], MapFlags::ANY).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn totals_of_cpus(&self) -> Result<Vec<Totals>, KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::system("read", "the totals", &error);
        let values = load::map(&self.object, "all_totals")?
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
        let totals = values.into_iter().flatten().map(|value| whole(&value).ok().map(completed_totals));
        totals.collect::<Option<_>>().ok_or(KernelError::Damaged("totals"))
    }
}

impl Source for Kernel {
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError> {
        Ok(self.rings.drain(take))
    }

    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError> {
        self.set_prefixes(prefixes)?;
        let generation = self.asked.generation;
        self.asked = *options;
        self.asked.generation = generation;
        self.asked.prefixes = u32::try_from(prefixes.len()).unwrap_or(u32::MAX);
        self.asked_enabled = options.enabled;
        self.put()?;
        Ok(self.links.hang(&self.object, &self.cgroup, self.mode, self.asked.points)?)
    }

    fn reevaluate(&mut self) {
        self.table.reevaluate(self.used().unwrap_or(self.room));
    }

    fn flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.table.show(self.used().unwrap_or(self.room), show);
    }

    fn ended_flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.table.show_ended(self.used().unwrap_or(self.room), show);
    }

    /// Call it some milliseconds after the flow's end, or after [`Source::ask`], so that no program still processes its
    /// packets.
    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError> {
        Ok(self.table.release(&self.object, slot)?)
    }

    /// Return an entry for each CPU, and one more with the dispositions of all flows.
    fn totals(&self) -> Result<Vec<Totals>, SourceError> {
        let mut totals = self.totals_of_cpus()?;
        totals.push(self.table.sums(self.used()?));
        Ok(totals)
    }
}

impl Mode {
    const fn is_ours(self) -> bool {
        matches!(self, Self::On | Self::Disabled)
    }
}

impl Prefix {
    const fn map(&self) -> &'static str {
        if self.address.is_ipv4() { "prefixes4" } else { "prefixes6" }
    }

    /// Encode the key of the kernel's trie: the length, then the address.
    fn key(&self) -> Vec<u8> {
        let mut key = u32::from(self.length).to_ne_bytes().to_vec();
        match self.address {
            IpAddr::V4(address) => key.extend(address.octets()),
            IpAddr::V6(address) => key.extend(address.octets()),
        }
        key
    }
}

/// Why the programs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A capability is missing.
    #[error(
        "load programs into the kernel: {missing} {is} missing: run it as root (sudo); a user namespace does not grant it",
        missing = .0.join(" and "),
        is = if .0.len() == 1 { "is" } else { "are" }
    )]
    Denied(Vec<&'static str>),
    /// The kernel provides no type information.
    #[error(
        "this kernel tells nothing of its types ({0}: {1}): boot one built with CONFIG_DEBUG_INFO_BTF, or name a file with \
         its BTF"
    )]
    NoTypes(PathBuf, io::Error),
    /// The path is not a cgroup v2.
    #[error("{0} is not a cgroup of version 2: {1}; `mount -t cgroup2 none /sys/fs/cgroup/unified` makes their root")]
    NoCgroup(PathBuf, String),
    /// An attached program permits no other.
    #[error(
        "attach to {path}: program {program} hangs on {at} and tolerates no other; `bpftool cgroup detach {at} {place} id \
         {program}` takes it away, or attach to a cgroup beside it"
    )]
    Occupied {
        /// The cgroup to attach to.
        path: PathBuf,
        /// The cgroup of the other program.
        at: PathBuf,
        /// Its attach point.
        place: &'static str,
        /// Its ID.
        program: u32,
    },
    /// Not enough memory.
    #[error(
        "the kernel has no memory for {flows} flows and {slots} records of each CPU: a smaller --flows or --ring needs less"
    )]
    Memory {
        /// The requested size of the flow table.
        flows: u32,
        /// The requested number of records in each CPU's ring.
        slots: u32,
    },
    /// The kernel refused a program.
    #[error("this kernel ({release}) refuses a program of ours; Linux 5.15 and later should not: {why}")]
    Refused {
        /// The kernel release.
        release: String,
        /// Its message.
        why: String,
    },
    /// Lockdown forbids programs to read kernel memory.
    #[error(
        "this kernel ({release}) is locked down (confidentiality): no program may read TCP's state; boot it with \
         lockdown=integrity, or without (it says: {why})"
    )]
    LockedDown {
        /// The kernel release.
        release: String,
        /// Its message.
        why: String,
    },
    /// The compiled object lacks something.
    #[error("the compiled programs have no `{0}`: build them again")]
    Damaged(&'static str),
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Its object.
        object: String,
        /// The system's error.
        source: io::Error,
    },
}

impl KernelError {
    fn io(operation: &'static str, object: &str, source: impl Into<io::Error>) -> Self {
        Self::System { operation, object: object.to_owned(), source: source.into() }
    }

    fn system(operation: &'static str, object: &str, error: &libbpf_rs::Error) -> Self {
        Self::io(operation, object, io::Error::other(error.to_string()))
    }
}

impl From<KernelError> for SourceError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::System { operation, object, source } => Self::System { operation, object, source },
            other => Self::System {
                operation: "use",
                object: "our programs in the kernel".to_owned(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}
