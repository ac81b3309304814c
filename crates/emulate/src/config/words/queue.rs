//! Words of the queue, its active queue management, its scheduler and its flow mask.

use sojourn_time::Nanos;

use super::{Dialect, Draft, Read, Words, impair};
use crate::config::{Aqm, Class, Codel, DropFrom, FqCodel, Limit, Mask, Pie, Queue, Red, Scheduler, units};
use sojourn_time::near::did_you_mean;

/// The default quantum: a full frame, in bytes.
const QUANTUM: u32 = 1514;

/// Parses the limit of the queue, or of the current class.
pub(super) fn limit(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let limit = how_much(word, words)?;
    match draft.class() {
        Some(class) => class.limit = limit,
        None => draft.pipe.queue.limit = limit.unwrap_or_default(),
    }
    Ok(())
}

/// Parses `drop head` and `drop tail`; any other `drop` is a loss.
pub(super) fn drop(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    draft.pipe.queue.drop = match words.peek() {
        Some("head") => DropFrom::Head,
        Some("tail") => DropFrom::Tail,
        _ => return impair::loss(draft, word, words),
    };
    words.any();
    Ok(())
}

pub(super) fn droptail(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    (draft.pipe.queue.drop, draft.pipe.queue.aqm) = (DropFrom::Tail, None);
    Ok(())
}

/// Parses the active queue management of the queue, or of the current class.
pub(super) fn management(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let named = words.or_none(|words| manager(word, words))?;
    let limit = draft.pipe.queue.limit;
    if let Some(class) = draft.class() {
        let limit = class.limit.unwrap_or(limit);
        class.aqm = named.map(|(aqm, is_open)| if is_open { in_unit_of(aqm, limit) } else { aqm });
        return Ok(());
    }
    match named {
        None => no_management(&mut draft.pipe.queue),
        Some((aqm, is_open)) => (draft.pipe.queue.aqm, draft.queue.is_red_open) = (Some(aqm), is_open),
    }
    Ok(())
}

/// Parses `aqm`: `aqm none` removes active queue management; otherwise another word follows that is parsed by itself.
pub(super) fn aqm(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    let known = ["red", "gred", "codel", "pie", "fq_codel", "dualpi2"];
    match words.peek().unwrap_or_default() {
        "none" => {
            words.any();
            no_management(&mut draft.pipe.queue);
            Ok(())
        }
        "fq-codel" => Ok(()),
        word if known.contains(&word) => Ok(()),
        other => Err(format!(
            "aqm: write red, gred, codel, pie, fq_codel or dualpi2 behind it, or \"aqm none\" to take it away{}",
            did_you_mean(other, &known)
        )),
    }
}

/// Parses `ecn` alone: the queue management named before marks.
pub(super) fn ecn(draft: &mut Draft, _: &str, _: &mut Words) -> Read<()> {
    let queue = &mut draft.pipe.queue;
    match (&mut queue.aqm, &mut queue.scheduler) {
        (Some(Aqm::Red(red)), _) => red.ecn = true,
        (Some(Aqm::Codel(codel)), _) => codel.ecn = true,
        (Some(Aqm::Pie(pie)), _) => pie.ecn = true,
        (None, Scheduler::FqCodel(fq)) => fq.codel.ecn = true,
        (None, Scheduler::DualPi2 { .. }) => {}
        (None, _) => {
            return Err("ecn: nothing here marks; name red, codel, pie or fq_codel before it (a loss, here, is a loss and not a mark)".to_owned());
        }
    }
    Ok(())
}

pub(super) fn scheduler_type(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let name = words.argument(word, "wf2q+")?;
    draft.queue.has_type = true;
    draft.pipe.queue.scheduler = scheduler_of(&name, words)?;
    Ok(())
}

/// Parses a scheduler by its own name; `none` removes a scheduler that includes queue management.
pub(super) fn scheduler(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    if matches!(word, "fq_codel" | "fq-codel" | "dualpi2") && words.take("none") {
        no_management(&mut draft.pipe.queue);
        return Ok(());
    }
    draft.queue.has_type = true;
    draft.pipe.queue.scheduler = scheduler_of(word, words)?;
    Ok(())
}

