//! Memory shared with the programs in the kernel, and calls of libbpf that `libbpf-rs` lacks.

#![expect(unsafe_code, reason = "maps and rings are mapped memory that the kernel writes while we read")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// The mapped memory of a map; dropping it unmaps it.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: memory of this process that no thread owns; it is accessed by atomic loads and stores, or after the writer
// has published it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `length` bytes of a map, starting at `offset`.
    pub fn new(map: BorrowedFd<'_>, offset: usize, length: usize, is_writable: bool) -> io::Result<Self> {
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, map.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(|start| Self { start, length }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Load the number at an offset, a multiple of 8; 0 beyond the end.
    pub fn load(&self, offset: usize) -> u64 {
        self.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Store a number at an offset, a multiple of 8; does nothing beyond the end.
    pub fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// Load `bytes` bytes, a multiple of 8, one number at a time.
    pub fn load_all(&self, offset: usize, bytes: usize) -> Vec<u8> {
        (offset..offset + bytes).step_by(8).flat_map(|at| self.load(at).to_ne_bytes()).collect()
    }

    /// Borrow bytes.
    ///
    /// # Safety
    /// Nobody may write them while they are borrowed.
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return &[];
        }
        // SAFETY: within the mapping; the caller ensures that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset + 8 > self.length {
            return None;
        }
        // SAFETY: within the mapping and aligned; an atomic number may be changed by others.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no borrow outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Return the size of a page.
pub fn page() -> usize {
    // SAFETY: the call only returns a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Make the kernel measure program run times until the returned descriptor is closed.
pub fn measure_cost() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, so nobody else owns it.
    unsafe { checked(libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// The kernel's statistics of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The program's ID.
    pub id: u32,
    /// The number of runs.
    pub runs: u64,
    /// The time of all runs.
    pub run_ns: u64,
    /// How often it was skipped because it was running on that CPU already.
    pub missed: u64,
}

/// Read the statistics of a program.
pub fn measured(program: BorrowedFd<'_>) -> io::Result<Measured> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: a live structure of plain numbers with its own size; its pointers are null with lengths of 0.
    checked(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length) })?;
    Ok(Measured { id: info.id, runs: info.run_cnt, run_ns: info.run_time_ns, missed: info.recursion_misses })
}

/// Return the programs at an attach point of a cgroup: the attachment flags and the program IDs.
pub fn attached(cgroup: BorrowedFd<'_>, place: u32) -> io::Result<(u32, Vec<u32>)> {
    let mut programs = [0; 64];
    let mut count = 64;
    let mut flags = 0;
    // SAFETY: the array has room for `count` numbers.
    checked(unsafe {
        libbpf_sys::bpf_prog_query(cgroup.as_raw_fd(), place, 0, &raw mut flags, programs.as_mut_ptr(), &raw mut count)
    })?;
    Ok((flags, programs.into_iter().take(count as usize).collect()))
}

/// Return whether cgroup programs may ask for process IDs in another PID namespace than the initial one.
pub fn can_ask_for_processes() -> bool {
    let kind = libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK;
    let helper = libbpf_sys::BPF_FUNC_get_ns_current_pid_tgid;
    // SAFETY: takes two numbers and a null pointer for options; it loads a test program and closes it again.
    unsafe { libbpf_sys::libbpf_probe_bpf_helper(kind, helper, std::ptr::null()) == 1 }
}

/// Convert libbpf's result, a negative error number on failure.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
