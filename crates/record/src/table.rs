//! Convert rows to columns. [`table!`] declares a table: each line is a field of the row and its column.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int8Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use sojourn_time::{Nanos, Source, Time};

use crate::schema::{self, Field};

/// How many rows are converted at a time: one column of them fits into the cache together with the rows.
const CHUNK: usize = 128;

/// A type whose fields are columns.
pub trait Columns {
    /// Further input for the columns: the block's number, the names of pipes.
    type Context: ?Sized;

    /// Append the declarations of the columns.
    fn declare(to: &mut Vec<Field>);

    /// Append the values of rows column by column; null if `of` returns `None`.
    fn fill<R>(rows: &[R], of: impl Fn(&R) -> Option<&Self> + Copy, context: &Self::Context, to: &mut Filling<'_>);
}

/// A row of a table.
pub trait Row: Columns {
    /// The table's name.
    const NAME: &'static str;
    /// Whether the file names include the writer.
    const IS_NAMED: bool;
}

/// Columns that occur together in several tables, or that may be absent together.
pub trait Group {
    /// The type that holds the columns.
    type Columns: Columns<Context = ()>;
    /// Whether all of the columns may be null.
    const IS_NULLABLE: bool;

    /// Return the columns if they are present.
    fn columns(&self) -> Option<&Self::Columns>;
}

/// A number in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<V> {
    /// A value.
    Value(V),
    /// No value.
    Null,
    /// A value that does not fit the column's type.
    Unfit(i128),
}

/// A type that can be stored in a column of numbers of kind `K`.
pub trait Value<K: Number> {
    /// Return the stored number; for a name, its index in `names`.
    fn cell(&self, names: &[&str]) -> Cell<K::Value>;
}

/// A type that can be stored in a column of text.
pub trait Text {
    /// Return the text, if there is one.
    fn text(&self) -> Option<Cow<'_, str>>;
}

/// A type that can be stored in a column of bytes.
pub trait Octets {
    /// Return the bytes, if there are any.
    fn octets(&self) -> Option<&[u8]>;
}

/// A kind of column.
pub trait Typed {
    /// The type in files.
    const KIND: schema::Kind;
}

/// A kind of column of numbers.
pub trait Number: Typed {
    /// The type of the stored numbers.
    type Value: Copy + Default;

    /// Return the values of such a column; `None` if the kind differs.
    fn values(of: &mut Values) -> Option<&mut Vec<Self::Value>>;
}

/// The kinds of columns for [`table!`]. `Bits32` and `Bits64` store the bits of an unsigned number: large ones read as
/// negative. `Name` stores one of a few names.
pub mod kind {
    use super::{Number, Typed, Values};
    use crate::schema::Kind;

    macro_rules! kinds {
        ($($kind:ident $arrow:ident $($values:ident $value:ty)?;)*) => {$(
            #[doc = concat!("A column of kind ", stringify!($kind), ".")]
            pub enum $kind {}
            impl Typed for $kind {
                const KIND: Kind = Kind::$arrow;
            }
            $(impl Number for $kind {
                type Value = $value;

                fn values(of: &mut Values) -> Option<&mut Vec<$value>> {
                    match of { Values::$values(values) => Some(values), _ => None }
                }
            })?
        )*};
    }

    kinds! {
        Bool Bool Bool bool;
        Int32 Int32 Int32 i32;
        Bits32 Int32 Int32 i32;
        Int64 Int64 Int64 i64;
        Bits64 Int64 Int64 i64;
        Float64 Float64 Float64 f64;
        Name Utf8Dictionary Name i8;
        Utf8 Utf8;
        Binary Binary;
    }
}

macro_rules! value {
    ($kind:ident: $($type:ty = |$value:ident| $cell:expr;)*) => {$(
        impl Value<kind::$kind> for $type {
            fn cell(&self, _: &[&str]) -> Cell<<kind::$kind as Number>::Value> {
                let $value = *self;
                Cell::Value($cell)
            }
        }
    )*};
}

macro_rules! checked_value {
    ($kind:ident: $($type:ty)*) => {$(
        impl Value<kind::$kind> for $type {
            fn cell(&self, _: &[&str]) -> Cell<<kind::$kind as Number>::Value> {
                (*self).try_into().map_or(Cell::Unfit(*self as i128), Cell::Value)
            }
        }
    )*};
}

value!(Bool: bool = |value| value;);
value!(Float64: f64 = |value| value;);
value!(Int32: u8 = |value| value.into(); u16 = |value| value.into(); i32 = |value| value;);
value!(Int64: u32 = |value| value.into(); i64 = |value| value; Time = |value| value.0; Nanos = |value| value.0;);
value!(Bits32: u32 = |value| value.cast_signed(););
value!(Bits64: u64 = |value| value.cast_signed(););
checked_value!(Int32: u32 usize);
checked_value!(Int64: u64);

