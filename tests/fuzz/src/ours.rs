//! Payloads of this tool's own formats, whose checksums are corrected first.

use sojourn_time::Time;
use sojourn_wire::stamp::{self, ErrorEstimate, Reflected, Scale};
use sojourn_wire::stream::{
    GREETING_BYTES, GreetingTail, Kind, Link, SYNC_BYTES, SessionKey, SyncTail, end_text, is_intact, parity,
};
use sojourn_wire::{Key, ProbeHeader, StreamHeader, answer};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "probe-header", read: probe, seeds: probes },
    Target { name: "stamp", read: test_packet, seeds: test_packets },
    Target { name: "stream-header", read: stream, seeds: streams },
];

/// A header, and the reply of a simulated line. What a host answers is the target `responder`.
fn probe(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some((checked, rest)) = bytes.split_at_mut_checked(32)
        && let Some(place) = rest.first_chunk_mut::<4>()
    {
        *place = crc32fast::hash(checked).to_be_bytes();
    }
    let mut reply = vec![0xFF; bytes.len()];
    if let Some(length) = answer(&bytes, Time(5), Time(7), &mut reply) {
        assert!(length <= reply.len());
        let asked = ProbeHeader::read(&bytes).map(|header| (header.session, header.seq));
        assert_eq!(ProbeHeader::read(&reply).map(|header| (header.session, header.seq)), asked);
    }
}

/// A plain and an authenticated packet of STAMP, whose HMAC is corrected.
fn test_packet(bytes: &[u8]) {
    let Ok(key) = Key::new(&[7; 32]) else { return };
    let mut bytes = bytes.to_vec();
    if let Some((covered, rest)) = bytes.split_at_mut_checked(96)
        && let Some(place) = rest.first_chunk_mut::<16>()
    {
        *place = key.tag(&[covered]);
    }
    for key in [None, Some(&key)] {
        if let Ok(reflected) = Reflected::read(&bytes, key) {
            reflect(&bytes, key, reflected);
        }
        let Ok(sender) = stamp::Sent::read(&bytes, key) else { continue };
        let mut reply = bytes.clone();
        let reflected = Reflected { sender, ..REFLECTED };
        reflected.write(&mut reply, key);
        assert_eq!(reply.len(), bytes.len());
        assert_eq!(
            Reflected::read(&reply, key).map(|read| (read.seq, read.sender.seq)),
            Ok((reflected.seq, sender.seq))
        );
        let _ = (sender.error.error(), Scale::default().with(sender.error.format()).read(sender.timestamp, Time(0)));
    }
}

/// A reflector's packet: written again, it reads the same, and its times are near the sender's clock.
fn reflect(bytes: &[u8], key: Option<&Key>, reflected: Reflected) {
    let mut again = bytes.to_vec();
    reflected.write(&mut again, key);
    assert_eq!(Reflected::read(&again, key), Ok(reflected));
    let _ = stamp::is_reflected(bytes, key);
    let scale = Scale { tai_offset_s: 37, ..Scale::default() }.with(reflected.error.format());
    for stamp in [reflected.receive, reflected.timestamp] {
        for near in [Time(0), Time(i64::MAX), Time(i64::MIN)] {
            let _ = scale.read(stamp, near);
        }
    }
    let _ = (reflected.error.error(), reflected.error.is_synchronised());
}

const REFLECTED: Reflected = Reflected {
    seq: 9,
    timestamp: 10,
    error: ErrorEstimate::from_bits(0x8A07),
    ssid: 11,
    receive: 12,
    sender: stamp::Sent { seq: 0, timestamp: 0, error: ErrorEstimate::from_bits(1), ssid: 11 },
    ttl: 255,
};

fn stream(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some((checked, rest)) = bytes.split_at_mut_checked(38)
        && let Some(place) = rest.first_chunk_mut::<4>()
    {
        *place = crc32fast::hash(checked).to_be_bytes();
        if checked[4] == Kind::Live as u8 {
            checked[4] = Kind::Data as u8;
            *place = crc32fast::hash(checked).to_be_bytes();
            let header = StreamHeader::read(&bytes).map(|header| StreamHeader { kind: Kind::Live, ..header });
            if let Ok(header) = header {
                let check = parity(&header);
                bytes[4] = Kind::Live as u8;
                bytes[38..42].copy_from_slice(&check.to_be_bytes());
            }
        }
    }
    if let Ok(header) = StreamHeader::read(&bytes) {
        assert_eq!(&header.to_bytes()[..], &bytes[..header.to_bytes().len()]);
    }
    let _ = (SyncTail::read(&bytes), GreetingTail::read(&bytes), end_text(&bytes), is_intact(&bytes));
    if let Some((link, rest)) = Link::split(&bytes) {
        assert_eq!(link.header_bytes() + rest.len(), bytes.len());
    }
}

fn probes() -> Vec<Vec<u8>> {
    let request = ProbeHeader::request(0x0123_4567_89AB_CDEF, 7, 64);
    let reply = request.reply(Time(1_000), Time(2_000)).map(ProbeHeader::to_bytes);
    [Some(request.to_bytes()), reply].into_iter().flatten().map(|header| [&header[..], &[0; 40]].concat()).collect()
}

fn test_packets() -> Vec<Vec<u8>> {
    let sent = stamp::Sent { seq: 1, timestamp: 2, error: ErrorEstimate::from_bits(0xC105), ssid: 3 };
    let packet = |bytes| {
        let mut packet = vec![0; bytes];
        sent.write(&mut packet, None);
        packet
    };
    [44, 60, 112, 200].map(packet).to_vec()
}

fn streams() -> Vec<Vec<u8>> {
    let of = |kind| {
        let key = SessionKey(0x0123_4567_89AB_CDEF);
        let header = StreamHeader { kind, node: 1, flow: 2, key, seq: 3, intended: Time(4), sent: Time(5) };
        [&header.to_bytes()[..], &[0; SYNC_BYTES + GREETING_BYTES]].concat()
    };
    Kind::ALL.map(of).to_vec()
}
