//! What a log is made with: the programs in the kernel, or a simulated TCP in their place.

use serde::Serialize;
use sojourn_tcplog::Source;
use sojourn_tcplog::kernel::{Cost, Kernel, Mode};

/// A source that is more than one: it can be attached as something else, and tells what it is and what it costs.
pub trait Programs: Source + Send {
    /// What it is now.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn facts(&self) -> anyhow::Result<Facts>;

    /// Attaches what a mode means in the place of what is attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn attach_as(&mut self, mode: Mode) -> anyhow::Result<()>;

    /// Says what was attached and is no more, though nobody here took it away.
    fn taken_away(&self) -> Option<String> {
        None
    }

    /// Has the kernel measure what programs cost, or no more.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn measure(&mut self, wanted: bool) -> anyhow::Result<()>;

    /// What each program has cost so far, in the stretches that were measured, and how often it was left out, in all of them.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn costs(&self) -> anyhow::Result<Vec<Cost>>;
}

/// What a log's header says of its source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// The cgroup that it hangs on.
    pub attach: String,
    /// Whether it is a simulated TCP.
    pub is_simulated: bool,
    /// Names of what is attached.
    pub programs: Vec<String>,
    /// Why the fallback runs, where the kernel has refused the fast path.
    pub refusal: Option<String>,
    /// TAI or MONOTONIC.
    pub clock: String,
    /// Columns of tcp_samples that have values.
    pub fields: Vec<String>,
    /// And those that have none: the kernel lacks them, or nobody asked for them.
    pub absent: Vec<String>,
    /// Of these, the ones that the kernel has.
    pub unasked: Vec<String>,
}

/// Names that are kept.
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
