//! The receiving half of live frames.

use sojourn_port::PortError;
use sojourn_port::bpf::{Attached, Attachment, Program, object, words};
use sojourn_port::kernel::Interface;
use sojourn_time::{Nanos, Time};
use sojourn_wire::SessionKey;
use sojourn_wire::stream::STREAM_ETHERTYPE;

use crate::histogram::Histogram;

const STEPS: usize = 35 << 6;
const WORDS: usize = 15;
const WINDOW: usize = 64;
const FLOW_BYTES: usize = (WORDS + 2 * STEPS + WINDOW) * 8;

/// Counts the data frames of streams where they arrive, and drops them; what else comes, passes.
///
/// Of frames that no kernel made, headers are not checked for damage. What is a duplicate is known for the latest 4,096 numbers or so of each flow.
#[derive(Debug)]
pub struct LiveCounter {
    program: Program,
    attached: Attached,
    interface: Interface,
}

/// What was counted of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCount {
    /// The key of its frames.
    pub key: SessionKey,
    /// The flow.
    pub flow: u16,
    /// Who answered; 0 when nobody did.
    pub node: u8,
    /// How many frames came.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// How many different packets they were.
    pub first: u64,
    /// Frames of packets that had come already.
    pub duplicated: u64,
    /// Packets that came after one with a greater number (RFC 4737).
    pub reordered: u64,
    /// Frames so old that it is not known whether they are duplicates or only late.
    pub beyond: u64,
    /// Frames that the kernel made and whose header was damaged; they are not among `frames`.
    pub damaged: u64,
    /// The least number.
    pub least: u64,
    /// The greatest number.
    pub greatest: u64,
    /// When the first frame arrived.
    pub first_at: Time,
    /// When the last frame arrived.
    pub last_at: Time,
    /// The shortest delay since a frame was sent, with the clocks as they are.
    pub delay_least: Nanos,
    /// The longest delay.
    pub delay_greatest: Nanos,
    /// The sum of all delays.
    pub delay_sum: Nanos,
    /// How many delays were negative; they are in no step of [`Self::delay`].
    pub delay_negative: u64,
    /// The delays.
    pub delay: Histogram,
    /// The times from each arrival to the next.
    pub inter_arrival: Histogram,
}

/// What came with the EtherType of streams and was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherCount {
    /// Frames without the header of a stream.
    pub foreign: u64,
    /// Answers of nodes for which there was no room: it is for 128 flows and nodes together, and so for 64 flows that are answered.
    pub unlisted: u64,
    /// Frames of streams with a key or a flow that is not counted.
    pub keyless: u64,
}

impl LiveCounter {
    /// Hangs the program on an interface, until this is dropped or the process ends.
    ///
    /// # Errors
    /// `Wrong` when there is no such interface, `Unusable` when it carries nothing or a program hangs there already, `Denied`
    /// without the right to run programs in the kernel.
    pub fn attach(interface: &str) -> Result<Self, PortError> {
        let interface = Interface::usable(interface)?;
        let program = Program::load("count", object!("count.bpf.o"), &STREAM_ETHERTYPE.to_ne_bytes())?;
        let attached = program.attach(&interface)?;
        Ok(Self { program, attached, interface })
    }

    /// Counts the frames of a flow that have this key, from now on.
    ///
    /// # Errors
    /// When there is no room for it, or the kernel refuses.
    pub fn expect(&mut self, key: SessionKey, flow: u16) -> Result<(), PortError> {
        self.program.write("flows", &flow_key(key, flow), &[0; FLOW_BYTES])
    }

    /// Reads what has been counted of each flow of which something came.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn flows(&self) -> Result<Vec<FlowCount>, PortError> {
        let mut flows = Vec::new();
        for key in self.program.keys("flows")? {
            let value = self.program.read("flows", &key)?;
            flows.extend(value.and_then(|value| FlowCount::parse(&key, &value)));
        }
        flows.retain(|flow: &FlowCount| flow.frames + flow.damaged > 0);
        flows.sort_by_key(|flow| (flow.key.0, flow.flow, flow.node));
        Ok(flows)
    }

    /// Reads what has not been counted.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn others(&self) -> Result<OtherCount, PortError> {
        let [foreign, unlisted, keyless] = self.program.words("others")?;
        Ok(OtherCount { foreign, unlisted, keyless })
    }

    /// Removes every flow and its key.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&mut self) -> Result<(), PortError> {
        for key in self.program.keys("flows")? {
            self.program.remove("flows", &key)?;
        }
        self.program.write("others", &0_u32.to_ne_bytes(), &[0; 24])
    }

    /// Counts the frames that the interface itself has dropped on their way in since it was made, before this counter saw
    /// them. On a veth these are the very frames that its other end counts as refused.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn dropped_before(&self) -> Result<u64, PortError> {
        Ok(self.interface.counters()?.receive_dropped)
    }

    /// Whether its program still hangs where it was hung; nothing is counted where somebody has taken it off.
    pub fn is_attached(&self) -> bool {
        self.attached.state().is_ok_and(|state| state == Attachment::Hangs)
    }

    /// Says by what means frames are counted, for the record.
    pub fn engine(&self) -> String {
        format!("counted in {}", self.attached.mode.name())
    }
}

/// Returns the key of the program's map for what nobody answered, as `bpf/count.bpf.c` orders it. The session key is in the order
/// of the wire.
fn flow_key(key: SessionKey, flow: u16) -> Vec<u8> {
    [&key.0.to_be_bytes()[..], &u32::from(flow).to_ne_bytes(), &[0; 4]].concat()
}

impl FlowCount {
    /// Reads a key and a value of the program's map, as `bpf/count.bpf.c` orders them.
    fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let (key, rest) = key.split_first_chunk::<8>()?;
        let [flow, node] = rest.as_chunks().0 else { return None };
        let numbers: [u64; WORDS] = words(value)?;
        let histogram = |nth: usize| -> Option<Histogram> {
            let bytes = value.get((WORDS + nth * STEPS) * 8..(WORDS + (nth + 1) * STEPS) * 8)?;
            let counts = bytes.as_chunks().0.iter().map(|count| u64::from_ne_bytes(*count));
            Some(Histogram::new(counts.collect()))
        };
        let [frames, bytes, first, duplicated, reordered, beyond, damaged, least, greatest, times @ ..] = numbers;
        let [first_at, last_at, delay_least, delay_greatest, delay_sum, delay_negative] = times;
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
            delay_sum: Nanos(delay_sum.cast_signed()),
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
        fn any_bytes_are_survived(key: Vec<u8>, value in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(FlowCount::parse(&key, &value), None);
        }
    }

    #[test]
    fn a_flow_is_read_as_the_program_writes_it() {
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
        assert_eq!(flow.delay_negative, 15);
        assert_eq!((flow.delay.count(), flow.inter_arrival.steps().next().map(|step| step.low)), (5, Some(1)));
    }
}
