//! Redirects frames from port to port in the kernel, and checks that they are sent.
//!
//! A driver without support for redirected frames loses them uncounted. So the number that the program redirected is
//! compared with the other interface's counter of sent frames; where that is less, all frames go by the socket again.

use sojourn_time::{Clock, Nanos, SteadyClock, Time};

use super::Wanted;
use crate::PortError;
use crate::bpf::Program;
use crate::kernel::Interface;

/// `MOST_WANTED` of `bpf/bridge.bpf.c`.
const MOST_WANTED: usize = 16;
const LOOK_EVERY: Nanos = Nanos::millis(10);

/// The state of a port's redirection.
#[derive(Debug)]
pub struct Redirect {
    other: Interface,
    clock: SteadyClock,
    is_on: bool,
    looked: Time,
    /// What the other interface had sent before redirection began.
    sent_before: u64,
    /// The number redirected at the last check: all of these must have been sent by now.
    redirected: u64,
    lost: u64,
    news: Option<String>,
}

/// Whether there may be frames that the bridge need not see.
pub fn may_go_on(wanted: &Wanted) -> bool {
    matches!(wanted, Wanted::Ethertypes(list) if list.len() <= MOST_WANTED)
}

/// Builds the program's constants: the number of wanted EtherTypes, their values, and zero padding.
pub fn constants(wanted: &Wanted) -> Vec<u8> {
    let list = match wanted {
        Wanted::Ethertypes(list) if may_go_on(wanted) => list.as_slice(),
        _ => &[],
    };
    let mut bytes = (list.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(list.iter().flat_map(|ethertype| ethertype.to_ne_bytes()));
    bytes.resize(size_of::<u32>() + MOST_WANTED * size_of::<u16>(), 0);
    bytes
}

impl Redirect {
    /// Enables redirection in the program.
    pub fn begin(program: &Program, other: &Interface, clock: SteadyClock) -> Result<Self, PortError> {
        let zero = 0_u32.to_ne_bytes();
        program.write("other", &zero, &other.index.to_ne_bytes())?;
        let sent_before = sent(other)?;
        program.write("redirects", &zero, &1_u64.to_ne_bytes())?;
        let (other, looked) = (other.clone(), clock.now());
        Ok(Self { other, clock, is_on: true, looked, sent_before, redirected: 0, lost: 0, news: None })
    }

    /// Checks at intervals that redirected frames were sent, and disables redirection where they were not.
    pub fn watch(&mut self, program: &Program) -> Result<(), PortError> {
        let now = self.clock.now();
        if !self.is_on || now - self.looked < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        let redirected = redirected(program)?;
        // The port's own watch handles an error of the interface.
        let Ok(sent) = sent(&self.other) else { return Ok(()) };
        let sent = sent.saturating_sub(self.sent_before);
        if sent >= self.redirected {
            self.redirected = redirected;
            return Ok(());
        }
        program.write("redirects", &0_u32.to_ne_bytes(), &0_u64.to_ne_bytes())?;
        self.is_on = false;
        self.lost = redirected.saturating_sub(sent);
        let name = &self.other.name;
        self.news = Some(format!(
            "frames that were redirected to {name} within the kernel did not leave it, so all go by this program now; \
             a veth takes them only where its other end has NAPI of its own (`ethtool -K PEER gro on` there)"
        ));
        Ok(())
    }

    /// Counts the frames that were redirected but not sent.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the next message.
    pub fn news(&mut self) -> Option<String> {
        self.news.take()
    }
}

fn redirected(program: &Program) -> Result<u64, PortError> {
    program.words("redirected").map(|[count]| count)
}

/// The frames that an interface has sent or dropped: a veth counts those that its peer has no room for as dropped.
fn sent(interface: &Interface) -> Result<u64, PortError> {
    interface.counters().map(|counters| counters.sent + counters.send_dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_layout_of_the_bpf_program() {
        assert_eq!(constants(&Wanted::All), [0; 36]);
        let wanted = Wanted::Ethertypes(vec![0x0800, 0x86DD]);
        let expected =
            [&2_u32.to_ne_bytes()[..], &0x0800_u16.to_ne_bytes(), &0x86DD_u16.to_ne_bytes(), &[0; 28]].concat();
        assert_eq!(constants(&wanted), expected);
        assert!(may_go_on(&wanted) && may_go_on(&Wanted::Ethertypes(Vec::new())));
        assert!(!may_go_on(&Wanted::All) && !may_go_on(&Wanted::Ethertypes(vec![0; 17])));
    }
}
