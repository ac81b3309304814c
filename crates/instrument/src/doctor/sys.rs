//! Safe wrappers of bpf(2) and getxattr(2), which no safe crate offers as it is built here.

#![expect(unsafe_code, reason = "bpf(2) has no safe interface in rustix, nor getxattr(2) without its file system part")]

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_TYPE_ARRAY: u32 = 2;

/// Creates the smallest possible map, and closes it.
pub fn try_bpf_map() -> io::Result<()> {
    // union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries; the kernel treats the rest as zero.
    let attributes: [u32; 4] = [BPF_MAP_TYPE_ARRAY, 4, 4, 1];
    // SAFETY: the pointer and the size describe one live array, which the kernel only reads; a returned descriptor has
    // no other owner.
    unsafe {
        let result =
            libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attributes.as_ptr(), size_of_val(&attributes) as libc::c_long);
        let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        drop(OwnedFd::from_raw_fd(fd));
    }
    Ok(())
}

/// Whether a program has file capabilities.
pub fn has_file_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings are NUL-terminated and outlive the call; the buffer size is 0, so nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}
