//! The two calls that no safe crate offers for every option of a socket: getsockopt and setsockopt, as bytes.

#![expect(
    unsafe_code,
    reason = "TCP_INFO, TCP_MAXSEG, TCP_WINDOW_CLAMP and SO_NETNS_COOKIE have no safe interface in rustix"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// An option: its level and its number.
pub type Name = (libc::c_int, libc::c_int);

/// Reads an option into `value`; returns how many bytes the kernel wrote.
pub fn option(socket: impl AsFd, (level, number): Name, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the slice.
    let result = unsafe { libc::getsockopt(fd, level, number, value.as_mut_ptr().cast(), &raw mut length) };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option that is a number.
pub fn set_option(socket: impl AsFd, (level, number): Name, value: libc::c_int) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and the length describe one live number, which the kernel only reads.
    let result = unsafe { libc::setsockopt(fd, level, number, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
