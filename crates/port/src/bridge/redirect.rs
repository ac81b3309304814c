//! Frames that go from port to port within the kernel, and whether they get there.
//!
//! A driver that does not take redirected frames loses them and counts nothing: so what the program sent on is held
//! against what the other interface says it has sent, and where that is less, all frames go by the socket again.

use sojourn_time::{Clock, Nanos, SteadyClock, Time};

use super::Wanted;
use crate::PortError;
use crate::bpf::Program;
use crate::kernel::Interface;

/// `MOST_WANTED` of `bpf/bridge.bpf.c`.
const MOST_WANTED: usize = 16;
const LOOK_EVERY: Nanos = Nanos::millis(10);

/// What is known of the frames that were sent straight on.
#[derive(Debug)]
pub struct Redirect {
    other: Interface,
    clock: SteadyClock,
    is_on: bool,
    looked: Time,
    /// What the other interface had sent before.
    sent_before: u64,
    /// What had been redirected when it was looked at last: all that must have left by now.
    redirected: u64,
    lost: u64,
    news: Option<String>,
}

/// Whether there may be frames that nobody wants to see.
pub fn may_go_on(wanted: &Wanted) -> bool {
    matches!(wanted, Wanted::Ethertypes(list) if list.len() <= MOST_WANTED)
}

/// The program's constants: how many EtherTypes are wanted, and which, and zeros for the rest.
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
    /// Lets the program send on.
    pub fn begin(program: &Program, other: &Interface, clock: SteadyClock) -> Result<Self, PortError> {
        let zero = 0_u32.to_ne_bytes();
        program.write("other", &zero, &other.index.to_ne_bytes())?;
        let sent_before = sent(other)?;
        program.write("redirects", &zero, &1_u64.to_ne_bytes())?;
        let (other, looked) = (other.clone(), clock.now());
        Ok(Self { other, clock, is_on: true, looked, sent_before, redirected: 0, lost: 0, news: None })
    }

    /// Looks now and then whether what was redirected has left, and ends it where it has not.
    pub fn watch(&mut self, program: &Program) -> Result<(), PortError> {
        let now = self.clock.now();
        if !self.is_on || now - self.looked < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        let redirected = redirected(program)?;
        // The port is looked after by its own watch.
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

    /// Counts the frames that were redirected and did not leave.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes what has come up.
    pub fn news(&mut self) -> Option<String> {
        self.news.take()
    }
}

fn redirected(program: &Program) -> Result<u64, PortError> {
    program.words("redirected").map(|[count]| count)
}

/// What an interface has sent, or tried to: a veth counts what its far end has no room for as dropped.
fn sent(interface: &Interface) -> Result<u64, PortError> {
    interface.counters().map(|counters| counters.sent + counters.send_dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_as_the_program_orders_them() {
        assert_eq!(constants(&Wanted::All), [0; 36]);
        let wanted = Wanted::Ethertypes(vec![0x0800, 0x86DD]);
        let expected =
            [&2_u32.to_ne_bytes()[..], &0x0800_u16.to_ne_bytes(), &0x86DD_u16.to_ne_bytes(), &[0; 28]].concat();
        assert_eq!(constants(&wanted), expected);
        assert!(may_go_on(&wanted) && may_go_on(&Wanted::Ethertypes(Vec::new())));
        assert!(!may_go_on(&Wanted::All) && !may_go_on(&Wanted::Ethertypes(vec![0; 17])));
    }
}
