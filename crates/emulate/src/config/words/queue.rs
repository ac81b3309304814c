//! Words of the queue, its management, its scheduler and its flows.

use super::{Words, did_you_mean};
use crate::config::{Aqm, Class, Codel, DropFrom, FqCodel, Limit, Mask, Pie, Pipe, Queue, Red, Scheduler, units};

/// A visit's bytes where none are given: a full frame.
const QUANTUM: u32 = 1514;

/// What is settled at the end: the unit of RED's thresholds, whose words these are.
#[derive(Default)]
pub(super) struct Pending {
    /// RED without a unit: bytes where the queue is in bytes.
    is_red_open: bool,
    has_type: bool,
    has_classes: bool,
    /// The class that the words of a queue now belong to.
    class: Option<usize>,
}

impl Pending {
    pub fn word(&mut self, word: &str, words: &mut Words, pipe: &mut Pipe) -> Result<bool, String> {
        if let Some(class) = self.class.and_then(|at| pipe.queue.classes.get_mut(at)) {
            match word {
                "queue" | "limit" => {
                    class.limit = limit(word, words)?;
                    return Ok(true);
                }
                "red" | "gred" | "codel" | "pie" if words.take("none") => {
                    class.aqm = None;
                    return Ok(true);
                }
                "red" | "gred" | "codel" | "pie" => {
                    let (aqm, is_open) = aqm(word, words)?;
                    class.aqm =
                        Some(if is_open { in_unit_of(aqm, class.limit.unwrap_or(pipe.queue.limit)) } else { aqm });
                    return Ok(true);
                }
                _ => self.class = None,
            }
        }
        self.of_pipe(word, words, pipe)
    }

    /// Takes the words of a queue that follow for the pipe's again.
    pub const fn leave_class(&mut self) {
        self.class = None;
    }