impl<K: Number, V: Value<K>> Value<K> for Option<V> {
    fn cell(&self, names: &[&str]) -> Cell<K::Value> {
        self.as_ref().map_or(Cell::Null, |value| value.cell(names))
    }
}

/// The index of a name.
impl Value<kind::Name> for u8 {
    fn cell(&self, names: &[&str]) -> Cell<i8> {
        if usize::from(*self) < names.len() { Cell::Value(self.cast_signed()) } else { Cell::Unfit((*self).into()) }
    }
}

impl Value<kind::Name> for Source {
    fn cell(&self, names: &[&str]) -> Cell<i8> {
        Value::<kind::Name>::cell(&(*self as u8), names)
    }
}

impl Value<kind::Name> for &'static str {
    fn cell(&self, names: &[&str]) -> Cell<i8> {
        let place = names.iter().position(|name| name == self).and_then(|place| i8::try_from(place).ok());
        place.map_or(Cell::Unfit(-1), Cell::Value)
    }
}

macro_rules! text {
    ($($type:ty)*) => {$(
        impl Text for $type {
            fn text(&self) -> Option<Cow<'_, str>> {
                Some(Cow::Borrowed(self))
            }
        }
    )*};
}

text!(&str String Arc<str>);

impl Text for IpAddr {
    fn text(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Owned(self.to_string()))
    }
}

impl<T: Text> Text for Option<T> {
    fn text(&self) -> Option<Cow<'_, str>> {
        self.as_ref().and_then(Text::text)
    }
}

impl Octets for Option<&[u8]> {
    fn octets(&self) -> Option<&[u8]> {
        *self
    }
}

/// A value that does not fit its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The column.
    pub column: &'static str,
    /// The number; `None` if a required value is missing.
    pub value: Option<i128>,
}

/// The columns to which rows are appended, in order.
pub struct Filling<'a> {
    columns: std::slice::IterMut<'a, Column>,
    unfit: &'a mut Option<Unfit>,
}

impl Filling<'_> {
    /// Append to the next column, which holds numbers. Called for many rows at a time: a separate loop that computes
    /// values where they are stored.
    #[inline]
    pub fn numbers<K: Number>(&mut self, cells: impl Iterator<Item = Cell<K::Value>> + Clone) {
        let Some(column) = self.columns.next().filter(|column| !column.is_absent) else { return };
        let Some(values) = K::values(&mut column.values) else { return };
        let (before, mut has_null, mut unfit) = (values.len(), false, None);
        values.extend(cells.clone().map(|cell| match cell {
            Cell::Value(value) => value,
            Cell::Null => {
                has_null = true;
                K::Value::default()
            }
            Cell::Unfit(value) => {
                unfit = Some(value);
                K::Value::default()
            }
        }));
        if has_null || !column.valid.is_empty() {
            column.valid.resize(before, true);
            column.valid.extend(cells.map(|cell| !matches!(cell, Cell::Null)));
        }
        if unfit.is_some() || (has_null && !column.is_nullable) {
            self.unfit.get_or_insert(Unfit { column: column.name, value: unfit });
        }
    }

    /// Append some of these texts to the next column.
    pub(crate) fn texts(&mut self, texts: &Texts, range: Range<usize>) {
        let Some(column) = self.columns.next().filter(|column| !column.is_absent) else { return };
        if let Values::Utf8(all) = &mut column.values
            && all.append_array(&texts.0.slice(range.start, range.len())).is_err()
        {
            self.unfit.get_or_insert(Unfit { column: column.name, value: None });
        }
    }

    /// Append to the next column, which holds text or bytes.
    pub fn each<R>(&mut self, rows: &[R], append: impl Fn(&R, &mut Values)) {
        let Some(column) = self.columns.next().filter(|column| !column.is_absent) else { return };
        rows.iter().for_each(|row| append(row, &mut column.values));
    }
}

/// Texts that are appended together many times: by one copy, however many they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Texts(StringArray);

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        Self(StringArray::from_iter_values(texts))
    }
}

/// A growing column. `valid` is empty as long as no value is missing.
struct Column {
    name: &'static str,
    is_nullable: bool,
    is_absent: bool,
    names: &'static [&'static str],
    values: Values,
    valid: Vec<bool>,
}

