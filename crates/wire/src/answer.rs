//! Builds the user data of a reply for simulated lines, whose peer answers every request, and for the peers of tests. A
//! host answers by the responder of `sojourn-probe`, which first decides who is answered and with how much. Pure: the
//! caller supplies the times and adds the outer headers.

use sojourn_time::Time;

use crate::probe::{HEADER_BYTES, ProbeHeader};

/// Writes the reply to `request` into `reply` and returns its length; `None` when `request` is not a probe request, or
/// `reply` is shorter than the requested length. The user data after the header is zero, so that replies of equal size
/// do not depend on the request's contents.
pub fn answer(request: &[u8], arrival: Time, departure: Time, reply: &mut [u8]) -> Option<usize> {
    let header = ProbeHeader::read(request)?;
    let length = usize::from(header.asked_bytes()?).max(HEADER_BYTES);
    let payload = reply.get_mut(..length)?;
    payload.fill(0);
    header.reply(arrival, departure)?.write(payload);
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::checksum::crc32;

    proptest! {
        #[test]
        fn reply_has_the_requested_size(response_bytes in 40..2000_u16, session: u64, seq: u32) {
            let asked = ProbeHeader::request(session, seq, response_bytes);
            let mut reply = [0xFF; 2000];
            let length = answer(&asked.to_bytes(), Time(5), Time(6), &mut reply);
            prop_assert_eq!(length, Some(usize::from(response_bytes)));
            let header = ProbeHeader::read(&reply).expect("a reply");
            prop_assert_eq!((header.session, header.seq), (session, seq));
            prop_assert_eq!(header.times(), Some((Time(5), Time(6))));
            prop_assert_eq!(answer(&reply, Time(5), Time(6), &mut [0; 2000]), None, "a reply is never answered");
        }

        /// Requests with bytes changed and cut off, half of them with a CRC that is right again.
        #[test]
        fn mutated_request_is_answered_as_it_asks_or_not_at_all(
            response_bytes in 0..200_u16,
            rest in prop::collection::vec(any::<u8>(), 0..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
            is_corrected: bool,
            room in 0..200_usize,
        ) {
            let mut request = ProbeHeader::request(3, 4, response_bytes).to_bytes().to_vec();
            request.extend(rest);
            for (at, byte) in &changes {
                let at = at.index(request.len());
                request[at] = *byte;
            }
            request.truncate(cut.map_or(request.len(), |cut| cut.index(request.len())));
            if is_corrected && request.len() >= HEADER_BYTES {
                let check = crc32(&request[..32]);
                request[32..36].copy_from_slice(&check.to_be_bytes());
            }
            let header = ProbeHeader::read(&request);
            let asked = header.and_then(|header| header.asked_bytes()).map(|bytes| usize::from(bytes).max(HEADER_BYTES));
            prop_assert!(asked.is_some() || !changes.is_empty() || cut.is_some());
            let mut reply = vec![0xFF; room];
            let answered = answer(&request, Time(5), Time(6), &mut reply);
            prop_assert_eq!(answered, asked.filter(|bytes| *bytes <= room));
            let Some(length) = answered else { return Ok(()) };
            let identity = |header: ProbeHeader| (header.session, header.seq);
            prop_assert_eq!(ProbeHeader::read(&reply).map(identity), header.map(identity));
            prop_assert!(reply[HEADER_BYTES..length].iter().all(|byte| *byte == 0));
            prop_assert!(reply[length..].iter().all(|byte| *byte == 0xFF));
            prop_assert_eq!(answer(&reply, Time(5), Time(6), &mut [0; 200]), None, "a reply is never answered");
        }
    }
}
