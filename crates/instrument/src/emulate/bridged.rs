//! What happens to the ports of `--backend kernel` while it runs: their netem, their bridge, MTU, carrier and addresses.
//!
//! Asks the kernel every [`LOOK_EVERY`] over rtnetlink, and compares the answer with the previous one; runs no `tc`. A
//! change after which packets are not emulated as requested is an error, the others are sentences. Does not notice what
//! happens to the bridge itself, nor to a qdisc at a port that has none of this program.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use anyhow::Context;
use rustix::io::Errno;
use sojourn_port::kernel::{Interface, LinkState, Netlink, Qdisc};
use sojourn_time::Nanos;

use crate::failure::NotTrusted;

/// The interval between looks: a change is reported within a second, even where the kernel takes its time to answer.
pub const LOOK_EVERY: Nanos = Nanos::millis(200);

/// The number of looks without an answer after which that is said: a second of them.
const BLIND_LOOKS: u32 = 5;

/// The ports, and the connection to the kernel.
pub struct Bridged {
    netlink: Netlink,
    ports: Vec<Port>,
}

/// A port as last seen.
#[derive(Clone, Debug, Default)]
struct Port {
    link: LinkState,
    addresses: BTreeSet<IpAddr>,
    /// Its netem; `None`: this program has put none there.
    netem: Option<Qdisc>,
    /// The number of looks since the kernel last answered.
    blind: u32,
}

impl Bridged {
    /// Begins to watch ports; each is given with the handle of its netem, if it has one.
    ///
    /// # Errors
    /// If the kernel does not answer; [`NotTrusted`] if a netem is not in place.
    pub fn begin(ports: &[(&str, Option<&str>)]) -> anyhow::Result<Self> {
        let mut netlink = Netlink::open(false).context("ask the kernel about the ports")?;
        let ports = ports.iter().map(|(name, handle)| Port::begin(&mut netlink, name, *handle));
        let ports = ports.collect::<anyhow::Result<_>>()?;
        Ok(Self { netlink, ports })
    }

    /// Looks at the ports; returns what has changed, in sentences.
    ///
    /// # Errors
    /// [`NotTrusted`] if packets are no longer emulated as requested: a netem is gone or has other options, or a port is
    /// gone, renamed or no longer in its bridge.
    pub fn look(&mut self) -> anyhow::Result<Vec<String>> {
        let mut said = Vec::new();
        for port in &mut self.ports {
            // What the kernel lists while other interfaces vanish may lack some: only what is so twice is so.
            let now = port.look(&mut self.netlink, &mut said).or_else(|_| port.look(&mut self.netlink, &mut said))?;
            *port = now;
        }
        Ok(said)
    }
}

impl Port {
    fn begin(netlink: &mut Netlink, name: &str, handle: Option<&str>) -> anyhow::Result<Self> {
        let index = Interface::named(name)?.index;
        let link = LinkState { index, ..LinkState::default() };
        let asked = Self { link, netem: handle.map(|_| Qdisc::default()), ..Self::default() };
        let port = asked.again(netlink).with_context(|| format!("ask what {name} is"))?;
        match (handle, &port.netem) {
            (Some(handle), Some(netem)) if shown(netem) != handle => Err(gone(name, &other_root(netem, handle))),
            _ => Ok(port),
        }
    }

    /// Reads its present state. A port without a root qdisc has the default one of that name, handle 0.
    fn again(&self, netlink: &mut Netlink) -> io::Result<Self> {
        let index = self.link.index;
        let netem = self.netem.as_ref().map(|_| netlink.root_qdisc(index)).transpose()?;
        Ok(Self {
            link: netlink.link(index)?,
            addresses: netlink.addresses(index)?.into_iter().filter(is_configured).collect(),
            netem: netem.map(Option::unwrap_or_default),
            blind: 0,
        })
    }

