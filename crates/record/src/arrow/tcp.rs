//! Rows of a log of TCP's state into Arrow batches. Samples are wide and many, so they are turned into columns as they
//! come, some hundred rows at a time: a column of so few fits the cache that the rows are in.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int8Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{ArrowError, SchemaRef};

use super::stream::{bools, int32s, int64s, optional_times, texts, times};
use super::{dictionary, int32};
use crate::row::tcp::{Account, FATES, Flow, Gap, LIMITS, POINTS, Private, Sample, SampledPacket, WAYS};

/// How many rows are turned at a time.
const CHUNK: usize = 128;

/// Takes a row's values, column by column in the order of the schema.
pub(crate) trait Columns {
    fn int32(&mut self, of: impl Fn(&Sample) -> i32);
    fn int64(&mut self, of: impl Fn(&Sample) -> i64);
    fn name(&mut self, of: impl Fn(&Sample) -> u8, names: &'static [&'static str]);
    fn maybe_int32(&mut self, of: impl Fn(&Sample) -> Option<i32>);
    fn maybe_int64(&mut self, of: impl Fn(&Sample) -> Option<i64>);
    fn maybe_float64(&mut self, of: impl Fn(&Sample) -> Option<f64>);
}

/// Shows all columns of [`crate::schema::TCP_SAMPLES`].
pub(crate) fn columns(to: &mut impl Columns) {
    to.int32(|row| row.block);
    to.int32(|row| row.flow);
    to.int32(|row| int32(row.cpu));
    to.int64(|row| row.number.cast_signed());
    to.int64(|row| row.time.0);
    to.name(|row| row.point, &POINTS);
    to.maybe_int32(|row| row.before.map(i32::from));
    packet_columns(to);
    sizes(to);
    recovery(to);
    limits(to);
    counters(to);
}

fn packet_columns(to: &mut impl Columns) {
    let mut int64 = |of: fn(&SampledPacket) -> i64| to.maybe_int64(move |row| row.packet.as_ref().map(of));
    int64(|packet| packet.number.cast_signed());
    int64(|packet| packet.seq.into());
    int64(|packet| packet.ack.into());
    let mut int32 = |of: fn(&SampledPacket) -> i32| to.maybe_int32(move |row| row.packet.as_ref().map(of));
    int32(|packet| packet.tcp_flags.into());
    int32(|packet| packet.window.into());
    int32(|packet| super::int32(packet.packet_bytes));
    int32(|packet| super::int32(packet.payload_bytes));
    int32(|packet| packet.segments.into());
    int32(|packet| packet.ip_id.into());
    int32(|packet| packet.tos.into());
}

/// What SIFTR logged.
fn sizes(to: &mut impl Columns) {
    to.int32(|row| row.state.state.into());
    to.int32(|row| int32(row.state.snd_cwnd));
    to.int32(|row| int32(row.state.snd_ssthresh));
    to.int32(|row| int32(row.state.mss_bytes));
    to.int64(|row| row.state.snd_wnd_bytes.into());
    to.int64(|row| row.state.rcv_wnd_bytes.into());
    to.int32(|row| row.state.snd_wscale.into());
    to.int32(|row| row.state.rcv_wscale.into());
    to.maybe_float64(|row| row.state.srtt_us);
    to.int64(|row| row.state.rto_us);
    to.int64(|row| row.state.sndbuf_bytes.into());
    to.int64(|row| row.state.snd_queued_bytes.into());
    to.int64(|row| row.state.rcvbuf_bytes.into());
    to.int64(|row| row.state.rcv_queued_bytes.into());
    to.int64(|row| row.state.in_flight_bytes.into());
    to.int32(|row| row.state.flags.cast_signed());
    to.int64(|row| row.state.snd_una.into());
    to.int64(|row| row.state.snd_nxt.into());
    to.int64(|row| row.state.rcv_nxt.into());
}

