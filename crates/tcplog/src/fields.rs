//! The fields of the control block that a log holds: those that this kernel has and that were requested.
//!
//! Fields are requested by the columns that are computed from them. A column that was not requested is null in every
//! row, like one that the kernel lacks. A column whose fields were all requested for other columns is present.

use sojourn_time::near::did_you_mean;

use crate::convert::COLUMNS;
use crate::decode::Raw;
use crate::layout::{Sample, State, kind};

/// The number of fields: all of `bpf/fields.h` without the reserved bytes.
pub(crate) const FIELDS: usize = State::FIELDS.len() - 1;

/// The name for every field.
pub const ALL: &str = "all";

/// The name for the fields that FreeBSD's SIFTR logs and that its log format needs.
pub const SIFTR: &str = "siftr";

/// The columns of `siftr`.
pub const SIFTR_COLUMNS: [&str; 18] = [
    "state",
    "snd_cwnd",
    "snd_ssthresh",
    "mss_bytes",
    "snd_wnd_bytes",
    "rcv_wnd_bytes",
    "snd_wscale",
    "rcv_wscale",
    "srtt_us",
    "rto_us",
    "sndbuf_bytes",
    "snd_queued_bytes",
    "rcvbuf_bytes",
    "rcv_queued_bytes",
    "in_flight_bytes",
    "flags",
    "ca_state",
    "num_sacks",
];

/// Fields on which other fields depend in `bpf/state.h`.
const MADE_OF: [(&str, &str); 4] = [
    ("rcv_wnd", "rcv_nxt"),
    ("chrono_busy_jiffies", "chrono"),
    ("chrono_rwnd_jiffies", "chrono"),
    ("chrono_sndbuf_jiffies", "chrono"),
];

/// The requested fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSet([bool; FIELDS]);

impl Default for FieldSet {
    fn default() -> Self {
        Self::EVERY
    }
}

impl FieldSet {
    /// Every field.
    pub const EVERY: Self = Self([true; FIELDS]);

    /// Parse a request: `all`, `siftr`, or names of columns; several are combined.
    ///
    /// # Errors
    /// When a name is unknown: the name, and the message.
    pub fn read(words: &[String]) -> Result<Self, (&str, String)> {
        let mut asked = [false; FIELDS];
        for word in words {
            match word.as_str() {
                ALL => asked = [true; FIELDS],
                SIFTR => SIFTR_COLUMNS.iter().for_each(|column| take(&mut asked, fields_of(column).unwrap_or(&[]))),
                column => {
                    let fields = fields_of(column).ok_or_else(|| (column, unknown(column)))?;
                    take(&mut asked, fields);
                }
            }
        }
        Ok(Self(asked))
    }

    /// Return whether the requested fields suffice for a column.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        fields_of(column).is_some_and(|fields| is_in(&self.0, fields))
    }

    /// Return the columns of a log on a kernel with these fields: those present, those absent, and those absent only
    /// because they were not requested.
    pub(crate) fn columns(&self, present: &[bool; FIELDS]) -> Columns {
        let of = |has: &dyn Fn(&[&str]) -> bool| {
            COLUMNS.iter().filter(|(_, fields)| has(fields)).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        Columns {
            there: of(&|fields| is_in(present, fields) && is_in(&self.0, fields)),
            absent: of(&|fields| !is_in(present, fields) || !is_in(&self.0, fields)),
            unasked: of(&|fields| is_in(present, fields) && !is_in(&self.0, fields)),
        }
    }

    /// The same for a source that has every field.
    #[must_use]
    pub fn columns_of_all(&self) -> Columns {
        self.columns(&[true; FIELDS])
    }

    /// The requested fields as one bit each, in order; all ones: every field.
    pub(crate) fn words(&self) -> [u64; 2] {
        if self.0.iter().all(|is_asked| *is_asked) {
            return [u64::MAX; 2];
        }
        let bits = self.0.iter().enumerate().fold(0_u128, |bits, (at, is_asked)| bits | u128::from(*is_asked) << at);
        [bits as u64, (bits >> 64) as u64]
    }

    /// Set the fields of a record that were not requested to 0, as the programs in the kernel do.
    pub fn clear(&self, record: &mut [u8]) {
        if record.first() != Some(&kind::SAMPLE) {
            return;
        }
        let state = std::mem::offset_of!(Sample, state);
        let ends = State::FIELDS.iter().skip(1).map(|(_, at)| *at);
        for (((_, from), to), _) in State::FIELDS.iter().zip(ends).zip(&self.0).filter(|(_, is_asked)| !**is_asked) {
            record.get_mut(state + from..state + to).unwrap_or_default().fill(0);
        }
    }
}

