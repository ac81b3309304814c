//! The files of taps and of what was matched between them.

use std::path::Path;
use std::slice;

use arrow_ipc::CompressionType;

use super::{Files, Origin, RecordError};
use crate::schema::Table;
use crate::tables::taps::{Crossing, TapCounts, Tapped, Unmatched};

/// What a tap is, as the metadata of its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapAbout {
    /// Its name.
    pub tap: String,
    /// The interface.
    pub interface: String,
    /// The host.
    pub host: String,
    /// The key of its digests: bridge, router, nat, vlan, tunnel.
    pub key: String,
    /// How many octets of a frame's content its digests are of; `None`: all.
    pub most: Option<u32>,
    /// Which clock its times are on: taps that have the same number, other than 0, share one clock.
    pub clock_id: u64,
}

impl TapAbout {
    const TAP: &str = "tap";
    const INTERFACE: &str = "interface";
    const HOST: &str = "host";
    const KEY: &str = "key";
    const MOST: &str = "most_octets";
    const CLOCK: &str = "clock_id";

    fn metadata(&self) -> Vec<(&'static str, String)> {
        let most = self.most.map_or(String::new(), |most| most.to_string());
        let texts = [(Self::TAP, &self.tap), (Self::INTERFACE, &self.interface), (Self::HOST, &self.host)];
        let texts = texts.into_iter().chain([(Self::KEY, &self.key), (Self::MOST, &most)]);
        let texts = texts.map(|(name, value)| (name, value.clone()));
        texts.chain([(Self::CLOCK, format!("{:x}", self.clock_id))]).collect()
    }

    /// Reads it from a file's metadata; what is missing or cannot be read is empty.
    pub(crate) fn of<'a>(metadata: impl Fn(&str) -> Option<&'a String>) -> Self {
        let text = |name: &str| metadata(name).cloned().unwrap_or_default();
        Self {
            tap: text(Self::TAP),
            interface: text(Self::INTERFACE),
            host: text(Self::HOST),
            key: text(Self::KEY),
            most: text(Self::MOST).parse().ok(),
            clock_id: u64::from_str_radix(&text(Self::CLOCK), 16).unwrap_or(0),
        }
    }
}

/// What one tap saw: `taps-<who>-<part>.arrow`, and when it is closed `tap_counts-<who>-<part>.arrow`.
pub struct TapFolder(Files);

impl TapFolder {
    /// Creates the files of a part, given by its digits and written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(
        folder: &Path,
        (who, part): (&str, &str),
        about: &TapAbout,
        origin: &Origin,
    ) -> Result<Self, RecordError> {
        let origin = Origin { about: about.metadata(), ..origin.clone() };
        let tables = [Table::of::<Tapped>(), Table::of::<TapCounts>()];
        Files::create(folder, &tables, &format!("{who}-{part}"), (&origin, None)).map(Self)
    }

    /// Writes all these rows, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, rows: &[Tapped]) -> Result<(), RecordError> {
        let batch = self.0.batch(rows, &())?;
        self.0.write(&[batch])
    }

    /// Returns how long the files are together.
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// Writes what the tap counted, and ends the files.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self, counts: &TapCounts) -> Result<(), RecordError> {
        let batch = self.0.batch(slice::from_ref(counts), &())?;
        self.0.write(&[batch])?;
        self.0.finish()
    }
}

/// What was matched between taps: `crossings-<who>-<part>.arrow` and `unmatched-<who>-<part>.arrow`.
pub struct CrossingFolder(Files);

impl CrossingFolder {
    /// Creates the files of a part, written by `who`, in `folder`, and the folder where it is missing.
    ///
    /// # Errors
    /// When a file is already there or cannot be made.
    pub fn create(folder: &Path, (who, part): (&str, u16), origin: &Origin) -> Result<Self, RecordError> {
        let tables = [Table::of::<Crossing>(), Table::of::<Unmatched>()];
        let compression = Some(CompressionType::LZ4_FRAME);
        Files::create(folder, &tables, &format!("{who}-{part:03}"), (origin, compression)).map(Self)
    }

    /// Writes all these rows, or none.
    ///
    /// # Errors
    /// When it cannot; what was written before stays readable.
    pub fn write(&mut self, crossings: &[Crossing], unmatched: &[Unmatched]) -> Result<(), RecordError> {
        let mut batches = Vec::new();
        if !crossings.is_empty() {
            batches.push(self.0.batch(crossings, &())?);
        }
        if !unmatched.is_empty() {
            batches.push(self.0.batch(unmatched, &())?);
        }
        self.0.write(&batches)
    }

    /// Ends the files.
    ///
    /// # Errors
    /// When it cannot; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}
