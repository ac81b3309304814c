//! System calls that no safe crate offers: the network namespace of a file, and a child that ends with its parent.

#![expect(
    unsafe_code,
    reason = "SO_NETNS_COOKIE has no safe interface in rustix, and std has none for what a child does first"
)]

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sojourn_rights::Right;

const SO_NETNS_COOKIE: libc::c_int = 71;

/// Returns the cookie of the network namespace of a file, such as /proc/1/ns/net.
pub fn netns_cookie(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    // A running log has dropped this capability, and its system-call filter forbids the call.
    if !Right::SysAdmin.is_held() {
        return Err(Errno::PERM.into());
    }
    // In a separate thread, because the thread cannot change back.
    let ask = move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        cookie_of(&UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?)
    };
    let thread = thread::Builder::new().spawn(ask)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended early")))
}

fn cookie_of(socket: &UdpSocket) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the pointers are to a live number and its length, which the kernel fills in.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel send SIGTERM to a command when the thread that starts it dies.
pub fn end_with_us(command: &mut Command) {
    let ours = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before that call.
        if getppid() == Some(ours) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec, the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(ask) };
}
