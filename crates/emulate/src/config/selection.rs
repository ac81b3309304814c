//! Parses the conditions of a rule: prefixes, ports, flags.

use std::net::{IpAddr, Ipv4Addr};

use sojourn_wire::MacAddress;

use super::{Direction, Match, Prefix, units};

/// A condition of a rule.
pub(super) struct Field {
    /// Its key in TOML.
    pub key: &'static str,
    /// ipfw's words with the same meaning.
    pub ipfw: &'static [&'static str],
    /// Parses its value.
    pub read: fn(&str, &mut Match) -> Result<(), String>,
}

/// All conditions. ipfw's words with another meaning than a key are in [`dummynet`](super::dummynet).
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field("direction", &[], |text, on| direction(text).map(|it| on.direction = it)),
    field("ethertype", &["mac-type"], |text, on| ethertype(text).map(|it| on.ethertype = Some(it))),
    field("source-mac", &["src-mac"], |text, on| mac(text).map(|it| on.source_mac = it)),
    field("destination-mac", &["dst-mac"], |text, on| mac(text).map(|it| on.destination_mac = it)),
    field("vlan", &["vlan"], |text, on| vlan(text).map(|it| on.vlan = Some(it))),
    field("source", &["src-ip", "src-ip6", "src-ipv6"], |text, on| prefix(text).map(|it| on.source = it)),
    field("destination", &["dst-ip", "dst-ip6", "dst-ipv6"], |text, on| prefix(text).map(|it| on.destination = it)),
    field("protocol", &["proto"], protocol),
    field("source-port", &["src-port"], |text, on| ports(text).map(|it| on.source_ports = it)),
    field("destination-port", &["dst-port"], |text, on| ports(text).map(|it| on.destination_ports = it)),
    field("dscp", &["dscp"], |text, on| dscp(text).map(|it| on.dscp = Some(it))),
    field("tcp", &[], |text, on| {
        on.protocol = on.protocol.or(Some(6));
        tcp_flags(text).map(|it| (on.tcp_set, on.tcp_clear) = it)
    }),
    field("length", &["length"], |text, on| length(text).map(|it| on.length = Some(it))),
    field("probability", &[], |text, on| units::fraction(text).map(|it| on.probability = Some(it))),
];

const fn field(
    key: &'static str,
    ipfw: &'static [&'static str],
    read: fn(&str, &mut Match) -> Result<(), String>,
) -> Field {
    Field { key, ipfw, read }
}

/// TCP flags as named by ipfw and RFC 9293, from the lowest bit.
pub(super) const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

fn direction(text: &str) -> Result<Option<Direction>, String> {
    match text {
        "forward" => Ok(Some(Direction::Forward)),
        "backward" => Ok(Some(Direction::Backward)),
        "both" => Ok(None),
        other => Err(format!("{other:?} is none of forward, backward and both")),
    }
}

/// Parses a MAC address; `None`: any.
pub(super) fn mac(text: &str) -> Result<Option<MacAddress>, String> {
    if text == "any" { Ok(None) } else { text.parse::<MacAddress>().map(Some).map_err(|why| why.to_string()) }
}

/// Parses an address or a prefix: `10.0.0.0/8`, `10.0.0.1`, `10.0.0.0:255.0.0.0`, `fd00::/8`; `None`: any.
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

/// Parses ports: `80`, `80-90`, `80,443,1000-2000`.
pub(super) fn ports(text: &str) -> Result<Vec<(u16, u16)>, String> {
    let refusal = || format!("{text:?} are not ports; write numbers such as 80, 80-90 or 80,443");
    text.split(',')
        .map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Ok((from.trim().parse().map_err(|_| refusal())?, to.trim().parse().map_err(|_| refusal())?))
        })
        .collect()
}

/// Parses a protocol into a match: `tcp`, `udp`, a number, `ip4`, `ip6`; `ip` and `all` match every packet.
pub(super) fn protocol(text: &str, on: &mut Match) -> Result<(), String> {
    match text.to_ascii_lowercase().as_str() {
        "ip" | "all" => {}
        "ip4" | "ipv4" => on.ethertype = Some(0x0800),
        "ip6" | "ipv6" => on.ethertype = Some(0x86dd),
        name => {
            on.protocol = Some(
                numbered(name, protocol_number)
                    .ok_or_else(|| format!("{text:?} is not a protocol; write tcp, udp, icmp or its number"))?,
            )
        }
    }
    Ok(())
}

/// Parses an EtherType: a name or a number.
fn ethertype(text: &str) -> Result<u16, String> {
    let hexadecimal = text.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    hexadecimal
        .or_else(|| numbered(&text.to_ascii_lowercase(), ethertype_number))
        .ok_or_else(|| format!("{text:?} is not an EtherType; write ipv4, ipv6, arp or a number such as 0x88f7"))
}

