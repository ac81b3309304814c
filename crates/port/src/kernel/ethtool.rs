//! Reads and sets the driver settings of an interface, over generic netlink (the kernel's family `ethtool`).
//!
//! Uses the network namespace in which the socket was opened. Attributes have the kernel's numbers (`ETHTOOL_A_…` of
//! linux/ethtool_netlink.h); callers give them names. Untrusted bytes: truncated and unknown attributes are ignored.

use std::io;

use super::netlink::{HEAD, Netlink, attribute, attributed, attributes, half, odd, text, word};

const NLM_F_ACK: u16 = 4;
/// The flag of an attribute that contains others.
const NESTED: u16 = 0x8000;
/// The generic netlink header, after that of netlink: command, version, two reserved bytes.
const GENERIC_HEAD: usize = 4;

/// The family that resolves the names of all families to numbers.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const FEATURES_GET: u8 = 11;
/// The first attribute of each request: `ETHTOOL_A_…_HEADER`.
const HEADER: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
const OMIT_REPLY: u32 = 2;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_INDEX: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// The groups of settings, each with its GET command. Its SET command is the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Speed and duplex: `LINKMODES`.
    Link = 4,
    /// Sizes of rings.
    Rings = 15,
    /// Interrupt coalescing.
    Coalescing = 19,
    /// Pause frames.
    Pause = 21,
    /// Energy-efficient Ethernet.
    Energy = 23,
}

/// A value to set, in the attribute's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// One byte.
    Byte(u8),
    /// Four bytes.
    Word(u32),
}

/// The attributes of a reply.
#[derive(Clone, Debug, Default)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// Returns an attribute of one or four bytes as a number; `None` where the driver does not report it.
    pub fn number(&self, kind: u16) -> Option<u32> {
        let value = attribute(&self.0, kind)?;
        if let [byte] = value { Some(u32::from(*byte)) } else { word(value, 0) }
    }
}

/// A feature of an interface, such as an offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name.
    pub name: String,
    /// Whether it is on.
    pub is_on: bool,
    /// Whether it was requested to be on.
    pub is_wanted: bool,
    /// Whether it cannot be changed.
    pub is_fixed: bool,
}

/// An interface, and a socket for ethtool requests about it.
#[derive(Debug)]
pub struct Ethtool {
    netlink: Netlink,
    family: u16,
    interface: String,
}

impl Ethtool {
    /// Resolves the family. The first request fails if the interface does not exist.
    ///
    /// # Errors
    /// When the kernel refuses, or has no such family: it was built without `CONFIG_ETHTOOL_NETLINK`.
    pub fn of(interface: &str) -> io::Result<Self> {
        let mut netlink = Netlink::generic()?;
        let asked = attributed(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let mut family = None;
        let found =
            netlink.exchange(CONTROL, 0, &[&head(CTRL_CMD_GETFAMILY)[..], &asked].concat(), &mut |_, message| {
                family = body(message).and_then(|body| half(attribute(body, CTRL_ATTR_FAMILY_ID)?, 0))
            });
        found.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "this kernel was built without ethtool's netlink (CONFIG_ETHTOOL_NETLINK): apt-get install ethtool",
            ),
            _ => error,
        })?;
        Ok(Self { netlink, family: family.ok_or_else(odd)?, interface: interface.to_owned() })
    }

    /// Reads a group of settings.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the driver does not support the group, `ENODEV` where there is no such interface.
    pub fn get(&mut self, about: About) -> io::Result<Answer> {
        self.ask(about as u8).map(Answer)
    }

    /// Sets numbers, all of them or none.
    ///
    /// # Errors
    /// When the driver refuses, with the kernel's message.
    pub fn set(&mut self, about: About, numbers: &[(u16, Number)]) -> io::Result<()> {
        let values = numbers.iter().flat_map(|(kind, number)| match number {
            Number::Byte(byte) => attributed(*kind, &[*byte]),
            Number::Word(word) => attributed(*kind, &word.to_ne_bytes()),
        });
        self.tell(about as u8 + 1, &values.collect::<Vec<_>>())
    }

    /// Lists the features in the kernel's order.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn features(&mut self) -> io::Result<Vec<Feature>> {
        let said = self.ask(FEATURES_GET)?;
        Ok(features(&said))
    }

    /// Requests features to be on or off; for one that is named twice, "on" wins. The kernel ignores features that
    /// cannot be changed or that another one excludes.
    ///
    /// # Errors
    /// When the kernel does not know one of them, or refuses.
    pub fn want(&mut self, features: &[(&str, bool)]) -> io::Result<()> {
        let bits = features.iter().flat_map(|(name, is_on)| {
            let value = if *is_on { attributed(BIT_VALUE, &[]) } else { Vec::new() };
            let bit = [attributed(BIT_NAME, &[name.as_bytes(), b"\0"].concat()), value].concat();
            attributed(BITS_BIT | NESTED, &bit)
        });
        let bits = attributed(BITSET_BITS | NESTED, &bits.collect::<Vec<_>>());
        self.tell(FEATURES_GET + 1, &attributed(FEATURES_WANTED | NESTED, &bits))
    }

    fn ask(&mut self, command: u8) -> io::Result<Vec<u8>> {
        let request = [&head(command)[..], &self.header(0)].concat();
        let mut said = None;
        self.netlink.exchange(self.family, 0, &request, &mut |_, message| said = body(message).map(<[u8]>::to_vec))?;
        said.ok_or_else(odd)
    }

    fn tell(&mut self, command: u8, values: &[u8]) -> io::Result<()> {
        let request = [&head(command)[..], &self.header(OMIT_REPLY), values].concat();
        self.netlink.exchange(self.family, NLM_F_ACK, &request, &mut |_, _| {})
    }

    fn header(&self, flags: u32) -> Vec<u8> {
        let name = attributed(HEADER_DEV_NAME, &[self.interface.as_bytes(), b"\0"].concat());
        attributed(HEADER | NESTED, &[name, attributed(HEADER_FLAGS, &flags.to_ne_bytes())].concat())
    }
}