/// The values of a column; 0 where a value is missing.
pub enum Values {
    /// Booleans.
    Bool(Vec<bool>),
    /// 32-bit integers.
    Int32(Vec<i32>),
    /// 64-bit integers.
    Int64(Vec<i64>),
    /// Floating-point numbers.
    Float64(Vec<f64>),
    /// Indices of names.
    Name(Vec<i8>),
    /// Text.
    Utf8(StringBuilder),
    /// Bytes.
    Binary(BinaryBuilder),
}

impl Values {
    fn new(kind: schema::Kind) -> Self {
        match kind {
            schema::Kind::Bool => Self::Bool(Vec::new()),
            schema::Kind::Int32 => Self::Int32(Vec::new()),
            schema::Kind::Int64 => Self::Int64(Vec::new()),
            schema::Kind::Float64 => Self::Float64(Vec::new()),
            schema::Kind::Utf8Dictionary => Self::Name(Vec::new()),
            schema::Kind::Utf8 => Self::Utf8(StringBuilder::new()),
            schema::Kind::Binary => Self::Binary(BinaryBuilder::new()),
        }
    }

    /// Append a text or null.
    pub fn text(&mut self, text: &impl Text) {
        if let Self::Utf8(texts) = self {
            texts.append_option(text.text());
        }
    }

    /// Append bytes or null.
    pub fn octets(&mut self, octets: &impl Octets) {
        if let Self::Binary(all) = self {
            all.append_option(octets.octets());
        }
    }
}

impl Column {
    fn take(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        let nulls = if self.is_absent {
            Some(NullBuffer::new_null(rows))
        } else {
            (!self.valid.is_empty()).then(|| self.valid.as_slice().into())
        };
        self.valid.clear();
        // An absent column is filled with zeros, which compress to almost nothing.
        macro_rules! array {
            ($kind:ty, $values:expr) => {{
                let capacity = $values.capacity();
                let mut values = std::mem::replace($values, Vec::with_capacity(capacity));
                values.resize(rows, Default::default());
                <$kind>::try_new(values.into(), nulls)?
            }};
        }
        Ok(match &mut self.values {
            Values::Bool(values) => {
                let mut values = std::mem::take(values);
                values.resize(rows, false);
                Arc::new(BooleanArray::new(values.into(), nulls))
            }
            Values::Int32(values) => Arc::new(array!(Int32Array, values)),
            Values::Int64(values) => Arc::new(array!(Int64Array, values)),
            Values::Float64(values) => Arc::new(array!(Float64Array, values)),
            // The dictionary is always complete, so a stream contains it once.
            Values::Name(values) => {
                let names = Arc::new(StringArray::from_iter_values(self.names));
                Arc::new(DictionaryArray::<Int8Type>::try_new(array!(Int8Array, values), names)?)
            }
            Values::Utf8(texts) => Arc::new(texts.finish()),
            Values::Binary(octets) => Arc::new(octets.finish()),
        })
    }

    /// Return the value of a row; `None` if it is missing.
    fn json(&self, row: usize) -> Option<serde_json::Value> {
        if self.is_absent || self.valid.get(row) == Some(&false) {
            return None;
        }
        match &self.values {
            Values::Bool(values) => values.get(row).map(|value| (*value).into()),
            Values::Int32(values) => values.get(row).map(|value| (*value).into()),
            Values::Int64(values) => values.get(row).map(|value| (*value).into()),
            Values::Float64(values) => values.get(row).map(|value| (*value).into()),
            Values::Name(values) => self.names.get(usize::try_from(*values.get(row)?).ok()?).map(|name| (*name).into()),
            Values::Utf8(texts) => {
                let texts = texts.finish_cloned();
                texts.is_valid(row).then(|| texts.value(row).into())
            }
            Values::Binary(octets) => {
                let octets = octets.finish_cloned();
                octets.is_valid(row).then(|| octets.value(row).into())
            }
        }
    }
}

/// Rows that will become a batch.
pub struct Rows<R> {
    columns: Vec<Column>,
    rows: usize,
    of: std::marker::PhantomData<fn(&R)>,
}

impl<R: Row> Rows<R> {
    /// Create it without rows. The columns named in `absent` are null in all rows, if they are nullable.
    pub fn new(absent: &HashSet<String>) -> Self {
        let column = |field: Field| Column {
            name: field.name,
            is_nullable: field.nullable,
            is_absent: field.nullable && absent.contains(field.name),
            names: field.names,
            values: Values::new(field.kind),
            valid: Vec::new(),
        };
        Self { columns: fields_of::<R>().into_iter().map(column).collect(), rows: 0, of: std::marker::PhantomData }
    }

