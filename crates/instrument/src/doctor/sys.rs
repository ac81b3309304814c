//! The one system call that the doctor tries and that no safe crate offers: bpf.

#![expect(unsafe_code, reason = "bpf(2) has no safe interface in rustix")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// Makes the smallest map that there is, and lets it go again.
pub fn try_bpf_map() -> io::Result<()> {
    // union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries; the kernel takes the rest as zeroes.
    let attributes: [u32; 4] = [BPF_MAP_TYPE_ARRAY, 4, 4, 1];
    // SAFETY: the pointer and the size describe one live array, which the kernel only reads; a descriptor that comes back
    // belongs to nobody else.
    unsafe {
        let result =
            libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attributes.as_ptr(), size_of_val(&attributes) as libc::c_long);
        let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        drop(OwnedFd::from_raw_fd(fd));
    }
    Ok(())
}
