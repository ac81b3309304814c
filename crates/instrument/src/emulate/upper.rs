//! What an interface belongs to: asked of the kernel over rtnetlink, which needs no program and answers for the own network
//! namespace, whichever one `/sys` shows.

use std::io;

use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// The two highest bits of an attribute's type are flags.
const TYPE: u16 = 0x3fff;
/// A message's head, and that with what is said of an interface before its attributes.
const HEAD: usize = 16;
const LINK: usize = HEAD + 16;
/// Longer than what is said of one interface.
const ROOM: usize = 1 << 16;

/// What an interface belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    pub name: String,
    /// Whether it forwards frames from one of its ports to another, as bridges do, and bonds and VRFs do not.
    pub is_switch: bool,
}

impl Upper {
    /// Returns what an interface belongs to.
    ///
    /// # Errors
    /// With `ENODEV` when there is no such interface, or when the kernel does not say.
    pub fn of(port: &str) -> io::Result<Option<Self>> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let index = name_to_index(&socket, port)?;
        send(&socket, &request(index), SendFlags::empty())?;
        let mut answer = vec![0; ROOM];
        let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let Some((master, kind)) = read(answer.get(..length).unwrap_or_default())? else { return Ok(None) };
        let is_switch = matches!(kind, b"bridge" | b"openvswitch");
        Ok(Some(Self { name: index_to_name(&socket, master)?, is_switch }))
    }
}

fn request(index: u32) -> [u8; LINK] {
    let mut message = [0; LINK];
    message[..4].copy_from_slice(&(LINK as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[HEAD + 4..HEAD + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Returns the index of what an interface belongs to, and the kind of its port: empty where that has none.
fn read(message: &[u8]) -> io::Result<Option<(u32, &[u8])>> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is none");
    match half(message, 4) {
        Some(RTM_NEWLINK) => {}
        Some(NLMSG_ERROR) => {
            return Err(word(message, HEAD)
                .map_or_else(odd, |code| Errno::from_raw_os_error(code.cast_signed().wrapping_neg()).into()));
        }
        _ => return Err(odd()),
    }
    let attributes = message.get(LINK..).ok_or_else(odd)?;
    let Some(master) = attribute(attributes, IFLA_MASTER).and_then(|value| word(value, 0)) else { return Ok(None) };
    let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_SLAVE_KIND));
    Ok(Some((master, kind.map_or(&[], |kind| kind.strip_suffix(&[0]).unwrap_or(kind)))))
}

/// Returns an attribute's value.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(half(attributes, 0)?), half(attributes, 2)? & TYPE);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributed(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn a_port_says_what_it_belongs_to_and_another_that_it_belongs_to_nothing() {
        let name = attributed(3, b"left\0");
        let master = attributed(IFLA_MASTER, &7_u32.to_ne_bytes());
        let info = [attributed(1, b"veth\0"), attributed(IFLA_INFO_SLAVE_KIND, b"bridge\0")].concat();
        let info = attributed(IFLA_LINKINFO | 0x8000, &info);
        let said = message(RTM_NEWLINK, &[vec![0; 16], name.clone(), master.clone(), info].concat());
        assert_eq!(read(&said).expect("reads"), Some((7, &b"bridge"[..])));
        let said = message(RTM_NEWLINK, &[vec![0; 16], name.clone(), master].concat());
        assert_eq!(read(&said).expect("reads"), Some((7, &b""[..])));
        let said = message(RTM_NEWLINK, &[vec![0; 16], name].concat());
        assert_eq!(read(&said).expect("reads"), None);
    }

    #[test]
    fn refusals_and_nonsense_are_errors() {
        let refused = message(NLMSG_ERROR, &(-19_i32).to_ne_bytes());
        assert_eq!(read(&refused).expect_err("refuses").raw_os_error(), Some(19));
        for nonsense in [&b""[..], &message(RTM_NEWLINK, b""), &message(NLMSG_ERROR, b"")] {
            assert!(read(nonsense).is_err());
        }
    }

    #[test]
    fn the_kernel_is_asked() {
        assert_eq!(Upper::of("lo").expect("answers"), None);
        let error = Upper::of("none-such-here").expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    }
}
