//! Streams that the kernel generates and counts itself, reported as those of the engines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sojourn_live::{FlowCount, Histogram, LiveCounter, LiveSender, LiveSent, LiveStream};
use sojourn_port::{Batch, PortError};
use sojourn_stream::{
    FlowReceived, FlowRequest, FlowSent, Head, Pattern, Phase, ReceivedCounts, SendOutcome, SendRequest, SentCounts,
    Spread, Unexpected,
};
use sojourn_time::{Clock, HostClock, Nanos, Pace, Time};
use sojourn_wire::{SessionKey, ethernet};

use super::kept::Kept;
use super::to::{To, Via};
use crate::failure::WrongRequest;
use crate::sys;

/// The kernel sender of a flow.
#[derive(Debug)]
pub struct Outlet {
    sender: LiveSender,
    /// Whether the peer of the interface is a port of the device: then the device drops frames when the ring is full,
    /// otherwise the tester does.
    into_device: bool,
}

impl Outlet {
    /// Keeps the sender for the next stream.
    pub fn keep(self, kept: &mut Kept) {
        kept.leave_live(self.sender);
    }
}

/// Prepares the kernel sender of a flow, reusing one from `kept` if possible.
///
/// # Errors
/// If the request needs another engine, or the kernel refuses.
pub fn open(to: &To, flow: &FlowRequest, key: SessionKey, kept: &mut Kept) -> anyhow::Result<Option<Outlet>> {
    let (Via::Live, Head::Link(link)) = (to.via(), flow.head) else { return Ok(None) };
    if !matches!(flow.schedule.pattern, Pattern::Flood | Pattern::Regular) {
        let problem =
            format!("live frames leave regularly or as a flood, not as {}; use another engine", flow.schedule.pattern);
        return Err(WrongRequest(problem).into());
    }
    let asked = LiveStream { link, frame_bytes: flow.frame_bytes(), flow: flow.flow, key };
    let dev = to.station()?.0;
    let mut sender = match kept.take_live() {
        Some(mut sender) => match sender.aim(dev, &asked) {
            Ok(()) => sender,
            Err(error) => {
                kept.leave_live(sender);
                return Err(error.into());
            }
        },
        None => LiveSender::open(dev, &asked)?,
    };
    if to.proven {
        sender.take_as_tried();
    }
    Ok(Some(Outlet { sender, into_device: to.into_device }))
}

/// Sends all flows at the same time, and exchanges times with their receivers before and after, over separate ports;
/// ends early once `halt` is set.
///
/// # Errors
/// If the kernel refuses.
pub fn send(
    outlets: &mut [Outlet],
    ports: &mut [&mut dyn Batch],
    request: &SendRequest,
    pace: Pace,
    halt: &AtomicBool,
) -> Result<SendOutcome, PortError> {
    let (before, early) = sojourn_stream::exchange(request, ports, &HostClock, pace, Phase::Before, halt)?;
    let mut outcome = flood(outlets, request, pace.is_real_time, halt)?;
    let (mut after, late) = sojourn_stream::exchange(request, ports, &HostClock, pace, Phase::After, halt)?;
    let next = before.last().map_or(0, |last| last.number + 1);
    after.iter_mut().for_each(|exchange| exchange.number += next);
    outcome.exchanges = [before, after].concat();
    outcome.unexpected = early + late;
    outcome.ended = HostClock.now();
    Ok(outcome)
}

/// Sends all flows at the same time, one thread per flow.
fn flood(
    outlets: &mut [Outlet],
    request: &SendRequest,
    is_real_time: bool,
    halt: &AtomicBool,
) -> Result<SendOutcome, PortError> {
    let started = HostClock.now();
    let deadline = request.at_most.map_or(Time::NEVER, |at_most| started + at_most);
    let is_over = || halt.load(Ordering::Relaxed) || HostClock.now() >= deadline;
    let each: Vec<Result<LiveSent, PortError>> = thread::scope(|scope| {
        let start = |(outlet, flow): (&mut Outlet, &FlowRequest)| {
            let (count, rate) = (flow.schedule.count, rate(flow));
            // Shared by the threads of all flows.
            let is_over = &is_over;
            // The kernel makes the frames of a run without a rest: under SCHED_FIFO nothing else would run on that CPU.
            if is_real_time {
                let _ = sys::run_ordinarily();
            }
            outlet.sender.send_until(deadline, count, rate, &mut || is_over())
        };
        let threads: Vec<_> =
            outlets.iter_mut().zip(&request.flows).map(|flow| scope.spawn(move || start(flow))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died()))).collect()
    });
    let each = each.into_iter().zip(outlets.iter().zip(&request.flows));
    let told = each.map(|(sent, (outlet, flow))| sent.map(|sent| told(&sent, flow, outlet.into_device)));
    Ok(SendOutcome {
        started,
        flows: told.collect::<Result<_, _>>()?,
        ended: HostClock.now(),
        rows: Vec::new(),
        not_kept: 0,
        exchanges: Vec::new(),
        answers: None,
        unexpected: Unexpected::default(),
    })
}

fn died() -> PortError {
    let source = std::io::ErrorKind::Other.into();
    PortError::System { operation: "send live frames in", object: "a thread".to_owned(), source }
}

