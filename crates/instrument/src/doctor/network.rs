//! Checks of sockets and timestamps, each tried on the loopback interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sojourn_port::icmp::{IcmpPort, IcmpSocket};
use sojourn_port::kernel::{Interface, interfaces, try_socket};
use sojourn_port::packet::PacketPort;
use sojourn_port::udp::{UdpListener, UdpPort};
use sojourn_port::{Listener, Port, PortError};
use sojourn_time::{Clock, HostClock, Nanos, Source};

use super::{Check, Status};

const LOOPBACK: &str = "lo";
const LOOPBACK_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Nanos = Nanos::millis(200);

pub fn examine() -> Vec<Check> {
    vec![packet(), icmp(), rx_timestamps(), tx_timestamps(), hardware_timestamps(), xdp()]
}

fn packet() -> Check {
    opened("AF_PACKET", PacketPort::open(LOOPBACK, true).map(|_| "a packet socket can be opened"))
}

fn icmp() -> Check {
    const NAME: &str = "ICMP socket";
    match IcmpPort::open_as(IcmpSocket::Raw, LOOPBACK_ADDRESS, None) {
        Err(PortError::Denied { fix, .. }) => {
            let echo = IcmpPort::open_as(IcmpSocket::Echo, LOOPBACK_ADDRESS, None);
            let check = opened(NAME, echo.map(|_| "the echo socket only"));
            if check.status == Status::Ok { Check { status: Status::Limited, ..check }.fix(fix) } else { check }
        }
        raw => opened(NAME, raw.map(|_| "a raw one can be opened")),
    }
}

fn rx_timestamps() -> Check {
    stamped("software RX timestamps", || {
        let (mut port, mut far) = pair()?;
        port.transmit(&[0; 64])?;
        let received = until_some(|| far.receive(&mut [0; 64]))?;
        Ok(received.map(|(received, _)| received.arrived.source))
    })
}

fn tx_timestamps() -> Check {
    stamped("software TX timestamps", || {
        let (mut port, _far) = pair()?;
        let sent = port.transmit(&[0; 64])?;
        let stamp = until_some(|| port.tx_timestamp())?;
        Ok(stamp.filter(|stamp| stamp.number == sent.number).map(|stamp| stamp.left.source))
    })
}

fn hardware_timestamps() -> Check {
    const NAME: &str = "hardware timestamps";
    let able: Vec<_> = interfaces()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|interface| interface.hardware_stamping().map(|stamping| (interface.name, stamping)))
        .collect();
    let names = |on: bool| {
        let names = able.iter().filter(|(_, stamping)| stamping.switched_on == on).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    match (names(true), names(false)) {
        (on, _) if !on.is_empty() => Check::ok(NAME, format!("switched on at {on}")),
        (_, off) if !off.is_empty() => {
            let fix = format!("hwstamp_ctl -i {} -t 1 -r 1 (package linuxptp)", off.split(',').next().unwrap_or(&off));
            Check::new(NAME, Status::Limited, format!("{off} could, and is not set to")).fix(fix)
        }
        _ => Check::new(NAME, Status::Missing, "no interface here has them; the kernel's are used".to_owned())
            .fix("an interface whose `ethtool -T` lists hardware-transmit and hardware-receive".to_owned()),
    }
}

fn xdp() -> Check {
    const NAME: &str = "AF_XDP";
    match try_socket([libc::AF_XDP, libc::SOCK_RAW, 0]) {
        Ok(()) => Check::ok(NAME, "a socket can be opened".to_owned()),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string())
            .fix("run as root, on a kernel with CONFIG_XDP_SOCKETS".to_owned()),
    }
}

fn opened(name: &'static str, result: Result<&str, PortError>) -> Check {
    match result {
        Ok(found) => Check::ok(name, found.to_owned()),
        Err(PortError::Denied { operation, object, right, fix }) => {
            Check::new(name, Status::Missing, format!("{operation} {object} needs {right}")).fix(fix)
        }
        Err(error) => unusable(name, &error),
    }
}

/// Tries to get a timestamp, and reports its source.
fn stamped(name: &'static str, attempt: impl Fn() -> Result<Option<Source>, PortError>) -> Check {
    const FIX: &str = "a kernel with CONFIG_NET and SO_TIMESTAMPING (Linux 3.17 or later)";
    match attempt() {
        Ok(Some(Source::Kernel | Source::Hardware)) => Check::ok(name, format!("tried on {LOOPBACK}")),
        Ok(_) => Check::new(name, Status::Limited, format!("none came on {LOOPBACK}: the program's own are used"))
            .fix(FIX.to_owned()),
        Err(error) => unusable(name, &error),
    }
}

fn unusable(name: &'static str, error: &PortError) -> Check {
    let fix = match Interface::usable(LOOPBACK) {
        Ok(_) => "see what the kernel says: dmesg".to_owned(),
        Err(_) => format!("ip link set dev {LOOPBACK} up"),
    };
    Check::new(name, Status::Missing, error.to_string()).fix(fix)
}

fn pair() -> Result<(UdpPort, UdpListener), PortError> {
    let far = UdpListener::open(SocketAddr::new(LOOPBACK_ADDRESS, 0))?;
    Ok((UdpPort::open(far.address(), None)?, far))
}

fn until_some<T>(mut attempt: impl FnMut() -> Result<Option<T>, PortError>) -> Result<Option<T>, PortError> {
    let deadline = HostClock.now() + PATIENCE;
    loop {
        let found = attempt()?;
        if found.is_some() || HostClock.now() >= deadline {
            return Ok(found);
        }
    }
}
