//! Opens the kernel's port for a target.
//
// Seam for the helper who writes the kernel backends (replace this whole file; keep these three signatures):
// * `open(&To, &Options) -> anyhow::Result<KernelPort>`; `To::Sim` never reaches it. A `PortError` at the root of the
//   error chain gives exit status 3.
// * `KernelPort: Port`, as an enum or a box. An ICMP port hands out only echo replies that belong to it: a ping socket
//   has the kernel filter by identifier; a raw one filters by the identifier of the frames that it sent (or writes its
//   own). The engine does not look at the identifier; it matches sequence numbers and the user data.
// * `KernelPort::hardware_address()`: the interface's own MAC for `To::Packet`; the engine writes it as the source.
//   `None` for the others.
// * `wait` returns early on EINTR with Ok; `transmit` on ENOBUFS/EAGAIN returns PortError::System with that errno: the
//   driver counts it as an own drop and goes on. ECONNREFUSED from a UDP peer should be an error that says what to do.

use sojourn_port::{Capabilities, Port, PortError, Received, Sent, TransmitStamp};
use sojourn_probe::To;
use sojourn_time::Time;
use sojourn_wire::MacAddress;

/// What can be chosen about a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {}

/// A port of the kernel.
pub enum KernelPort {}

/// Opens the port for `to`.
///
/// # Errors
/// When the kernel refuses.
pub fn open(to: &To, _options: &Options) -> anyhow::Result<KernelPort> {
    anyhow::bail!("this build has no backend for {to}")
}

impl KernelPort {
    /// Returns the interface's own address, where frames carry one.
    pub fn hardware_address(&self) -> Option<MacAddress> {
        match *self {}
    }
}

impl Port for KernelPort {
    fn transmit(&mut self, _frame: &[u8]) -> Result<Sent, PortError> {
        match *self {}
    }

    fn receive(&mut self, _buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        match *self {}
    }

    fn transmit_stamp(&mut self) -> Result<Option<TransmitStamp>, PortError> {
        match *self {}
    }

    fn wait(&mut self, _deadline: Time) -> Result<(), PortError> {
        match *self {}
    }

    fn capabilities(&self) -> Capabilities {
        match *self {}
    }

    fn own_drops(&mut self) -> u64 {
        match *self {}
    }
}
