//! A simulated one-way path in simulated time, with a known truth. Exact and repeatable: what happens depends on the path's
//! seed and the block's number alone.

mod path;

pub use path::{Clocks, GilbertElliott, Path, PathError, Serialiser, Sinusoid, Skewed};

use std::sync::atomic::AtomicBool;

use crate::{ReceiveOutcome, ReceiveRequest, RequestError, SendOutcome, SendRequest};

/// Why a simulation did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A path that cannot be.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A request that cannot be carried out.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Something else.
    #[error(transparent)]
    Port(#[from] sojourn_port::PortError),
}

/// Sends streams over a path and receives them: both ends in one call, by the same engines and the same loop as over real
/// ports. All flows of the sender go over the path to each of the receiver's ports.
///
/// # Errors
/// When the path or a request cannot be.
pub fn simulate(
    path: &Path,
    send: &SendRequest,
    receive: &ReceiveRequest,
    stop: &AtomicBool,
) -> Result<(SendOutcome, ReceiveOutcome), SimulateError> {
    let _ = (path, send, receive, stop);
    todo!()
}