fn recovery(to: &mut impl Columns) {
    to.int32(|row| row.state.ca_state.into());
    to.int32(|row| int32(row.state.snd_cwnd_cnt));
    to.int32(|row| int32(row.state.prior_cwnd));
    to.int64(|row| row.state.pacing_rate_bps);
    to.int32(|row| int32(row.state.packets_out));
    to.int32(|row| int32(row.state.sacked_out));
    to.int32(|row| int32(row.state.lost_out));
    to.int32(|row| int32(row.state.retrans_out));
    to.int64(|row| row.state.total_retrans.into());
    to.int64(|row| row.state.lost.into());
    to.int64(|row| row.state.delivered.into());
    to.int64(|row| row.state.delivered_ce.into());
    to.int64(|row| row.state.received_ce.into());
    to.maybe_float64(|row| row.state.delivery_rate_bps);
    to.int32(|row| int32(row.state.reordering));
    to.int64(|row| row.state.reord_seen.into());
    to.int64(|row| row.state.dsack_dups.into());
    to.int32(|row| row.state.total_rto.into());
    to.int32(|row| row.state.backoff.into());
    to.int32(|row| row.state.retransmits.into());
    to.int32(|row| row.state.probes_out.into());
    to.maybe_int64(|row| row.state.rtt_last_us.map(i64::from));
    to.maybe_int64(|row| row.state.rtt_min_us.map(i64::from));
    to.maybe_float64(|row| row.state.rttvar_us);
    to.maybe_float64(|row| row.state.mdev_us);
    to.maybe_float64(|row| row.state.rcv_rtt_us);
}

fn limits(to: &mut impl Columns) {
    to.name(|row| row.state.limited_by, &LIMITS);
    to.int64(|row| row.state.busy_us);
    to.int64(|row| row.state.receiver_limited_us);
    to.int64(|row| row.state.buffer_limited_us);
    to.int64(|row| row.state.snd_memory_bytes.into());
    to.int64(|row| row.state.rcv_memory_bytes.into());
    to.int64(|row| row.state.rcv_ssthresh_bytes.into());
    to.int64(|row| row.state.rcv_space_bytes.into());
    to.int64(|row| row.state.rcv_ooopack.into());
    to.int32(|row| row.state.num_sacks.into());
    to.int32(|row| row.state.advmss_bytes.into());
}

fn counters(to: &mut impl Columns) {
    to.int64(|row| row.state.sent_bytes.cast_signed());
    to.int64(|row| row.state.acked_bytes.cast_signed());
    to.int64(|row| row.state.received_bytes.cast_signed());
    to.int64(|row| row.state.retransmitted_bytes.cast_signed());
    to.int64(|row| row.state.segs_in.into());
    to.int64(|row| row.state.segs_out.into());
    to.int64(|row| row.state.data_segs_in.into());
    to.int64(|row| row.state.data_segs_out.into());
}

/// Samples on their way to a batch.
pub(crate) struct Samples {
    columns: Vec<Column>,
    rows: usize,
}

/// A column as it grows. `valid` is empty where no value can be missing.
struct Column {
    values: Values,
    valid: Vec<bool>,
    is_absent: bool,
}

enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float64(Vec<f64>),
    Name(Vec<i8>, &'static [&'static str]),
}

