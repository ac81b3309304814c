//! A tap of the requested kind on an interface of this host.

use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use sojourn_port::PortError;
use sojourn_port::kernel::Interface;
use sojourn_time::Source;

use crate::{BpfTap, Opening, Passed, RingTap, Tap, Totals};

/// The kind of tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A packet socket with a receive ring.
    #[default]
    Ring,
    /// BPF programs attached to tc (tcx).
    Bpf,
}

/// A tap of either kind.
#[derive(Debug)]
pub enum AnyTap {
    /// A packet socket.
    Ring(Box<RingTap>),
    /// BPF programs.
    Bpf(Box<BpfTap>),
}

/// Calls the same method of either tap.
macro_rules! of_either {
    ($any:expr, $tap:ident => $call:expr) => {
        match $any {
            AnyTap::Ring($tap) => $call,
            AnyTap::Bpf($tap) => $call,
        }
    };
}

impl AnyTap {
    /// Opens a tap that does not copy frames yet.
    ///
    /// # Errors
    /// As [`RingTap::open`] or [`BpfTap::open`].
    pub fn open(kind: Kind, interface: &str, asked: &Opening) -> Result<Self, PortError> {
        Ok(match kind {
            Kind::Ring => Self::Ring(RingTap::open(interface, asked)?.into()),
            Kind::Bpf => Self::Bpf(BpfTap::open(interface, asked)?.into()),
        })
    }

    /// Starts copying frames.
    ///
    /// # Errors
    /// `Unusable` when the interface is down or gone.
    pub fn attach(&mut self) -> Result<(), PortError> {
        of_either!(self, tap => tap.attach())
    }

    /// Its interface, in the state when the tap was opened.
    pub fn interface(&self) -> &Interface {
        of_either!(self, tap => tap.interface())
    }

    /// The size of the ring, in bytes.
    pub fn ring_bytes(&self) -> usize {
        of_either!(self, tap => tap.ring_bytes())
    }

    /// The best timestamp source that it can use.
    pub fn source(&self) -> Source {
        match self {
            Self::Ring(tap) => tap.source(),
            Self::Bpf(_) => Source::Bpf,
        }
    }

    /// Checks that the interface still exists; it may be down.
    ///
    /// # Errors
    /// When it is gone.
    pub fn look(&mut self) -> Result<(), PortError> {
        of_either!(self, tap => tap.look())
    }
}

impl Tap for AnyTap {
    fn take(&mut self, show: &mut dyn FnMut(&Passed<'_>)) -> Result<bool, PortError> {
        of_either!(self, tap => tap.take(show))
    }

    fn detach(&mut self) -> Result<(), PortError> {
        of_either!(self, tap => tap.detach())
    }

    fn totals(&mut self) -> Result<Totals, PortError> {
        of_either!(self, tap => tap.totals())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        of_either!(self, tap => tap.descriptor())
    }
}

/// Checks that the interface that was opened still exists.
///
/// # Errors
/// When it is gone.
pub fn is_there(interface: &Interface) -> Result<(), PortError> {
    let gone = || PortError::TakenAway {
        object: interface.name.clone(),
        problem: "the interface is gone; what passed before is recorded".to_owned(),
    };
    let now = Interface::named(&interface.name).map_err(|_| gone())?;
    if now.index == interface.index { Ok(()) } else { Err(gone()) }
}