/// Parses `class NAME weight W`; words of a queue that follow apply to the class.
pub(super) fn class(draft: &mut Draft, word: &str, words: &mut Words) -> Read<()> {
    let name = words.argument(word, "web weight 10")?;
    let weight = words.behind("weight", |words, name| words.whole(name, "10"))?;
    let classes = &mut draft.pipe.queue.classes;
    let known = classes.iter().position(|class| class.name == name);
    let at = known.unwrap_or(classes.len());
    if known.is_none() {
        classes.push(Class { name, weight: 1, limit: None, aqm: None });
    }
    classes[at].weight = weight.unwrap_or(classes[at].weight);
    (draft.queue.has_classes, draft.queue.class) = (true, Some(at));
    Ok(())
}

pub(super) fn classes(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    if !words.take("none") {
        return Err("classes: write \"classes none\" to take them away, or \"class NAME weight W\" for one".to_owned());
    }
    draft.pipe.queue.classes.clear();
    Ok(())
}

/// Parses dummynet's mask, and `macs`, `vlan`, `most N`.
pub(super) fn mask(draft: &mut Draft, _: &str, words: &mut Words) -> Read<()> {
    draft.pipe.mask = words.or_none(bits)?;
    Ok(())
}

/// State that is resolved at the end: the unit of RED's thresholds, the current class.
#[derive(Default)]
pub(super) struct Pending {
    /// RED has thresholds without a unit: they are bytes if the limit is in bytes.
    is_red_open: bool,
    has_type: bool,
    has_classes: bool,
    /// The current class, to which words of a queue apply.
    class: Option<usize>,
}

impl Draft {
    /// Returns the current class.
    fn class(&mut self) -> Option<&mut Class> {
        self.pipe.queue.classes.get_mut(self.queue.class?)
    }
}

impl Pending {
    /// Ends the current class: words of a queue apply to the pipe's queue again.
    pub const fn leave_class(&mut self) {
        self.class = None;
    }

    /// Resolves RED's unit, and sets dummynet's default scheduler for classes.
    pub fn finish(&self, queue: &mut Queue) {
        if self.is_red_open {
            queue.aqm = queue.aqm.map(|aqm| in_unit_of(aqm, queue.limit));
        }
        if self.has_classes && !self.has_type && queue.scheduler == Scheduler::Fifo {
            queue.scheduler = Scheduler::Wf2q;
        }
    }
}

fn scheduler_of(name: &str, words: &mut Words) -> Read<Scheduler> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "fifo" => Scheduler::Fifo,
        "wf2q+" => Scheduler::Wf2q,
        "drr" | "rr" => {
            let quantum = words.behind("quantum", |words, name| words.whole(name, "1514"))?;
            Scheduler::Drr { quantum: quantum.unwrap_or(QUANTUM) }
        }
        "fq_codel" | "fq-codel" => Scheduler::FqCodel(fq_codel(words)?),
        "dualpi2" => dualpi2(words)?,
        "qfq" => return Err("type qfq: not offered; wf2q+ gives the same shares with a tighter bound".to_owned()),
        "fq_pie" | "fq-pie" => {
            return Err("type fq_pie: not offered; write \"type fq_codel\", or pie on a fifo".to_owned());
        }
        other => {
            let near = did_you_mean(other, &["fifo", "wf2q+", "drr", "fq_codel", "dualpi2"]);
            return Err(format!(
                "type: {other:?} is not a scheduler{near}; write fifo, wf2q+, drr, fq_codel or dualpi2"
            ));
        }
    })
}

/// Parses a limit: "50" (slots), "30KB", "50 slots", "auto", or several with slashes: "50/30KB".
fn how_much(word: &str, words: &mut Words) -> Read<Option<Limit>> {
    if words.take("auto") || words.take("none") {
        return Ok(None);
    }
    let text = words.argument(word, "50")?;
    let mut limit = Limit::default();
    for part in text.split('/') {
        match part.parse() {
            Ok(slots) => limit.slots = Some(slots),
            Err(_) if word == "limit" && words.dialect == Dialect::Netem => {
                return Err(format!("limit: {part:?} is not a number of packets"));
            }
            Err(_) => limit.bytes = Some(units::size(part).map_err(|why| format!("{word}: {why}"))?),
        }
    }
    words.take("slots");
    Ok(Some(limit))
}

/// Parses active queue management; true: RED's thresholds have no unit.
fn manager(word: &str, words: &mut Words) -> Read<(Aqm, bool)> {
    Ok(match word {
        "codel" => (Aqm::Codel(codel(words, Codel::default())?), false),
        "pie" => (Aqm::Pie(pie(words)?), false),
        _ => {
            let (red, is_open) = red(word, words)?;
            (Aqm::Red(red), is_open)
        }
    })
}

