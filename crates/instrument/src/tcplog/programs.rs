//! The source of a log: programs in the kernel, or a simulated TCP in their place.

use serde::Serialize;
use sojourn_tcplog::Source;
use sojourn_tcplog::kernel::{Cost, Kernel, Mode};

/// A source that can also change its mode, and report its facts and costs.
pub trait Programs: Source + Send {
    /// Returns the current facts.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn facts(&self) -> anyhow::Result<Facts>;

    /// Attaches the programs of a mode instead of the current ones.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn attach_as(&mut self, mode: Mode) -> anyhow::Result<()>;

    /// Returns which programs another process has detached, if any.
    fn taken_away(&self) -> Option<String> {
        None
    }

    /// Enables or disables the kernel's measurement of program costs.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn measure(&mut self, wanted: bool) -> anyhow::Result<()>;

    /// Returns the cost of each program in the measured periods, and how often it was skipped in all periods.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn costs(&self) -> anyhow::Result<Vec<Cost>>;
}

/// The facts about a source for the header of a log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// The cgroup to which the programs are attached.
    pub attach: String,
    /// Whether it is a simulated TCP.
    pub is_simulated: bool,
    /// The names of the attached programs.
    pub programs: Vec<String>,
    /// Why the fallback runs, if the kernel has refused the fast path.
    pub refusal: Option<String>,
    /// TAI or MONOTONIC.
    pub clock: String,
    /// The columns of tcp_samples that have values.
    pub fields: Vec<String>,
    /// The columns without values: the kernel lacks them, or they were not requested.
    pub absent: Vec<String>,
    /// The columns among these that the kernel has.
    pub unasked: Vec<String>,
}

/// Converts names to owned strings.
pub fn owned(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

impl Programs for Kernel {
    fn facts(&self) -> anyhow::Result<Facts> {
        let columns = self.columns()?;
        Ok(Facts {
            attach: self.cgroup().display().to_string(),
            is_simulated: false,
            programs: owned(&self.programs()),
            refusal: self.refusal().map(str::to_owned),
            clock: self.clock()?.name.to_owned(),
            fields: owned(&columns.there),
            absent: owned(&columns.absent),
            unasked: owned(&columns.unasked),
        })
    }

    fn attach_as(&mut self, mode: Mode) -> anyhow::Result<()> {
        Ok(self.set_mode(mode)?)
    }

    fn taken_away(&self) -> Option<String> {
        Kernel::taken_away(self)
    }

    fn measure(&mut self, wanted: bool) -> anyhow::Result<()> {
        Ok(self.measure_cost(wanted)?)
    }

    fn costs(&self) -> anyhow::Result<Vec<Cost>> {
        Ok(self.cost()?)
    }
}
