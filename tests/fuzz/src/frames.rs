//! Frames: arbitrary headers, super-frames, incomplete checksums, this tool's payloads.

use sojourn_wire::digest::{Key, digest_within, endpoints};
use sojourn_wire::ethernet::Header;
use sojourn_wire::icmp::{Echo, Version};
use sojourn_wire::{Layers, offload, segment};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "frame", read: frame, seeds: all_frames },
    Target { name: "digest", read: digests, seeds: tunnels },
    Target { name: "icmp", read: icmp, seeds: frames },
];

/// The first two bytes give the most user data of a frame, the next four the start and offset of its checksum, as the
/// kernel reports them. The rest is a frame: its layers are found, it is split, and its checksum is completed. The
/// latter two begin with the layers, so one search covers all three.
fn frame(bytes: &[u8]) {
    let Some(([m0, m1, s0, s1, o0, o1], frame)) = bytes.split_first_chunk::<6>() else { return };
    let word = |high: &u8, low: &u8| usize::from(u16::from_be_bytes([*high, *low]));
    layers(frame);
    super_frame(frame, word(m0, m1));
    offload::complete(&mut frame.to_vec());
    offload::finish(&mut frame.to_vec(), word(s0, s1), word(o0, o1));
}

fn layers(bytes: &[u8]) {
    let layers = Layers::of(bytes);
    assert!(layers.network <= bytes.len() && layers.end <= bytes.len());
    assert!(layers.transport.is_none_or(|at| at <= layers.end));
    if let Some((header, rest)) = Header::split(bytes) {
        assert_eq!(&header.to_bytes()[..], &bytes[..bytes.len() - rest.len()]);
    }
}

/// The first two bytes give the most octets to digest, the next two how much longer the frame was on the wire.
fn digests(bytes: &[u8]) {
    let Some(([m0, m1, l0, l1], frame)) = bytes.split_first_chunk::<4>() else { return };
    let most = usize::from(u16::from_be_bytes([*m0, *m1]));
    let length = frame.len() + usize::from(u16::from_be_bytes([*l0, *l1]));
    for key in Key::ALL {
        let within = |most| digest_within(key, frame, length, most);
        let (whole, short) = (within(None), within(Some(most)));
        // If fewer octets have a digest, all that were kept have one too; except that octets after them may be
        // impossible to mask.
        assert!(short.is_none() || whole.is_some() || key == Key::Nat);
        if let (Some(whole), Some(short)) = (whole, short) {
            assert!(short.is_truncated || short == whole);
        }
        let _ = endpoints(key, frame);
    }
}

fn super_frame(frame: &[u8], most: usize) {
    let mut pieces = 0;
    let said = segment::split(frame, most, &mut Vec::new(), &mut |piece| {
        assert!(piece.len() <= frame.len());
        pieces += 1;
    });
    assert_eq!(said.unwrap_or(0), pieces);
}

/// Unchanged, and with a corrected checksum.
fn icmp(bytes: &[u8]) {
    for version in [Version::V4, Version::V6] {
        let mut message = bytes.to_vec();
        let _ = Echo::split(version, &message);
        Echo { is_reply: false, identifier: 1, sequence: 2 }.write(version, &mut message);
        if bytes.len() >= sojourn_wire::icmp::HEADER_BYTES {
            assert!(Echo::split(version, &message).is_some());
        }
    }
}

/// The other frames preceded by the parameters of their segments and of their checksum.
fn all_frames() -> Vec<Vec<u8>> {
    frames().into_iter().map(|frame| [&[5, 220, 0, 34, 0, 16][..], &frame].concat()).collect()
}

/// The other frames preceded by the parameters of their digest, and each of them in VXLAN and in GRE.
fn tunnels() -> Vec<Vec<u8>> {
    let carried = |protocol: u8, payload: &[u8]| {
        let mut header = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        [&[2; 12][..], &[8, 0], &header, payload].concat()
    };
    let vxlan = |frame: &[u8]| {
        let length = (16 + frame.len() as u16).to_be_bytes();
        carried(17, &[&[9, 9, 0x12, 0xB5, length[0], length[1], 0, 0, 8, 0, 0, 0, 0, 0, 5, 0][..], frame].concat())
    };
    let gre = |frame: &[u8]| carried(47, &[&[0, 0, 0x65, 0x58][..], frame].concat());
    let all = frames().into_iter().flat_map(|frame| [vxlan(&frame), gre(&frame), frame]);
    all.map(|frame| [&[0, 100, 0, 0][..], &frame].concat()).collect()
}

/// UDP and TCP over IPv4 and IPv6, one with a VLAN tag.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let ethernet = |kind: u16| [&[2; 6][..], &[4; 6], &kind.to_be_bytes()].concat();
    let v4 = |protocol: u8, payload: &[u8]| {
        let mut header = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        [ethernet(0x0800), header, payload.to_vec()].concat()
    };
    let mut v6 = vec![0x60, 0, 0, 0, 0, 28, 17, 64];
    v6.extend([1; 32]);
    let udp = [&[0, 7, 0, 9, 0, 28, 0, 0][..], &[5; 20]].concat();
    let mut tcp = vec![0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    tcp.extend([6; 3000]);
    let echo = [&[8, 0, 0, 0, 0, 1, 0, 2][..], &[7; 56]].concat();
    let tagged = [&[2; 12][..], &[0x81, 0, 0, 7], &v4(17, &udp)[12..]].concat();
    vec![v4(17, &udp), v4(6, &tcp), v4(1, &echo), [ethernet(0x86DD), v6, udp].concat(), tagged]
}