    /// Return the number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Return whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Append rows.
    ///
    /// # Errors
    /// When a value does not fit its column; the content is then unusable.
    pub fn push(&mut self, rows: &[R], context: &R::Context) -> Result<(), Unfit> {
        rows.chunks(CHUNK)
            .try_for_each(|rows| self.push_by(rows.len(), |filling| R::fill(rows, |row| Some(row), context, filling)))
    }

    /// Append `rows` rows from another representation: `fill` appends to every column, in order.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_by(&mut self, rows: usize, fill: impl FnOnce(&mut Filling<'_>)) -> Result<(), Unfit> {
        let mut unfit = None;
        fill(&mut Filling { columns: self.columns.iter_mut(), unfit: &mut unfit });
        self.rows += rows;
        unfit.map_or(Ok(()), Err)
    }

    /// Take all rows as a batch.
    pub fn batch(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut().map(|column| column.take(rows)).collect::<Result<_, _>>()?;
        RecordBatch::try_new(Arc::clone(schema), columns)
    }

    /// Return a row's values by column name, without missing ones.
    pub fn json(&self, row: usize) -> serde_json::Map<String, serde_json::Value> {
        let values = self.columns.iter().filter_map(|column| Some((column.name.to_owned(), column.json(row)?)));
        values.collect()
    }
}

/// Return a table's columns.
pub fn fields_of<R: Columns>() -> Vec<Field> {
    let mut fields = Vec::new();
    R::declare(&mut fields);
    fields
}

/// Return the first of several expressions.
macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

/// Evaluate the value of a column in a row: the row's field, or the given expression.
macro_rules! with_value {
    ($row:ident, $context:ident, { $field:ident } {}, |$value:ident| $do:expr) => {{
        let $value = &$row.$field;
        $do
    }};
    ($row:ident, $context:ident, { $($field:ident)? } { |$r:pat_param, $c:pat_param| $made:expr }, |$value:ident| $do:expr) => {{
        let ($r, $c) = ($row, $context);
        let $value = &$made;
        $do
    }};
}

/// Append the values of one column.
macro_rules! fill_column {
    (Utf8, $names:expr, $rows:ident, $of:ident, $context:ident, $to:ident, $from:tt $made:tt) => {
        $to.each($rows, |row, to| match $of(row) {
            Some(row) => $crate::table::with_value!(row, $context, $from $made, |value| to.text(value)),
            None => to.text(&None::<&str>),
        });
    };
    (Binary, $names:expr, $rows:ident, $of:ident, $context:ident, $to:ident, $from:tt $made:tt) => {
        $to.each($rows, |row, to| match $of(row) {
            Some(row) => $crate::table::with_value!(row, $context, $from $made, |value| to.octets(value)),
            None => to.octets(&None::<&[u8]>),
        });
    };
    ($kind:ident, $names:expr, $rows:ident, $of:ident, $context:ident, $to:ident, $from:tt $made:tt) => {
        $to.numbers::<$crate::table::kind::$kind>($rows.iter().map(|row| match $of(row) {
            Some(row) => $crate::table::with_value!(row, $context, $from $made, |value| {
                $crate::table::Value::<$crate::table::kind::$kind>::cell(value, $names)
            }),
            None => $crate::table::Cell::Null,
        }));
    };
}

/// Construct the declaration of a column.
macro_rules! field {
    (
        $column:ident: $kind:ident $(of $names:ident)? ($unit:literal $(, $clock:ident, $source:literal)?)
        $(or $null:ident)? $(since $since:literal)? $(was $was:literal)? $(with $($old:literal as $new:literal),+)?
        $doc:literal
    ) => {
        $crate::schema::Field {
            name: stringify!($column),
            kind: <$crate::table::kind::$kind as $crate::table::Typed>::KIND,
            names: $crate::table::first!($(&$names,)? &[]),
            nullable: $crate::table::first!($({ stringify!($null); true },)? false),
            unit: $unit,
            clock: $crate::table::first!($(Some($clock),)? None),
            source: $crate::table::first!($(Some($source),)? None),
            since: $crate::table::first!($($since,)? 1),
            was: $crate::table::first!($(Some($was),)? None),
            renamed: $crate::table::first!($(&[$(($old, $new)),+],)? &[]),
            doc: $doc,
        }
    };
}