fn head(command: u8) -> [u8; GENERIC_HEAD] {
    [command, 1, 0, 0]
}

/// Reads a reply about settings and about features; the command that was sent decides which it is.
#[cfg(feature = "bpf")]
pub(crate) fn reply(message: &[u8]) -> Option<(Answer, Vec<Feature>)> {
    body(message).map(|said| (Answer(said.to_vec()), features(said)))
}

/// Returns the attributes of a message.
fn body(message: &[u8]) -> Option<&[u8]> {
    message.get(HEAD + GENERIC_HEAD..)
}

/// Reads the features of a reply. The set of hardware features names every bit; the other sets name only bits that are
/// set.
fn features(said: &[u8]) -> Vec<Feature> {
    let set = |kind| bits(attribute(said, kind).unwrap_or_default());
    let has = |set: &[Bit], index| set.iter().any(|bit| bit.index == index);
    let (wanted, active, nochange) = (set(FEATURES_WANTED), set(FEATURES_ACTIVE), set(FEATURES_NOCHANGE));
    let feature = |bit: Bit| Feature {
        is_on: has(&active, bit.index),
        is_wanted: has(&wanted, bit.index),
        is_fixed: !bit.is_set || has(&nochange, bit.index),
        name: bit.name,
    };
    set(FEATURES_HW).into_iter().filter(|bit| !bit.name.is_empty()).map(feature).collect()
}

/// A bit of a set; `is_set` matters only in sets that also name bits that are not set.
struct Bit {
    index: u32,
    name: String,
    is_set: bool,
}

fn bits(set: &[u8]) -> Vec<Bit> {
    let bit = |(kind, value): (u16, &[u8])| {
        let index = word(attribute(value, BIT_INDEX).filter(|_| kind == BITS_BIT)?, 0)?;
        let name = attribute(value, BIT_NAME).map(text).unwrap_or_default();
        Some(Bit { index, name, is_set: attribute(value, BIT_VALUE).is_some() })
    };
    attributes(attribute(set, BITSET_BITS).unwrap_or_default()).filter_map(bit).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(kind: u16, bits: &[(u32, &str, bool)]) -> Vec<u8> {
        let bits = bits.iter().flat_map(|(index, name, is_set)| {
            let value = if *is_set { attributed(BIT_VALUE, &[]) } else { Vec::new() };
            let index = attributed(BIT_INDEX, &index.to_ne_bytes());
            attributed(
                BITS_BIT | NESTED,
                &[index, attributed(BIT_NAME, format!("{name}\0").as_bytes()), value].concat(),
            )
        });
        let bits = attributed(BITSET_BITS | NESTED, &bits.collect::<Vec<_>>());
        attributed(kind | NESTED, &bits)
    }

    #[test]
    fn features_are_combined_from_the_four_bit_sets_of_the_kernel() {
        let all = [(0, "tx-gso", true), (1, "rx-fixed", false), (2, "", true), (5, "rx-never", true)];
        let said = [
            set(FEATURES_HW, &all),
            set(FEATURES_WANTED, &[(0, "tx-gso", false)]),
            set(FEATURES_ACTIVE, &[(1, "rx-fixed", false)]),
            set(FEATURES_NOCHANGE, &[(5, "rx-never", false)]),
        ];
        let feature =
            |name: &str, is_on, is_wanted, is_fixed| Feature { name: name.into(), is_on, is_wanted, is_fixed };
        let expected = [
            feature("tx-gso", false, true, false),
            feature("rx-fixed", true, false, true),
            feature("rx-never", false, false, true),
        ];
        assert_eq!(features(&said.concat()), expected);
    }

    #[test]
    fn numbers_of_one_or_four_bytes_are_parsed() {
        let said =
            Answer([attributed(2, &[7]), attributed(3, &70_000_u32.to_ne_bytes()), attributed(4, &[1, 2])].concat());
        assert_eq!([2, 3, 4, 5].map(|kind| said.number(kind)), [Some(7), Some(70_000), None, None]);
    }

    #[test]
    fn query_reaches_the_kernel_and_its_error_message_is_returned() {
        let mut lo = Ethtool::of("lo").expect("a kernel with the family ethtool");
        let gso = "tx-generic-segmentation";
        assert!(lo.features().expect("answers").iter().any(|feature| feature.name == gso && !feature.is_fixed));
        let refused = lo.want(&[("no-such-feature", true)]).expect_err("refuses").to_string();
        assert!(refused.contains("bit name not found") || refused.contains("not permitted"), "{refused}");
        let gone = Ethtool::of("no-such-device").expect("opens").features().expect_err("there is none");
        assert!(gone.to_string().contains("no device matches name"), "{gone}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            features(&bytes);
            bits(&bytes);
            Answer(bytes).number(1);
        }
    }
}
