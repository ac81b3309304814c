//! Rows into Arrow batches, by the declared schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int8Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use sojourn_time::{Source, Time};

use crate::row::{Block, Probe, Reply};
use crate::schema::{self, Kind, Table};
use crate::sink::Origin;

pub(crate) mod packet;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod tcp_readings;

/// Returns the Arrow schema of a table, with what can be known of all its rows in the metadata.
pub(crate) fn schema_of(table: Table, origin: &Origin) -> SchemaRef {
    let fields: Vec<Field> = table.fields.iter().map(|field| field_of(field, origin)).collect();
    let metadata = HashMap::from([
        ("schema".to_owned(), format!("sojourn.{}", table.name)),
        ("version".to_owned(), schema::VERSION.to_owned()),
        ("instrument".to_owned(), origin.instrument.clone()),
        ("profile".to_owned(), origin.profile.clone()),
    ]);
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

fn field_of(field: &schema::Field, origin: &Origin) -> Field {
    let kind = match field.kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::Float64 => DataType::Float64,
        Kind::Utf8 => DataType::Utf8,
        Kind::Binary => DataType::Binary,
        Kind::Utf8Dictionary => DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
    };
    let mut metadata = HashMap::from([("unit".to_owned(), field.unit.to_owned())]);
    if let Some(clock) = field.clock {
        let clock = if origin.is_simulated { schema::SIMULATED } else { clock };
        metadata.insert("clock".to_owned(), clock.to_owned());
    }
    if let Some(source) = field.source {
        metadata.insert("source".to_owned(), source.to_owned());
    }
    Field::new(field.name, kind, field.nullable).with_metadata(metadata)
}

/// Returns the batch of one block's probes.
pub(crate) fn probes(schema: &SchemaRef, block: u32, rows: &[Probe]) -> Result<RecordBatch, ArrowError> {
    let reply = |of: fn(&Reply) -> Time| {
        let times = rows.iter().map(|row| row.reply.as_ref().map(|reply| of(reply).0));
        Arc::new(times.collect::<Int64Array>()) as ArrayRef
    };
    let responder = |of: fn((Time, Time)) -> Time| {
        let times = rows.iter().map(|row| row.reply.and_then(|reply| reply.responder).map(|pair| of(pair).0));
        Arc::new(times.collect::<Int64Array>()) as ArrayRef
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|_| Some(int32(block))).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|row| Some(int32(row.seq))).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|row| Some(row.is_warmup)).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|row| Some(row.intended.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.send_call.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.departure.at.0)).collect::<Int64Array>()),
        sources(rows.iter().map(|row| Some(row.departure.source)))?,
        reply(|reply| reply.arrival.at),
        sources(rows.iter().map(|row| row.reply.map(|reply| reply.arrival.source)))?,
        reply(|reply| reply.receive_call),
        responder(|(arrival, _)| arrival),
        responder(|(_, departure)| departure),
        Arc::new(rows.iter().map(|row| Some(int32(row.replies))).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|row| Some(row.is_late)).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|row| Some(row.is_reordered)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// Returns the batch of one block's own row.
pub(crate) fn block(schema: &SchemaRef, row: &Block) -> Result<RecordBatch, ArrowError> {
    let counts = row.counts;
    let mut columns = vec![
        one_int32(int32(row.block)),
        one_text(&row.device),
        one_int32(row.round),
        one_int32(row.visit),
        one_int32(row.cell),
        one_text(row.via),
        one_text(row.kind),
        one_text(row.schedule),
        one_int64(row.interval.0),
        one_int32(int32(row.count)),
        one_int32(int32(row.warmup)),
        // The bits of the seed; a seed above 2⁶³ reads as negative.
        one_int64(row.seed.cast_signed()),
    ];
    columns.extend(
        [row.request_payload_bytes, row.response_payload_bytes, row.request_frame_bytes, row.response_frame_bytes]
            .map(|bytes| one_int32(i32::try_from(bytes).unwrap_or(i32::MAX))),
    );
    columns.extend(
        [row.timeout.0, row.started.0, row.ended.0, row.started_raw.0, row.ended_raw.0, row.clock_error.0]
            .map(one_int64),
    );
    columns.extend(
        [
            counts.sent,
            counts.received,
            counts.lost,
            counts.late,
            counts.duplicated,
            counts.reordered,
            counts.foreign,
            counts.own_drops,
        ]
        .map(|count| one_int64(count.cast_signed())),
    );
    columns.extend([
        one_bool(row.responder_kernel),
        one_text(row.wait),
        Arc::new(Int32Array::from(vec![row.cpu.map(int32)])) as ArrayRef,
        one_bool(row.fifo),
    ]);
    RecordBatch::try_new(Arc::clone(schema), columns)
}

pub(crate) const SOURCES: [Source; 4] = [Source::Hardware, Source::Kernel, Source::User, Source::Simulated];

/// Returns a dictionary column. The dictionary is always the whole ladder, so it goes into a stream once.
fn sources(of: impl Iterator<Item = Option<Source>>) -> Result<ArrayRef, ArrowError> {
    dictionary(of.map(|source| source.map(|source| source as i8)), &SOURCES.map(Source::name))
}

/// Returns a dictionary column of values by their place among `names`.
fn dictionary(of: impl Iterator<Item = Option<i8>>, names: &[&str]) -> Result<ArrayRef, ArrowError> {
    let keys: Int8Array = of.collect();
    let names = StringArray::from_iter_values(names);
    Ok(Arc::new(DictionaryArray::<Int8Type>::try_new(keys, Arc::new(names))?))
}

fn int32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn one_int32(value: i32) -> ArrayRef {
    Arc::new(Int32Array::from(vec![value]))
}

fn one_int64(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

fn one_text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

fn one_bool(value: bool) -> ArrayRef {
    Arc::new(BooleanArray::from(vec![value]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_is_in_the_order_of_its_numbers() {
        for (index, source) in SOURCES.into_iter().enumerate() {
            assert_eq!(source as usize, index);
        }
    }
}
