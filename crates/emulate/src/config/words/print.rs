//! A pipe back in words.

use crate::config::units::{percentage_text, rate_text, size_text, time_text};
use crate::config::{
    Aqm, Class, Codel, Corruption, Delay, Distribution, DropFrom, FqCodel, Impairments, Limit, Link, Loss, Mask, Order,
    Pipe, Queue, Reorder, Scheduler, Trace,
};

/// Writes a pipe in words that make the same pipe of an idle one. An idle pipe is no words at all. What was read from a file
/// is named by its file; a dummynet profile by its name.
pub fn to_words(pipe: &Pipe) -> String {
    let mut out = Vec::new();
    mask(pipe.mask.as_ref(), &mut out);
    impairments(&pipe.before, &mut out);
    link(&pipe.link, &mut out);
    delay(&pipe.delay, &mut out);
    if pipe.after != Impairments::default() {
        out.push("after".to_owned());
        impairments(&pipe.after, &mut out);
    }
    // Last, for the words of a queue behind a class are the class's.
    queue(&pipe.queue, &mut out);
    out.join(" ")
}

fn impairments(impairments: &Impairments, out: &mut Vec<String>) {
    out.extend(impairments.loss.iter().map(loss));
    match impairments.corruption {
        Some(Corruption::OneBit(share)) => out.push(format!("corrupt {}", percentage_text(share))),
        Some(Corruption::BitErrorRate(rate)) => out.push(format!("ber {rate:e}")),
        None => {}
    }
    out.extend(impairments.duplication.map(|share| format!("duplicate {}", percentage_text(share))));
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

/// In netem's words where they give the very same numbers; 1 − (1 − h) does not always.
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
    if let Some(profile) = &link.profile {
        out.push(format!("profile {}", quoted(&profile.name)));
    }
    out.extend(link.rate_bps.map(|bps| format!("rate {}", rate_text(bps))));
    if link.overhead_bytes != 0 {
        out.push(format!("overhead {}", link.overhead_bytes));
    }
    out.extend(link.cell.map(|cell| format!("cell {} {}", cell.bytes, cell.overhead_bytes)));
    if link.burst_bytes != 0 {
        out.push(format!("burst {}", size_text(link.burst_bytes)));
    }
    if let Some(Trace::Opportunities { file, .. } | Trace::Points { file, .. }) = &link.trace {
        out.push(format!("trace {}", quoted(file)));
    }
    for outage in &link.outages {
        let every = outage.every.map_or_else(String::new, |every| format!(" every {}", time_text(every)));
        out.push(format!("outage {} {}{every}", time_text(outage.at), time_text(outage.lasts)));
    }
}

fn delay(delay: &Delay, out: &mut Vec<String>) {
    if delay.constant.0 != 0 {
        out.push(format!("delay {}", time_text(delay.constant)));
    }
    out.extend(delay.jitter.as_ref().map(jitter));
    out.extend(delay.half_life.map(|time| format!("half-life {}", time_text(time))));
    if delay.order == Order::Free {
        out.push("order free".to_owned());
    }
    out.extend(delay.reorder.as_ref().map(reorder));
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

fn reorder(reorder: &Reorder) -> String {
    let mut text = format!("reorder {}", percentage_text(reorder.probability));
    if reorder.gap != 0 {
        text += &format!(" gap {}", reorder.gap);
    }
    if let Some(by) = reorder.by {
        text += &format!(" by {}", time_text(by));
    }
    text
}

fn queue(queue: &Queue, out: &mut Vec<String>) {
    out.extend(limit(queue.limit));
    if queue.drop == DropFrom::Head {
        out.push("drop head".to_owned());
    }
    out.extend(queue.aqm.as_ref().map(aqm));
    out.extend(scheduler(queue));
    out.extend(queue.classes.iter().map(class));
}

fn limit(limit: Limit) -> Option<String> {
    let slots = limit.slots.map(|slots| slots.to_string());
    let bytes = limit.bytes.map(size_text);
    let parts: Vec<String> = slots.into_iter().chain(bytes).collect();
    (!parts.is_empty()).then(|| format!("queue {}", parts.join("/")))
}

fn aqm(aqm: &Aqm) -> String {
    match aqm {
        Aqm::Red(red) => {
            let unit = if red.in_bytes { "B" } else { "slots" };
            let name = if red.gentle { "gred" } else { "red" };
            format!(
                "{name} {}/{}{unit}/{}{unit}/{}{}",
                red.weight,
                red.min,
                red.max,
                red.max_p,
                if red.ecn { " ecn" } else { "" }
            )
        }
        Aqm::Codel(codel) => format!("codel{}", codel_options(codel)),
        Aqm::Pie(pie) => format!(
            "pie target {} tupdate {} alpha {} beta {} max_burst {} max_ecnth {}{}",
            time_text(pie.target),
            time_text(pie.update),
            pie.alpha,
            pie.beta,
            time_text(pie.max_burst),
            pie.max_ecn,
            if pie.ecn { " ecn" } else { "" }
        ),
    }
}

fn codel_options(codel: &Codel) -> String {
    let ecn = if codel.ecn { "ecn" } else { "noecn" };
    format!(" target {} interval {} {ecn}", time_text(codel.target), time_text(codel.interval))
}

fn scheduler(queue: &Queue) -> Option<String> {
    Some(match &queue.scheduler {
        Scheduler::Fifo if queue.classes.is_empty() => return None,
        Scheduler::Fifo => "type fifo".to_owned(),
        Scheduler::Wf2q => "type wf2q+".to_owned(),
        Scheduler::Drr { quantum } => format!("type drr quantum {quantum}"),
        Scheduler::FqCodel(fq) => {
            // The smaller of both limits holds; one that was not written is not shown where it does not hold.
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

fn class(class: &Class) -> String {
    let mut text = format!("class {} weight {}", quoted(&class.name), class.weight);
    for part in class.limit.and_then(limit).into_iter().chain(class.aqm.as_ref().map(aqm)) {
        text = format!("{text} {part}");
    }
    text
}

fn mask(mask: Option<&Mask>, out: &mut Vec<String>) {
    let Some(mask) = mask else { return };
    // Without a bit that counts all packets are one flow; the words for it still need one.
    let mut text = format!("mask src-ip /{}", mask.source4);
    let rest = [
        (mask.destination4 != 0, format!(" dst-ip /{}", mask.destination4)),
        (mask.source6 != 0, format!(" src-ip6 /{}", mask.source6)),
        (mask.destination6 != 0, format!(" dst-ip6 /{}", mask.destination6)),
        (mask.source_port != 0, format!(" src-port {:#06x}", mask.source_port)),
        (mask.destination_port != 0, format!(" dst-port {:#06x}", mask.destination_port)),
        (mask.protocol, " proto".to_owned()),
        (mask.macs, " macs".to_owned()),
        (mask.vlan, " vlan".to_owned()),
        (mask.most != 0, format!(" most {}", mask.most)),
    ];
    text.extend(rest.into_iter().filter(|(is_given, _)| *is_given).map(|(_, words)| words));
    out.push(text);
}

/// Keeps a name with spaces, or none, together.
fn quoted(name: &str) -> String {
    if name.is_empty() || name.contains(char::is_whitespace) { format!("\"{name}\"") } else { name.to_owned() }
}
