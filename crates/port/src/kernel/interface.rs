//! Properties of a network interface in this network namespace.
//!
//! Uses ioctls on a socket, never `/sys`, which may show another namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::HEADER_BYTES;
use sojourn_wire::stream::TAG_BYTES;

use super::sys::{self, Ask};
use crate::PortError;

/// How long the kernel takes to report a carrier after both ends were set up.
const CARRIER_COMES_WITHIN: Nanos = Nanos::seconds(1);
const LOOK_AGAIN_AFTER: Nanos = Nanos::millis(5);

/// The length of the two MAC addresses, which an 802.1Q tag follows; the tag's TPID.
const ADDRESS_BYTES: usize = 12;
const TAGGED: [u8; 2] = [0x81, 0x00];

/// The state of an interface when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MAC address.
    pub mac: MacAddress,
    /// The MTU: the longest packet that it carries, in bytes without the Ethernet header.
    pub mtu: usize,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier (`IFF_RUNNING`).
    pub running: bool,
}

/// The counters of an interface since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received frames.
    pub received: u64,
    /// Received frames that were dropped.
    pub receive_dropped: u64,
    /// Sent frames.
    pub sent: u64,
    /// Frames that were dropped instead of being sent.
    pub send_dropped: u64,
}

impl Counters {
    /// Parses the line of an interface in `/proc/net/dev`.
    pub(crate) fn parse(text: &str, interface: &str) -> Option<Self> {
        let fits = |line: &&str| line.split_once(':').is_some_and(|(name, _)| name.trim() == interface);
        let (_, numbers) = text.lines().find(fits)?.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let at = |index: usize| numbers.get(index).copied();
        // Bytes, packets, errors, dropped, …: eight columns for each direction.
        Some(Self { received: at(1)?, receive_dropped: at(3)?, sent: at(9)?, send_dropped: at(11)? })
    }

    /// Returns the numbers of frames received and sent since `before`; `None` where a counter decreased, as happens
    /// when a driver is reset.
    pub fn passed_since(&self, before: &Self) -> Option<[u64; 2]> {
        Some([self.received.checked_sub(before.received)?, self.sent.checked_sub(before.sent)?])
    }
}

/// The hardware timestamping of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareStamping {
    /// The number of its clock: `/dev/ptpN`.
    pub clock: Option<u32>,
    /// Whether it is set to timestamp every frame, in both directions.
    pub switched_on: bool,
}

impl Interface {
    /// Reads the state of the interface.
    ///
    /// # Errors
    /// `Wrong` when there is none of that name.
    pub fn named(name: &str) -> Result<Self, PortError> {
        let refused = |source| match io::Error::raw_os_error(&source) {
            Some(libc::ENODEV) => no_such(name),
            _ => PortError::System { operation: "look at", object: name.to_owned(), source },
        };
        let socket = asking_socket().map_err(refused)?;
        let ask = |what| sys::ask_interface(socket.as_fd(), name.as_bytes(), what).map_err(refused);
        let flags = i32::from(i16::from_ne_bytes(first(ask(Ask::Flags)?)));
        let [_, _, mac @ .., _, _, _, _, _, _, _, _] = ask(Ask::Hardware)?;
        Ok(Self {
            name: name.to_owned(),
            index: u32::from_ne_bytes(first(ask(Ask::Index)?)),
            mac: MacAddress(mac),
            mtu: usize::try_from(i32::from_ne_bytes(first(ask(Ask::Mtu)?))).unwrap_or(0),
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
        })
    }

    /// Whether its frames begin with an Ethernet header, as far as the kernel reports it: not those of layer-3 tunnels.
    pub fn is_ethernet(&self) -> bool {
        let kind =
            asking_socket().and_then(|socket| sys::ask_interface(socket.as_fd(), self.name.as_bytes(), Ask::Hardware));
        kind.is_ok_and(|kind| [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&u16::from_ne_bytes(first(kind))))
    }

    /// Reads, over an open socket, whether it is up and has a carrier; `None`: the kernel does not answer.
    pub fn is_running(&self, socket: BorrowedFd<'_>) -> Option<bool> {
        let flags = sys::ask_interface(socket, self.name.as_bytes(), Ask::Flags).ok()?;
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        Some(i32::from(i16::from_ne_bytes(first(flags))) & both == both)
    }

    /// Reads the state of an interface and refuses one that cannot carry frames. An interface that was just set up gets
    /// time to detect its carrier.
    ///
    /// # Errors
    /// `Wrong` when there is none of that name, `Unusable` when it is down or has no carrier.
    pub fn usable(name: &str) -> Result<Self, PortError> {
        let mut interface = Self::named(name)?;
        let give_up = HostClock.now() + CARRIER_COMES_WITHIN;
        while interface.up && !interface.running && HostClock.now() < give_up {
            HostClock.wait_until(HostClock.now() + LOOK_AGAIN_AFTER, Nanos::ZERO);
            interface = Self::named(name)?;
        }
        let problem = match (interface.up, interface.running) {
            (true, true) => return Ok(interface),
            (false, _) => format!("the interface is down; switch it on with `ip link set dev {name} up`"),
            (true, false) => "the interface has no carrier; switch on its other end, or plug it in".to_owned(),
        };
        Err(PortError::Unusable { object: name.to_owned(), problem })
    }

