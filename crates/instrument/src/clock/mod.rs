//! `clock`: estimates the offsets of other hosts' clocks from this host's, over time.
//!
//! One thread per peer exchanges probes; this thread estimates, reports and records once a second. The estimation is in
//! `sojourn-clock`.

mod local;
mod peer;
mod render;
pub mod request;
mod simulate;
mod sys;
mod watched;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use sojourn_probe::Peer;
use sojourn_probe::respond::ClockState;
use sojourn_record::StreamFolder;
use sojourn_record::stream::StreamBlock;
use sojourn_rights::table::CLOCK;
use sojourn_time::Wait;
use sojourn_wire::stamp::Format;

use crate::arguments::PlaceArguments;
use crate::failure::{NotTrusted, WrongRequest};
use crate::place::{self, Fifo, Place};
use crate::secret;
use crate::stream::host;
use peer::{Batch, Exchanger};
use render::Show;
use request::{ClockCommand, ClockKind, Watch};
use watched::{Rows, Watched};

/// Watches clocks, or estimates simulated ones.
///
/// # Errors
/// If the request is invalid, a peer cannot be reached, or records cannot be written.
pub fn run(command: &ClockCommand) -> anyhow::Result<()> {
    match &command.command {
        Some(ClockKind::Sim(arguments)) => simulate::run(arguments),
        None => watch(&command.watch),
    }
}

/// Returns the ID of this host's clock, as in replies; never 0.
pub fn own_id() -> u32 {
    (host::clock_id() as u32).max(1)
}

/// Returns the state of this host's clock, as in STAMP packets.
pub fn state(format: Format) -> ClockState {
    local::state(format)
}

fn watch(arguments: &Watch) -> anyhow::Result<()> {
    check(arguments)?;
    let mut show = Show::new(arguments.json);
    show.local(&local::facts())?;
    if arguments.peers.is_empty() {
        return Ok(());
    }
    let key = secret::key_of(arguments.key.as_deref())?;
    place::stop_signal()?;
    let place = Place::take(&place_arguments(), Fifo::IfPermitted)?;
    let greet = |peer: &Peer| Exchanger::greet(*peer, place, key.clone(), arguments);
    let exchangers: Vec<Exchanger> = arguments.peers.iter().map(greet).collect::<anyhow::Result<_>>()?;
    let mut records = arguments
        .record
        .as_deref()
        .map(|folder| StreamFolder::create(folder, "clock", 0, &crate::origin(false)))
        .transpose()?;
    // Sockets and files are open and the priority is set. Threads still need memory, and all memory is locked.
    CLOCK.confine()?;
    let mut watched: Vec<Watched> = exchangers.iter().map(Watched::new).collect();
    let batches = start(exchangers);
    let told = follow(&batches, &mut watched, (&mut show, records.as_mut()));
    conclude(&watched, &mut show, records)?;
    told?;
    refuse_useless(&watched)
}

fn check(arguments: &Watch) -> anyhow::Result<()> {
    let problem = if arguments.interval.0 <= 0 || arguments.interval.0 > 60_000_000_000 {
        "--interval: expected more than 0 and at most 60s"
    } else if arguments.span.0 < arguments.interval.0 && arguments.count.is_none() {
        "--for: shorter than the interval, no exchange would be made"
    } else if arguments.peers.iter().enumerate().any(|(at, peer)| arguments.peers[..at].contains(peer)) {
        "a peer is named twice: name it once"
    } else {
        return Ok(());
    };
    Err(WrongRequest(problem.to_owned()).into())
}

fn place_arguments() -> PlaceArguments {
    PlaceArguments { cpu: None, fifo: false, wait: Wait::SleepThenSpin, die_with_parent: false }
}

/// The capacity of the channel of unreported batches: if the output's reader stops, exchanges wait.
const MOST_BATCHES: usize = 64;

/// Starts a thread per peer; the channel closes when all are done.
fn start(exchangers: Vec<Exchanger>) -> Receiver<(usize, anyhow::Result<Batch>)> {
    let (sender, receiver) = sync_channel(MOST_BATCHES);
    for (index, exchanger) in exchangers.into_iter().enumerate() {
        let sender = sender.clone();
        // The receiver may have ended.
        thread::spawn(move || exchanger.run(|batch| sender.send((index, batch)).is_ok()));
    }
    receiver
}

/// Processes batches until all threads are done.
fn follow(
    batches: &Receiver<(usize, anyhow::Result<Batch>)>,
    watched: &mut [Watched],
    (show, mut records): (&mut Show, Option<&mut StreamFolder>),
) -> anyhow::Result<()> {
    let mut blocks: HashMap<usize, u32> = HashMap::new();
    for (index, batch) in batches {
        let one = &mut watched[index];
        match batch {
            Ok(batch) => {
                let number = blocks.entry(index).or_default();
                let Rows { exchanges, lines: clock_lines } = one.take(&batch);
                if let Some(records) = records.as_deref_mut() {
                    records.write(&StreamBlock { block: *number, exchanges, clock_lines, ..StreamBlock::default() })?;
                }
                *number += 1;
                show.update(one)?;
            }
            Err(error) => one.failed(&error),
        }
    }
    Ok(())
}

/// Reports and records the estimates from all exchanges.
fn conclude(watched: &[Watched], show: &mut Show, records: Option<StreamFolder>) -> anyhow::Result<()> {
    if let Some(mut records) = records {
        let clock_lines = watched.iter().flat_map(Watched::rows).collect();
        records.write(&StreamBlock { block: 0, clock_lines, ..StreamBlock::default() })?;
        records.finish()?;
    }
    show.summary(watched)
}

fn refuse_useless(watched: &[Watched]) -> anyhow::Result<()> {
    let problems: Vec<String> = watched.iter().filter_map(Watched::problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(NotTrusted(problems.join("; ")).into()) }
}
