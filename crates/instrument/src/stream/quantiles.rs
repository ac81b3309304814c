//! Quantiles of delays, in which lost packets count as infinite, as text and JSON.

use serde_json::{Value, json};
use sojourn_stream::Spread;

/// A quantile: finite, or infinite where it falls among lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// A delay, in ns.
    Finite(i64),
    /// The quantile falls among the lost packets.
    Infinite,
}

/// The quantiles of a distribution.
#[derive(Clone, Debug)]
pub struct Quantiles {
    /// The number of values, without lost packets.
    pub count: u64,
    /// The minimum.
    pub min: i64,
    /// The mean, without lost packets.
    pub mean: f64,
    /// The quantiles by name, ascending; each only if there are enough values.
    pub by_name: Vec<(&'static str, Quantile)>,
    /// The maximum, without lost packets.
    pub max: i64,
}

/// The reported quantiles, and the minimum number of values for each.
const TOLD: [(&str, f64, u64); 4] = [("p50", 0.5, 1), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p99_9", 0.999, 1_000)];

impl Quantiles {
    /// Returns the quantiles of a distribution among `all` packets, where missing ones count as infinite; `None` if it is empty.
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

    /// Returns the quantiles as JSON: null if infinite.
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

/// Returns a table in µs, one row per non-empty distribution.
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
