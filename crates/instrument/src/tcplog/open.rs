//! Opens what a log is made with: the kernel, or a simulated TCP.

use std::fs::File;

use sojourn_tcplog::flight::{Flight, FlightOptions, Triggers};
use sojourn_tcplog::kernel::{Kernel, KernelOptions};
use sojourn_time::near::did_you_mean;

use super::arguments::{Attach, FlightArguments};
use super::asked::Asked;
use super::log_options::LogOptions;
use super::programs::Programs;
use super::simulated::SimulatedPrograms;
use crate::failure::{WrongRequest, of_path};

/// Checks what is asked, then opens.
///
/// # Errors
/// When it makes no sense, or the kernel refuses.
pub fn open(attach: &Attach, request: &LogOptions) -> anyhow::Result<Box<dyn Programs>> {
    // Before any right is missed: what is wrong anyway is said first.
    Asked::default().apply(request, &[])?;
    let ring_bytes = usize::try_from(attach.ring_bytes())?;
    if let Some(seed) = attach.simulated {
        return Ok(Box::new(SimulatedPrograms::new(seed, ring_bytes, attach.flows)));
    }
    if let Some(types) = &attach.btf {
        File::open(types).map_err(|error| of_path("open", types, error))?;
    }
    let options =
        KernelOptions { attach: attach.attach.clone(), flows: attach.flows, ring_bytes, btf: attach.btf.clone() };
    Ok(Box::new(Kernel::open(&options)?))
}

/// Makes the flight recorder that is asked for.
///
/// # Errors
/// When what it is to wait for makes no sense.
pub fn flight(asked: &FlightArguments) -> anyhow::Result<Option<Flight>> {
    let Some(keep) = asked.flight else { return Ok(None) };
    let mut on = Triggers { rto: false, reset: false, loss: false };
    for word in &asked.flight_on {
        match word.as_str() {
            "rto" => on.rto = true,
            "reset" => on.reset = true,
            "loss" => on.loss = true,
            _ => {
                let meant = did_you_mean(word, &["rto", "reset", "loss"]);
                return Err(WrongRequest(format!("--flight-on {word}: expected rto, reset, loss{meant}")).into());
            }
        }
    }
    Ok(Some(Flight::new(FlightOptions { on, ..FlightOptions::keeping(keep as usize) })))
}
