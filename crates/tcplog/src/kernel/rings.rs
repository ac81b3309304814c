//! The rings, one for each CPU, that the programs write and we read.
//!
//! Nobody is woken when a record comes: whoever reads looks often enough, or the ring is full and the programs count it.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};

use super::KernelError;
use super::sys::{Mapping, page};

/// The head of a record: still being written.
const BUSY: u32 = 1 << 31;
/// The head of a record: thought better of.
const DISCARDED: u32 = 1 << 30;
const HEAD: usize = 8;

/// All of them.
#[derive(Debug)]
pub(super) struct Rings(Vec<Ring>);

#[derive(Debug)]
struct Ring {
    cpu: u32,
    map: MapHandle,
    /// Where we are, in bytes from the beginning of time.
    consumer: Mapping,
    /// Where the programs are, and behind that page all records, twice, so that none is torn at the end.
    producer: Mapping,
    size: usize,
}

impl Rings {
    /// Makes a ring of at least so many bytes for each CPU, and hands them to the programs.
    pub fn make(object: &Object, bytes: usize) -> Result<Self, KernelError> {
        let failed = |error: &libbpf_rs::Error| KernelError::system("make", "the rings", error);
        let outer = object.maps().find(|map| map.name() == "rings").ok_or(KernelError::Damaged("rings"))?;
        let mut rings = Vec::new();
        for cpu in 0..cpus()? {
            let ring = Ring::make(cpu, bytes)?;
            outer
                .update(&cpu.to_ne_bytes(), &ring.number()?.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| failed(&error))?;
            rings.push(ring);
        }
        Ok(Self(rings))
    }

    /// Waits until no program runs any more that began before: the kernel does so when a map within a map is set.
    pub fn settle(&self, object: &Object) -> Result<(), KernelError> {
        let outer = object.maps().find(|map| map.name() == "rings").ok_or(KernelError::Damaged("rings"))?;
        let Some(ring) = self.0.first() else { return Ok(()) };
        outer
            .update(&ring.cpu.to_ne_bytes(), &ring.number()?.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| KernelError::system("wait for", "programs that run", &error))
    }

    /// Hands on what waits in each.
    pub fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> u64 {
        self.0.iter_mut().map(|ring| ring.drain(take)).sum()
    }
}

impl Ring {
    fn make(cpu: u32, bytes: usize) -> Result<Self, KernelError> {
        let size = bytes.max(page()).next_power_of_two();
        let failed = |error: &libbpf_rs::Error| KernelError::system("make", "a ring", error);
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let entries =
            u32::try_from(size).map_err(|_| KernelError::io("make", "a ring", io::ErrorKind::InvalidInput))?;
        let map = MapHandle::create(MapType::RingBuf, Some("tcplog_ring"), 0, 0, entries, &options)
            .map_err(|error| failed(&error))?;
        let mapped = |error| KernelError::io("map", "a ring", error);
        let consumer = Mapping::new(map.as_fd(), 0, page(), true).map_err(mapped)?;
        let producer = Mapping::new(map.as_fd(), page(), page() + 2 * size, false).map_err(mapped)?;
        Ok(Self { cpu, map, consumer, producer, size })
    }

    fn number(&self) -> Result<u32, KernelError> {
        use std::os::fd::AsRawFd;
        u32::try_from(self.map.as_fd().as_raw_fd())
            .map_err(|_| KernelError::io("use", "a ring", io::ErrorKind::InvalidInput))
    }

    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> u64 {
        let end = self.producer.load(0);
        let mut at = self.consumer.load(0);
        let mut taken = 0;
        while at < end {
            let head = page() + usize::try_from(at).unwrap_or(0) % self.size;
            let length = self.producer.load_head(head);
            if length & BUSY != 0 {
                break;
            }
            let bytes = (length & !DISCARDED) as usize;
            if length & DISCARDED == 0 {
                take(self.cpu, self.producer.bytes(head + HEAD, bytes));
                taken += 1;
            }
            at += (HEAD + bytes).next_multiple_of(8) as u64;
        }
        self.consumer.store(0, at);
        taken
    }
}

/// How many CPUs there may ever be.
pub(super) fn cpus() -> Result<u32, KernelError> {
    libbpf_rs::num_possible_cpus()
        .map_err(|error| KernelError::system("count", "the CPUs", &error))
        .map(|count| u32::try_from(count).unwrap_or(1))
}
