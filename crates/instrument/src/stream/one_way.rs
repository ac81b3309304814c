//! One-way delays of received frames, on the sender's clock, always with the error of the clock offset.

use serde_json::{Value, json};
use sojourn_stream::{Arrival, EndLine, FlowReceived, ReceiveOutcome, Spread};
use sojourn_time::{Nanos, Time};

use super::quantiles::Quantiles;

/// The plausibility limit: a delay does not exceed the duration of its stream by more than this.
const MOST_BEYOND: Nanos = Nanos::seconds(60);

/// The one-way delays of one flow at one port.
#[derive(Clone, Debug)]
pub struct OneWay {
    /// The estimate of the receiver's clock.
    pub line: EndLine,
    /// From the send call to the arrival.
    pub from_send_call: Quantiles,
    /// From the intended departure to the arrival, so that delays at the sender are included; only if each frame was recorded.
    pub from_intended: Option<Quantiles>,
    /// The delay minus the minimum delay (PDV, RFC 5481); from the histogram unless each frame was recorded.
    pub pdv: Quantiles,
    /// The number of frames with a negative delay.
    pub negative: u64,
    /// The sender's mean pacing error, as announced.
    pub pacing_error_ns: Option<f64>,
    /// The number of frames sent before their intended departure, and the largest such lead.
    pub early: (u64, Nanos),
}

impl OneWay {
    /// Returns the delays of a flow; `None` if the clocks are unknown or nothing arrived.
    pub fn of(
        flow: &FlowReceived,
        outcome: &ReceiveOutcome,
        line: Option<EndLine>,
        pacing_error_ns: Option<f64>,
    ) -> Option<Self> {
        let line = line?;
        let all = flow.counts.packets();
        let rows: Vec<&Arrival> = outcome.rows.iter().filter(|row| is_first_of(row, flow)).collect();
        let is_kept = rows.len() as u64 == flow.counts.first;
        let from = |departure: fn(&Arrival) -> Time| {
            let mut spread = Spread::default();
            rows.iter().for_each(|row| spread.record((on_sender(&line, row.arrival.at) - departure(row)).0));
            spread
        };
        let from_send_call = if is_kept { from(|row| row.sent) } else { shifted(flow, &line) };
        let pdv = less(&from_send_call, from_send_call.min()?);
        let early = rows.iter().map(|row| row.intended - row.sent).filter(|early| *early > Nanos::ZERO);
        let early = early.fold((0, Nanos::ZERO), |(count, most), early| (count + 1, most.max(early)));
        Some(Self {
            line,
            negative: from_send_call.cells().iter().filter(|cell| cell.high < 0).map(|cell| cell.count).sum(),
            from_send_call: Quantiles::of(&from_send_call, all)?,
            from_intended: if is_kept { Quantiles::of(&from(|row| row.intended), all) } else { None },
            pdv: Quantiles::of(&pdv, all)?,
            pacing_error_ns,
            early,
        })
    }

    /// Returns the delays as JSON, with the clock error.
    pub fn json(&self) -> Value {
        json!({
            "clock": self.clock_json(),
            "from_send_call": self.from_send_call.json(),
            "from_intended": self.from_intended.as_ref().map(Quantiles::json),
            "pdv": self.pdv.json(),
            "negative": self.negative,
            "from_departure": self.mean_from_departure().map(|mean| json!({ "mean_ns": mean })),
            "sent_early": { "n": self.early.0, "most_ns": self.early.1 },
        })
    }

    fn clock_json(&self) -> Value {
        let EndLine { shared, bound_ns, error95_ns, offset_ns, skew_ppb, .. } = self.line;
        let source = if shared { "shared" } else { "exchanges" };
        json!({
            "source": source, "bound_ns": bound_ns, "error95_ns": error95_ns, "offset_ns": offset_ns,
            "skew_ppb": skew_ppb,
        })
    }

    /// Returns the mean delay from departure: that from the intended departure minus the mean pacing error. The delay
    /// from the send call is not used, because the time in a frame is written slightly before the call.
    fn mean_from_departure(&self) -> Option<f64> {
        Some(self.from_intended.as_ref()?.mean - self.pacing_error_ns?)
    }

