//! The receiver of live frames.

use std::collections::HashMap;

use sojourn_port::PortError;
use sojourn_port::bpf::{Attached, Attachment, Program, object, words};
use sojourn_port::kernel::Interface;
use sojourn_time::{Nanos, Time};
use sojourn_wire::SessionKey;
use sojourn_wire::stream::STREAM_ETHERTYPE;

use crate::histogram::Histogram;

const STEPS: usize = 35 << 6;
const WORDS: usize = 14;
const WINDOW: usize = 64;
/// The number of places in the array of `bpf/count.bpf.c`.
const FLOWS: u16 = 64;
const FLOW_BYTES: usize = (WORDS + 2 * STEPS + WINDOW) * 8;
const OWNER_BYTES: usize = 16;

/// Counts the data frames of streams at the receiver, and drops them; other frames pass.
///
/// Headers of frames that were not made in the kernel are not checked for damage. Duplicates are recognised among the
/// latest 4,096 or so sequence numbers of each flow.
#[derive(Debug)]
pub struct LiveCounter {
    program: Program,
    attached: Attached,
    interface: Interface,
    /// The flows that are counted in the array: their keys in the program's hash table, and their indices.
    placed: HashMap<Vec<u8>, u32>,
}

/// The counters of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCount {
    /// The key of its frames.
    pub key: SessionKey,
    /// The flow.
    pub flow: u16,
    /// The responder; 0 for frames that are no replies.
    pub node: u8,
    /// The number of frames received.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// The number of distinct packets.
    pub first: u64,
    /// Duplicate frames.
    pub duplicated: u64,
    /// Packets received after one with a greater sequence number (RFC 4737).
    pub reordered: u64,
    /// Frames older than the window, which may be duplicates or late.
    pub beyond: u64,
    /// Frames made in the kernel with a damaged header; not included in `frames`.
    pub damaged: u64,
    /// The smallest sequence number.
    pub least: u64,
    /// The greatest sequence number.
    pub greatest: u64,
    /// The RX time of the first frame.
    pub first_at: Time,
    /// The RX time of the last frame.
    pub last_at: Time,
    /// The minimum delay, RX time minus TX time, uncorrected for the clocks.
    pub delay_least: Nanos,
    /// The maximum delay.
    pub delay_greatest: Nanos,
    /// The number of negative delays, which are not in [`Self::delay`].
    pub delay_negative: u64,
    /// The distribution of delays.
    pub delay: Histogram,
    /// The distribution of inter-arrival times.
    pub inter_arrival: Histogram,
}

/// Frames with the EtherType of streams that were not counted in a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherCount {
    /// Frames without a stream header.
    pub foreign: u64,
    /// Replies of responders without room in the map, which holds 128 flows and responders: 64 flows with one responder
    /// each.
    pub unlisted: u64,
    /// Frames with a key or flow that is not registered.
    pub keyless: u64,
}

impl LiveCounter {
    /// Attach the program to an interface, until this is dropped or the process ends.
    ///
    /// # Errors
    /// `Wrong` when the interface does not exist, `Unusable` when it is down or has a program attached already,
    /// `Denied` without the privilege to load BPF programs.
    pub fn attach(interface: &str) -> Result<Self, PortError> {
        let interface = Interface::usable(interface)?;
        let program = Program::load("count", object!("count.bpf.o"), &STREAM_ETHERTYPE.to_ne_bytes())?;
        let attached = program.attach(&interface)?;
        Ok(Self { program, attached, interface, placed: HashMap::new() })
    }

    /// Register a flow with this key: its frames are counted from now on.
    ///
    /// # Errors
    /// When there is no room for it, or the kernel refuses.
    pub fn expect(&mut self, key: SessionKey, flow: u16) -> Result<(), PortError> {
        let (name, index) = (flow_key(key, flow), u32::from(flow % FLOWS));
        let is_free = self.placed.iter().all(|(placed, taken)| *taken != index || *placed == name);
        if is_free {
            // Before the flow is in the hash table: no frame of it is counted there. A flow that is registered again is
            // not counted meanwhile.
            self.program.write("owners", &index.to_ne_bytes(), &[0; OWNER_BYTES])?;
            self.program.write("counts", &index.to_ne_bytes(), &[0; FLOW_BYTES])?;
            self.program.write("owners", &index.to_ne_bytes(), &owner(key, flow))?;
            self.placed.insert(name.clone(), index);
        }
        self.program.write("flows", &name, &[0; FLOW_BYTES]).inspect_err(|_| {
            if is_free {
                let _ = self.program.write("owners", &index.to_ne_bytes(), &[0; OWNER_BYTES]);
                self.placed.remove(&name);
            }
        })
    }

