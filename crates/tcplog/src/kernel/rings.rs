//! The rings, one for each CPU, that the programs write and we read: slots in mapped memory, each big enough for any record.
//!
//! They are ours and not the kernel's (`BPF_MAP_TYPE_RINGBUF`), whose two calls for a record cost as much as all else that is
//! done for it (decision 0024). Nobody is woken when a record comes: whoever reads looks often enough, or the ring is full and
//! the programs count it.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};

use super::KernelError;
use super::sys::{Mapping, page};
use crate::layout::{PrivateState, SLOT_BYTES as SLOT, Sample, kind};

/// Where the record is in a slot.
const RECORD: usize = 8;
/// `struct reader`: on a cache line of its own.
pub(super) const READER: usize = 64;

/// All of them.
#[derive(Debug)]
pub(super) struct Rings {
    /// Slots of the first CPU, then of the second, and so on.
    slots: Mapping,
    /// How far each has been read.
    readers: Mapping,
    /// Of one CPU: a power of 2.
    room: u64,
    /// Of each CPU, the position of the next record.
    positions: Vec<u64>,
    /// What is set within `fence`.
    inner: MapHandle,
}

impl Rings {
    /// Maps the rings of an object that was loaded with so many slots for each CPU.
    pub fn open(object: &Object, slots: u32) -> Result<Self, KernelError> {
        let cpus = cpus()? as usize;
        let mapped = |name: &'static str, bytes: usize| {
            let map = object.maps().find(|map| map.name() == name).ok_or(KernelError::Damaged(name))?;
            Mapping::new(map.as_fd(), 0, bytes.next_multiple_of(page()), true)
                .map_err(|error| KernelError::io("map", "the rings", error))
        };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let inner = MapHandle::create(MapType::Array, Some("tcplog_fence"), 4, 4, 1, &options)
            .map_err(|error| KernelError::system("make", "a map", &error))?;
        Ok(Self {
            slots: mapped("rings", SLOT * slots as usize * cpus)?,
            readers: mapped("readers", READER * cpus)?,
            room: slots.into(),
            positions: vec![0; cpus],
            inner,
        })
    }

    /// Waits until no program runs any more that began before: the kernel does so when a map within a map is set.
    pub fn settle(&self, object: &Object) -> Result<(), KernelError> {
        let fence = object.maps().find(|map| map.name() == "fence").ok_or(KernelError::Damaged("fence"))?;
        fence
            .update(&0_u32.to_ne_bytes(), &self.inner.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| KernelError::system("wait for", "programs that run", &error))
    }

    /// Hands on what waits in each.
    pub fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> u64 {
        let mut taken = 0;
        for cpu in 0..self.positions.len() {
            taken += self.drain_one(cpu, take);
        }
        taken
    }

    /// All that is whole, up to one that is still being written; no more than a ring holds, for programs go on meanwhile.
    fn drain_one(&mut self, cpu: usize, take: &mut dyn FnMut(u32, &[u8])) -> u64 {
        let number = u32::try_from(cpu).unwrap_or(u32::MAX);
        let first = self.positions[cpu];
        for position in first..first + self.room {
            let at = SLOT * (cpu * self.room as usize + (position & (self.room - 1)) as usize);
            if self.slots.load(at) != position + 1 {
                break;
            }
            let is_private = self.slots.bytes(at + RECORD, 1) == [kind::PRIVATE];
            let length = if is_private { size_of::<PrivateState>() } else { size_of::<Sample>() };
            take(number, self.slots.bytes(at + RECORD, length));
            self.positions[cpu] = position + 1;
        }
        self.readers.store(READER * cpu, self.positions[cpu]);
        self.positions[cpu] - first
    }
}

/// How many CPUs there may ever be.
pub(super) fn cpus() -> Result<u32, KernelError> {
    libbpf_rs::num_possible_cpus()
        .map_err(|error| KernelError::system("count", "the CPUs", &error))
        .map(|count| u32::try_from(count).unwrap_or(1))
}
