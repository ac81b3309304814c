//! Finds the payload of a tunnel: the innermost IP packet of a frame.

use crate::layers::{IPV4, IPV6, Layers, protocol};

const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// EtherType of Ethernet frames in a tunnel: Transparent Ethernet Bridging.
const ETHERNET: u16 = 0x6558;
const UDP_BYTES: usize = 8;
/// UDP ports: VXLAN as in RFC 7348, and Linux's older default; Geneve as in RFC 8926.
const VXLAN: [u16; 2] = [4789, 8472];
const VXLAN_BYTES: usize = 8;
const GENEVE: u16 = 6081;
const GENEVE_BYTES: usize = 8;
/// The deepest nesting that is unwrapped.
const DEEPEST: usize = 8;

/// Returns the innermost frame or packet with an IP header, and its layers; the frame itself where it carries no
/// tunnel.
pub(super) fn innermost(frame: &[u8], layers: Layers) -> (&[u8], Layers) {
    let (mut bytes, mut layers) = (frame, layers);
    for _ in 0..DEEPEST {
        let Some((inner, below)) = carried(bytes, &layers) else { break };
        (bytes, layers) = (inner, below);
    }
    (bytes, layers)
}

/// Returns the payload of a packet, where it is another packet with an IP header.
fn carried<'a>(bytes: &'a [u8], layers: &Layers) -> Option<(&'a [u8], Layers)> {
    // A fragment holds only a part of the inner packet.
    let payload = bytes.get(layers.transport?..layers.end).filter(|_| !layers.is_fragment)?;
    let (inner, is_frame) = match layers.protocol {
        IPIP | IPV6_IN_IP => (payload, false),
        GRE => gre(payload)?,
        protocol::UDP => udp(payload)?,
        _ => return None,
    };
    let below = if is_frame { Layers::of(inner) } else { Layers::of_packet(inner) };
    (below.family != 0).then_some((inner, below))
}

/// RFC 2784 with the key and the sequence number of RFC 2890.
fn gre(payload: &[u8]) -> Option<(&[u8], bool)> {
    let flags = word(payload, 0)?;
    let optional = [0x8000, 0x2000, 0x1000].into_iter().filter(|flag| flags & flag != 0).count();
    let inner = payload.get(4 + 4 * optional..).filter(|_| flags & 7 == 0)?;
    is_frame(word(payload, 2)?).map(|is_frame| (inner, is_frame))
}

fn udp(payload: &[u8]) -> Option<(&[u8], bool)> {
    let (port, rest) = (word(payload, 2)?, payload.get(UDP_BYTES..)?);
    if VXLAN.contains(&port) {
        // The flag "valid VNI".
        return Some((rest.get(VXLAN_BYTES..).filter(|_| rest[0] & 0x08 != 0)?, true));
    }
    let options = usize::from(rest.first()? & 0x3F) * 4;
    let inner = rest.get(GENEVE_BYTES + options..).filter(|_| port == GENEVE && rest[0] >> 6 == 0)?;
    is_frame(word(rest, 2)?).map(|is_frame| (inner, is_frame))
}

/// Whether an EtherType denotes an Ethernet frame rather than an IP packet.
fn is_frame(ethertype: u16) -> Option<bool> {
    match ethertype {
        ETHERNET => Some(true),
        IPV4 | IPV6 => Some(false),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}
