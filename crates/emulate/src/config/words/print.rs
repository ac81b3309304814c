//! Formats a pipe as words.

use std::iter;

use crate::config::units::{percentage_text, rate_text, size_text, time_text};
use crate::config::{
    Aqm, Cell, Class, Codel, Corruption, Delay, Distribution, DropFrom, FqCodel, Impairments, Limit, Link, Loss, Mask,
    Order, Outage, Pie, Pipe, PortDelay, Queue, Red, Reorder, Scheduler, Trace,
};

/// Formats a pipe as words that make the same pipe from an empty one; an empty pipe gives no words. Values read from a
/// file are written as the file's name, a dummynet profile as its own name.
pub fn to_words(pipe: &Pipe) -> String {
    // Every field is destructured, here and below, so that a field that is not written does not compile.
    let Pipe { name: _, mask, before, queue, link, after, delay } = pipe;
    let mut out = Vec::new();
    out.extend(mask.as_ref().map(self::mask));
    impairments(before, &mut out);
    self::link(link, &mut out);
    self::delay(delay, &mut out);
    if *after != Impairments::default() {
        out.push("after".to_owned());
        impairments(after, &mut out);
    }
    // Last, because words of a queue after a class apply to the class.
    self::queue(queue, &mut out);
    out.join(" ")
}

/// Returns the stages of a pipe in the order in which a packet passes them, each with its words; none for a stage without effect.
pub fn to_stages(pipe: &Pipe) -> Vec<(&'static str, String)> {
    let Pipe { name: _, mask, before, queue, link, after, delay } = pipe;
    let in_words = |write: &dyn Fn(&mut Vec<String>)| {
        let mut out = Vec::new();
        write(&mut out);
        out.join(" ")
    };
    let mut stages = vec![
        ("flows with a queue each", mask.as_ref().map(self::mask).unwrap_or_default()),
        ("impairments before the queue", in_words(&|out| impairments(before, out))),
        ("queue", in_words(&|out| self::queue(queue, out))),
        ("link", in_words(&|out| self::link(link, out))),
        ("impairments after the link", in_words(&|out| impairments(after, out))),
        ("delay", in_words(&|out| self::delay(delay, out))),
    ];
    if link.rate_bps.is_some() && stages[2].1.is_empty() {
        "without a limit".clone_into(&mut stages[2].1);
    }
    stages
}

fn impairments(Impairments { loss, corruption, duplication }: &Impairments, out: &mut Vec<String>) {
    out.extend(loss.iter().map(self::loss));
    match corruption {
        Some(Corruption::OneBit(share)) => out.push(format!("corrupt {}", percentage_text(*share))),
        Some(Corruption::BitErrorRate(rate)) => out.push(format!("ber {rate:e}")),
        None => {}
    }
    out.extend(duplication.map(|share| format!("duplicate {}", percentage_text(share))));
}

fn loss(loss: &Loss) -> String {
    match loss {
        Loss::Independent { probability } => format!("loss {}", percentage_text(*probability)),
        Loss::GilbertElliott { p, r, h, k } => gilbert_elliott(*p, *r, *h, *k),
        Loss::Dwell { good, bad } => format!("loss dwell {} {}", time_text(*good), time_text(*bad)),
        Loss::FourState { p13, p31, p23, p32, p14 } => {
            let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(|share| percentage_text(*share));
            format!("loss state {p13} {p31} {p32} {p23} {p14}")
        }
        Loss::Every { every, first } if every == first => format!("loss every {every}"),
        Loss::Every { every, first } => format!("loss every {every} first {first}"),
        Loss::Pattern { file, .. } => format!("loss pattern {}", quoted(file)),
        Loss::TimePattern { file, .. } => format!("loss time-pattern {}", quoted(file)),
        Loss::Syn { count: 1 } => "loss syn".to_owned(),
        Loss::Syn { count } => format!("loss syn {count}"),
        Loss::Segment { index, retransmissions: 0 } => format!("loss segment {index}"),
        Loss::Segment { index, retransmissions } => format!("loss segment {index} retransmissions {retransmissions}"),
    }
}

