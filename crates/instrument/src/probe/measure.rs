//! Measures blocks: keeps open ports, and the simulated clock. Chooses the backend once per block.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use sojourn_port::icmp::IcmpPort;
use sojourn_port::packet::{PacketOptions, PacketPort};
use sojourn_port::sim::Sim;
use sojourn_port::udp::{UdpOptions, UdpPort};
use sojourn_port::{Capabilities, Port, PortError, Received, Sent, Stamps, TxTimestamp};
use sojourn_probe::respond::ClockState;
use sojourn_probe::{Ethernet, FarEnd, Host, Icmp, Kind, Request, Simulated, To, Udp};
use sojourn_record::{Block, Counts, Probe};
use sojourn_time::{Clock, HostClock, Nanos, Pace, Reading, SimulatedClock, Time, Wait};
use sojourn_wire::ethernet::PROBE_ETHERTYPE;
use sojourn_wire::{Carrier, Key, MacAddress};

use crate::clock;
use crate::place::Place;
use crate::secret;

/// The maximum number of ports kept open from block to block; one more closes the oldest.
const MOST_PORTS: usize = 64;

/// The results of a block.
#[derive(Debug)]
pub struct Measured {
    /// The block's row.
    pub block: Block,
    /// Its probes.
    pub probes: Vec<Probe>,
    /// The report of a STAMP session-reflector, and the state of this host's clock.
    pub far: Option<(FarEnd, ClockState)>,
}

/// A series of blocks.
#[derive(Debug)]
pub struct Session {
    place: Place,
    key: Option<Arc<Key>>,
    simulated: SimulatedClock,
    /// The open ports, by destination and by whether they take TX timestamps.
    ports: Vec<(To, Stamps, KernelPort)>,
    /// The simulated lines, kept so that a device's counters continue from block to block.
    sims: Vec<(To, Carrier, Sim)>,
}

impl Session {
    /// Starts a series; its probes are authenticated if there is a key.
    pub fn new(place: Place, key: Option<Arc<Key>>) -> Self {
        Self { place, key, simulated: SimulatedClock::default(), ports: Vec::new(), sims: Vec::new() }
    }

    /// Opens the port that a checked request will use: measuring it then takes no right to open one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(&mut self, request: &Request) -> anyhow::Result<()> {
        request.check_key(self.key.is_some())?;
        if !request.to.is_simulated() {
            self.port(&request.to, stamps(request))?;
        }
        Ok(())
    }

    /// Measures a checked request; ends early once `stop` is set.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn measure(&mut self, request: &Request, stop: &AtomicBool) -> anyhow::Result<Measured> {
        request.check_key(self.key.is_some())?;
        if request.to.is_simulated() { self.simulate(request, stop) } else { self.probe(request, stop) }
    }

    fn simulate(&mut self, request: &Request, stop: &AtomicBool) -> anyhow::Result<Measured> {
        let pace = Pace { wait: Wait::Sleep, is_real_time: false };
        let sim = self.sim(request)?;
        let clock = sim.clock();
        let read = || Reading { tai: clock.now(), monotonic_raw: clock.true_time(), error: Nanos::ZERO };
        let started = read();
        sim.begin_block(request.head.block);
        let host = Host { pace, session: request.head.block.into(), ..Host::default() };
        let (probes, counts, _) = sojourn_probe::run(request, sim, &clock, host, stop)?;
        let block = self.row(request, (started, read()), counts);
        Ok(Measured { block: Block { wait: "simulated", cpu: None, fifo: false, ..block }, probes, far: None })
    }

    fn probe(&mut self, request: &Request, stop: &AtomicBool) -> anyhow::Result<Measured> {
        let clock = HostClock;
        let pace = self.place.pace();
        let (session, key) = (secret::random()?, self.key.clone());
        let is_told = request.kind == Kind::Stamp;
        let state = if is_told { clock::state(request.stamp.timestamps.into()) } else { ClockState::default() };
        let port = self.port(&request.to, stamps(request))?;
        let mac = port.hardware_address().unwrap_or_default();
        let started = clock.read();
        let result = sojourn_probe::run(request, port, &clock, Host { pace, mac, session, key, clock: state }, stop);
        if result.is_err() {
            // The interface may have disappeared; the next block opens the port again.
            self.ports.retain(|(to, ..)| *to != request.to);
        }
        let (probes, counts, far) = result?;
        let far = far.map(|far| (far, state));
        Ok(Measured { block: self.row(request, (started, clock.read()), counts), probes, far })
    }

    fn port(&mut self, to: &To, stamps: Stamps) -> anyhow::Result<&mut KernelPort> {
        let index = match self.ports.iter().position(|(known, taken, _)| (known, *taken) == (to, stamps)) {
            Some(index) => index,
            None => {
                // A second port to the same destination would fill with the replies to this one's probes, and report false drops.
                self.ports.retain(|(known, ..)| known != to);
                let port = open(to, stamps)?;
                if self.ports.len() == MOST_PORTS {
                    self.ports.remove(0);
                }
                self.ports.push((to.clone(), stamps, port));
                self.ports.len() - 1
            }
        };
        Ok(&mut self.ports[index].2)
    }

    fn sim(&mut self, request: &Request) -> anyhow::Result<&mut Sim> {
        let carrier = request.carrier();
        let known = self.sims.iter().position(|(to, carries, _)| *to == request.to && *carries == carrier);
        let index = match (known, &request.to) {
            (Some(index), _) => index,
            (None, To::Sim(Simulated { line, .. })) => {
                self.sims.push((request.to.clone(), carrier, Sim::new(&self.simulated, line, carrier)?));
                self.sims.len() - 1
            }
            (None, to) => return Err(anyhow::anyhow!("{to} is not simulated")),
        };
        Ok(&mut self.sims.get_mut(index).context("a simulated line")?.2)
    }

    fn row(&self, request: &Request, (started, ended): (Reading, Reading), counts: Counts) -> Block {
        let carrier = request.carrier();
        let Request { head, to, kind, request_payload_bytes, response_payload_bytes, shape, .. } = request;
        Block {
            block: head.block,
            device: head.device.clone(),
            round: head.round,
            visit: head.visit,
            cell: head.cell,
            via: to.via(),
            kind: kind.name(),
            schedule: shape.schedule.name(),
            interval: shape.interval,
            count: shape.count,
            warmup: shape.warmup,
            seed: shape.seed,
            request_payload_bytes: *request_payload_bytes,
            response_payload_bytes: *response_payload_bytes,
            request_frame_bytes: carrier.frame_bytes(*request_payload_bytes),
            response_frame_bytes: carrier.frame_bytes(*response_payload_bytes),
            timeout: shape.timeout,
            started: started.tai,
            ended: ended.tai,
            started_raw: started.monotonic_raw,
            ended_raw: ended.monotonic_raw,
            clock_error: started.error.max(ended.error),
            counts,
            responder_kernel: request.kernel_answers(),
            wait: self.place.wait.name(),
            cpu: self.place.cpu,
            fifo: self.place.is_real_time,
            dscp: to.dscp(),
        }
    }
}

