//! getsockopt and setsockopt with byte values, which no safe crate offers for every option.

#![expect(
    unsafe_code,
    reason = "TCP_INFO, TCP_MAXSEG, TCP_WINDOW_CLAMP and SO_NETNS_COOKIE have no safe interface in rustix"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A socket option: its level and its number.
pub type Name = (libc::c_int, libc::c_int);

/// Read an option into `value`; return how many bytes the kernel wrote.
pub fn option(socket: impl AsFd, (level, number): Name, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, the size of the slice.
    let result = unsafe { libc::getsockopt(fd, level, number, value.as_mut_ptr().cast(), &raw mut length) };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Set an option whose value is a number.
pub fn set_option(socket: impl AsFd, (level, number): Name, value: libc::c_int) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and the length describe one live number, which the kernel only reads.
    let result = unsafe { libc::setsockopt(fd, level, number, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
