//! Rows of streams into Arrow batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, SchemaRef};
use sojourn_time::Time;

use super::{int32, sources};
use crate::row::stream::{Arrival, Bin, ClockLine, Exchange, Send, Stream, StreamBlock};
use crate::schema::{STREAM_TABLES, Table};

/// Returns the batch of one of [`STREAM_TABLES`], by its place among them; `None` where it has no rows.
pub(crate) fn batch(table: usize, schema: &SchemaRef, block: &StreamBlock) -> Result<Option<RecordBatch>, ArrowError> {
    let number = block.block;
    let columns = match STREAM_TABLES[table] {
        Table { name: "sends", .. } => sends(number, &block.sends)?,
        Table { name: "arrivals", .. } => arrivals(number, &block.arrivals)?,
        Table { name: "streams", .. } => streams(number, &block.streams),
        Table { name: "histograms", .. } => histograms(number, &block.histograms),
        Table { name: "exchanges", .. } => exchanges(number, &block.exchanges)?,
        _ => clock_lines(number, &block.clock_lines),
    };
    if columns.first().is_none_or(|column| column.is_empty()) {
        return Ok(None);
    }
    RecordBatch::try_new(Arc::clone(schema), columns).map(Some)
}

fn sends(block: u32, rows: &[Send]) -> Result<Vec<ArrayRef>, ArrowError> {
    Ok(vec![
        int32s(rows, |_| int32(block)),
        int32s(rows, |row| i32::from(row.flow)),
        int64s(rows, |row| row.seq.cast_signed()),
        times(rows, |row| row.intended),
        times(rows, |row| row.send_call),
        optional_times(rows, |row| row.scheduled),
        times(rows, |row| row.departure.at),
        sources(rows.iter().map(|row| Some(row.departure.source)))?,
    ])
}

fn arrivals(block: u32, rows: &[Arrival]) -> Result<Vec<ArrayRef>, ArrowError> {
    Ok(vec![
        int32s(rows, |_| int32(block)),
        int32s(rows, |row| i32::from(row.flow)),
        int32s(rows, |row| i32::from(row.port)),
        int32s(rows, |row| i32::from(row.node)),
        int64s(rows, |row| row.seq.cast_signed()),
        times(rows, |row| row.intended),
        times(rows, |row| row.sent),
        times(rows, |row| row.arrival.at),
        sources(rows.iter().map(|row| Some(row.arrival.source)))?,
        times(rows, |row| row.receive_call),
        bools(rows, |row| row.is_duplicate),
        bools(rows, |row| row.is_reordered),
        bools(rows, |row| row.is_late),
        bools(rows, |row| row.is_corrupted),
    ])
}

fn streams(block: u32, rows: &[Stream]) -> Vec<ArrayRef> {
    let mut columns = vec![
        int32s(rows, |_| int32(block)),
        texts(rows, |row| &row.device),
        int32s(rows, |row| row.round),
        int32s(rows, |row| row.visit),
        int32s(rows, |row| row.cell),
        texts(rows, |row| &row.purpose),
        texts(rows, |row| row.role.name()),
        int32s(rows, |row| i32::from(row.flow)),
        int32s(rows, |row| i32::from(row.port)),
        texts(rows, |row| row.via),
        texts(rows, |row| &row.engine),
        texts(rows, |row| &row.schedule),
        int32s(rows, |row| i32::try_from(row.frame_bytes).unwrap_or(i32::MAX)),
        int32s(rows, |row| i32::try_from(row.payload_bytes).unwrap_or(i32::MAX)),
        float64s(rows, |row| Some(row.rate_pps)),
        float64s(rows, |row| Some(row.intended_pps)),
        float64s(rows, |row| Some(row.achieved_pps)),
        float64s(rows, |row| row.anderson_darling.map(|(statistic, _)| statistic)),
        float64s(rows, |row| row.anderson_darling.map(|(_, p)| p)),
        times(rows, |row| row.started),
        times(rows, |row| row.ended),
        times(rows, |row| row.started_raw),
        times(rows, |row| row.ended_raw),
        optional_times(rows, |row| row.first),
        optional_times(rows, |row| row.last),
    ];
    columns.extend(stream_counts(rows));
    columns.extend([
        Arc::new(rows.iter().map(|row| row.cpu.map(int32)).collect::<Int32Array>()) as ArrayRef,
        int64s(rows, |row| row.cpu_time.0),
        bools(rows, |row| row.fifo),
        texts(rows, |row| row.wait),
        int64s(rows, |row| row.clock_id.cast_signed()),
    ]);
    columns
}

