//! The declarations of the tables, from which other languages generate their side.

use serde::Serialize;

use crate::Finding;
use crate::table::{Row, fields_of};
use crate::tables::packets::Packet;
use crate::tables::probes::{Block, Probe};
use crate::tables::python::{CAPTURES, TCP_CAPTURES, TCP_COSTS, TCP_SLICES};
use crate::tables::streams::{Arrival, Bin, ClockLine, Exchange, Send, Stream};
use crate::tables::taps::{Crossing, TapCounts, Tapped, Unmatched};
use crate::tables::tcp::{Account, Flow, Gap, Private, Sample};
use crate::tables::tcp_readings::Reading;

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The table's name. Files are named `<name>-<part>.arrow`, or `<name>-<who>-<part>.arrow` if several programs
    /// write it at once.
    pub name: &'static str,
    /// Whether the file names include the writer.
    pub is_named: bool,
    /// The columns, in order.
    pub fields: fn() -> Vec<Field>,
}

/// A column.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Field {
    /// The name, which ends in the unit if there is one.
    pub name: &'static str,
    /// The type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The permitted names, if there are few.
    #[serde(skip)]
    pub names: &'static [&'static str],
    /// Whether values may be missing.
    pub nullable: bool,
    /// The unit; "1" for counts, names and truth values.
    pub unit: &'static str,
    /// For timestamps: their clock.
    pub clock: Option<&'static str>,
    /// For timestamps: the column with the source of each, or the source of all.
    pub source: Option<&'static str>,
    /// The version of the tables that introduced it: files of earlier versions lack it.
    pub since: u32,
    /// Its name in older files, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<&'static str>,
    /// The names in older files of some of the values that it holds, each with its name now.
    #[serde(skip_serializing_if = "is_empty")]
    pub renamed: &'static [(&'static str, &'static str)],
    /// The description.
    pub doc: &'static str,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// True or false.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// 64-bit floating-point number.
    Float64,
    /// Text.
    Utf8,
    /// Text from a small set, dictionary-encoded.
    Utf8Dictionary,
    /// Bytes.
    Binary,
}

/// `CLOCK_TAI`.
pub const TAI: &str = "TAI";
/// `CLOCK_REALTIME`.
pub const REALTIME: &str = "REALTIME";
/// `CLOCK_MONOTONIC_RAW`.
pub const MONOTONIC_RAW: &str = "MONOTONIC_RAW";
/// Simulated time.
pub const SIMULATED: &str = "simulated";

/// All tables.
pub const TABLES: [Table; 23] = [
    Table::of::<Probe>(),
    Table::of::<Block>(),
    CAPTURES,
    Table::of::<Send>(),
    Table::of::<Arrival>(),
    Table::of::<Stream>(),
    Table::of::<Bin>(),
    Table::of::<Exchange>(),
    Table::of::<ClockLine>(),
    Table::of::<Packet>(),
    Table::of::<Sample>(),
    Table::of::<Private>(),
    Table::of::<Flow>(),
    Table::of::<Account>(),
    Table::of::<Gap>(),
    TCP_SLICES,
    TCP_COSTS,
    Table::of::<Reading>(),
    TCP_CAPTURES,
    Table::of::<Tapped>(),
    Table::of::<TapCounts>(),
    Table::of::<Crossing>(),
    Table::of::<Unmatched>(),
];

impl Table {
    /// Return the table of a row type.
    pub(crate) const fn of<R: Row>() -> Self {
        Self { name: R::NAME, is_named: R::IS_NAMED, fields: fields_of::<R> }
    }
}

// Serde passes a reference to the field.
fn is_empty(renamed: &&[(&str, &str)]) -> bool {
    renamed.is_empty()
}

/// Return the version of all tables: that of the newest column.
pub fn version() -> u32 {
    TABLES.iter().flat_map(|table| (table.fields)()).map(|field| field.since).max().unwrap_or(1)
}

/// Return all tables and findings as JSON.
pub fn to_json() -> serde_json::Value {
    let declaration = |table: &Table| serde_json::json!({ "named": table.is_named, "fields": (table.fields)() });
    let tables: serde_json::Map<_, _> =
        TABLES.iter().map(|table| (table.name.to_owned(), declaration(table))).collect();
    let findings: Vec<_> = Finding::ALL
        .iter()
        .map(|finding| {
            serde_json::json!({ "name": finding.name(), "severity": finding.severity(), "doc": finding.doc() })
        })
        .collect();
    serde_json::json!({ "version": version().to_string(), "tables": tables, "findings": findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_carries_unit_clock_and_source() {
        for table in TABLES {
            let fields = (table.fields)();
            for field in &fields {
                let ends_in_ns = field.name.ends_with("_ns");
                assert_eq!(ends_in_ns, field.unit == "ns", "{}.{}", table.name, field.name);
                assert_eq!(field.clock.is_some(), field.source.is_some(), "{}.{}", table.name, field.name);
                if let Some(source) = field.source {
                    let is_column = fields.iter().any(|other| other.name == source);
                    let is_fixed = ["plan", "user", "kernel", "responder", "peer"].contains(&source);
                    assert!(is_column || is_fixed, "{}.{}: {source}", table.name, field.name);
                }
                let spans = ["interval_ns", "timeout_ns", "clock_error_ns", "cpu_time_ns", "drawn_ns", "delay_ns"];
                let is_span = spans.contains(&field.name) || field.kind == Kind::Float64;
                assert_eq!(ends_in_ns && !is_span, field.clock.is_some(), "{}.{}", table.name, field.name);
            }
        }
    }

    #[test]
    fn sizes_carry_their_unit() {
        for field in TABLES.iter().flat_map(|table| (table.fields)()) {
            assert_eq!(field.name.ends_with("_bytes"), field.unit == "bytes", "{}", field.name);
        }
    }

    #[test]
    fn no_two_columns_share_a_name_present_or_former() {
        for table in TABLES {
            let fields = (table.fields)();
            let all: Vec<_> = fields.iter().flat_map(|field| [Some(field.name), field.was]).flatten().collect();
            let names: std::collections::HashSet<_> = all.iter().collect();
            assert_eq!(names.len(), all.len(), "{}", table.name);
        }
    }
}
