//! `probe blocks`: one JSON request a line in, one JSON answer a line out.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sojourn_probe::{Request, Summary};
use sojourn_record::{Probe, RunFolder};
use sojourn_rights as rights;

use crate::arguments::Blocks;
use crate::place::{self, Fifo, Place};
use crate::serve::{self, Records};
use crate::session::{Measured, Session, WHILE_PROBING};
use crate::sys::STOP;

/// Answers requests until the input ends or a signal comes.
///
/// # Errors
/// When the machine refuses what all blocks need, or records cannot be written any more.
pub fn run(arguments: &Blocks) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::IfPermitted)?;
    let (folder, part) = (arguments.record.clone(), arguments.part);
    let mut records = Records::new(move |origin| {
        let folder = RunFolder::create(&folder, part, origin)?;
        // Its priority and its files it has now; only sockets are still to be opened.
        rights::keep_only(&WHILE_PROBING)?;
        Ok(folder)
    });
    let mut session = Session::new(place);
    serve::say(&serve::ready(Some(&place), Value::Null))?;
    serve::serve(signal, |request: Request| {
        request.check()?;
        let folder = records.folder(request.to.is_simulated())?;
        let measured = session.measure(&request, &STOP)?;
        if STOP.load(Ordering::Relaxed) && measured.block.counts.sent < u64::from(request.count) {
            return Ok(None);
        }
        folder.write(&measured.block, &measured.probes)?;
        Ok(Some(answer(&measured)))
    })?;
    records.into_folder().map_or(Ok(()), |mut folder| Ok(folder.finish()?))
}

fn answer(Measured { block, probes }: &Measured) -> Value {
    let counts = block.counts;
    json!({
        "event": "block",
        "block": block.block,
        "sent": counts.sent,
        "received": counts.received,
        "lost": counts.lost,
        "late": counts.late,
        "duplicated": counts.duplicated,
        "reordered": counts.reordered,
        "foreign": counts.foreign,
        "own_drops": counts.own_drops,
        "rtt": Summary::of(probes.iter().filter(|probe| !probe.is_warmup).filter_map(Probe::rtt)),
        "elapsed_ns": (block.ended_raw - block.started_raw).0,
    })
}
