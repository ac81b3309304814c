//! The rings, one for each CPU, which the programs write and user space reads: slots in mapped memory, each large
//! enough for any record.
//!
//! They replace the kernel's `BPF_MAP_TYPE_RINGBUF`, whose two calls per record cost as much as the rest of the work
//! for it (decision 0024). No reader is woken: it must poll often enough, or the ring fills up and the programs count
//! the lost records.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};

use super::KernelError;
use super::ring::{Mapped, Reader};
use super::sys::{Mapping, page};
use crate::layout::{PrivateState, SLOT_BYTES as SLOT, Sample, kind};

/// The size of `struct reader`: one cache line.
pub(super) const READER: usize = 64;

/// All rings.
#[derive(Debug)]
pub(super) struct Rings {
    /// One for each CPU.
    readers: Vec<Reader<Mapped>>,
    /// The map that is set within `fence`.
    inner: MapHandle,
}

impl Rings {
    /// Map the rings of an object that was loaded with `slots` slots for each CPU.
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
        let (memory, read) = (mapped("rings", SLOT * slots as usize * cpus)?, mapped("readers", READER * cpus)?);
        Ok(Self { readers: Mapped::all(memory, read, cpus, slots), inner })
    }

    /// Wait until all programs that are running now have finished: the kernel waits so when a map within a map is set.
    pub fn wait_grace_period(&self, object: &Object) -> Result<(), KernelError> {
        let fence = object.maps().find(|map| map.name() == "fence").ok_or(KernelError::Damaged("fence"))?;
        fence
            .update(&0_u32.to_ne_bytes(), &self.inner.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| KernelError::system("wait for", "programs that run", &error))
    }

    /// Pass on the waiting records of each ring.
    pub fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> u64 {
        let of_one = |(cpu, reader): (u32, &mut Reader<Mapped>)| {
            reader.drain(&mut |slot| {
                let is_private = slot.first() == Some(&kind::PRIVATE);
                let length = if is_private { size_of::<PrivateState>() } else { size_of::<Sample>() };
                take(cpu, slot.get(..length).unwrap_or_default());
            })
        };
        (0..).zip(&mut self.readers).map(of_one).sum()
    }
}

/// Return the number of possible CPUs.
pub(super) fn cpus() -> Result<u32, KernelError> {
    libbpf_rs::num_possible_cpus()
        .map_err(|error| KernelError::system("count", "the CPUs", &error))
        .map(|count| u32::try_from(count).unwrap_or(1))
}
