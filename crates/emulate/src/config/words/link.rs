//! Words of the link.

use super::{Draft, Read, Words};
use crate::config::{Cell, Outage, files, units};

/// Bytes of an Ethernet frame on the wire beyond the frame without FCS: preamble and delimiter (8), FCS (4), gap (12).
const ETHERNET: i32 = 24;

/// ATM's cells.
const ATM: Cell = Cell { bytes: 48, overhead_bytes: 5 };

/// Parses netem's `rate R [overhead [cellsize [celloverhead]]]`.
pub(super) fn rate(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let link = &mut draft.pipe.link;
    link.rate_bps = bits_per_second(word, words)?;
    let is_signed = |word: &str| word.strip_prefix('-').unwrap_or(word).starts_with(|c: char| c.is_ascii_digit());
    if !words.peek().is_some_and(is_signed) {
        return Ok(());
    }
    link.overhead_bytes = words.whole("rate (its overhead)", "24")?;
    let Some(bytes) = words.value_if("rate (its cell)", units::whole)? else { return Ok(()) };
    let overhead_bytes = words.value_if("rate (its cell's overhead)", units::whole)?.unwrap_or(0);
    link.cell = (bytes > 0).then_some(Cell { bytes, overhead_bytes });
    Ok(())
}

/// Parses dummynet's `bw`, where 0 means no limit. A `rate` of 0 is a contradiction, which the checks report.
pub(super) fn bandwidth(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.link.rate_bps = bits_per_second(word, words)?.filter(|bps| *bps > 0);
    Ok(())
}

pub(super) fn overhead(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.link.overhead_bytes = words.or_none(|words| words.whole(word, "24"))?.unwrap_or(0);
    Ok(())
}

pub(super) fn ethernet(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    draft.pipe.link.overhead_bytes = ETHERNET;
    Ok(())
}

pub(super) fn cell(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.link.cell = words
        .or_none(|words| Ok(Cell { bytes: words.whole(word, "48 5")?, overhead_bytes: words.whole(word, "48 5")? }))?;
    Ok(())
}

pub(super) fn atm(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    draft.pipe.link.cell = Some(ATM);
    Ok(())
}

pub(super) fn burst(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.link.burst_bytes = words.or_none(|words| words.value(word, "3000B", units::size))?.unwrap_or(0);
    Ok(())
}

/// Parses dummynet's profile; its `bw` line sets the link's rate.
pub(super) fn profile(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let read = words.or_none(|words| files::profile::read(&words.file(word, "modem.profile")?.1))?;
    let link = &mut draft.pipe.link;
    link.rate_bps = read.as_ref().and_then(|read| read.rate_bps).or(link.rate_bps);
    link.profile = read.map(|read| read.profile);
    Ok(())
}

pub(super) fn trace(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.link.trace = words.or_none(|words| {
        let (name, path) = words.file(word, "uplink.csv")?;
        files::trace::read(&path, &name)
    })?;
    Ok(())
}

/// Parses `outage [at] AT [for] LASTS [every T]`.
pub(super) fn outage(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    if !std::mem::replace(&mut draft.link.has_outages, true) {
        draft.pipe.link.outages.clear();
    }
    let outage = words.or_none(|words| {
        words.take("at");
        let at = words.time(word)?;
        words.take("for");
        let lasts = words.time(word)?;
        Ok(Outage { at, lasts, every: words.behind("every", Words::time)? })
    })?;
    draft.pipe.link.outages.extend(outage);
    Ok(())
}

/// Whether outages have been named: the first takes the place of those that were there.
#[derive(Default)]
pub(super) struct Pending {
    has_outages: bool,
}

fn bits_per_second(word: &str, words: &mut Words) -> Read<Option<u64>> {
    let dialect = words.dialect;
    words.or_none(|words| words.value(word, "10Mbit/s", |text| units::rate_in(text, dialect)))
}
