//! What a rule looks at, as people write it: prefixes, ports, flags.

use std::net::{IpAddr, Ipv4Addr};

use super::{Match, Prefix, units};

/// TCP flags by name, as ipfw and RFC 9293 have them.
const FLAGS: [(&str, u8); 9] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("push", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

/// Protocols by name.
const PROTOCOLS: [(&str, u8); 9] = [
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("igmp", 2),
    ("sctp", 132),
    ("dccp", 33),
    ("gre", 47),
];

/// EtherTypes by name.
const ETHERTYPES: [(&str, u16); 7] = [
    ("ipv4", 0x0800),
    ("ip4", 0x0800),
    ("ip", 0x0800),
    ("ipv6", 0x86dd),
    ("ip6", 0x86dd),
    ("arp", 0x0806),
    ("lldp", 0x88cc),
];

/// Code points by name (RFC 2474, 2597, 3246, 5865, 8622).
const CODE_POINTS: [(&str, u8); 25] = [
    ("be", 0),
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
    ("voice-admit", 44),
];

/// Reads an address or a prefix: `10.0.0.0/8`, `10.0.0.1`, `10.0.0.0:255.0.0.0`, `fd00::/8`; `None`: any.
pub(super) fn prefix(text: &str) -> Result<Option<Prefix>, String> {
    if text == "any" {
        return Ok(None);
    }
    let refusal = || format!("{text:?} is not an address; write any, 10.0.0.1, 10.0.0.0/8 or fd00::/8");
    if let Some((address, mask)) = text.split_once(':').filter(|(address, _)| address.contains('.')) {
        let address: Ipv4Addr = address.parse().map_err(|_| refusal())?;
        let mask: Ipv4Addr = mask.parse().map_err(|_| refusal())?;
        let bits = mask.to_bits().leading_ones();
        let bits = u8::try_from(bits).ok().filter(|_| bits == mask.to_bits().count_ones()).ok_or_else(refusal)?;
        return Ok(Some(Prefix { address: address.into(), bits }));
    }
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| refusal())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| refusal()))?;
    if bits > most { Err(refusal()) } else { Ok(Some(Prefix { address, bits })) }
}

/// Reads ports: `80`, `80-90`, `80,443,1000-2000`.
pub(super) fn ports(text: &str) -> Result<Vec<(u16, u16)>, String> {
    let refusal = || format!("{text:?} are not ports; write numbers such as 80, 80-90 or 80,443");
    text.split(',')
        .map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Ok((from.trim().parse().map_err(|_| refusal())?, to.trim().parse().map_err(|_| refusal())?))
        })
        .collect()
}

/// Puts a protocol into a selection: `tcp`, `udp`, a number, `ip4`, `ip6`; `ip` and `all` are every packet.
pub(super) fn protocol(text: &str, on: &mut Match) -> Result<(), String> {
    match text.to_ascii_lowercase().as_str() {
        "ip" | "all" => {}
        "ip4" | "ipv4" => on.ethertype = Some(0x0800),
        "ip6" | "ipv6" => on.ethertype = Some(0x86dd),
        name => {
            on.protocol = Some(
                named(name, &PROTOCOLS)
                    .ok_or_else(|| format!("{text:?} is not a protocol; write tcp, udp, icmp or its number"))?,
            )
        }
    }
    Ok(())
}

/// Reads an EtherType: a name or a number.
pub(super) fn ethertype(text: &str) -> Result<u16, String> {
    let hexadecimal = text.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    hexadecimal
        .or_else(|| named(&text.to_ascii_lowercase(), &ETHERTYPES))
        .ok_or_else(|| format!("{text:?} is not an EtherType; write ipv4, ipv6, arp or a number such as 0x88f7"))
}

/// Reads a code point: a name or a number.
pub(super) fn dscp(text: &str) -> Result<u8, String> {
    named(&text.to_ascii_lowercase(), &CODE_POINTS)
        .ok_or_else(|| format!("{text:?} is not a DSCP; write ef, af41, cs1 or a number from 0 to 63"))
}

