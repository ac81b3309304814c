//! What a responder makes of a request's user data. Pure: the caller cares for headers around it and for the times.

use sojourn_time::Time;

use crate::probe::{HEADER_BYTES, ProbeHeader};

/// Writes the user data that answers `request` into `reply` and returns its length; `None` when `request` is no request
/// of ours, or `reply` cannot hold what it asks for. The user data after the header is zeros, so a reply of the same
/// size never depends on what the request held.
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
        fn answers_with_the_size_that_was_asked(response_bytes in 40..2000_u16, session: u64, seq: u32) {
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