    /// Refuses frames longer than its MTU allows; the MTU does not include an 802.1Q tag. `frames` begins with the
    /// first of them, `frame_bytes` is the length of each.
    ///
    /// # Errors
    /// `Wrong`, with what would fix it.
    pub fn check_length(&self, frames: &[u8], frame_bytes: usize) -> Result<(), PortError> {
        let is_tagged = frames.get(ADDRESS_BYTES..ADDRESS_BYTES + 2) == Some(&TAGGED[..]);
        let needed = frame_bytes.saturating_sub(HEADER_BYTES + if is_tagged { TAG_BYTES } else { 0 });
        let Self { name, mtu, .. } = self;
        if needed <= *mtu {
            return Ok(());
        }
        Err(PortError::Wrong {
            object: name.clone(),
            problem: format!(
                "its MTU of {mtu} bytes is too small for {needed} bytes of user data; \
                 ask for less, or `ip link set dev {name} mtu {needed}`"
            ),
        })
    }

    /// Reads its counters, from the network namespace of this thread, whichever one `/sys` shows.
    ///
    /// # Errors
    /// When the interface is gone, or when the counters are unreadable.
    pub fn counters(&self) -> Result<Counters, PortError> {
        let text = std::fs::read("/proc/thread-self/net/dev").map_err(|source| PortError::System {
            operation: "read the counters of",
            object: self.name.clone(),
            source,
        })?;
        Counters::parse(&String::from_utf8_lossy(&text), &self.name).ok_or_else(|| no_such(&self.name))
    }

    /// Returns the name of its driver, where the kernel reports it.
    pub fn driver(&self) -> Option<String> {
        let socket = asking_socket().ok()?;
        let name = sys::driver_name(socket.as_fd(), self.name.as_bytes()).ok()?;
        Some(String::from_utf8_lossy(name.split(|byte| *byte == 0).next()?).into_owned())
    }

    /// Returns the number of receive queues of the interface of this name, where the kernel reports it.
    pub fn receive_queues_of(name: &str) -> Option<u32> {
        let socket = asking_socket().ok()?;
        let [_, _, _, _, _, receiving, _, _, combined] = sys::channels(socket.as_fd(), name.as_bytes()).ok()?;
        receiving.checked_add(combined)
    }

    /// Whether it strips VLAN tags from frames into metadata, which not every reader sees; `true` where the kernel does
    /// not report it.
    pub fn takes_tags_off(&self) -> bool {
        const RECEIVE_VLAN: u32 = 1 << 8;
        let flags = asking_socket().and_then(|socket| sys::feature_flags(socket.as_fd(), self.name.as_bytes()));
        !flags.is_ok_and(|flags| flags & RECEIVE_VLAN == 0)
    }

    /// Returns its first address of the same family as `like`.
    pub fn address_like(&self, like: IpAddr) -> Option<IpAddr> {
        let addresses = sys::interface_addresses().ok()?;
        let fits = |address: IpAddr| address.is_ipv4() == like.is_ipv4() && link_local(address) == link_local(like);
        addresses
            .into_iter()
            .find(|entry| entry.interface == self.name && fits(entry.address))
            .map(|entry| entry.address)
    }

    /// Returns its link speed in bits per second, where its driver reports one that limits it.
    pub fn link_bps(&self) -> Option<u64> {
        if self.driver().is_some_and(|driver| WITHOUT_LINE.contains(&driver.as_str())) {
            return None;
        }
        let socket = asking_socket().ok()?;
        let megabits = sys::link_speed(socket.as_fd(), self.name.as_bytes()).ok()?;
        (megabits > 0 && megabits != u32::MAX).then(|| u64::from(megabits) * 1_000_000)
    }

    /// Returns its hardware timestamping and whether it is on; `None` when it has none.
    pub fn hardware_stamping(&self) -> Option<HardwareStamping> {
        let needed = libc::SOF_TIMESTAMPING_TX_HARDWARE
            | libc::SOF_TIMESTAMPING_RX_HARDWARE
            | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        let socket = asking_socket().ok()?;
        let [_, abilities, clock, ..] = sys::stamping_abilities(socket.as_fd(), self.name.as_bytes()).ok()?;
        (abilities & needed == needed).then_some(())?;
        // HWTSTAMP_TX_ON and HWTSTAMP_FILTER_ALL are both 1.
        let switched_on =
            sys::hardware_stamping(socket.as_fd(), self.name.as_bytes()).is_ok_and(|[_, tx, rx]| tx == 1 && rx == 1);
        Some(HardwareStamping { clock: (clock != u32::MAX).then_some(clock), switched_on })
    }
}

/// Drivers whose interfaces report a speed (a veth and a TAP 10 Gbit/s, a bridge that of its fastest port) and carry as much
/// as the processor copies.
const WITHOUT_LINE: [&str; 3] = ["veth", "tun", "bridge"];

fn no_such(name: &str) -> PortError {
    PortError::Wrong {
        object: name.to_owned(),
        problem: "there is no such interface here; `ip link` lists those there are".to_owned(),
    }
}

fn asking_socket() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

fn first<const N: usize>(answer: [u8; 16]) -> [u8; N] {
    std::array::from_fn(|index| answer[index])
}

fn link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_counter_files_never_panic(text: String) {
            let _ = Counters::parse(&text, "near");
        }
    }

    #[test]
    fn counters_are_parsed_from_the_line_of_the_interface() {
        let text = "Inter-| Receive | Transmit\n lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                    near:100 20 0 3 0 0 0 0 200 40 0 5 0 0 0 0\n";
        let counted = Counters { received: 20, receive_dropped: 3, sent: 40, send_dropped: 5 };
        assert_eq!(Counters::parse(text, "near"), Some(counted));
        assert_eq!(Counters::parse(text, "nea"), None);
    }

    #[test]
    fn missing_interface_is_reported() {
        for name in ["nosuch0", "", "a-name-that-is-far-too-long"] {
            let error = Interface::named(name).expect_err("there is none").to_string();
            assert!(error.contains("no such interface"), "{error}");
        }
    }
}