/// Reads TCP flags, set and clear: `syn,!ack`.
pub(super) fn tcp_flags(text: &str) -> Result<(u8, u8), String> {
    let (mut set, mut clear) = (0, 0);
    for part in text.split(',').map(str::trim) {
        let (name, place) = part.strip_prefix('!').map_or((part, &mut set), |name| (name, &mut clear));
        let found = FLAGS.iter().find(|(flag, _)| flag.eq_ignore_ascii_case(name));
        let (_, bit) = found.ok_or_else(|| {
            format!("{name:?} is not a TCP flag; write fin, syn, rst, psh, ack, urg, ece or cwr, with ! for clear")
        })?;
        *place |= bit;
    }
    Ok((set, clear))
}

/// Reads a range of lengths of frames without FCS: `64-1514`, `60`.
pub(super) fn length(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| units::whole(part.trim()).map_err(|why| format!("length: {why}"));
    Ok((number(from)?, number(to)?))
}

/// Turns ipfw's IP lengths into lengths of untagged frames: 14 more, and never below 60. What padding makes one cannot be told apart.
pub(super) fn ip_length(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = length(text)?;
    let frame = |bytes: u32| bytes.saturating_add(14).max(60);
    if (from <= 20 || from > 46) && to >= 46 {
        let from = if from <= 20 { 0 } else { frame(from) };
        return Ok((from, frame(to)));
    }
    Err(format!(
        "iplen {text}: frames below 60 bytes are padded to 60, so IP lengths up to 46 look the same; write 0-46 or more"
    ))
}

/// Reads a VLAN: a number, or `none`.
pub(super) fn vlan(text: &str) -> Result<u16, String> {
    if text == "none" {
        Ok(0)
    } else {
        text.parse().map_err(|_| format!("{text:?} is not a VLAN; write 1 to 4094, or none"))
    }
}

fn named<N: Copy + std::str::FromStr>(text: &str, names: &[(&str, N)]) -> Option<N> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read() {
        let of = |text: &str| prefix(text).unwrap().map(|it| (it.address.to_string(), it.bits));
        assert_eq!(of("any"), None);
        assert_eq!(of("10.0.0.0/8"), Some(("10.0.0.0".to_owned(), 8)));
        assert_eq!(of("10.0.0.1"), Some(("10.0.0.1".to_owned(), 32)));
        assert_eq!(of("10.0.0.0:255.255.0.0"), Some(("10.0.0.0".to_owned(), 16)));
        assert_eq!(of("fd00::/8"), Some(("fd00::".to_owned(), 8)));
        for wrong in ["10.0.0.0/33", "me", "10.0.0.0:255.0.255.0", "fd00::/129", ""] {
            assert!(prefix(wrong).unwrap_err().contains("is not an address"), "{wrong}");
        }
    }

    #[test]
    fn ports_flags_and_names_are_read() {
        assert_eq!(ports("80,443,1000-2000").unwrap(), [(80, 80), (443, 443), (1000, 2000)]);
        assert!(ports("http").is_err());
        assert_eq!(tcp_flags("syn,!ack").unwrap(), (0x02, 0x10));
        assert!(tcp_flags("sin").unwrap_err().contains("is not a TCP flag"));
        assert_eq!((dscp("ef").unwrap(), dscp("12").unwrap()), (46, 12));
        assert_eq!((ethertype("arp").unwrap(), ethertype("0x88f7").unwrap()), (0x0806, 0x88f7));
        assert_eq!((vlan("none").unwrap(), vlan("7").unwrap()), (0, 7));
        assert_eq!(length("64-1514").unwrap(), (64, 1514));
        assert_eq!(ip_length("0-100").unwrap(), (0, 114));
        assert_eq!(ip_length("1000-1500").unwrap(), (1014, 1514));
        assert!(ip_length("40").unwrap_err().contains("padded"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,40}", near in "[0-9a-f.:/,!-]{0,30}") {
            for text in [text, near] {
                let _ = (prefix(&text), ports(&text), tcp_flags(&text), dscp(&text), ethertype(&text), length(&text), ip_length(&text), vlan(&text));
                let _ = protocol(&text, &mut Match::default());
            }
        }
    }
}