    /// Read the counters of each flow that has received a frame.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn flows(&self) -> Result<Vec<FlowCount>, PortError> {
        let mut flows = Vec::new();
        for key in self.program.keys("flows")? {
            let value = match self.placed.get(&key) {
                Some(index) => self.program.read("counts", &index.to_ne_bytes())?,
                None => self.program.read("flows", &key)?,
            };
            flows.extend(value.and_then(|value| FlowCount::parse(&key, &value)));
        }
        flows.retain(|flow: &FlowCount| flow.frames + flow.damaged > 0);
        flows.sort_by_key(|flow| (flow.key.0, flow.flow, flow.node));
        Ok(flows)
    }

    /// Read the counters of frames outside the flows.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn others(&self) -> Result<OtherCount, PortError> {
        let [foreign, unlisted, keyless] = self.program.words(".data.other")?;
        Ok(OtherCount { foreign, unlisted, keyless })
    }

    /// Remove every flow and its key.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&mut self) -> Result<(), PortError> {
        for key in self.program.keys("flows")? {
            self.program.remove("flows", &key)?;
            if let Some(index) = self.placed.remove(&key) {
                self.program.write("owners", &index.to_ne_bytes(), &[0; OWNER_BYTES])?;
            }
        }
        self.program.write(".data.other", &0_u32.to_ne_bytes(), &[0; 24])
    }

    /// Return how many received frames the interface has dropped since it was created, before this counter saw them. On
    /// a veth, its peer counts the same frames as refused.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn dropped_before(&self) -> Result<u64, PortError> {
        Ok(self.interface.counters()?.receive_dropped)
    }

    /// Return whether the program is still attached; nothing is counted if somebody has detached it.
    pub fn is_attached(&self) -> bool {
        self.attached.state().is_ok_and(|state| state == Attachment::Hangs)
    }

    /// Return how frames are counted, for the record.
    pub fn engine(&self) -> String {
        format!("counted in {}", self.attached.mode.name())
    }
}

/// Return the key of the flow itself in the program's map, in the order of `bpf/count.bpf.c`. The session key is in
/// network byte order.
fn flow_key(key: SessionKey, flow: u16) -> Vec<u8> {
    [&key.0.to_be_bytes()[..], &u32::from(flow).to_ne_bytes(), &[0; 4]].concat()
}

/// Return the owner of a place in the program's array, in the order of `bpf/count.bpf.c`.
fn owner(key: SessionKey, flow: u16) -> Vec<u8> {
    [key.0.to_be_bytes(), (u64::from(flow) + 1).to_ne_bytes()].concat()
}

impl FlowCount {
    /// Decode a key and a value of the program's map, in the order of `bpf/count.bpf.c`.
    pub fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let (key, rest) = key.split_first_chunk::<8>()?;
        let [flow, node] = rest.as_chunks().0 else { return None };
        let numbers: [u64; WORDS] = words(value)?;
        let histogram = |nth: usize| -> Option<Histogram> {
            let bytes = value.get((WORDS + nth * STEPS) * 8..(WORDS + (nth + 1) * STEPS) * 8)?;
            let counts = bytes.as_chunks().0.iter().map(|count| u64::from_ne_bytes(*count));
            Some(Histogram::new(counts.collect()))
        };
        let [frames, bytes, first, duplicated, reordered, beyond, damaged, least, greatest, times @ ..] = numbers;
        let [first_at, last_at, delay_least, delay_greatest, delay_negative] = times;
        Some(Self {
            key: SessionKey(u64::from_be_bytes(*key)),
            flow: u32::from_ne_bytes(*flow) as u16,
            node: u32::from_ne_bytes(*node) as u8,
            frames,
            bytes,
            first,
            duplicated,
            reordered,
            beyond,
            damaged,
            least,
            greatest,
            first_at: Time(first_at.cast_signed()),
            last_at: Time(last_at.cast_signed()),
            delay_least: Nanos(delay_least.cast_signed()),
            delay_greatest: Nanos(delay_greatest.cast_signed()),
            delay_negative,
            delay: histogram(0)?,
            inter_arrival: histogram(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(key: Vec<u8>, value in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(FlowCount::parse(&key, &value), None);
        }
    }

    #[test]
    fn flow_is_parsed_in_the_layout_that_the_bpf_program_writes() {
        let mut value = vec![0; FLOW_BYTES];
        for (index, word) in value.chunks_exact_mut(8).take(WORDS).enumerate() {
            word.copy_from_slice(&(index as u64 + 1).to_ne_bytes());
        }
        value[WORDS * 8..][..8].copy_from_slice(&5_u64.to_ne_bytes());
        value[(WORDS + STEPS + 1) * 8..][..8].copy_from_slice(&6_u64.to_ne_bytes());
        let mut key = flow_key(SessionKey(7), 3);
        key[12..].copy_from_slice(&9_u32.to_ne_bytes());
        let flow = FlowCount::parse(&key, &value).expect("a flow");
        assert_eq!((flow.key, flow.flow, flow.node), (SessionKey(7), 3, 9));
        assert_eq!((flow.frames, flow.damaged, flow.greatest, flow.first_at), (1, 7, 9, Time(10)));
        assert_eq!(flow.delay_negative, 14);
        assert_eq!((flow.delay.count(), flow.inter_arrival.steps().next().map(|step| step.low)), (5, Some(1)));
    }
}