    /// Returns notes on the delays, one sentence per line.
    pub fn sentences(&self) -> String {
        let departure = self.mean_from_departure().map(|mean| {
            format!(
                "one-way delay from departure, by the sender's kernel timestamps: {:.3} µs on average\n",
                mean / 1e3
            )
        });
        let early = (self.early.0 > 0).then(|| {
            format!(
                "{} frames were sent up to {:.3} µs before their intended departure, for the way out takes time: their delay \
                 from intended is less than that from the send call\n",
                self.early.0,
                self.early.1.0 as f64 / 1e3
            )
        });
        departure.unwrap_or_default() + &early.unwrap_or_default() + &self.error()
    }

    /// Returns the error of the delays as a sentence.
    fn error(&self) -> String {
        if self.line.shared {
            return "one-way delays are of one clock, which both ends share: its error is 0".to_owned();
        }
        let EndLine { bound_ns, error95_ns, offset_ns, .. } = self.line;
        format!(
            "one-way delays are ±{:.3} µs at most, ±{:.3} µs in 95 % where both ways are alike; this clock is {:.3} µs ahead \
             of the sender's",
            bound_ns / 1e3,
            error95_ns / 1e3,
            offset_ns / 1e3,
        )
    }

    /// Returns what is wrong if a shared clock gives delays that are impossible for a stream of this duration; `None`
    /// if they are possible.
    pub fn implausible(&self, lasted: Nanos) -> Option<String> {
        let (least, most) = (self.from_send_call.min, self.from_send_call.max);
        let is_plausible = least >= 0 && most <= (lasted + MOST_BEYOND).0;
        (self.line.shared && !is_plausible).then(|| {
            format!(
                "frames arrived {:.3} to {:.3} s after they left by the clock that both ends are said to share: \
                 the sender has another clock, it was stepped, or the sender is not who it seems",
                least as f64 / 1e9,
                most as f64 / 1e9
            )
        })
    }

    /// Returns what is wrong if frames have negative delays; `None` if none has.
    pub fn impossible(&self) -> Option<String> {
        let earliest = -self.from_send_call.min as f64 / 1e3;
        let bound = self.line.bound_ns / 1e3;
        let known = if self.line.shared {
            "both ends are said to have one clock, and it was stepped or they have not".to_owned()
        } else if earliest <= bound {
            format!("the clocks are known to ±{bound:.3} µs only, and that explains it")
        } else {
            format!("the clocks are known to ±{bound:.3} µs, and one was stepped or ran differently meanwhile")
        };
        (self.negative > 0).then(|| {
            format!(
                "{} frames arrived up to {earliest:.3} µs before they left, which cannot be: {known}",
                self.negative
            )
        })
    }
}

fn is_first_of(row: &Arrival, flow: &FlowReceived) -> bool {
    let is_first = !row.is_duplicate && !row.is_corrupted;
    is_first && usize::from(row.port) == flow.port && row.flow == flow.flow && row.node == flow.node
}

/// Converts a time of the receiver to the sender's clock.
fn on_sender(line: &EndLine, at: Time) -> Time {
    let beyond = (at - Time(line.reference_ns)).0 as f64;
    at - Nanos((line.offset_ns + line.skew_ppb * 1e-9 * beyond).round() as i64)
}

/// Returns the histogram of delays, minus the clock offset at the middle of the stream.
fn shifted(flow: &FlowReceived, line: &EndLine) -> Spread {
    let amid = flow.first_arrival.unwrap_or_default() + Nanos(flow.span().0 / 2);
    less(&flow.delay, (amid - on_sender(line, amid)).0)
}

fn less(spread: &Spread, offset: i64) -> Spread {
    let mut moved = Spread::default();
    for cell in spread.cells() {
        let middle = cell.low + (cell.high - cell.low) / 2;
        moved.record_many(middle.saturating_sub(offset), cell.count);
    }
    moved
}