fn rate(flow: &FlowRequest) -> Option<f64> {
    (flow.schedule.pattern != Pattern::Flood).then_some(flow.schedule.rate_pps)
}

fn told(sent: &LiveSent, flow: &FlowRequest, into_device: bool) -> FlowSent {
    let span = (sent.last - sent.first).0;
    let asked = flow.schedule.count;
    let refused = if into_device { 0 } else { sent.refused.min(sent.made) };
    FlowSent {
        flow: flow.flow,
        port: flow.port,
        counts: SentCounts { asked, sent: sent.made - refused, refused, unsent: asked.saturating_sub(sent.made) },
        next: sent.made,
        asked_pps: rate(flow).unwrap_or(0.0),
        intended_pps: rate(flow).unwrap_or(0.0),
        achieved_pps: if span > 0 { sent.made.saturating_sub(1) as f64 * 1e9 / span as f64 } else { 0.0 },
        first: (sent.made > 0).then_some(sent.first),
        last: (sent.made > 0).then_some(sent.last),
        pacing_error: Spread::default(),
        inter_departure: Spread::default(),
        is_by_stamps: false,
        // Unknown: frames have no individual records.
        within_1us: f64::NAN,
        within_10us: f64::NAN,
        fit: None,
    }
}

/// Replaces the engine's counts, which include none of these frames, by those of a kernel counter. `told` says for
/// which flows the sender has announced the number sent. Returns the unexpected frames that the counter saw.
///
/// # Errors
/// If the kernel does not return the counters.
pub fn account(
    counter: &LiveCounter,
    late_after: Nanos,
    mut dropped: u64,
    flows: &mut [&mut FlowReceived],
    told: &dyn Fn(u16) -> bool,
) -> Result<Unexpected, PortError> {
    let counted = counter.flows()?;
    let others = counter.others()?;
    for flow in flows {
        // Only the number of missing packets is known, not which ones.
        (flow.loss_run, flow.gap_run) = Default::default();
        let is_of = |count: &&FlowCount| (count.flow, count.node) == (flow.flow, flow.node);
        let Some(count) = counted.iter().find(is_of) else { continue };
        let late = steps_above(&count.delay, late_after);
        let counts = &mut flow.counts;
        // The sender did not announce the number: use the highest sequence number that arrived.
        let sent = if told(flow.flow) { counts.packets() } else { count.greatest + u64::from(count.frames > 0) };
        *counts = told_by(count, sent, &mut dropped, late, counts.unexpected);
        flow.payload_bytes = payload_bytes(count.bytes, count.frames, flow.counts.first);
        flow.first_arrival = (count.frames > 0).then_some(count.first_at);
        flow.last_arrival = (count.frames > 0).then_some(count.last_at);
        flow.delay = spread(&count.delay);
        flow.delay.record_many(count.delay_least.0, count.delay_negative);
        flow.inter_arrival = spread(&count.inter_arrival);
    }
    Ok(Unexpected { foreign: others.foreign, packets: others.keyless + others.unlisted, ..Unexpected::default() })
}

/// Returns the user data of the frames that arrived first, as a share of those of all frames.
fn payload_bytes(bytes: u64, frames: u64, first: u64) -> u64 {
    let user_data = bytes.saturating_sub(frames.saturating_mul(ethernet::HEADER_BYTES as u64));
    // Of a thousand million frames the product has more than 64 bits.
    let share = u128::from(user_data) * u128::from(first) / u128::from(frames.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns the counts of a flow of `sent` packets; subtracts from `dropped` the local drops that it accounts for.
fn told_by(count: &FlowCount, sent: u64, dropped: &mut u64, late: u64, unexpected: Unexpected) -> ReceivedCounts {
    let (missing, excess) = match sent.checked_sub(count.first) {
        Some(missing) => (missing, 0),
        None => (0, count.first - sent),
    };
    // An old frame may be a first arrival or a duplicate: as long as packets are missing, it counts as one of them.
    let old = count.beyond.min(missing);
    let corrupted = count.damaged.min(missing - old);
    let local_drops = (*dropped).min(missing - old - corrupted);
    *dropped -= local_drops;
    ReceivedCounts {
        first: count.first + old,
        duplicated: count.duplicated + (count.beyond - old) + (count.damaged - corrupted),
        reordered: count.reordered + old,
        late,
        corrupted,
        unexpected,
        local_drops,
        lost: missing - old - corrupted - local_drops,
        excess,
    }
}

fn steps_above(histogram: &Histogram, limit: Nanos) -> u64 {
    histogram.steps().filter(|step| step.low > limit.0).map(|step| step.count).sum()
}

fn spread(histogram: &Histogram) -> Spread {
    let mut spread = Spread::default();
    histogram.steps().for_each(|step| spread.record_many(step.low + (step.high - step.low) / 2, step.count));
    spread
}

#[cfg(test)]
mod tests {
    use super::payload_bytes;

    #[test]
    fn user_data_of_a_thousand_million_frames_is_their_share_of_all() {
        let (frames, first) = (1_406_250_000, 1_406_249_000);
        assert_eq!(payload_bytes(60 * frames, frames, first), 46 * first);
        assert_eq!(payload_bytes(60 * 4, 4, 3), 46 * 3);
        assert_eq!(payload_bytes(0, 0, 0), 0);
    }
}
