//! The records: the interface between the instruments, which write them, and the analysis, which reads them.
//!
//! Every column is declared once, in one line of [`tables`]: its field in the row, its name, type and unit and, for
//! timestamps, their clock and source. The rows, the encoding, the declarations for Python and the reference page are
//! generated from it. The crate does not interpret records; [`Finding`] only names findings.

mod files;
mod findings;
pub mod private;
mod read;
pub mod schema;
mod table;
mod tables;

pub use files::{
    CrossingFolder, Origin, PacketFile, ReadingFile, RecordError, RunFolder, StreamFolder, TapAbout, TapFolder,
    TcpFolder, failure, is_full, sync_folder,
};
pub use findings::{Finding, Severity};
pub use read::{PacketReader, ReadError, TapFiles, TapReader};
pub use table::{Filling, Number, Rows, Unfit, Value, kind};
pub use tables::packets as packet;
pub use tables::packets::Packet;
pub use tables::probes::{Block, Counts, Probe, Reply};
pub use tables::streams as stream;
pub use tables::taps as tap;
pub use tables::tcp;
pub use tables::tcp_readings;