fn stream_counts(rows: &[Stream]) -> [ArrayRef; 12] {
    [
        int64s(rows, |row| row.counts.asked.cast_signed()),
        int64s(rows, |row| row.counts.sent.cast_signed()),
        int64s(rows, |row| row.counts.refused.cast_signed()),
        int64s(rows, |row| row.counts.unsent.cast_signed()),
        int64s(rows, |row| row.counts.first.cast_signed()),
        int64s(rows, |row| row.counts.duplicated.cast_signed()),
        int64s(rows, |row| row.counts.reordered.cast_signed()),
        int64s(rows, |row| row.counts.late.cast_signed()),
        int64s(rows, |row| row.counts.corrupted.cast_signed()),
        int64s(rows, |row| row.counts.foreign.cast_signed()),
        int64s(rows, |row| row.counts.own_drops.cast_signed()),
        int64s(rows, |row| row.counts.lost.cast_signed()),
    ]
}

fn histograms(block: u32, rows: &[Bin]) -> Vec<ArrayRef> {
    vec![
        int32s(rows, |_| int32(block)),
        int32s(rows, |row| i32::from(row.flow)),
        int32s(rows, |row| i32::from(row.port)),
        texts(rows, |row| row.role.name()),
        texts(rows, |row| row.quantity),
        texts(rows, |row| row.unit),
        int64s(rows, |row| row.low),
        int64s(rows, |row| row.high),
        int64s(rows, |row| row.count.cast_signed()),
    ]
}

fn exchanges(block: u32, rows: &[Exchange]) -> Result<Vec<ArrayRef>, ArrowError> {
    Ok(vec![
        int32s(rows, |_| int32(block)),
        texts(rows, |row| &row.peer),
        int64s(rows, |row| row.clock_id.cast_signed()),
        texts(rows, |row| row.phase),
        int64s(rows, |row| row.number.cast_signed()),
        times(rows, |row| row.t1),
        times(rows, |row| row.t2),
        times(rows, |row| row.t3),
        times(rows, |row| row.t4),
        sources(rows.iter().map(|row| Some(row.local_source)))?,
        sources(rows.iter().map(|row| Some(row.remote_source)))?,
    ])
}

fn clock_lines(block: u32, rows: &[ClockLine]) -> Vec<ArrayRef> {
    vec![
        int32s(rows, |_| int32(block)),
        texts(rows, |row| &row.peer),
        int64s(rows, |row| row.clock_id.cast_signed()),
        bools(rows, |row| row.is_shared),
        times(rows, |row| row.from),
        times(rows, |row| row.to),
        times(rows, |row| row.reference),
        float64s(rows, |row| Some(row.offset_ns)),
        float64s(rows, |row| Some(row.skew_ppb)),
        float64s(rows, |row| Some(row.bound_ns)),
        float64s(rows, |row| Some(row.error95_ns)),
        float64s(rows, |row| Some(row.skew_bound_ppb)),
        float64s(rows, |row| Some(row.skew95_ppb)),
        int64s(rows, |row| row.exchanges.cast_signed()),
    ]
}

pub(super) fn int32s<R>(rows: &[R], of: impl Fn(&R) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.iter().map(of)))
}

pub(super) fn int64s<R>(rows: &[R], of: impl Fn(&R) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
}

pub(super) fn times<R>(rows: &[R], of: impl Fn(&R) -> Time) -> ArrayRef {
    int64s(rows, |row| of(row).0)
}

pub(super) fn optional_times<R>(rows: &[R], of: impl Fn(&R) -> Option<Time>) -> ArrayRef {
    Arc::new(rows.iter().map(|row| of(row).map(|time| time.0)).collect::<Int64Array>())
}

fn float64s<R>(rows: &[R], of: impl Fn(&R) -> Option<f64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<Float64Array>())
}

pub(super) fn bools<R>(rows: &[R], of: impl Fn(&R) -> bool) -> ArrayRef {
    Arc::new(rows.iter().map(|row| Some(of(row))).collect::<BooleanArray>())
}

pub(super) fn texts<'a, R>(rows: &'a [R], of: impl Fn(&'a R) -> &'a str) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
}