/// The columns of a log's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Columns that have values.
    pub there: Vec<&'static str>,
    /// Columns that are null in every row.
    pub absent: Vec<&'static str>,
    /// Absent columns that the kernel has but nobody requested.
    pub unasked: Vec<&'static str>,
}

/// Iterate over the names of the fields, in order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    State::FIELDS.iter().take(FIELDS).map(|(name, _)| *name)
}

fn place_of(field: &str) -> Option<usize> {
    names().position(|name| name == field)
}

fn fields_of(column: &str) -> Option<&'static [&'static str]> {
    COLUMNS.iter().find(|(name, _)| *name == column).map(|(_, fields)| *fields)
}

fn is_in(set: &[bool; FIELDS], fields: &[&str]) -> bool {
    fields.iter().all(|field| place_of(field).is_some_and(|at| set[at]))
}

fn take(asked: &mut [bool; FIELDS], fields: &[&str]) {
    for field in fields {
        let others = MADE_OF.iter().filter(|(made, _)| made == field).map(|(_, of)| of);
        for at in std::iter::once(field).chain(others).filter_map(|name| place_of(name)) {
            asked[at] = true;
        }
    }
}

fn unknown(word: &str) -> String {
    let known: Vec<_> = [ALL, SIFTR].into_iter().chain(COLUMNS.iter().map(|(name, _)| *name)).collect();
    let near = did_you_mean(word, &known);
    format!("expected {ALL}, {SIFTR}, or columns of tcp_samples such as snd_cwnd, srtt_us, total_retrans{near}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> FieldSet {
        let words: Vec<_> = words.split(',').map(str::to_owned).collect();
        FieldSet::read(&words).expect("they are known")
    }

    #[test]
    fn each_field_is_in_a_column() {
        for name in names() {
            assert!(COLUMNS.iter().any(|(_, fields)| fields.contains(&name)), "no column is made of {name}");
        }
    }

    #[test]
    fn a_column_whose_field_is_missing_is_missing() {
        let mut present = [true; FIELDS];
        assert!(FieldSet::default().columns(&present).absent.is_empty());
        present[place_of("rate_interval_us").expect("it is there")] = false;
        let columns = FieldSet::default().columns(&present);
        assert_eq!((columns.absent, columns.unasked), (vec!["delivery_rate_bps"], vec![]));
        let columns = read("snd_cwnd").columns(&present);
        assert_eq!(columns.there, ["snd_cwnd"]);
        assert!(columns.absent.contains(&"delivery_rate_bps") && !columns.unasked.contains(&"delivery_rate_bps"));
    }

    #[test]
    fn selecting_a_column_selects_its_fields() {
        assert_eq!(read("snd_queued_bytes").columns_of_all().there, ["state", "snd_queued_bytes", "snd_una"]);
        assert_eq!(read("rcv_wnd_bytes").columns_of_all().there, ["rcv_wnd_bytes", "rcv_nxt"]);
        assert!(read("receiver_limited_us").has("limited_by"), "what runs is added to it");
        let siftr = read("siftr");
        assert!(SIFTR_COLUMNS.iter().all(|column| siftr.has(column)));
        assert!(!siftr.has("total_retrans") && read("siftr,total_retrans").has("total_retrans"));
    }

    #[test]
    fn all_selects_every_field_in_any_notation() {
        let named: Vec<_> = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
        for set in [FieldSet::default(), read("all"), read("snd_cwnd,all"), FieldSet::read(&named).expect("known")] {
            assert_eq!(set.words(), [u64::MAX; 2]);
        }
        let at = place_of("snd_cwnd").expect("it is there");
        assert_eq!(read("snd_cwnd").words(), [1 << at, 0]);
    }

    #[test]
    fn unknown_field_is_refused_with_the_closest_name() {
        let words = ["siftr".to_owned(), "snd_cwdn".to_owned()];
        let (word, why) = FieldSet::read(&words).expect_err("it is unknown");
        assert_eq!(word, "snd_cwdn");
        assert!(why.ends_with("(did you mean \"snd_cwnd\"?)"), "{why}");
    }

    #[test]
    fn only_unselected_fields_are_cleared() {
        let mut record = vec![0xff; Sample::BYTES];
        record[0] = kind::SAMPLE;
        let (before, state) = (record.clone(), std::mem::offset_of!(Sample, state));
        FieldSet::default().clear(&mut record);
        assert_eq!(record, before);
        read("snd_cwnd").clear(&mut record);
        let at = state + std::mem::offset_of!(State, snd_cwnd);
        assert_eq!(record[..state], before[..state]);
        assert_eq!(record[at..at + 4], [0xff; 4]);
        let left = record[state..].iter().filter(|byte| **byte != 0).count();
        assert_eq!(left, 4 + (State::BYTES - State::FIELDS[FIELDS].1), "the field, and what is reserved");
    }
}
