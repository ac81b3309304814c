//! Rows of an emulator's log into Arrow batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};

use super::stream::{bools, int32s, int64s, optional_times, texts, times};
use super::{dictionary, int32, sources};
use crate::row::packet::{CAUSES, DIRECTIONS, FATES, Packet};

/// Returns the batch of these rows.
pub(crate) fn batch(schema: &SchemaRef, rows: &[Packet], pipes: &[String]) -> Result<RecordBatch, ArrowError> {
    let pipe = |row: &Packet| row.pipe.and_then(|pipe| pipes.get(usize::from(pipe))).map_or("", String::as_str);
    let columns = vec![
        int32s(rows, |row| row.block),
        int64s(rows, |row| row.number.cast_signed()),
        Arc::new(rows.iter().map(|row| row.copy_of.map(u64::cast_signed)).collect::<Int64Array>()),
        names(rows, |row| row.direction, &DIRECTIONS)?,
        texts(rows, pipe),
        int64s(rows, |row| row.flow.cast_signed()),
        int32s(rows, |row| int32(row.frame_bytes)),
        Arc::new(rows.iter().map(head).collect::<BinaryArray>()),
        times(rows, |row| row.arrival.at),
        sources(rows.iter().map(|row| Some(row.arrival.source)))?,
        times(rows, |row| row.entered),
        names(rows, |row| row.fate, &FATES)?,
        names(rows, |row| row.cause, &CAUSES)?,
        Arc::new(rows.iter().map(|row| row.drawn.map(|span| span.0)).collect::<Int64Array>()),
        optional_times(rows, |row| row.link_left),
        optional_times(rows, |row| row.intended),
        optional_times(rows, |row| row.departure),
        bools(rows, |row| row.is_marked),
        int32s(rows, |row| int32(row.flipped)),
        bools(rows, |row| row.is_reordered),
        int32s(rows, |row| int32(row.queue_slots)),
        int64s(rows, |row| row.queue_bytes.cast_signed()),
        int64s(rows, |row| row.lane.cast_signed()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

fn head(row: &Packet) -> Option<&[u8]> {
    let length = usize::from(row.head_bytes).min(row.head.len());
    (length > 0).then(|| &row.head[..length])
}

/// Returns a dictionary column; the dictionary is always whole, so it goes into a stream once.
fn names(rows: &[Packet], of: fn(&Packet) -> &'static str, all: &[&str]) -> Result<ArrayRef, ArrowError> {
    let place = |row: &Packet| all.iter().position(|name| *name == of(row)).map(|place| place as i8);
    dictionary(rows.iter().map(place), all)
}
