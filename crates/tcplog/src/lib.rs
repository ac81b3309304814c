//! TCP's own state at every packet, as SIFTR logged it on FreeBSD (siftr-2007).
//!
//! Programs in the kernel (`bpf/`) take samples and count every packet in exactly one disposition. A [`Source`] passes
//! the samples on as bytes. They are spooled unchanged while traffic runs, and converted into records afterwards. The
//! crate opens no socket of its own and sends nothing.

pub mod account;
pub mod convert;
pub mod decide;
mod decode;
mod fields;
pub mod flight;
pub mod gaps;
mod head;
pub mod kernel;
pub mod layout;
pub mod numbers;
pub mod private;
pub mod simulated;
mod source;
pub mod spool;
pub mod tables;

pub use decode::{DecodeError, Event, Raw, decode};
pub use fields::{Columns, FieldSet};
pub use head::Head;
pub use kernel::{Kernel, KernelError, KernelOptions, Mode};
pub use source::{PREFIXES, Prefix, Source, SourceError};