impl Samples {
    /// Makes room for `capacity` rows. The columns named in `absent` are null in all of them.
    pub(crate) fn new(schema: &SchemaRef, absent: &HashSet<String>, capacity: usize) -> Self {
        let mut make = Make { columns: Vec::new(), capacity };
        columns(&mut make);
        for (column, field) in make.columns.iter_mut().zip(schema.fields()) {
            column.is_absent = field.is_nullable() && absent.contains(field.name());
        }
        Self { columns: make.columns, rows: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn push(&mut self, rows: &[Sample]) {
        for rows in rows.chunks(CHUNK) {
            columns(&mut Push { columns: self.columns.iter_mut(), rows });
        }
        self.rows += rows.len();
    }

    /// Takes all rows out.
    pub(crate) fn batch(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut().map(|column| column.take(rows)).collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(schema), columns)
    }
}

impl Column {
    fn take(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        let nulls = if self.is_absent {
            Some(arrow_buffer::NullBuffer::new_null(rows))
        } else {
            (!self.valid.is_empty()).then(|| self.valid.as_slice().into())
        };
        self.valid.clear();
        // What an absent column would hold is nothing: zeros, which compress to nothing.
        macro_rules! array {
            ($kind:ty, $values:expr) => {{
                let capacity = $values.capacity();
                let mut values = std::mem::replace($values, Vec::with_capacity(capacity));
                values.resize(rows, Default::default());
                <$kind>::try_new(values.into(), nulls)?
            }};
        }
        Ok(match &mut self.values {
            Values::Int32(values) => Arc::new(array!(Int32Array, values)),
            Values::Int64(values) => Arc::new(array!(Int64Array, values)),
            Values::Float64(values) => Arc::new(array!(Float64Array, values)),
            Values::Name(values, names) => {
                let keys = array!(Int8Array, values);
                let names = StringArray::from_iter_values(names.iter());
                Arc::new(DictionaryArray::<Int8Type>::try_new(keys, Arc::new(names))?)
            }
        })
    }
}

/// Makes empty columns of the right types.
struct Make {
    columns: Vec<Column>,
    capacity: usize,
}

impl Make {
    fn add(&mut self, values: Values) {
        self.columns.push(Column { values, valid: Vec::new(), is_absent: false });
    }
}

impl Columns for Make {
    fn int32(&mut self, _: impl Fn(&Sample) -> i32) {
        self.add(Values::Int32(Vec::with_capacity(self.capacity)));
    }

    fn int64(&mut self, _: impl Fn(&Sample) -> i64) {
        self.add(Values::Int64(Vec::with_capacity(self.capacity)));
    }

    fn name(&mut self, _: impl Fn(&Sample) -> u8, names: &'static [&'static str]) {
        self.add(Values::Name(Vec::with_capacity(self.capacity), names));
    }

    fn maybe_int32(&mut self, _: impl Fn(&Sample) -> Option<i32>) {
        self.add(Values::Int32(Vec::with_capacity(self.capacity)));
    }

    fn maybe_int64(&mut self, _: impl Fn(&Sample) -> Option<i64>) {
        self.add(Values::Int64(Vec::with_capacity(self.capacity)));
    }

    fn maybe_float64(&mut self, _: impl Fn(&Sample) -> Option<f64>) {
        self.add(Values::Float64(Vec::with_capacity(self.capacity)));
    }
}

/// Appends rows to the columns, one column after the other.
struct Push<'a> {
    columns: std::slice::IterMut<'a, Column>,
    rows: &'a [Sample],
}

impl<'a> Push<'a> {
    fn present(&mut self) -> Option<&'a mut Column> {
        self.columns.next().filter(|column| !column.is_absent)
    }
}

macro_rules! push {
    ($self:ident, $kind:ident, $of:expr) => {
        if let Some(Column { values: Values::$kind(values, ..), .. }) = $self.present() {
            values.extend($self.rows.iter().map($of));
        }
    };
}

macro_rules! push_maybe {
    ($self:ident, $kind:ident, $of:expr) => {
        if let Some(Column { values: Values::$kind(values), valid, .. }) = $self.present() {
            values.extend($self.rows.iter().map(|row| $of(row).unwrap_or_default()));
            valid.extend($self.rows.iter().map(|row| $of(row).is_some()));
        }
    };
}

impl Columns for Push<'_> {
    fn int32(&mut self, of: impl Fn(&Sample) -> i32) {
        push!(self, Int32, of);
    }

    fn int64(&mut self, of: impl Fn(&Sample) -> i64) {
        push!(self, Int64, of);
    }

    fn name(&mut self, of: impl Fn(&Sample) -> u8, names: &'static [&'static str]) {
        // A place beyond the names would make the whole batch unreadable.
        push!(self, Name, |row| i8::try_from(usize::from(of(row)).min(names.len() - 1)).unwrap_or_default());
    }

    fn maybe_int32(&mut self, of: impl Fn(&Sample) -> Option<i32>) {
        push_maybe!(self, Int32, of);
    }

    fn maybe_int64(&mut self, of: impl Fn(&Sample) -> Option<i64>) {
        push_maybe!(self, Int64, of);
    }

    fn maybe_float64(&mut self, of: impl Fn(&Sample) -> Option<f64>) {
        push_maybe!(self, Float64, of);
    }
}

