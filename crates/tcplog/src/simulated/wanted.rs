//! Create the flows of the simulation, and apply the filters to them.

use std::net::IpAddr;

use super::programs::nothing;
use crate::decide;
use crate::layout::{Flow, Options};
use crate::source::Prefix;

/// Return whether a flow passes all filters.
pub fn is_wanted(options: &Options, prefixes: &[Prefix], flow: &Flow) -> bool {
    let ports = &options.port[..(options.ports as usize).min(options.port.len())];
    let is_in =
        |prefix: &Prefix| [flow.local, flow.remote].iter().any(|address| is_in_prefix(prefix, flow.family, address));
    decide::ports_match(ports, flow.local_port, flow.remote_port)
        && decide::flow_is_chosen(flow.cookie, options.one_in_flows)
        && [0, flow.netns].contains(&options.netns)
        && [0, flow.cgroup].contains(&options.cgroup)
        && [0, flow.process].contains(&options.process)
        && (prefixes.is_empty() || prefixes.iter().any(is_in))
        && (options.algorithm[0] == 0 || options.algorithm == flow.algorithm)
}

fn is_in_prefix(prefix: &Prefix, family: u16, address: &[u8; 16]) -> bool {
    let length = u32::from(prefix.length);
    let (wanted, bits, width) = match prefix.address {
        IpAddr::V4(wanted) if family == IPV4 => (u128::from(wanted.to_bits()), u128::from_be_bytes(*address) >> 96, 32),
        IpAddr::V6(wanted) if family != IPV4 => (wanted.to_bits(), u128::from_be_bytes(*address), 128),
        _ => return false,
    };
    length == 0 || (wanted ^ bits) >> (width - length.min(width)) == 0
}

const IPV4: u16 = 2;
const IPV6: u16 = 10;

/// Create a flow whose identity follows from its cookie: 192.0.2.1 or 2001:db8::1 to 198.51.100.1 or 2001:db8:1::1,
/// port 5201 or 443.
pub fn new_flow(cookie: u64) -> Flow {
    let is_ipv4 = !cookie.is_multiple_of(3);
    let mut flow = Flow {
        cookie,
        netns: 1 + cookie % 2,
        cgroup: 10 + cookie % 4,
        process: 100 + u32::try_from(cookie % 4).unwrap_or(0),
        family: if is_ipv4 { IPV4 } else { IPV6 },
        local_port: 32_768 + u16::try_from(cookie % 28_000).unwrap_or(0),
        remote_port: if cookie.is_multiple_of(2) { 5201 } else { 443 },
        ..nothing()
    };
    let (local, remote): (&[u8], &[u8]) = if is_ipv4 {
        (&[192, 0, 2, 1], &[198, 51, 100, 1])
    } else {
        (
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        )
    };
    flow.local[..local.len()].copy_from_slice(local);
    flow.remote[..remote.len()].copy_from_slice(remote);
    flow.algorithm[..4].copy_from_slice(b"reno");
    flow.command[..4].copy_from_slice(b"twin");
    flow
}
