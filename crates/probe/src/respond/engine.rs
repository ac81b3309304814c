//! A request in, its reply out. Reads no clock and sends nothing.

use sojourn_port::Framing;
use sojourn_time::{Nanos, Time};
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::{MacAddress, ProbeHeader, probe};

/// The longest reply that is given: the largest frames in use (jumbo) and some room. Whoever asks for more gets nothing, so
/// that a responder that others can reach does not turn a small request with a forged sender into a large reply.
const MAX_RESPONSE_BYTES: u16 = 9_216;

/// Counts of what came in: each frame is in exactly one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Requests that were given a reply.
    pub answered: u64,
    /// Requests that asked for a longer reply than is given.
    pub too_long: u64,
    /// Frames that are no request of ours.
    pub unexpected: u64,
}

/// Makes replies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responder {
    clock: u32,
    pretence: Option<Pretence>,
    counts: Answered,
}

/// A clock that is not the host's: for testing what estimates clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pretence {
    /// When it begins, on the host's clock.
    pub since: Time,
    /// By how much it is ahead then.
    pub offset: Nanos,
    /// By how many millionths it runs faster.
    pub skew_ppm: f64,
}

impl Pretence {
    /// Returns what the pretended clock shows at a time of the host's.
    pub fn shown(&self, host: Time) -> Time {
        let gained = (host - self.since).0 as f64 * self.skew_ppm * 1e-6;
        host + self.offset + Nanos(gained.round() as i64)
    }
}

impl Responder {
    /// Makes replies that say that their times are on that clock, which is that of `pretence` where there is one.
    pub fn new(clock: u32, pretence: Option<Pretence>) -> Self {
        Self { clock, pretence, counts: Answered::default() }
    }

    /// Writes the reply to `request` into `reply` and returns its length, `None` where none is due. `arrived` is when the
    /// request came, `now` the present time, just before the reply is sent: both go into it.
    pub fn reply(
        &mut self,
        framing: Framing,
        request: &[u8],
        (arrived, now): (Time, Time),
        reply: &mut [u8],
    ) -> Option<usize> {
        let (back, payload) = match framing {
            Framing::Ethernet => turned_round(request).map(|(header, payload)| (Some(header), payload)),
            Framing::Udp => Some((None, request)),
            // The kernel answers these.
            Framing::Icmp4 | Framing::Icmp6 => None,
        }
        .unwrap_or_default();
        let asked = ProbeHeader::read(payload).and_then(|header| header.asked_bytes());
        if asked.is_some_and(|bytes| bytes > MAX_RESPONSE_BYTES) {
            self.counts.too_long += 1;
            return None;
        }
        let shown = |host: Time| self.pretence.map_or(host, |pretence| pretence.shown(host));
        let Some((length, header_bytes)) = write(back, payload, (shown(arrived), shown(now)), reply) else {
            self.counts.unexpected += 1;
            return None;
        };
        probe::sign(&mut reply[header_bytes..length], self.clock);
        self.counts.answered += 1;
        Some(length)
    }

    /// Returns what has come in up to now.
    pub const fn counts(&self) -> Answered {
        self.counts
    }
}

/// Writes a reply; returns its length and how much of that is the Ethernet header.
fn write(
    back: Option<Header>,
    payload: &[u8],
    (arrived, now): (Time, Time),
    reply: &mut [u8],
) -> Option<(usize, usize)> {
    let Some(header) = back else { return Some((sojourn_wire::answer(payload, arrived, now, reply)?, 0)) };
    let bytes = header.to_bytes();
    let (head, body) = reply.split_at_mut_checked(bytes.len())?;
    head.copy_from_slice(&bytes);
    Some((bytes.len() + sojourn_wire::answer(payload, arrived, now, body)?, bytes.len()))
}

/// The header of the reply to a frame of ours that was sent to one station, and the frame's user data.
fn turned_round(request: &[u8]) -> Option<(Header, &[u8])> {
    let (header, payload) = Header::split(request)?;
    let MacAddress([first, ..]) = header.destination;
    let to_one_station = first & 1 == 0;
    (header.ethertype == PROBE_ETHERTYPE && to_one_station)
        .then_some((Header { destination: header.source, source: header.destination, ..header }, payload))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROBER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const EVERYBODY: MacAddress = MacAddress([0xFF; 6]);
    const TIMES: (Time, Time) = (Time(5), Time(9));

    fn request(response_bytes: u16) -> Vec<u8> {
        ProbeHeader::request(3, 4, response_bytes).to_bytes().to_vec()
    }

    fn frame(destination: MacAddress, ethertype: u16) -> Vec<u8> {
        let mut frame = Header { destination, source: PROBER, ethertype }.to_bytes().to_vec();
        frame.extend(request(46));
        frame
    }

    #[test]
    fn a_frame_goes_back_to_its_sender_with_both_times() {
        let mut reply = [0; 100];
        let length = Responder::default().reply(Framing::Ethernet, &frame(STATION, PROBE_ETHERTYPE), TIMES, &mut reply);
        assert_eq!(length, Some(14 + 46));
        let (header, payload) = Header::split(&reply[..60]).expect("a header");
        assert_eq!((header.destination, header.source), (PROBER, STATION));
        let header = ProbeHeader::read(payload).expect("a reply");
        assert_eq!(header.times(), Some(TIMES));
    }

    #[test]
    fn a_pretended_clock_is_ahead_and_gains_and_is_signed_as_another() {
        let pretence = Pretence { since: Time(0), offset: Nanos::seconds(1), skew_ppm: 50.0 };
        let mut reply = [0; 100];
        let times = (Time(2_000_000_000), Time(2_000_000_100));
        for framing in [Framing::Ethernet, Framing::Udp] {
            let request = match framing {
                Framing::Ethernet => frame(STATION, PROBE_ETHERTYPE),
                _ => request(46),
            };
            let mut responder = Responder::new(7, Some(pretence));
            let length = responder.reply(framing, &request, times, &mut reply).expect("a reply");
            let header = ProbeHeader::read(&reply[length - 46..length]).expect("a header");
            assert_eq!(header.times(), Some((Time(3_000_100_000), Time(3_000_100_100))));
            assert_eq!(header.clock, 7);
        }
    }

    #[test]
    fn each_frame_is_in_one_count() {
        let mut responder = Responder::default();
        let mut reply = vec![0; 20_000];
        let mut give = |framing, bytes: &[u8]| responder.reply(framing, bytes, TIMES, &mut reply);
        assert_eq!(give(Framing::Udp, &request(100)), Some(100));
        let first_reply = reply[..100].to_vec();
        let mut give = |framing, bytes: &[u8]| responder.reply(framing, bytes, TIMES, &mut reply);
        assert_eq!(give(Framing::Udp, &first_reply), None, "a reply is never answered");
        assert_eq!(give(Framing::Udp, &request(MAX_RESPONSE_BYTES + 1)), None);
        assert_eq!(give(Framing::Ethernet, &frame(EVERYBODY, PROBE_ETHERTYPE)), None);
        assert_eq!(give(Framing::Ethernet, &frame(STATION, 0x0800)), None);
        assert_eq!(give(Framing::Icmp4, &request(100)), None);
        assert_eq!(responder.counts(), Answered { answered: 1, too_long: 1, unexpected: 4 });
    }

    proptest! {
        #[test]
        fn any_frame_is_survived(bytes: Vec<u8>, room in 0..100_usize) {
            for framing in [Framing::Ethernet, Framing::Udp] {
                let _ = Responder::default().reply(framing, &bytes, TIMES, &mut vec![0; room]);
            }
        }
    }
}