/// Declare fields and their columns, in blocks; groups of columns, declared separately, stand between them. A line is
///
/// ```text
/// field: Type => column: Kind of NAMES ("unit", CLOCK, "source") or null since 2 was "old_name" with "old" as "new"
///     "What it holds." = |row, context| value;
/// ```
///
/// Optional are: the field, if the value is computed from something else; the names, for kinds other than `Name`; clock
/// and source, except for timestamps; `or null`; `since`, default 1; `was`, the column's name in older files; `with`,
/// the names of values in older files; the value, default the field.
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $row:ident in $context:ty;
        $(
            {$(
                $($field:ident: $type:ty)? => $column:ident: $kind:ident $(of $names:ident)?
                ($unit:literal $(, $clock:ident, $source:literal)?) $(or $null:ident)? $(since $since:literal)?
                $(was $was:literal)? $(with $($old:literal as $new:literal),+)? $doc:literal
                $(from $($from:ident),+ $(as $how:ident)?)? $(= |$r:pat_param, $c:pat_param| $made:expr)?;
            )*}
            $($group:ident: $columns:ty;)?
        )+
    ) => {
        $(#[$meta])*
        pub struct $row {
            $(
                $($(#[doc = $doc] pub $field: $type,)?)*
                $(#[doc = "Columns by themselves."] pub $group: $columns,)?
            )+
        }

        impl $crate::table::Columns for $row {
            type Context = $context;

            fn declare(to: &mut Vec<$crate::schema::Field>) {
                $(
                    $(to.push($crate::table::field!(
                        $column: $kind $(of $names)? ($unit $(, $clock, $source)?) $(or $null)? $(since $since)?
                        $(was $was)? $(with $($old as $new),+)? $doc
                    ));)*
                    $(
                        let before = to.len();
                        <<$columns as $crate::table::Group>::Columns as $crate::table::Columns>::declare(to);
                        if <$columns as $crate::table::Group>::IS_NULLABLE {
                            to[before..].iter_mut().for_each(|field| field.nullable = true);
                        }
                    )?
                )+
            }

            fn fill<R>(
                rows: &[R],
                of: impl Fn(&R) -> Option<&Self> + Copy,
                context: &Self::Context,
                to: &mut $crate::table::Filling<'_>,
            ) {
                let _ = context;
                $(
                    $($crate::table::fill_column!(
                        $kind, $crate::table::first!($(&$names,)? &[]), rows, of, context, to,
                        { $($field)? } { $(|$r, $c| $made)? }
                    );)*
                    $(<<$columns as $crate::table::Group>::Columns as $crate::table::Columns>::fill(
                        rows,
                        move |row| of(row).and_then(|row| $crate::table::Group::columns(&row.$group)),
                        &(),
                        to,
                    );)?
                )+
            }
        }
    };
}

/// Declare a table and its row; `in` names the context from which columns are made besides the row.
macro_rules! table {
    ($(#[$meta:meta])* $(($named:ident))? $name:literal: $row:ident in $context:ty; $($body:tt)+) => {
        $crate::table::columns! { $(#[$meta])* $row in $context; $($body)+ }

        impl $crate::table::Row for $row {
            const NAME: &'static str = $name;
            const IS_NAMED: bool = $crate::table::first!($({ stringify!($named); true },)? false);
        }
    };
}

/// Declare columns that occur together in a row of a table, always or optionally; `(nullable)`: each may be null.
macro_rules! group {
    ($(#[$meta:meta])* $(($nullable:ident))? $row:ident; $($body:tt)+) => {
        $crate::table::columns! { $(#[$meta])* $row in (); $($body)+ }

        impl $crate::table::Group for $row {
            type Columns = Self;
            const IS_NULLABLE: bool = $crate::table::first!($({ stringify!($nullable); true },)? false);

            fn columns(&self) -> Option<&Self> {
                Some(self)
            }
        }

        impl $crate::table::Group for Option<$row> {
            type Columns = $row;
            const IS_NULLABLE: bool = true;

            fn columns(&self) -> Option<&$row> {
                self.as_ref()
            }
        }
    };
}

/// Declare a table that Python programs write and that has no row type here.
macro_rules! written_by_python {
    ($(#[$meta:meta])* $constant:ident = $name:literal; {$(
        => $column:ident: $kind:ident ($unit:literal $(, $clock:ident, $source:literal)?) $(or $null:ident)?
        $(since $since:literal)? $(was $was:literal)? $(with $($old:literal as $new:literal),+)? $doc:literal;
    )*}) => {
        $(#[$meta])*
        pub const $constant: $crate::schema::Table = $crate::schema::Table {
            name: $name,
            is_named: false,
            fields: || vec![$($crate::table::field!(
                $column: $kind ($unit $(, $clock, $source)?) $(or $null)? $(since $since)? $(was $was)?
                $(with $($old as $new),+)? $doc
            )),*],
        };
    };
}

pub(crate) use {columns, field, fill_column, first, group, table, with_value, written_by_python};
