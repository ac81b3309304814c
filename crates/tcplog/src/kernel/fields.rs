//! Which columns of a sample's state a kernel has: those whose fields are all there.

use crate::convert::COLUMNS;
use crate::decode::Raw;
use crate::layout::State;

/// How many fields the kernel is asked for: all but what is reserved, as `bpf/fields.h` has them.
pub(super) const FIELDS: usize = State::FIELDS.len() - 1;

/// The names of the fields, in their order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    State::FIELDS.iter().take(FIELDS).map(|(name, _)| *name)
}

/// Returns the columns that are there, and those that are not.
pub(super) fn columns(present: &[bool; FIELDS]) -> (Vec<&'static str>, Vec<&'static str>) {
    let has = |field: &&str| names().position(|name| name == *field).is_some_and(|index| present[index]);
    let (there, lacking): (Vec<_>, Vec<_>) = COLUMNS.iter().partition(|(_, fields)| fields.iter().all(has));
    let names = |columns: Vec<&(&'static str, _)>| columns.into_iter().map(|(name, _)| *name).collect();
    (names(there), names(lacking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_in_a_column() {
        for name in names() {
            assert!(COLUMNS.iter().any(|(_, fields)| fields.contains(&name)), "no column is made of {name}");
        }
    }

    #[test]
    fn a_column_whose_field_is_missing_is_missing() {
        let mut present = [true; FIELDS];
        assert!(columns(&present).1.is_empty());
        present[names().position(|name| name == "rate_interval_us").expect("it is there")] = false;
        assert_eq!(columns(&present).1, ["delivery_rate_bps"]);
    }
}