/// Parses a DSCP: a name or a number.
pub(super) fn dscp(text: &str) -> Result<u8, String> {
    numbered(&text.to_ascii_lowercase(), code_point)
        .ok_or_else(|| format!("{text:?} is not a DSCP; write ef, af41, cs1 or a number from 0 to 63"))
}

/// Parses TCP flags, set and clear: `syn,!ack`.
pub(super) fn tcp_flags(text: &str) -> Result<(u8, u8), String> {
    let (mut set, mut clear) = (0, 0);
    for part in text.split(',').map(str::trim) {
        let (name, place) = part.strip_prefix('!').map_or((part, &mut set), |name| (name, &mut clear));
        let lower = if name.eq_ignore_ascii_case("push") { "psh".to_owned() } else { name.to_ascii_lowercase() };
        let bit = TCP_FLAGS.iter().position(|flag| *flag == lower).ok_or_else(|| {
            format!("{name:?} is not a TCP flag; write fin, syn, rst, psh, ack, urg, ece or cwr, with ! for clear")
        })?;
        *place |= 1 << bit;
    }
    Ok((set, clear))
}

/// Parses a range of frame lengths without FCS: `64-1514`, `60`.
pub(super) fn length(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| units::whole(part.trim()).map_err(|why| format!("length: {why}"));
    Ok((number(from)?, number(to)?))
}

/// Converts ipfw's IP lengths to lengths of untagged frames: 14 more, and at least 60. Refuses lengths that padding makes indistinguishable.
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

/// Parses a VLAN ID: a number, or `none`.
fn vlan(text: &str) -> Result<u16, String> {
    if text == "none" {
        Ok(0)
    } else {
        text.parse().map_err(|_| format!("{text:?} is not a VLAN; write 1 to 4094, or none"))
    }
}

/// Parses a name or a number.
fn numbered<N: std::str::FromStr>(text: &str, named: fn(&str) -> Option<N>) -> Option<N> {
    named(text).or_else(|| text.parse().ok())
}

fn protocol_number(name: &str) -> Option<u8> {
    Some(match name {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "dccp" => 33,
        "gre" => 47,
        "ipv6-icmp" | "icmp6" => 58,
        "sctp" => 132,
        _ => return None,
    })
}

fn ethertype_number(name: &str) -> Option<u16> {
    Some(match name {
        "ip" | "ip4" | "ipv4" => 0x0800,
        "ip6" | "ipv6" => 0x86dd,
        "arp" => 0x0806,
        "lldp" => 0x88cc,
        _ => return None,
    })
}

/// Returns a DSCP by its name (RFC 2474, 2597, 3246, 5865, 8622).
fn code_point(name: &str) -> Option<u8> {
    Some(match name.as_bytes() {
        b"be" => 0,
        b"le" => 1,
        b"ef" => 46,
        b"va" | b"voice-admit" => 44,
        [b'c', b's', class @ b'0'..=b'7'] => 8 * (class - b'0'),
        [b'a', b'f', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => 8 * (class - b'0') + 2 * (drop - b'0'),
        _ => return None,
    })
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
        assert_eq!(tcp_flags("PUSH,ece,!CWR").unwrap(), (0x48, 0x80));
        assert_eq!(
            ["be", "le", "cs0", "cs5", "cs7", "af11", "AF23", "af41", "af43", "ef", "va", "voice-admit", "12"]
                .map(|name| dscp(name).unwrap()),
            [0, 1, 0, 40, 56, 10, 22, 34, 38, 46, 44, 44, 12]
        );
        for wrong in ["cs8", "af01", "af14", "af51", "cs", "ef1"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
        assert_eq!((ethertype("arp").unwrap(), ethertype("0x88f7").unwrap()), (0x0806, 0x88f7));
        assert_eq!((vlan("none").unwrap(), vlan("7").unwrap()), (0, 7));
        assert_eq!(length("64-1514").unwrap(), (64, 1514));
        assert_eq!(ip_length("0-100").unwrap(), (0, 114));
        assert_eq!(ip_length("1000-1500").unwrap(), (1014, 1514));
        assert!(ip_length("40").unwrap_err().contains("padded"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}", near in "[0-9a-f.:/,!-]{0,30}") {
            for text in [text, near] {
                let _ = (prefix(&text), ports(&text), tcp_flags(&text), dscp(&text), ethertype(&text), length(&text), ip_length(&text), vlan(&text));
                let _ = protocol(&text, &mut Match::default());
            }
        }
    }
}
