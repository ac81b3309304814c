//! Builds the user data of a reply. Pure: the caller supplies the times and adds the outer headers.

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

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, room in 0..100_usize) {
            let _ = answer(&bytes, Time(1), Time(2), &mut vec![0; room]);
        }
    }
}
