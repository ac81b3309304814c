//! Checks a queue for contradictions.

use std::collections::BTreeSet;

use sojourn_time::Nanos;

use super::{Refused, ensure, positive, probability, span};
use crate::config::units::time_text;
use crate::config::{Aqm, Class, Codel, FqCodel, Limit, Pie, Pipe, Queue, Red, Scheduler};

/// The smallest frame without FCS, in bytes.
const SMALLEST_FRAME: u64 = 60;
/// The maximum number of classes of a queue: they are numbered in 16 bits.
const MOST_CLASSES: usize = 65_535;

pub(super) fn queue(pipe: &Pipe) -> Refused {
    let queue = &pipe.queue;
    ensure(pipe.link.is_limiting() || *queue == Queue::default(), || {
        format!(
            "{} without a rate: nothing would ever wait in it; give a rate or leave it out (a delay line needs no queue)",
            named(queue)
        )
    })?;
    limit(queue.limit, "queue")?;
    if let Some(management) = &queue.aqm {
        aqm(management)?;
        ensure(!has_own_aqm(&queue.scheduler), || {
            "red, codel and pie cannot be beside fq_codel or dualpi2, which manage their own queues; leave one out"
                .to_owned()
        })?;
    }
    scheduler(&queue.scheduler)?;
    classes(queue)
}

/// Names the part of a queue that was configured.
const fn named(queue: &Queue) -> &'static str {
    match (queue.aqm.is_some(), &queue.scheduler) {
        (true, _) => "queue management (red, codel, pie)",
        (false, Scheduler::Fifo) if !queue.classes.is_empty() => "classes",
        (false, Scheduler::Fifo) => "a queue (queue, limit, drop)",
        (false, _) => "a scheduler",
    }
}

const fn has_own_aqm(scheduler: &Scheduler) -> bool {
    matches!(scheduler, Scheduler::FqCodel(_) | Scheduler::DualPi2 { .. })
}

fn limit(limit: Limit, what: &str) -> Refused {
    ensure(limit.slots != Some(0), || {
        format!("{what} of 0 packets: a link with a rate needs room for one; give 1 or more")
    })?;
    ensure(limit.bytes.is_none_or(|bytes| bytes >= SMALLEST_FRAME), || {
        format!(
            "{what} of {} bytes: no frame fits into it (the smallest is {SMALLEST_FRAME}); give more",
            limit.bytes.unwrap_or(0)
        )
    })
}

fn aqm(aqm: &Aqm) -> Refused {
    match aqm {
        Aqm::Red(it) => red(it),
        Aqm::Codel(it) => codel(it, "codel"),
        Aqm::Pie(it) => pie(it),
    }
}

fn red(red: &Red) -> Refused {
    ensure(red.weight > 0.0 && red.weight <= 1.0, || {
        format!("red: the weight is {}; it must be above 0 and at most 1", red.weight)
    })?;
    ensure(red.max_p > 0.0 && red.max_p <= 1.0, || {
        format!("red: the probability at max is {}; it must be above 0 and at most 1", red.max_p)
    })?;
    ensure(red.min.is_finite() && red.min >= 0.0 && red.max.is_finite(), || {
        "red: thresholds must be numbers from 0 on".to_owned()
    })?;
    ensure(red.min < red.max, || format!("red: min is {} and max {}; min must be below max", red.min, red.max))
}

fn codel(codel: &Codel, name: &str) -> Refused {
    span(codel.target, &format!("{name} target"))?;
    span(codel.interval, &format!("{name} interval"))?;
    ensure(codel.target < codel.interval, || {
        format!(
            "{name}: the target {} must be below the interval {}",
            time_text(codel.target),
            time_text(codel.interval)
        )
    })
}

fn pie(pie: &Pie) -> Refused {
    span(pie.target, "pie target")?;
    span(pie.update, "pie tupdate")?;
    positive(pie.alpha, "pie alpha")?;
    positive(pie.beta, "pie beta")?;
    ensure(pie.max_burst >= Nanos::ZERO, || "pie max_burst is below 0".to_owned())?;
    probability(pie.max_ecn, "pie max_ecnth")
}

fn scheduler(scheduler: &Scheduler) -> Refused {
    match scheduler {
        Scheduler::Fifo | Scheduler::Wf2q => Ok(()),
        Scheduler::Drr { quantum } => {
            ensure(*quantum > 0, || "drr: a quantum of 0 bytes serves nobody; give 1514".to_owned())
        }
        Scheduler::FqCodel(fq) => fq_codel(fq),
        Scheduler::DualPi2 { target, step, coupling } => {
            span(*target, "dualpi2 target")?;
            span(*step, "dualpi2 step")?;
            positive(*coupling, "dualpi2 coupling")
        }
    }
}

fn fq_codel(fq: &FqCodel) -> Refused {
    ensure((1..=65_536).contains(&fq.flows), || {
        format!("fq_codel: flows is {}; it must be from 1 to 65536", fq.flows)
    })?;
    ensure(fq.quantum > 0, || "fq_codel: a quantum of 0 bytes serves nobody; give 1514".to_owned())?;
    ensure(fq.limit > 0, || "fq_codel: a limit of 0 packets holds nothing; give 10240".to_owned())?;
    codel(&fq.codel, "fq_codel")
}

fn classes(queue: &Queue) -> Refused {
    let is_fair = matches!(queue.scheduler, Scheduler::Wf2q | Scheduler::Drr { .. });
    ensure(is_fair || queue.classes.is_empty(), || {
        "classes need a scheduler that knows weights; write \"type wf2q+\" or \"type drr\"".to_owned()
    })?;
    ensure(queue.classes.len() <= MOST_CLASSES, || format!("more than {MOST_CLASSES} classes"))?;
    let mut seen = BTreeSet::new();
    queue.classes.iter().try_for_each(|class| {
        ensure(seen.insert(&class.name), || format!("class {} is given twice; give each its own name", class.name))?;
        class_of(class)
    })
}

fn class_of(class: &Class) -> Refused {
    super::name(&class.name, "a class")?;
    ensure(class.weight > 0, || format!("class {}: a weight of 0 is never served; give 1 or more", class.name))?;
    class.limit.map_or(Ok(()), |it| limit(it, &format!("class {}: queue", class.name)))?;
    class.aqm.as_ref().map_or(Ok(()), aqm).map_err(|problem| format!("class {}: {problem}", class.name))
}