const fn stamps(request: &Request) -> Stamps {
    if request.shape.no_tx_timestamps { Stamps::None } else { Stamps::Departure }
}

/// An open port of the kernel.
#[derive(Debug)]
enum KernelPort {
    /// ICMP echo.
    Icmp(IcmpPort),
    /// UDP.
    Udp(UdpPort),
    /// Ethernet frames.
    Ethernet(PacketPort),
}

/// Opens the port for `to`.
///
/// # Errors
/// If the kernel refuses; the root of the error chain is then a [`PortError`].
fn open(to: &To, stamps: Stamps) -> anyhow::Result<KernelPort> {
    Ok(match to {
        To::Icmp(Icmp { address, dev, dscp }) => {
            KernelPort::Icmp(IcmpPort::open_with(*address, dev.as_deref(), stamps, dscp.unwrap_or(0))?)
        }
        To::Udp(Udp { peer, dev, dscp }) => {
            let options = UdpOptions { stamps, dscp: dscp.unwrap_or(0), ..UdpOptions::default() };
            KernelPort::Udp(UdpPort::open_with((*peer).into(), dev.as_deref(), options)?)
        }
        To::Ethernet(Ethernet { dev, qdisc_bypass, .. }) => {
            let options = PacketOptions { qdisc_bypass: *qdisc_bypass, stamps, ..PacketOptions::default() };
            KernelPort::Ethernet(PacketPort::open_for(dev, PROBE_ETHERTYPE, options)?)
        }
        To::Sim(_) => anyhow::bail!("a simulated line has no port of the kernel"),
    })
}

impl KernelPort {
    /// Returns the interface's MAC address, if frames carry one.
    fn hardware_address(&self) -> Option<MacAddress> {
        match self {
            Self::Ethernet(port) => Some(port.mac()),
            Self::Icmp(_) | Self::Udp(_) => None,
        }
    }
}

/// Evaluates the same expression for the port of any kind.
macro_rules! each {
    ($self:ident, $port:ident => $does:expr) => {
        match $self {
            KernelPort::Icmp($port) => $does,
            KernelPort::Udp($port) => $does,
            KernelPort::Ethernet($port) => $does,
        }
    };
}

impl Port for KernelPort {
    fn transmit(&mut self, frame: &[u8]) -> Result<Sent, PortError> {
        each!(self, port => port.transmit(frame))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        each!(self, port => port.receive(buffer))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        each!(self, port => port.tx_timestamp())
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        each!(self, port => port.wait(deadline))
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, port => port.capabilities())
    }

    fn local_drops(&mut self) -> u64 {
        each!(self, port => port.local_drops())
    }
}

#[cfg(test)]
mod tests {
    use sojourn_probe::Peer;

    use super::*;

    #[test]
    fn open_sockets_are_bounded_over_blocks_to_many_peers() {
        let place = Place { cpu: None, is_real_time: false, nice: 0, wait: Wait::Sleep, is_locked: false };
        let mut session = Session::new(place, None);
        let peer = |port: u16| Peer { address: std::net::Ipv4Addr::LOCALHOST.into(), port };
        let to = |port: u16| To::Udp(Udp { peer: peer(port), dev: None, dscp: None });
        for port in 0..2 * MOST_PORTS as u16 {
            session.port(&to(20_000 + port), Stamps::Departure).expect("a socket");
        }
        assert_eq!(session.ports.len(), MOST_PORTS);
        for stamps in [Stamps::None, Stamps::Departure] {
            session.port(&to(20_000 + 2 * MOST_PORTS as u16 - 1), stamps).expect("a socket");
            assert_eq!(session.ports.len(), MOST_PORTS, "one socket a peer, with stamps or without");
        }
        assert_eq!(session.ports.last().map(|(to, ..)| to.clone()), Some(to(20_000 + 2 * MOST_PORTS as u16 - 1)));
    }
}