/// Removes active queue management, and schedulers that include it: a plain queue remains.
fn no_management(queue: &mut Queue) {
    queue.aqm = None;
    if matches!(queue.scheduler, Scheduler::FqCodel(_) | Scheduler::DualPi2 { .. }) {
        queue.scheduler = Scheduler::Fifo;
    }
}

/// Parses dummynet's `red w_q/min/max/max_p [ecn]`; thresholds may have a unit: "5KB", "5slots".
fn red(word: &str, words: &mut Words) -> Read<(Red, bool)> {
    let text = words.argument(word, "0.002/5/15/0.1")?;
    let parts: Vec<&str> = text.split('/').collect();
    let [weight, min, max, max_p] = parts[..] else {
        return Err(format!("{word}: {text} is not weight/min/max/max_p, as in \"{word} 0.002/5/15/0.1\""));
    };
    let (min, max) = (threshold(word, min)?, threshold(word, max)?);
    let number = |text| units::real(text).ok_or_else(|| format!("{word}: {text:?} is not a number"));
    let red = Red {
        weight: number(weight)?,
        min: min.0,
        max: max.0,
        max_p: number(max_p)?,
        gentle: word == "gred",
        in_bytes: min.1.or(max.1).unwrap_or(false),
        ecn: is_marking(words),
    };
    if min.1.zip(max.1).is_some_and(|(min, max)| min != max) {
        return Err(format!("{word}: one threshold is in bytes, the other in slots; give both in one unit"));
    }
    Ok((red, min.1.or(max.1).is_none()))
}

/// Parses a threshold; the unit, if given: true for bytes.
fn threshold(word: &str, text: &str) -> Read<(f64, Option<bool>)> {
    if let Some(value) = units::real(text) {
        return Ok((value, None));
    }
    if let Some(value) = text.strip_suffix("slots").and_then(units::real) {
        return Ok((value, Some(false)));
    }
    if let Some(value) = text.strip_suffix('B').and_then(units::real) {
        return Ok((value, Some(true)));
    }
    let bytes = units::size(text).map_err(|why| format!("{word}: {why}"))?;
    Ok((bytes as f64, Some(true)))
}

/// Gives RED's thresholds without a unit the unit of the queue's limit, as dummynet does.
fn in_unit_of(aqm: Aqm, limit: Limit) -> Aqm {
    match aqm {
        Aqm::Red(red) => Aqm::Red(Red { in_bytes: limit.bytes.is_some() && limit.slots.is_none(), ..red }),
        other => other,
    }
}

/// Takes "ecn" or "noecn", if one of them is next; returns whether it was "ecn".
fn is_marking(words: &mut Words) -> bool {
    let is_marking = words.take("ecn");
    if !is_marking {
        words.take("noecn");
    }
    is_marking
}

/// Parses `codel [target T] [interval T] [ecn]`, in any order.
fn codel(words: &mut Words, mut codel: Codel) -> Read<Codel> {
    words.each(|words, name| of_codel(&mut codel, name, words))?;
    Ok(codel)
}

