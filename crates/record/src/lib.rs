//! The waist: what instruments write and analysis reads.
//!
//! Every table is declared once, in [`schema`], with the unit of each column and, for times, the clock and who took them.
//! Python's side is generated from it. Nothing here knows what a record means; [`Finding`] only names what can be said.

mod arrow;
mod findings;
mod read;
mod row;
pub mod schema;
mod sink;

pub use findings::{Finding, Severity};
pub use read::{PacketReader, ReadError};
pub use row::packet;
pub use row::packet::Packet;
pub use row::stream;
pub use row::tcp;
pub use row::tcp_readings;
pub use row::{Block, Counts, Probe, Reply};
pub use sink::{Memory, Origin, PacketFile, ReadingFile, RecordError, RecordSink, RunFolder, StreamFolder, TcpFolder};