/// Formats with netem's words if they give exactly the same numbers; 1 − (1 − h) does not always.
fn gilbert_elliott(p: f64, r: f64, h: f64, k: f64) -> String {
    let [p_text, r_text] = [p, r].map(percentage_text);
    if h == 0.0 && k == 1.0 {
        return format!("loss gemodel {p_text} {r_text}");
    }
    let [lost_bad, lost_good] = [1.0 - h, 1.0 - k];
    let reads_back = |lost: f64, kept: f64| (1.0 - lost).to_bits() == kept.to_bits();
    if reads_back(lost_bad, h) && reads_back(lost_good, k) {
        return format!("loss gemodel {p_text} {r_text} {} {}", percentage_text(lost_bad), percentage_text(lost_good));
    }
    format!("loss ge {p_text} {r_text} {} {}", percentage_text(h), percentage_text(k))
}

fn link(link: &Link, out: &mut Vec<String>) {
    let Link { rate_bps, overhead_bytes, cell, burst_bytes, profile, trace, outages } = link;
    out.extend(profile.as_ref().map(|profile| format!("profile {}", quoted(&profile.name))));
    out.extend(rate_bps.map(|bps| format!("rate {}", rate_text(bps))));
    out.extend((*overhead_bytes != 0).then(|| format!("overhead {overhead_bytes}")));
    out.extend(cell.map(|Cell { bytes, overhead_bytes }| format!("cell {bytes} {overhead_bytes}")));
    out.extend((*burst_bytes != 0).then(|| format!("burst {}", size_text(*burst_bytes))));
    if let Some(Trace::Opportunities { file, .. } | Trace::Points { file, .. }) = trace {
        out.push(format!("trace {}", quoted(file)));
    }
    out.extend(outages.iter().map(outage));
}

fn outage(Outage { at, lasts, every }: &Outage) -> String {
    let every = every.map_or_else(String::new, |every| format!(" every {}", time_text(every)));
    format!("outage {} {}{every}", time_text(*at), time_text(*lasts))
}

fn delay(Delay { constant, jitter, half_life, order, reorder, of_ports }: &Delay, out: &mut Vec<String>) {
    out.extend((constant.0 != 0).then(|| format!("delay {}", time_text(*constant))));
    out.extend(jitter.as_ref().map(self::jitter));
    out.extend(half_life.map(|time| format!("half-life {}", time_text(time))));
    out.extend((*order == Order::Free).then(|| "order free".to_owned()));
    out.extend(reorder.as_ref().map(self::reorder));
    out.extend(of_ports.iter().map(port_delay));
}

fn port_delay(PortDelay { first, last, constant }: &PortDelay) -> String {
    let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
    format!("port-delay {ports} {}", time_text(*constant))
}

fn jitter(distribution: &Distribution) -> String {
    match distribution {
        Distribution::Uniform { spread } => format!("jitter {} distribution uniform", time_text(*spread)),
        Distribution::Normal { sd } => format!("jitter {} distribution normal", time_text(*sd)),
        Distribution::Exponential { mean } => format!("jitter {} distribution exponential", time_text(*mean)),
        Distribution::Pareto { scale, shape } => format!("distribution lomax {shape} scale {}", time_text(*scale)),
        Distribution::Gamma { shape, scale } => format!("distribution gamma {shape} scale {}", time_text(*scale)),
        Distribution::Table { sd, file, .. } => format!("jitter {} distribution {}", time_text(*sd), quoted(file)),
        Distribution::Empirical { file, .. } => format!("ecdf {}", quoted(file)),
    }
}

fn reorder(Reorder { probability, gap, by }: &Reorder) -> String {
    let gap = if *gap == 0 { String::new() } else { format!(" gap {gap}") };
    let by = by.map_or_else(String::new, |by| format!(" by {}", time_text(by)));
    format!("reorder {}{gap}{by}", percentage_text(*probability))
}

fn queue(queue: &Queue, out: &mut Vec<String>) {
    let Queue { limit, drop, aqm, scheduler: _, classes } = queue;
    out.extend(self::limit(*limit));
    out.extend((*drop == DropFrom::Head).then(|| "drop head".to_owned()));
    out.extend(aqm.as_ref().map(self::aqm));
    out.extend(scheduler(queue));
    out.extend(classes.iter().map(class));
}

