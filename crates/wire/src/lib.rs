//! Parses and builds packet headers and the tool's own payloads, and defines sizes. No I/O; callers pass the time.
//!
//! Parsers take untrusted bytes: they return `None` or an error for what they do not understand, and never panic.

mod answer;
pub mod auth;
mod checksum;
pub mod digest;
pub mod ethernet;
pub mod icmp;
pub mod layers;
pub mod offload;
pub mod peers;
pub mod probe;
pub mod segment;
pub mod size;
pub mod stamp;
pub mod stream;

pub use answer::answer;
pub use auth::{Key, WeakKey};
pub use ethernet::MacAddress;
pub use layers::Layers;
pub use peers::{PeerAddress, Peers};
pub use probe::ProbeHeader;
pub use size::{Carrier, Size};
pub use stream::{SessionKey, StreamHeader};
