//! The receiving half of live frames.

use sojourn_port::PortError;
use sojourn_port::bpf::{Attached, Program, object, words};
use sojourn_port::kernel::Interface;
use sojourn_time::{Nanos, Time};
use sojourn_wire::stream::STREAM_ETHERTYPE;

use crate::histogram::Histogram;

const STEPS: usize = 35 << 6;
const WORDS: usize = 14;

/// Counts the data frames of streams where they arrive, and drops them; what else comes, passes.
///
/// Headers are not checked for damage. What is a duplicate is known for the latest 4,096 numbers or so of each flow.
#[derive(Debug)]
pub struct LiveCounter {
    program: Program,
    attached: Attached,
    interface: Interface,
}

/// What was counted of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCount {
    /// The block.
    pub block: u32,
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
    pub unexpected: u64,
    /// Frames of flows for which there was no room: it is for 64.
    pub unlisted: u64,
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

    /// Reads what has been counted of each flow.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn flows(&self) -> Result<Vec<FlowCount>, PortError> {
        let mut flows = Vec::new();
        for key in self.program.keys("flows")? {
            let value = self.program.read("flows", &key)?;
            flows.extend(value.and_then(|value| FlowCount::parse(&key, &value)));
        }
        flows.sort_by_key(|flow| (flow.block, flow.flow, flow.node));
        Ok(flows)
    }

    /// Reads what has not been counted.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn others(&self) -> Result<OtherCount, PortError> {
        let [unexpected, unlisted] = self.program.words("others")?;
        Ok(OtherCount { unexpected, unlisted })
    }

    /// Forgets every flow, to make room.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&mut self) -> Result<(), PortError> {
        for key in self.program.keys("flows")? {
            self.program.remove("flows", &key)?;
        }
        self.program.write("others", &0_u32.to_ne_bytes(), &[0; 16])
    }

    /// Counts the frames that the interface itself has dropped on their way in since it was made, before this counter saw
    /// them. On a veth these are the very frames that its other end counts as refused.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn dropped_before(&self) -> Result<u64, PortError> {
        Ok(self.interface.counters()?.receive_dropped)
    }

    /// Says by what means frames are counted, for the record.
    pub fn engine(&self) -> String {
        format!("counted in {}", self.attached.mode.name())
    }
}

impl FlowCount {
    /// Reads a key and a value of the program's map, as `bpf/count.bpf.c` orders them.
    fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let [b0, b1, b2, b3, f0, f1, n0, n1] = *key.first_chunk()?;
        let numbers: [u64; WORDS] = words(value)?;
        let histogram = |nth: usize| -> Option<Histogram> {
            let bytes = value.get((WORDS + nth * STEPS) * 8..(WORDS + (nth + 1) * STEPS) * 8)?;
            let counts = bytes.as_chunks().0.iter().map(|count| u64::from_ne_bytes(*count));
            Some(Histogram::new(counts.collect()))
        };
        let [frames, bytes, first, duplicated, reordered, beyond, least, greatest, times @ ..] = numbers;
        let [first_at, last_at, delay_least, delay_greatest, delay_sum, delay_negative] = times;
        Some(Self {
            block: u32::from_ne_bytes([b0, b1, b2, b3]),
            flow: u16::from_ne_bytes([f0, f1]),
            node: u16::from_ne_bytes([n0, n1]) as u8,
            frames,
            bytes,
            first,
            duplicated,
            reordered,
            beyond,
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
        let mut value = vec![0; (WORDS + 2 * STEPS + 64) * 8];
        for (index, word) in value.chunks_exact_mut(8).take(WORDS).enumerate() {
            word.copy_from_slice(&(index as u64 + 1).to_ne_bytes());
        }
        value[WORDS * 8..][..8].copy_from_slice(&5_u64.to_ne_bytes());
        value[(WORDS + STEPS + 1) * 8..][..8].copy_from_slice(&6_u64.to_ne_bytes());
        let key = [&7_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes(), &9_u16.to_ne_bytes()].concat();
        let flow = FlowCount::parse(&key, &value).expect("a flow");
        assert_eq!((flow.block, flow.flow, flow.node), (7, 3, 9));
        assert_eq!((flow.frames, flow.greatest, flow.first_at, flow.delay_negative), (1, 8, Time(9), 14));
        assert_eq!((flow.delay.count(), flow.inter_arrival.steps().next().map(|step| step.low)), (5, Some(1)));
    }
}
