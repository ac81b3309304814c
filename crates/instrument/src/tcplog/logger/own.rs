//! The log's own connections, which carry its export: logging their packets would produce more packets, endlessly.
//! Their packets are counted as filtered.

use sojourn_tcplog::account::LeftOut;
use sojourn_tcplog::layout::{Sample, point};
use sojourn_tcplog::{Event, Head, decode};

/// The log's own connections, and the counts of what was left out because of them.
#[derive(Debug, Default)]
pub struct Own {
    /// The cookies of their sockets.
    cookies: Vec<u64>,
    pub left_out: LeftOut,
    /// Samples that belong to no packet; private states are counted in the next field.
    pub events: u64,
    pub privates: u64,
    /// Samples of packets.
    pub packets: u64,
}

impl Own {
    /// The connections of sockets with these cookies.
    pub fn of(cookies: Vec<u64>) -> Self {
        Self { cookies, ..Self::default() }
    }

    pub fn has(&self, cookie: u64) -> bool {
        self.cookies.contains(&cookie)
    }

    /// Counts a record if it belongs to such a connection; returns whether it does.
    pub fn take(&mut self, event: &[u8]) -> bool {
        let Some(head) = (!self.cookies.is_empty()).then(|| Head::of(event)).flatten() else { return false };
        let is_own = self.has(head.cookie);
        if is_own {
            self.count(event);
        }
        is_own
    }

    fn count(&mut self, event: &[u8]) {
        match decode(event) {
            Ok(Event::Sample(Sample { point: way @ (point::IN | point::OUT), cookie, segments, .. })) => {
                self.left_out.note(cookie, usize::from(way), segments.into());
                self.packets += 1;
            }
            Ok(Event::Private(_)) => self.privates += 1,
            _ => self.events += 1,
        }
    }
}
