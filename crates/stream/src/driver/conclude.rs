//! Sends the end of a stream to a receiver.

use sojourn_port::{Batch, PortError};
use sojourn_time::{Clock, Nanos, Watch};
use sojourn_wire::stream::{HEADER_BYTES, Kind};
use sojourn_wire::{SessionKey, StreamHeader};

use super::transmit;
use crate::frame::split;
use crate::{Auth, End, Head};

/// How often the end is sent while nobody acknowledges it.
const TRIES: u32 = 5;

/// A stream that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The header of its frames.
    pub head: Head,
    /// Its session key.
    pub key: SessionKey,
    /// Its flow number.
    pub flow: u16,
    /// The key shared with receivers, if any.
    pub auth: &'a Auth,
}

/// Sends the end of a stream to a receiver, up to five times, until it is acknowledged. Returns whether it was.
///
/// # Errors
/// If the port fails.
pub fn conclude(
    port: &mut dyn Batch,
    clock: &dyn Clock,
    ended: Ended<'_>,
    end: &End,
    patience: Nanos,
) -> Result<bool, PortError> {
    let Ended { head, key, flow, auth } = ended;
    let text = serde_json::to_vec(end)
        .map_err(|error| PortError::Wrong { object: "the end of a stream".to_owned(), problem: error.to_string() })?;
    for number in 0..TRIES {
        let now = clock.now();
        let header =
            StreamHeader { kind: Kind::End, node: 0, flow, key, seq: u64::from(number), intended: now, sent: now };
        match transmit(port, &frame(head, header, &text, auth)) {
            Ok(_) => {}
            Err(error) if error.is_full_queue() => {}
            Err(error) => return Err(error),
        }
        if is_acknowledged(port, clock, ended, patience)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn frame(head: Head, header: StreamHeader, text: &[u8], auth: &Auth) -> Vec<u8> {
    let payload_bytes = (HEADER_BYTES + text.len()).max(head.least_payload_bytes()) + auth.bytes();
    let mut frame = vec![0; head.bytes() + payload_bytes];
    if let Head::Link(link) = head {
        link.write(&mut frame);
    }
    let payload = &mut frame[head.bytes()..];
    header.write(payload);
    payload[HEADER_BYTES..HEADER_BYTES + text.len()].copy_from_slice(text);
    auth.seal(payload);
    frame
}

/// Waits up to `patience` for the acknowledgement.
fn is_acknowledged(
    port: &mut dyn Batch,
    clock: &dyn Clock,
    ended: Ended<'_>,
    patience: Nanos,
) -> Result<bool, PortError> {
    let framing = port.capabilities().framing;
    let start = clock.now();
    let (deadline, mut watch) = (start + patience, Watch::new(start));
    let mut heard = false;
    loop {
        let taken = port.receive_batch(&mut |frame, _| {
            let Some((_, payload)) = split(framing, frame) else { return };
            heard |= StreamHeader::read(payload).is_ok_and(|header| {
                header.kind == Kind::EndAck
                    && (header.key, header.flow) == (ended.key, ended.flow)
                    && ended.auth.open(payload).is_some()
            });
        });
        match taken {
            Ok(_) | Err(PortError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let now = clock.now();
        if heard || now >= deadline || watch.is_set_back(now) {
            return Ok(heard);
        }
        while port.tx_timestamp()?.is_some() {}
        port.wait(deadline)?;
    }
}
