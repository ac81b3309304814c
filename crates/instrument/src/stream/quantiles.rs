//! How delays are spread, with packets that never arrived as infinite, for a person and as JSON.

use serde_json::{Value, json};
use sojourn_stream::Spread;

/// A quantile: a number, or beyond all that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// So much, in ns.
    Finite(i64),
    /// It is among the packets that were lost.
    Infinite,
}

/// The quantiles of a spread.
#[derive(Clone, Debug)]
pub struct Quantiles {
    /// How many values it has, without what was lost.
    pub count: u64,
    /// The least.
    pub min: i64,
    /// The mean of what arrived.
    pub mean: f64,
    /// By name, ascending; each when at least one value lies beyond it.
    pub by_name: Vec<(&'static str, Quantile)>,
    /// The greatest that arrived.
    pub max: i64,
}

/// The quantiles that are reported, and from how many values on.
const TOLD: [(&str, f64, u64); 4] = [("p50", 0.5, 1), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p99_9", 0.999, 1_000)];

impl Quantiles {
    /// Returns those of a spread among `all` values, of which those that are not in it are infinite; `None` when it is empty.
    pub fn of(spread: &Spread, all: u64) -> Option<Self> {
        let all = all.max(spread.count());
        let quantile = |quantile| match spread.quantile_among(quantile, all) {
            Some(Some(ns)) => Quantile::Finite(ns),
            _ => Quantile::Infinite,
        };
        let told = TOLD.into_iter().filter(|(_, _, least)| all >= *least);
        Some(Self {
            count: spread.count(),
            min: spread.min()?,
            mean: spread.mean()?,
            by_name: told.map(|(name, q, _)| (name, quantile(q))).collect(),
            max: spread.max()?,
        })
    }

    /// Returns them as JSON: null where infinite.
    pub fn json(&self) -> Value {
        let mut value = json!({ "n": self.count, "min_ns": self.min, "mean_ns": self.mean, "max_ns": self.max });
        for (name, quantile) in &self.by_name {
            value[format!("{name}_ns")] = match quantile {
                Quantile::Finite(ns) => json!(ns),
                Quantile::Infinite => Value::Null,
            };
        }
        value
    }

    fn cell(&self, column: &str) -> String {
        let of = |ns: f64| format!("{:.3}", ns / 1e3);
        match column {
            "min" => of(self.min as f64),
            "mean" => of(self.mean),
            "max" => of(self.max as f64),
            _ => match self.by_name.iter().find(|(name, _)| *name == column) {
                Some((_, Quantile::Finite(ns))) => of(*ns as f64),
                Some((_, Quantile::Infinite)) => "lost".to_owned(),
                None => "–".to_owned(),
            },
        }
    }
}

/// Returns a table in µs: one row for each spread that there is.
pub fn table(rows: &[(&str, Option<Quantiles>)]) -> String {
    if rows.iter().all(|(_, quantiles)| quantiles.is_none()) {
        return "single frames are not recorded: no table".to_owned();
    }
    const COLUMNS: [&str; 7] = ["min", "mean", "p50", "p90", "p99", "p99_9", "max"];
    let mut lines =
        vec![format!("{:27}{}", "µs", COLUMNS.map(|name| format!(" {:>11}", name.replace('_', "."))).concat())];
    for (name, quantiles) in rows {
        if let Some(quantiles) = quantiles {
            let cells = COLUMNS.map(|column| format!(" {:>11}", quantiles.cell(column)));
            lines.push(format!("{name:27}{}", cells.concat()));
        }
    }
    lines.join("\n")
}