fn of_codel(codel: &mut Codel, name: &str, words: &mut Words) -> Read<bool> {
    match name {
        "target" => codel.target = words.time(name)?,
        "interval" => codel.interval = words.time(name)?,
        "ecn" | "noecn" => codel.ecn = name == "ecn",
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses dummynet's `pie`, without its switches: this PIE follows RFC 8033.
fn pie(words: &mut Words) -> Read<Pie> {
    let mut pie = Pie::default();
    words.each(|words, name| {
        match name {
            "target" => pie.target = words.time(name)?,
            "tupdate" => pie.update = words.time(name)?,
            "max_burst" => pie.max_burst = words.time(name)?,
            "alpha" => pie.alpha = words.real(name, "0.125")?,
            "beta" => pie.beta = words.real(name, "1.25")?,
            "max_ecnth" => pie.max_ecn = words.real(name, "0.1")?,
            "ecn" | "noecn" => pie.ecn = name == "ecn",
            "capdrop" | "nocapdrop" | "drand" | "nodrand" | "onoff" | "dre" | "ts" => {
                return Err(format!("pie: {name} is not offered, this is RFC 8033 without switches; leave it out"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(pie)
}

fn fq_codel(words: &mut Words) -> Read<FqCodel> {
    let mut fq = FqCodel::default();
    words.each(|words, name| {
        match name {
            "quantum" => fq.quantum = words.whole(name, "1514")?,
            "limit" => fq.limit = words.whole(name, "10240")?,
            "flows" => fq.flows = words.whole(name, "1024")?,
            _ => return of_codel(&mut fq.codel, name, words),
        }
        Ok(true)
    })?;
    Ok(fq)
}

/// Parses `dualpi2 [target T] [step T] [coupling K]`, with the defaults of RFC 9332.
fn dualpi2(words: &mut Words) -> Read<Scheduler> {
    let (mut target, mut step, mut coupling) = (Nanos::millis(15), Nanos::millis(1), 2.0);
    words.each(|words, name| {
        match name {
            "target" => target = words.time(name)?,
            "step" => step = words.time(name)?,
            "coupling" => coupling = words.real(name, "2")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Scheduler::DualPi2 { target, step, coupling })
}

/// Parses the bits of a packet that identify its flow: at least one field.
fn bits(words: &mut Words) -> Read<Mask> {
    let (mut mask, mut is_named) = (Mask::default(), false);
    words.each(|words, name| {
        match name {
            "all" => mask = Mask { most: mask.most, ..ALL },
            "src-ip" => mask.source4 = first_bits(name, words, 32)?,
            "dst-ip" => mask.destination4 = first_bits(name, words, 32)?,
            "src-ip6" | "src-ipv6" => mask.source6 = first_bits(name, words, 128)?,
            "dst-ip6" | "dst-ipv6" => mask.destination6 = first_bits(name, words, 128)?,
            "src-port" => mask.source_port = port_bits(name, words)?,
            "dst-port" => mask.destination_port = port_bits(name, words)?,
            "proto" => mask.protocol = protocol(words)?,
            "macs" => mask.macs = true,
            "vlan" => mask.vlan = true,
            "most" => mask.most = words.whole(name, "4096")?,
            _ => return Ok(false),
        }
        is_named = true;
        Ok(true)
    })?;
    if is_named {
        return Ok(mask);
    }
    Err("mask: which bits? write src-ip, dst-ip, src-ip6, dst-ip6, src-port, dst-port with their bits, proto, macs, vlan or all".to_owned())
}

/// dummynet's `all`: addresses, ports and protocol.
const ALL: Mask = Mask {
    source4: 32,
    destination4: 32,
    source6: 128,
    destination6: 128,
    source_port: u16::MAX,
    destination_port: u16::MAX,
    protocol: true,
    macs: false,
    vlan: false,
    most: 0,
};

/// Parses "/24" or, for IPv4, "0xffffff00"; for IPv6 a bare number is a prefix length, as in dummynet.
fn first_bits(word: &str, words: &mut Words, most: u8) -> Read<u8> {
    let text = words.argument(word, "/24")?;
    let refusal = || {
        format!(
            "mask {word}: {text:?} is not a number of first bits; write /{most} for each address by itself, or fewer"
        )
    };
    if let Some(hexadecimal) = text.strip_prefix("0x").filter(|_| most == 32) {
        let mask = u32::from_str_radix(hexadecimal, 16).map_err(|_| refusal())?;
        let ones = mask.leading_ones();
        return if ones == mask.count_ones() { u8::try_from(ones).map_err(|_| refusal()) } else { Err(refusal()) };
    }
    let bits = text.strip_prefix('/').or_else(|| (most == 128).then_some(text.as_str())).ok_or_else(refusal)?;
    bits.parse().map_err(|_| refusal())
}

fn port_bits(word: &str, words: &mut Words) -> Read<u16> {
    let text = words.argument(word, "0xffff")?;
    let value = match text.strip_prefix("0x") {
        Some(hexadecimal) => u16::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    };
    value.ok_or_else(|| format!("mask {word}: {text:?} is not 16 bits; write 0xffff for each port by itself"))
}

/// Parses "proto" or dummynet's "proto 0xff".
fn protocol(words: &mut Words) -> Read<bool> {
    match words.number().as_deref() {
        None | Some("0xff" | "255") => Ok(true),
        Some("0x0" | "0x00" | "0") => Ok(false),
        Some(other) => Err(format!("mask proto: {other} is part of a protocol; write proto alone")),
    }
}
