//! Words of the link.

use super::Words;
use crate::config::{Cell, Outage, Pipe, files, units};

/// What an Ethernet frame without FCS takes beside on a wire: preamble and delimiter (8), FCS (4), gap (12).
const ETHERNET: i32 = 24;

/// ATM's cells.
const ATM: Cell = Cell { bytes: 48, overhead_bytes: 5 };

/// Whether outages have been named: the first takes the place of those that were there.
#[derive(Default)]
pub(super) struct Pending {
    has_outages: bool,
}

impl Pending {
    pub fn word(&mut self, word: &str, words: &mut Words, pipe: &mut Pipe) -> Result<bool, String> {
        let link = &mut pipe.link;
        match word {
            "rate" => rate(words, pipe)?,
            "bw" | "bandwidth" => link.rate_bps = bandwidth(word, words)?,
            "overhead" => link.overhead_bytes = if words.take("none") { 0 } else { words.whole(word, "24")? },
            "ethernet" => link.overhead_bytes = ETHERNET,
            "atm" => link.cell = Some(ATM),
            "cell" => link.cell = cell(words)?,
            "burst" => link.burst_bytes = burst(words)?,
            "profile" => profile(words, pipe)?,
            "trace" => trace(words, pipe)?,
            "outage" => self.outage(words, pipe)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `outage AT LASTS [every T]`.
    fn outage(&mut self, words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
        if !std::mem::replace(&mut self.has_outages, true) {
            pipe.link.outages.clear();
        }
        if words.take("none") {
            return Ok(());
        }
        let (at, lasts) = (words.time("outage")?, words.time("outage")?);
        let every = if words.take("every") { Some(words.time("every")?) } else { None };
        pipe.link.outages.push(Outage { at, lasts, every });
        Ok(())
    }
}

/// netem's `rate R [overhead [cellsize [celloverhead]]]`.
fn rate(words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
    let link = &mut pipe.link;
    link.rate_bps = bandwidth("rate", words)?;
    let is_signed = words
        .peek()
        .is_some_and(|word| word.strip_prefix('-').unwrap_or(word).starts_with(|c: char| c.is_ascii_digit()));
    if !is_signed {
        return Ok(());
    }
    link.overhead_bytes = words.whole("rate (its overhead)", "24")?;
    let Some(bytes) = words.number() else { return Ok(()) };
    let bytes = units::whole(&bytes).map_err(|why| format!("rate (its cell): {why}"))?;
    let overhead_bytes = match words.number() {
        None => 0,
        Some(text) => units::whole(&text).map_err(|why| format!("rate (its cell's overhead): {why}"))?,
    };
    link.cell = (bytes > 0).then_some(Cell { bytes, overhead_bytes });
    Ok(())
}

fn bandwidth(word: &str, words: &mut Words) -> Result<Option<u64>, String> {
    if words.take("none") {
        return Ok(None);
    }
    let text = words.argument(word, "10Mbit/s")?;
    let bps = units::rate_in(&text, words.dialect).map_err(|why| format!("{word}: {why}"))?;
    // To dummynet a bandwidth of 0 is no limit; anywhere else it is a contradiction that the checks name.
    Ok((bps > 0 || word == "rate").then_some(bps))
}

fn cell(words: &mut Words) -> Result<Option<Cell>, String> {
    if words.take("none") {
        return Ok(None);
    }
    Ok(Some(Cell { bytes: words.whole("cell", "48 5")?, overhead_bytes: words.whole("cell", "48 5")? }))
}

fn burst(words: &mut Words) -> Result<u64, String> {
    if words.take("none") {
        return Ok(0);
    }
    let text = words.argument("burst", "3000B")?;
    units::size(&text).map_err(|why| format!("burst: {why}"))
}

/// dummynet's profile; its `bw` line is the link's rate.
fn profile(words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
    if words.take("none") {
        pipe.link.profile = None;
        return Ok(());
    }
    let name = words.argument("profile", "modem.profile")?;
    let read = files::profile::read(&words.path(&name))?;
    pipe.link.rate_bps = read.rate_bps.or(pipe.link.rate_bps);
    pipe.link.profile = Some(read.profile);
    Ok(())
}

fn trace(words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
    if words.take("none") {
        pipe.link.trace = None;
        return Ok(());
    }
    let name = words.argument("trace", "uplink.csv")?;
    pipe.link.trace = Some(files::trace::read(&words.path(&name), &name)?);
    Ok(())
}
