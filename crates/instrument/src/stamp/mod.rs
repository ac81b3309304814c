//! `stamp`: the Simple Two-way Active Measurement Protocol (RFC 8762), as session-sender and as session-reflector.
//!
//! A session is one block of probes, which `probe` measures, records and reports; `probe blocks` accepts it as kind `stamp`.

pub mod request;

use std::cell::Cell;
use std::rc::Rc;

use sojourn_port::PortError;
use sojourn_probe::respond::{Endpoint, Numbering, Reflector, Serve};
use sojourn_time::{Clock, HostClock, Nanos};

use crate::clock;
use crate::probe;
use crate::respond::{self, Opened};
use request::{Reflect, Stamp};

/// The interval at which a reflector checks the state of its clock.
const LOOK: Nanos = Nanos::seconds(1);

/// Runs the session-sender or the session-reflector.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, records cannot be written, or the results must not be used.
pub fn run(command: &Stamp) -> anyhow::Result<()> {
    match command {
        Stamp::Send(asked) => probe::single(&asked.request(), &asked.output),
        Stamp::Reflect(asked) => reflect(asked),
    }
}

fn reflect(arguments: &Reflect) -> anyhow::Result<()> {
    let format = arguments.timestamps.into();
    let state = Rc::new(Cell::new(clock::state(format)));
    let numbering = if arguments.stateful { Numbering::Stateful } else { Numbering::Stateless };
    let own = Rc::clone(&state);
    let open = |guard: &respond::SharedGuard, key| {
        let reflector = Reflector::new(numbering, key, own, Rc::clone(guard));
        let mut endpoints: Vec<Box<dyn Serve>> = Vec::new();
        let mut addresses = Vec::new();
        for port in arguments.ports() {
            for listener in respond::listeners(&arguments.answer.addresses, *port).map_err(with_advice)? {
                listener.ask_for_hop_limits()?;
                guard.borrow_mut().add_own_port(listener.address().port());
                addresses.push(listener.address().to_string());
                endpoints.push(Box::new(Endpoint::new(listener, reflector.clone())));
            }
        }
        let names = format!("STAMP at {}, {}", addresses.join(", "), numbering.name());
        let event = serde_json::json!({ "udp": addresses, "numbering": numbering.name() });
        Ok(Opened { endpoints, event, names })
    };
    let mut next = HostClock.now() + LOOK;
    let tick = || {
        let now = HostClock.now();
        if now >= next || now + LOOK < next {
            next = now + LOOK;
            state.set(clock::state(format));
        }
    };
    respond::answer(&arguments.answer, &[], open, tick)
}

/// Adds advice to the error where a port below 1024 is refused.
fn with_advice(error: PortError) -> anyhow::Error {
    let is_denied =
        matches!(&error, PortError::System { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
    let error = anyhow::Error::new(error);
    if is_denied {
        error.context("a port below 1024 needs CAP_NET_BIND_SERVICE; or choose another by --port")
    } else {
        error
    }
}
