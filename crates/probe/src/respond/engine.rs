//! A request in, its reply out. Reads no clock and sends nothing.

use sojourn_port::Framing;
use sojourn_time::Time;
use sojourn_wire::ethernet::{Header, PROBE_ETHERTYPE};
use sojourn_wire::{MacAddress, ProbeHeader};

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
    pub foreign: u64,
}

/// Makes replies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responder {
    counts: Answered,
}

impl Responder {
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
        let asked = ProbeHeader::read(payload).filter(|header| !header.is_reply).map(|header| header.response_bytes);
        if asked.is_some_and(|bytes| bytes > MAX_RESPONSE_BYTES) {
            self.counts.too_long += 1;
            return None;
        }
        let length = write(back, payload, (arrived, now), reply);
        match length {
            Some(_) => self.counts.answered += 1,
            None => self.counts.foreign += 1,
        }
        length
    }

    /// Returns what has come in up to now.
    pub const fn counts(&self) -> Answered {
        self.counts
    }
}

fn write(back: Option<Header>, payload: &[u8], (arrived, now): (Time, Time), reply: &mut [u8]) -> Option<usize> {
    let Some(header) = back else { return sojourn_wire::answer(payload, arrived, now, reply) };
    let bytes = header.to_bytes();
    let (head, body) = reply.split_at_mut_checked(bytes.len())?;
    head.copy_from_slice(&bytes);
    Some(bytes.len() + sojourn_wire::answer(payload, arrived, now, body)?)
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
        let (responder_arrival, responder_departure) = (Time(0), Time(0));
        ProbeHeader { is_reply: false, response_bytes, block: 3, seq: 4, responder_arrival, responder_departure }
            .to_bytes()
            .to_vec()
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
        assert_eq!((header.responder_arrival, header.responder_departure), TIMES);
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
        assert_eq!(responder.counts(), Answered { answered: 1, too_long: 1, foreign: 4 });
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
