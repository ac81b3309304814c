//! Memory shared with the programs in the kernel, and the calls of libbpf that `libbpf-rs` does not offer.

#![expect(unsafe_code, reason = "maps and rings are mapped memory that the kernel writes while we read")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a map, for as long as this lives.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory of this process, which no thread owns; all access to it is by atomic loads and stores, or to what the
// kernel has finished.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a map from `offset` on.
    pub fn new(map: BorrowedFd<'_>, offset: usize, length: usize, is_writable: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the place, so nothing else is there.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, map.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(|start| Self { start, length }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Loads the number at a multiple of 8; 0 behind the end.
    pub fn load(&self, offset: usize) -> u64 {
        self.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores the number at a multiple of 8; nothing behind the end.
    pub fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// Loads `bytes`, a multiple of 8, number by number.
    pub fn load_all(&self, offset: usize, bytes: usize) -> Vec<u8> {
        (offset..offset + bytes).step_by(8).flat_map(|at| self.load(at).to_ne_bytes()).collect()
    }

    /// Shows bytes.
    ///
    /// # Safety
    /// Nobody writes them as long as they are shown.
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return &[];
        }
        // SAFETY: inside the mapping, and as the caller says.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset + 8 > self.length {
            return None;
        }
        // SAFETY: inside the mapping and aligned, and an atomic number may change under us.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Returns the size of a page.
pub fn page() -> usize {
    // SAFETY: asks for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Has the kernel measure what programs cost, until what this returns is dropped.
pub fn measure_cost() -> io::Result<OwnedFd> {
    // SAFETY: the kernel gives a new descriptor, which belongs to nobody else.
    unsafe { checked(libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// What the kernel has measured of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Its number.
    pub id: u32,
    /// How often it ran.
    pub runs: u64,
    /// How long, all runs together.
    pub run_ns: u64,
    /// How often it was left out because it ran already on that CPU.
    pub missed: u64,
}

/// Asks what a program has cost.
pub fn measured(program: BorrowedFd<'_>) -> io::Result<Measured> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: a live structure of plain numbers with its own size; its pointers are zero, with lengths of zero.
    checked(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length) })?;
    Ok(Measured { id: info.id, runs: info.run_cnt, run_ns: info.run_time_ns, missed: info.recursion_misses })
}

/// What hangs on a cgroup at one place: the flags of the attachment and the programs' numbers.
pub fn attached(cgroup: BorrowedFd<'_>, place: u32) -> io::Result<(u32, Vec<u32>)> {
    let mut programs = [0; 64];
    let mut count = 64;
    let mut flags = 0;
    // SAFETY: the array has room for as many numbers as `count` says.
    checked(unsafe {
        libbpf_sys::bpf_prog_query(cgroup.as_raw_fd(), place, 0, &raw mut flags, programs.as_mut_ptr(), &raw mut count)
    })?;
    Ok((flags, programs.into_iter().take(count as usize).collect()))
}

/// Whether programs at cgroups may ask for a process's number in another namespace than the first.
pub fn can_ask_for_processes() -> bool {
    let kind = libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK;
    let helper = libbpf_sys::BPF_FUNC_get_ns_current_pid_tgid;
    // SAFETY: it takes two numbers and no options, and tries by loading a program of its own that it closes again.
    unsafe { libbpf_sys::libbpf_probe_bpf_helper(kind, helper, std::ptr::null()) == 1 }
}

/// libbpf returns the negative error number.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
