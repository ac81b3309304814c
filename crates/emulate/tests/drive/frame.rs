//! Frames for tests of rules, masks and ECN marks.

/// Returns an Ethernet frame with an IPv4 UDP datagram of a flow; it is ECN-capable.
pub fn udp(bytes: usize, flow: u16) -> Vec<u8> {
    let mut frame = vec![0xA5; bytes.max(60)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let length = (frame.len() - 14) as u16;
    frame[14..34].copy_from_slice(&[0x45, 2, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    let checksum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&(1_024 + flow).to_be_bytes());
    frame[36..38].copy_from_slice(&9_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
    frame
}

/// Returns the checksum of an IPv4 header; 0 for a header with a valid one.
pub fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !(((folded & 0xFFFF) + (folded >> 16)) as u16)
}