    /// Returns its present state, and says what has changed. Where the kernel gives no answer, it says so once a
    /// second, and the previous state stays.
    fn look(&self, netlink: &mut Netlink, said: &mut Vec<String>) -> anyhow::Result<Self> {
        let name = &self.link.name;
        match self.again(netlink) {
            Ok(now) => {
                said.extend(self.changes(&now)?);
                Ok(now)
            }
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                Err(gone(name, &error.to_string()))
            }
            Err(error) => {
                let blind = self.blind + 1;
                if blind.is_multiple_of(BLIND_LOOKS) {
                    said.push(format!("the kernel does not say whether the netem of {name} is there: {error}"));
                }
                Ok(Self { blind, ..self.clone() })
            }
        }
    }

    /// Compares it with its present state.
    fn changes(&self, now: &Self) -> anyhow::Result<Vec<String>> {
        let name = &self.link.name;
        if now.link.name != *name {
            let problem = format!("it is called {} now, so nobody can ask for its emulation by name", now.link.name);
            return Err(NotTrusted(format!("{name}: {problem}; start again with that name")).into());
        }
        if let (Some(was), Some(is)) = (&self.netem, &now.netem) {
            if was.handle != is.handle {
                return Err(gone(name, &other_root(is, &shown(was))));
            }
            if was != is {
                let problem = "somebody has changed the options of its netem, so packets are not emulated as requested";
                return Err(NotTrusted(format!("{name}: {problem}; `tc qdisc show dev {name}` tells them")).into());
            }
        }
        let bridge = |port: &Self| port.link.master.as_ref().map(|(index, _)| *index);
        if bridge(self) != bridge(now) {
            let problem = "it was taken out of its bridge, so the kernel forwards nothing between the ports";
            return Err(
                NotTrusted(format!("{name}: {problem}: `ip link set {name} master BRIDGE`, and start again")).into()
            );
        }
        Ok(self.said(now))
    }

    /// Describes changes that the emulation outlasts.
    fn said(&self, now: &Self) -> Vec<String> {
        let (was, is, name) = (&self.link, &now.link, &now.link.name);
        let carries = |link: &LinkState| link.is_up && link.is_running;
        let carrier = match (carries(was), carries(is)) {
            (true, false) => {
                Some(format!("{name} is down or has no carrier: packets that are to leave by it are lost"))
            }
            (false, true) => Some(format!("{name} is up again")),
            _ => None,
        };
        let mtu = (was.mtu != is.mtu).then(|| format!("the MTU of {name} is {} bytes now; it was {}", is.mtu, was.mtu));
        let addresses = now.addresses.difference(&self.addresses).map(|address| {
            format!("{name} has the address {address} now: what this host itself sends by it passes the same queue")
        });
        carrier.into_iter().chain(mtu).chain(addresses).collect()
    }
}

fn gone(port: &str, why: &str) -> anyhow::Error {
    NotTrusted(format!("{port}: its netem is not there any more, so packets pass as they are: {why}")).into()
}

fn other_root(there: &Qdisc, handle: &str) -> String {
    let there = if there.handle == 0 { "the kernel's default".to_owned() } else { shown(there) };
    format!("the root qdisc there is {there}, not {handle}")
}

/// Returns a handle in the notation of tc: "5abc:".
fn shown(qdisc: &Qdisc) -> String {
    format!("{:x}:", qdisc.handle >> 16)
}

/// Whether somebody has configured an address: IPv6 gives each interface a link-local one.
fn is_configured(address: &IpAddr) -> bool {
    !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{NOT_TRUSTED, status};

    fn port() -> Port {
        let link = LinkState {
            index: 9,
            name: "left".into(),
            is_up: true,
            is_running: true,
            mtu: 1500,
            master: Some((3, "bridge".into())),
            ..LinkState::default()
        };
        let netem = Some(Qdisc { kind: "netem".into(), handle: 0x5ABC_0000, options: vec![1; 8] });
        Port { link, netem, ..Port::default() }
    }

    fn changed(by: impl FnOnce(&mut Port)) -> Result<Vec<String>, String> {
        let mut now = port();
        by(&mut now);
        port().changes(&now).map_err(|error| {
            assert_eq!(status(&error), NOT_TRUSTED);
            error.to_string()
        })
    }

    #[test]
    fn a_change_is_looked_for_several_times_a_second() {
        assert!(Nanos(LOOK_EVERY.0 * 4) < Nanos::seconds(1));
    }

    #[test]
    fn change_that_ends_the_emulation_is_an_error() {
        let netem = |change: fn(&mut Qdisc)| changed(|port| port.netem.iter_mut().for_each(change));
        let sentence = "left: its netem is not there any more, so packets pass as they are: ";
        for (told, end) in [
            (netem(|netem| *netem = Qdisc::default()), "the root qdisc there is the kernel's default, not 5abc:"),
            (netem(|netem| netem.handle = 0x8_0000), "the root qdisc there is 8:, not 5abc:"),
        ] {
            assert_eq!(told, Err(format!("{sentence}{end}")));
        }
        let renamed = changed(|port| port.link.name = "other".into());
        assert!(renamed.is_err_and(|told| told.starts_with("left: it is called other now")));
        let options = netem(|netem| netem.options[3] = 0);
        assert!(options.is_err_and(|told| told.starts_with("left: somebody has changed the options of its netem")));
        for master in [None, Some((4, "bridge".to_owned()))] {
            let told = changed(|port| port.link.master = master);
            assert!(told.is_err_and(|told| told.starts_with("left: it was taken out of its bridge")));
        }
    }

    #[test]
    fn change_that_the_emulation_outlasts_is_said() {
        assert_eq!(changed(|_| {}), Ok(vec![]));
        let said = |sentence: &str| Ok(vec![sentence.to_owned()]);
        let down = "left is down or has no carrier: packets that are to leave by it are lost";
        assert_eq!(changed(|port| port.link.is_running = false), said(down));
        assert_eq!(changed(|port| port.link.mtu = 1400), said("the MTU of left is 1400 bytes now; it was 1500"));
        let address = changed(|port| port.addresses = [[10, 0, 0, 1].into()].into()).expect("goes on");
        assert!(
            matches!(&address[..], [told] if told.starts_with("left has the address 10.0.0.1 now: ")),
            "{address:?}"
        );
        let mut stopped = port();
        stopped.link.is_running = false;
        assert_eq!(stopped.said(&port()), ["left is up again"]);
    }
}
