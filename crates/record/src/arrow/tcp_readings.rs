//! Readings of TCP_INFO into Arrow batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, SchemaRef};

use super::stream::{int32s, int64s, times};
use super::{dictionary, int32};
use crate::row::tcp_readings::{INFO, REASONS, ROLES, Reading};

/// Returns the batch of one block's readings.
pub(crate) fn batch(schema: &SchemaRef, block: u32, rows: &[Reading]) -> Result<RecordBatch, ArrowError> {
    let bytes = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    let mut columns: Vec<ArrayRef> = vec![
        int32s(rows, |_| int32(block)),
        int32s(rows, |row| int32(row.socket.connection)),
        names(rows, |row| row.socket.role, &ROLES)?,
        names(rows, |row| row.why, &REASONS)?,
        int64s(rows, |row| row.number.cast_signed()),
        int64s(rows, |row| row.socket.cookie.cast_signed()),
        Arc::new(rows.iter().map(|row| row.socket.netns.map(u64::cast_signed)).collect::<Int64Array>()),
        addresses(rows, |row| row.socket.local.ip().to_string()),
        int32s(rows, |row| i32::from(row.socket.local.port())),
        addresses(rows, |row| row.socket.remote.ip().to_string()),
        int32s(rows, |row| i32::from(row.socket.remote.port())),
        times(rows, |row| row.intended),
        times(rows, |row| row.before),
        times(rows, |row| row.after),
        Arc::new(rows.iter().map(|row| row.handed.map(|(at, _)| at.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.handed.map(|(_, length)| bytes(length))).collect::<Int32Array>()),
        int32s(rows, |row| bytes(row.info_bytes)),
    ];
    columns
        .extend((0..INFO).map(|at| Arc::new(rows.iter().map(|row| row.info[at]).collect::<Int64Array>()) as ArrayRef));
    RecordBatch::try_new(Arc::clone(schema), columns)
}

fn names(rows: &[Reading], of: fn(&Reading) -> &'static str, all: &[&str]) -> Result<ArrayRef, ArrowError> {
    let place = |row: &Reading| all.iter().position(|name| *name == of(row)).map(|place| place as i8);
    dictionary(rows.iter().map(place), all)
}

fn addresses(rows: &[Reading], of: fn(&Reading) -> String) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
}
