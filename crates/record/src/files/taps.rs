//! The files of taps, and of the matches between them.

use std::path::Path;
use std::slice;

use arrow_ipc::CompressionType;

use super::{Files, Origin, RecordError};
use crate::schema::Table;
use crate::tables::taps::{Crossing, TapCounts, Tapped, Unmatched};

/// The description of a tap in its file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapAbout {
    /// The tap's name.
    pub tap: String,
    /// The interface.
    pub interface: String,
    /// The host.
    pub host: String,
    /// The part of a packet that its digests cover, by kind of device: bridge, router, nat, vlan, tunnel.
    pub key: String,
    /// The maximum number of octets of a frame's content that the digests cover; `None`: all.
    pub most: Option<u32>,
    /// The clock of the timestamps: taps with the same number, other than 0, share one clock.
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

    /// Read the description from a file's metadata; what is missing or invalid is empty.
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

/// The packets of one tap: `taps-<who>-<part>.arrow`, and after its end `tap_counts-<who>-<part>.arrow`.
pub struct TapFolder(Files);

impl TapFolder {
    /// Create the files of a part (its digits), written by `who`, in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When a file exists already or cannot be created.
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

    /// Write all these rows, or none.
    ///
    /// # Errors
    /// When writing fails; what was written before stays readable.
    pub fn write(&mut self, rows: &[Tapped]) -> Result<(), RecordError> {
        let batch = self.0.batch(rows, &())?;
        self.0.write(&[batch])
    }

    /// Return the total size of the files.
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// Write the tap's counters, and end the files.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub fn finish(&mut self, counts: &TapCounts) -> Result<(), RecordError> {
        let batch = self.0.batch(slice::from_ref(counts), &())?;
        self.0.write(&[batch])?;
        self.0.finish()
    }
}

/// The matches between taps: `crossings-<who>-<part>.arrow` and `unmatched-<who>-<part>.arrow`.
pub struct CrossingFolder(Files);

impl CrossingFolder {
    /// Create the files of a part, written by `who`, in `folder`; create the folder if it is missing.
    ///
    /// # Errors
    /// When a file exists already or cannot be created.
    pub fn create(folder: &Path, (who, part): (&str, u16), origin: &Origin) -> Result<Self, RecordError> {
        let tables = [Table::of::<Crossing>(), Table::of::<Unmatched>()];
        let compression = Some(CompressionType::LZ4_FRAME);
        Files::create(folder, &tables, &format!("{who}-{part:03}"), (origin, compression)).map(Self)
    }

    /// Write all these rows, or none.
    ///
    /// # Errors
    /// When writing fails; what was written before stays readable.
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

    /// End the files.
    ///
    /// # Errors
    /// When writing fails; what was written stays readable.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        self.0.finish()
    }
}