    fn of_pipe(&mut self, word: &str, words: &mut Words, pipe: &mut Pipe) -> Result<bool, String> {
        let queue = &mut pipe.queue;
        match word {
            "queue" | "limit" => queue.limit = limit(word, words)?.unwrap_or_default(),
            "drop" => queue.drop = if words.take("head") { DropFrom::Head } else { self::tail(words)? },
            "droptail" => (queue.drop, queue.aqm) = (DropFrom::Tail, None),
            "red" | "gred" | "codel" | "pie" | "fq_codel" | "fq-codel" | "dualpi2" if words.take("none") => {
                no_management(&mut pipe.queue);
            }
            "red" | "gred" | "codel" | "pie" => {
                let (aqm, is_open) = aqm(word, words)?;
                (queue.aqm, self.is_red_open) = (Some(aqm), is_open);
            }
            "aqm" => no_aqm(words, &mut pipe.queue)?,
            "ecn" => ecn(pipe)?,
            "type" => {
                let name = words.argument("type", "wf2q+")?;
                self.scheduler(&name, words, pipe)?;
            }
            "fifo" | "wf2q+" | "drr" | "fq_codel" | "fq-codel" | "dualpi2" => self.scheduler(word, words, pipe)?,
            "class" => self.class(words, pipe)?,
            "classes" => self.no_classes(words, pipe)?,
            "mask" | "flow_mask" | "sched_mask" => pipe.mask = mask(words)?,
            "buckets" => {
                let _: u32 = words.whole(word, "64")?;
            }
            "noerror" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn scheduler(&mut self, name: &str, words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
        self.has_type = true;
        pipe.queue.scheduler = match name.to_ascii_lowercase().as_str() {
            "fifo" => Scheduler::Fifo,
            "wf2q+" => Scheduler::Wf2q,
            "drr" | "rr" => Scheduler::Drr {
                quantum: if words.take("quantum") { words.whole("quantum", "1514")? } else { QUANTUM },
            },
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
        };
        Ok(())
    }

    /// `class NAME weight W`; the words of a queue that follow are the class's.
    fn class(&mut self, words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
        let name = words.argument("class", "web weight 10")?;
        let weight = if words.take("weight") { Some(words.whole("weight", "10")?) } else { None };
        let classes = &mut pipe.queue.classes;
        let at = classes.iter().position(|class| class.name == name).unwrap_or_else(|| {
            classes.push(Class { name: name.clone(), weight: 1, limit: None, aqm: None });
            classes.len() - 1
        });
        if let (Some(class), Some(weight)) = (classes.get_mut(at), weight) {
            class.weight = weight;
        }
        (self.has_classes, self.class) = (true, Some(at));
        Ok(())
    }

    fn no_classes(&mut self, words: &mut Words, pipe: &mut Pipe) -> Result<(), String> {
        if !words.take("none") {
            return Err(
                "classes: write \"classes none\" to take them away, or \"class NAME weight W\" for one".to_owned()
            );
        }
        pipe.queue.classes.clear();
        Ok(())
    }

    /// Settles RED's unit, and gives classes the scheduler that dummynet gives them.
    pub fn finish(&mut self, pipe: &mut Pipe) -> Result<(), String> {
        let queue = &mut pipe.queue;
        if self.is_red_open {
            queue.aqm = queue.aqm.map(|aqm| in_unit_of(aqm, queue.limit));
        }
        if self.has_classes && !self.has_type && queue.scheduler == Scheduler::Fifo {
            queue.scheduler = Scheduler::Wf2q;
        }
        Ok(())
    }
}

fn tail(words: &mut Words) -> Result<DropFrom, String> {
    if words.take("tail") { Ok(DropFrom::Tail) } else { Err("drop: write \"drop head\" or \"drop tail\"".to_owned()) }
}

/// Reads "50" (slots), "30KB", "50 slots", "auto"; several follow each other with a slash: "50/30KB".
fn limit(word: &str, words: &mut Words) -> Result<Option<Limit>, String> {
    if words.take("auto") || words.take("none") {
        return Ok(None);
    }
    let text = words.argument(word, "50")?;
    let mut limit = Limit::default();
    for part in text.split('/') {
        match part.parse() {
            Ok(slots) => limit.slots = Some(slots),
            Err(_) if word == "limit" && words.dialect == super::Dialect::Netem => {
                return Err(format!("limit: {part:?} is not a number of packets"));
            }
            Err(_) => limit.bytes = Some(units::size(part).map_err(|why| format!("{word}: {why}"))?),
        }
    }
    words.take("slots");
    Ok(Some(limit))
}

/// Reads management; true: RED's thresholds have no unit of their own.
fn aqm(word: &str, words: &mut Words) -> Result<(Aqm, bool), String> {
    Ok(match word {
        "codel" => (Aqm::Codel(codel(words, Codel::default())?), false),
        "pie" => (Aqm::Pie(pie(words)?), false),
        _ => {
            let (red, is_open) = red(word, words)?;
            (Aqm::Red(red), is_open)
        }
    })
}

/// Takes management away, and the schedulers that are management as well: what is left is a plain queue.
fn no_management(queue: &mut Queue) {
    queue.aqm = None;
    if matches!(queue.scheduler, Scheduler::FqCodel(_) | Scheduler::DualPi2 { .. }) {
        queue.scheduler = Scheduler::Fifo;
    }
}

/// `aqm none` takes it away; else the word only says what kind of word comes next.
fn no_aqm(words: &mut Words, queue: &mut Queue) -> Result<(), String> {
    match words.peek() {
        Some("red" | "gred" | "codel" | "pie" | "fq_codel" | "fq-codel" | "dualpi2") => Ok(()),
        Some("none") => {
            words.any();
            no_management(queue);
            Ok(())
        }
        other => {
            let near = did_you_mean(other.unwrap_or_default(), &["red", "gred", "codel", "pie", "fq_codel", "dualpi2"]);
            Err(format!(
                "aqm: write red, gred, codel, pie, fq_codel or dualpi2 behind it, or \"aqm none\" to take it away{near}"
            ))
        }
    }
}

/// dummynet's `red w_q/min/max/max_p [ecn]`; thresholds with a unit of their own: "5KB", "5slots".
fn red(word: &str, words: &mut Words) -> Result<(Red, bool), String> {
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
        ecn: switch("ecn", words).unwrap_or(false),
    };
    if min.1.zip(max.1).is_some_and(|(min, max)| min != max) {
        return Err(format!("{word}: one threshold is in bytes, the other in slots; give both in one unit"));
    }
    Ok((red, min.1.or(max.1).is_none()))
}

/// Reads a threshold, and whether it is in bytes where it says so.
fn threshold(word: &str, text: &str) -> Result<(f64, Option<bool>), String> {
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

/// Gives RED's bare thresholds the unit of the queue, as dummynet does.
fn in_unit_of(aqm: Aqm, limit: Limit) -> Aqm {
    match aqm {
        Aqm::Red(red) => Aqm::Red(Red { in_bytes: limit.bytes.is_some() && limit.slots.is_none(), ..red }),
        other => other,
    }
}

/// Reads a switch with its opposite: "ecn", "noecn".
fn switch(name: &str, words: &mut Words) -> Option<bool> {
    if words.take(name) {
        return Some(true);
    }
    words.take(&format!("no{name}")).then_some(false)
}

/// `codel [target T] [interval T] [ecn]`, in any order.
fn codel(words: &mut Words, mut codel: Codel) -> Result<Codel, String> {
    loop {
        if words.take("target") {
            codel.target = words.time("target")?;
        } else if words.take("interval") {
            codel.interval = words.time("interval")?;
        } else if let Some(ecn) = switch("ecn", words) {
            codel.ecn = ecn;
        } else {
            return Ok(codel);
        }
    }
}

/// dummynet's `pie`, without its switches: this one is RFC 8033's.
fn pie(words: &mut Words) -> Result<Pie, String> {
    let mut pie = Pie::default();
    loop {
        let Some(word) = words.peek().map(str::to_owned) else { return Ok(pie) };
        match word.as_str() {
            "target" | "tupdate" | "max_burst" | "alpha" | "beta" | "max_ecnth" | "ecn" | "noecn" => words.any(),
            "capdrop" | "nocapdrop" | "drand" | "nodrand" | "onoff" | "dre" | "ts" => {
                return Err(format!("pie: {word} is not offered, this is RFC 8033 without switches; leave it out"));
            }
            _ => return Ok(pie),
        };
        match word.as_str() {
            "target" => pie.target = words.time(&word)?,
            "tupdate" => pie.update = words.time(&word)?,
            "max_burst" => pie.max_burst = words.time(&word)?,
            "alpha" => pie.alpha = words.real(&word, "0.125")?,
            "beta" => pie.beta = words.real(&word, "1.25")?,
            "max_ecnth" => pie.max_ecn = words.real(&word, "0.1")?,
            other => pie.ecn = other == "ecn",
        }
    }
}

fn fq_codel(words: &mut Words) -> Result<FqCodel, String> {
    let mut fq = FqCodel::default();
    loop {
        fq.codel = codel(words, fq.codel)?;
        if words.take("quantum") {
            fq.quantum = words.whole("quantum", "1514")?;
        } else if words.take("limit") {
            fq.limit = words.whole("limit", "10240")?;
        } else if words.take("flows") {
            fq.flows = words.whole("flows", "1024")?;
        } else {
            return Ok(fq);
        }
    }
}

/// `dualpi2 [target T] [step T] [coupling K]`, with the defaults of RFC 9332.
fn dualpi2(words: &mut Words) -> Result<Scheduler, String> {
    let (mut target, mut step) = (sojourn_time::Nanos::millis(15), sojourn_time::Nanos::millis(1));
    let mut coupling = 2.0;
    loop {
        if words.take("target") {
            target = words.time("target")?;
        } else if words.take("step") {
            step = words.time("step")?;
        } else if words.take("coupling") {
            coupling = words.real("coupling", "2")?;
        } else {
            return Ok(Scheduler::DualPi2 { target, step, coupling });
        }
    }
}

/// The word `ecn` by itself: the management that was named before marks.
fn ecn(pipe: &mut Pipe) -> Result<(), String> {
    match (&mut pipe.queue.aqm, &mut pipe.queue.scheduler) {
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

/// dummynet's mask, and `macs`, `vlan`, `most N`.
fn mask(words: &mut Words) -> Result<Option<Mask>, String> {
    if words.take("none") {
        return Ok(None);
    }
    let mut mask = Mask::default();
    let start = words.at;
    while let Some(word) = words.peek().map(str::to_owned) {
        if !is_of_mask(&word) {
            break;
        }
        words.any();
        match word.as_str() {
            "all" => mask = Mask { most: mask.most, ..everything() },
            "src-ip" => mask.source4 = bits(&word, words, 32)?,
            "dst-ip" => mask.destination4 = bits(&word, words, 32)?,
            "src-ip6" | "src-ipv6" => mask.source6 = bits(&word, words, 128)?,
            "dst-ip6" | "dst-ipv6" => mask.destination6 = bits(&word, words, 128)?,
            "src-port" => mask.source_port = port_bits(&word, words)?,
            "dst-port" => mask.destination_port = port_bits(&word, words)?,
            "proto" => mask.protocol = protocol(words)?,
            "macs" => mask.macs = true,
            "vlan" => mask.vlan = true,
            _ => mask.most = words.whole("most", "4096")?,
        }
    }
    if words.at == start {
        return Err("mask: which bits? write src-ip, dst-ip, src-ip6, dst-ip6, src-port, dst-port with their bits, proto, macs, vlan or all".to_owned());
    }
    Ok(Some(mask))
}

fn is_of_mask(word: &str) -> bool {
    matches!(
        word,
        "all"
            | "src-ip"
            | "dst-ip"
            | "src-ip6"
            | "src-ipv6"
            | "dst-ip6"
            | "dst-ipv6"
            | "src-port"
            | "dst-port"
            | "proto"
            | "macs"
            | "vlan"
            | "most"
    )
}

/// dummynet's `all`: addresses, ports and protocol.
const fn everything() -> Mask {
    Mask {
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
    }
}

/// Reads "/24" or, of IPv4, "0xffffff00"; a bare number is a number of bits for IPv6, as dummynet has it.
fn bits(word: &str, words: &mut Words, most: u8) -> Result<u8, String> {
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

fn port_bits(word: &str, words: &mut Words) -> Result<u16, String> {
    let text = words.argument(word, "0xffff")?;
    let value = match text.strip_prefix("0x") {
        Some(hexadecimal) => u16::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    };
    value.ok_or_else(|| format!("mask {word}: {text:?} is not 16 bits; write 0xffff for each port by itself"))
}

/// Reads "proto" or dummynet's "proto 0xff".
fn protocol(words: &mut Words) -> Result<bool, String> {
    match words.number().as_deref() {
        None | Some("0xff" | "255") => Ok(true),
        Some("0x0" | "0x00" | "0") => Ok(false),
        Some(other) => Err(format!("mask proto: {other} is part of a protocol; write proto alone")),
    }
}