fn limit(Limit { slots, bytes }: Limit) -> Option<String> {
    let parts: Vec<String> = slots.map(|slots| slots.to_string()).into_iter().chain(bytes.map(size_text)).collect();
    (!parts.is_empty()).then(|| format!("queue {}", parts.join("/")))
}

fn aqm(aqm: &Aqm) -> String {
    match aqm {
        Aqm::Red(Red { weight, min, max, max_p, gentle, in_bytes, ecn }) => {
            let unit = if *in_bytes { "B" } else { "slots" };
            let name = if *gentle { "gred" } else { "red" };
            format!("{name} {weight}/{min}{unit}/{max}{unit}/{max_p}{}", if *ecn { " ecn" } else { "" })
        }
        Aqm::Codel(codel) => format!("codel{}", codel_options(codel)),
        Aqm::Pie(Pie { target, update, alpha, beta, max_burst, max_ecn, ecn }) => format!(
            "pie target {} tupdate {} alpha {alpha} beta {beta} max_burst {} max_ecnth {max_ecn}{}",
            time_text(*target),
            time_text(*update),
            time_text(*max_burst),
            if *ecn { " ecn" } else { "" }
        ),
    }
}

fn codel_options(Codel { target, interval, ecn }: &Codel) -> String {
    let ecn = if *ecn { "ecn" } else { "noecn" };
    format!(" target {} interval {} {ecn}", time_text(*target), time_text(*interval))
}

fn scheduler(queue: &Queue) -> Option<String> {
    Some(match &queue.scheduler {
        Scheduler::Fifo if queue.classes.is_empty() => return None,
        Scheduler::Fifo => "type fifo".to_owned(),
        Scheduler::Wf2q => "type wf2q+".to_owned(),
        Scheduler::Drr { quantum } => format!("type drr quantum {quantum}"),
        Scheduler::FqCodel(fq) => {
            // The smaller limit applies; a default limit that does not apply is not written.
            let is_idle = fq.limit == FqCodel::default().limit
                && queue.limit.slots.is_some_and(|slots| slots <= u64::from(fq.limit));
            let limit = if is_idle { String::new() } else { format!(" limit {}", fq.limit) };
            format!("type fq_codel{} quantum {}{limit} flows {}", codel_options(&fq.codel), fq.quantum, fq.flows)
        }
        Scheduler::DualPi2 { target, step, coupling } => {
            format!("type dualpi2 target {} step {} coupling {coupling}", time_text(*target), time_text(*step))
        }
    })
}

fn class(Class { name, weight, limit, aqm }: &Class) -> String {
    let head = format!("class {} weight {weight}", quoted(name));
    let own = limit.and_then(self::limit).into_iter().chain(aqm.as_ref().map(self::aqm));
    iter::once(head).chain(own).collect::<Vec<_>>().join(" ")
}

fn mask(mask: &Mask) -> String {
    let Mask {
        source4,
        destination4,
        source6,
        destination6,
        source_port,
        destination_port,
        protocol,
        macs,
        vlan,
        most,
    } = mask;
    // A mask without bits makes one flow of all packets; its words still need one field.
    let mut text = format!("mask src-ip /{source4}");
    let rest = [
        (*destination4 != 0, format!(" dst-ip /{destination4}")),
        (*source6 != 0, format!(" src-ip6 /{source6}")),
        (*destination6 != 0, format!(" dst-ip6 /{destination6}")),
        (*source_port != 0, format!(" src-port {source_port:#06x}")),
        (*destination_port != 0, format!(" dst-port {destination_port:#06x}")),
        (*protocol, " proto".to_owned()),
        (*macs, " macs".to_owned()),
        (*vlan, " vlan".to_owned()),
        (*most != 0, format!(" most {most}")),
    ];
    text.extend(rest.into_iter().filter(|(is_given, _)| *is_given).map(|(_, words)| words));
    text
}

/// Quotes a name that is empty or has spaces.
fn quoted(name: &str) -> String {
    if name.is_empty() || name.contains(char::is_whitespace) { format!("\"{name}\"") } else { name.to_owned() }
}
