//! Reports clock estimates, as text or JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use sojourn_clock::Estimate;

use super::watched::Watched;

/// The printer of estimates.
#[derive(Debug)]
pub struct Show {
    as_json: bool,
    has_head: bool,
}

impl Show {
    /// Reports as JSON if `as_json`, otherwise as text.
    pub fn new(as_json: bool) -> Self {
        Self { as_json, has_head: false }
    }

    /// Reports the facts about this host's own clocks.
    pub fn local(&mut self, facts: &Value) -> io::Result<()> {
        if self.as_json {
            return say(&json!({ "event": "local", "local": facts }).to_string());
        }
        let kernel = &facts["kernel"];
        let state = match &kernel["synchronised"] {
            Value::Bool(true) => "says that it is synchronised",
            Value::Bool(false) => "says that nothing synchronises it",
            _ => "does not say whether it is synchronised",
        };
        let tai = if kernel["tai_offset_s"].as_i64() == Some(0) { ", TAI offset not set" } else { "" };
        say(&format!("this host: the kernel {state}{tai}; runs to that end: {}", names(&facts["daemons"])))?;
        say(&format!("hardware clocks: {}", names(&facts["hardware_clocks"])))
    }

    /// Reports the current estimate of a peer's clock.
    pub fn update(&mut self, watched: &Watched) -> io::Result<()> {
        let estimate = watched.recently();
        let now = estimate.as_ref().ok().and_then(|estimate| watched.now(estimate).map(|now| (now, estimate)));
        if self.as_json {
            let mut told = json!({ "event": "update", "peer": watched.name() });
            let (exchanges, lost) = watched.counts();
            told["exchanges"] = exchanges.into();
            told["lost"] = lost.into();
            told["unexpected"] = watched.unexpected().into();
            if let Some((now, estimate)) = now {
                merge(&mut told, now.json());
                told["shared"] = estimate.is_shared.into();
                told["round_trip_min_ns"] = estimate.round_trip_min.0.into();
                told["steps"] = estimate.steps.len().into();
                told["findings"] = json!(estimate.findings);
            }
            return say(&told.to_string());
        }
        self.head()?;
        let Some((now, estimate)) = now else {
            return say(&format!("{:<22} no answer yet", watched.name()));
        };
        say(&row(&watched.name(), &now, estimate))
    }

    /// Reports the estimates from all exchanges.
    pub fn summary(&mut self, watched: &[Watched]) -> anyhow::Result<()> {
        if self.as_json {
            let peers: Vec<Value> = watched.iter().map(Watched::json).collect();
            return Ok(say(&json!({ "event": "summary", "peers": peers }).to_string())?);
        }
        say("")?;
        for one in watched {
            let Ok(estimate) = one.estimate() else { continue };
            say(&sentence(one, &estimate))?;
            if one.unexpected() > 0 {
                say(&format!("  {} unexpected frames: not replies to requests of ours", one.unexpected()))?;
            }
            if let Some(told) = one.forgotten() {
                say(&format!("  {told}"))?;
            }
            for found in &estimate.findings {
                say(&format!("  {}: {}", found.finding.name(), found.sentence))?;
            }
        }
        Ok(())
    }

    fn head(&mut self) -> io::Result<()> {
        if self.has_head {
            return Ok(());
        }
        self.has_head = true;
        say(&format!(
            "{:<22} {:>17} {:>11} {:>11} {:>10} {:>11} {:>10} {:>5}",
            "peer", "offset us", "95 % +- us", "bound us", "skew ppm", "95 % +- ppm", "min rtt us", "steps"
        ))
    }
}

fn row(name: &str, now: &super::watched::Now, estimate: &Estimate) -> String {
    let us = |ns: f64| ns / 1e3;
    if estimate.is_shared {
        return format!("{name:<22} {:>17} one clock, shared with this host", "0");
    }
    format!(
        "{name:<22} {:>17.3} {:>11.3} {:>11.3} {:>10.4} {:>11.4} {:>10.3} {:>5}",
        us(now.offset_ns),
        us(now.error95_ns),
        us(now.bound_ns),
        now.skew_ppm,
        now.skew95_ppm,
        us(estimate.round_trip_min.0 as f64),
        estimate.steps.len(),
    )
}

fn sentence(watched: &Watched, estimate: &Estimate) -> String {
    let (exchanges, lost) = watched.counts();
    let name = watched.name();
    let Some(now) = watched.now(estimate).filter(|_| !estimate.is_shared) else {
        return format!("{name} has the same clock as this host: the offset is 0 ({exchanges} exchanges)");
    };
    let side = if now.offset_ns < 0.0 { "behind" } else { "ahead of" };
    format!(
        "{name} is {:.3} us {side} this host: +- {:.3} us (95 %, if the least delays there and back differ by a fifth of the round trip at most), \
         certainly within {:.3} us; its skew is {:.4} ppm +- {:.4} ppm (95 %), certainly within {:.4} ppm; {exchanges} \
         exchanges, {lost} lost",
        now.offset_ns.abs() / 1e3,
        now.error95_ns / 1e3,
        now.bound_ns / 1e3,
        now.skew_ppm,
        now.skew95_ppm,
        now.skew_bound_ppm,
    )
}

fn names(list: &Value) -> String {
    let name = |one: &Value| one.as_str().or(one["name"].as_str()).unwrap_or_default().to_owned();
    let names: Vec<String> = list.as_array().into_iter().flatten().map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn merge(told: &mut Value, more: Value) {
    if let (Value::Object(told), Value::Object(more)) = (told, more) {
        told.extend(more);
    }
}

/// Writes a line and flushes it, so that a reader gets it immediately.
pub fn say(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}
