//! `stream send`, `recv` and `sim`: one request from the command line, reported as text or JSON.

pub mod arguments;
pub mod recv;
pub mod send;
pub mod sim;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sojourn_stream::{FlowReceived, FlowSent};
use sojourn_time::Source;

use super::one_way::OneWay;
use super::quantiles::{self, Quantiles};
use crate::numbers;

/// Prints the report. The reader may have closed the output; that must not change the result.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Adds to the report of a received flow: delays with the clock error, and the confidence interval of the loss ratio.
fn add_times(told: &mut Value, flow: &FlowReceived, one_way: Option<&OneWay>) {
    // Delays between two clocks are not reported without the clock error.
    if let Some(told) = told.as_object_mut() {
        told.retain(|name, _| name != "delay_ns" && name != "delay_classes");
    }
    told["one_way_delay"] = json!(one_way.map(OneWay::json));
    told["ipdv"] = json!(Quantiles::of(&flow.ipdv, 0).map(|quantiles| quantiles.json()));
    told["inter_arrival"] = json!(Quantiles::of(&flow.inter_arrival, 0).map(|quantiles| quantiles.json()));
    let counts = flow.counts;
    told["loss_ratio_ci95"] = json!(numbers::loss_interval(counts.lost, flow.loss_run.count(), counts.packets()));
}

/// Returns the table of a flow's times, and how the clocks are known.
fn times(flow: &FlowReceived, one_way: Option<OneWay>) -> String {
    let table = quantiles::table(&[
        ("one-way from send call", one_way.as_ref().map(|one_way| one_way.from_send_call.clone())),
        ("one-way from intended", one_way.as_ref().and_then(|one_way| one_way.from_intended.clone())),
        ("delay variation (PDV)", one_way.as_ref().map(|one_way| one_way.pdv.clone())),
        ("between neighbours (IPDV)", Quantiles::of(&flow.ipdv, 0)),
        ("inter-arrival time", Quantiles::of(&flow.inter_arrival, 0)),
    ]);
    let clock = one_way.map_or_else(|| "the clocks are not known: no one-way delays".to_owned(), |it| it.sentences());
    format!("{table}\n{clock}\n")
}

/// Counts the timestamps by source.
fn sources(of: impl Iterator<Item = Source>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for source in of {
        *counts.entry(source.name()).or_insert(0) += 1;
    }
    counts
}

fn names(sources: &BTreeMap<&'static str, u64>) -> String {
    if sources.is_empty() {
        return "not kept".to_owned();
    }
    sources.keys().copied().collect::<Vec<_>>().join(" and ")
}

/// Returns the requested, intended and achieved rates of a flow as text.
fn rates(flow: &FlowSent, frame_bytes: usize) -> String {
    let asked = match flow.asked_pps {
        0.0 => "as many as can be".to_owned(),
        pps => format!("{pps:.1} frames a second"),
    };
    let bps = flow.achieved_pps * (frame_bytes * 8) as f64 / 1e6;
    let intended = match flow.intended_pps {
        0.0 => String::new(),
        pps => format!(", {pps:.1} intended"),
    };
    format!("{asked} asked{intended}, {:.1} achieved ({bps:.3} Mbit/s)", flow.achieved_pps)
}
