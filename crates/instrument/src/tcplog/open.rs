//! Opens the source of a log: the kernel, or a simulated TCP.

use std::fs::File;

use sojourn_tcplog::kernel::{Kernel, KernelOptions};

use super::arguments::Attach;
use super::asked::Asked;
use super::log_options::LogOptions;
use super::programs::Programs;
use super::simulated::SimulatedPrograms;
use crate::failure::of_path;

/// Checks the request, then opens the source.
///
/// # Errors
/// If it is invalid, or the kernel refuses.
pub fn open(attach: &Attach, request: &LogOptions) -> anyhow::Result<Box<dyn Programs>> {
    // Check the request first, so that its errors precede those of missing privileges.
    let mut asked = Asked::default();
    asked.apply(request, &[])?;
    let fields = asked.field_set();
    let ring_bytes = usize::try_from(attach.ring_bytes())?;
    if let Some(seed) = attach.simulated {
        return Ok(Box::new(SimulatedPrograms::new(seed, ring_bytes, attach.flows, fields)));
    }
    if let Some(types) = &attach.btf {
        File::open(types).map_err(|error| of_path("open", types, error))?;
    }
    let options = KernelOptions {
        attach: attach.attach.clone(),
        flows: attach.flows,
        ring_bytes,
        btf: attach.btf.clone(),
        fields,
    };
    Ok(Box::new(Kernel::open(&options)?))
}