/// A row as JSON, by the names of the columns; what is missing is left out.
pub(crate) struct Json<'a> {
    row: &'a Sample,
    names: std::slice::Iter<'static, crate::schema::Field>,
    pub(crate) object: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Json<'a> {
    pub(crate) fn of(row: &'a Sample) -> Self {
        let mut json = Self { row, names: crate::schema::TCP_SAMPLES.fields.iter(), object: serde_json::Map::new() };
        columns(&mut json);
        json
    }

    fn add(&mut self, value: Option<serde_json::Value>) {
        if let (Some(field), Some(value)) = (self.names.next(), value) {
            self.object.insert(field.name.to_owned(), value);
        }
    }
}

impl Columns for Json<'_> {
    fn int32(&mut self, of: impl Fn(&Sample) -> i32) {
        self.add(Some(of(self.row).into()));
    }

    fn int64(&mut self, of: impl Fn(&Sample) -> i64) {
        self.add(Some(of(self.row).into()));
    }

    fn name(&mut self, of: impl Fn(&Sample) -> u8, names: &'static [&'static str]) {
        self.add(names.get(usize::from(of(self.row))).map(|name| (*name).into()));
    }

    fn maybe_int32(&mut self, of: impl Fn(&Sample) -> Option<i32>) {
        self.add(of(self.row).map(Into::into));
    }

    fn maybe_int64(&mut self, of: impl Fn(&Sample) -> Option<i64>) {
        self.add(of(self.row).map(Into::into));
    }

    fn maybe_float64(&mut self, of: impl Fn(&Sample) -> Option<f64>) {
        self.add(of(self.row).map(Into::into));
    }
}

/// Returns the batch of these rows, as all the following do.
pub(crate) fn privates(schema: &SchemaRef, rows: &[Private]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        int32s(rows, |row| row.block),
        int32s(rows, |row| row.flow),
        int32s(rows, |row| int32(row.cpu)),
        int64s(rows, |row| row.number.cast_signed()),
        times(rows, |row| row.time),
        texts(rows, |row| &row.algorithm),
        texts(rows, |row| &row.field),
        int64s(rows, |row| row.value),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

pub(crate) fn flows(schema: &SchemaRef, rows: &[Flow]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        int32s(rows, |row| row.block),
        int32s(rows, |row| row.flow),
        int64s(rows, |row| row.socket_cookie.cast_signed()),
        int64s(rows, |row| row.netns_cookie.cast_signed()),
        Arc::new(rows.iter().map(|row| row.cgroup.map(u64::cast_signed)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.process.map(int32)).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|row| row.command.as_deref()).collect::<StringArray>()),
        texts(rows, |row| &row.local_address),
        int32s(rows, |row| row.local_port.into()),
        texts(rows, |row| &row.remote_address),
        int32s(rows, |row| row.remote_port.into()),
        texts(rows, |row| &row.algorithm),
        times(rows, |row| row.first),
        times(rows, |row| row.last),
        optional_times(rows, |row| row.ended),
        bools(rows, |row| row.is_wanted),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

pub(crate) fn account(schema: &SchemaRef, rows: &[Account]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        int32s(rows, |row| row.block),
        Arc::new(rows.iter().map(|row| row.flow).collect::<Int32Array>()) as ArrayRef,
        dictionary(rows.iter().map(|row| i8::try_from(row.way).ok()), &WAYS)?,
        dictionary(rows.iter().map(|row| i8::try_from(row.fate).ok()), &FATES)?,
        int64s(rows, |row| row.packets.cast_signed()),
        int64s(rows, |row| row.segments.cast_signed()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

pub(crate) fn gaps(schema: &SchemaRef, rows: &[Gap]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        int32s(rows, |row| row.block),
        int32s(rows, |row| int32(row.cpu)),
        int64s(rows, |row| row.number.cast_signed()),
        int64s(rows, |row| row.missing.cast_signed()),
        optional_times(rows, |row| row.after),
        optional_times(rows, |row| row.before),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns)
}

#[cfg(test)]
mod tests;
