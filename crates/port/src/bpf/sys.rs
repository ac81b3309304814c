//! Calls that `libbpf-rs` does not offer in the form needed: links with a mode or a position, test runs with live
//! frames; and the ioctl that creates a tap.

#![expect(
    unsafe_code,
    reason = "libbpf-rs links programs only in the mode that the kernel chooses, and takes no batch size; a tap has no safe crate"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys::{bpf_link_create_opts, bpf_test_run_opts};

use super::{End, Mode};

/// Attaches an XDP program to the interface with this index, in this mode.
pub fn attach_xdp(program: BorrowedFd<'_>, interface: i32, mode: Mode) -> io::Result<OwnedFd> {
    let flags = match mode {
        Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
        Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
    };
    let options = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, flags, ..Default::default() };
    // SAFETY: the options are a live structure that states its own size and holds no pointers; the kernel returns a new
    // descriptor, which nothing else owns.
    unsafe {
        let link = libbpf_sys::bpf_link_create(program.as_raw_fd(), interface, libbpf_sys::BPF_XDP, &raw const options);
        checked(link).map(|link| OwnedFd::from_raw_fd(link))
    }
}

/// Attaches a tc program to the interface with this index, before all others.
pub fn attach_tc(program: BorrowedFd<'_>, interface: i32, end: End) -> io::Result<OwnedFd> {
    let kind = match end {
        End::In => libbpf_sys::BPF_TCX_INGRESS,
        End::Out => libbpf_sys::BPF_TCX_EGRESS,
    };
    let flags = libbpf_sys::BPF_F_BEFORE;
    let options = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, flags, ..Default::default() };
    // SAFETY: as above.
    unsafe {
        let link = libbpf_sys::bpf_link_create(program.as_raw_fd(), interface, kind, &raw const options);
        checked(link).map(|link| OwnedFd::from_raw_fd(link))
    }
}

/// Runs an XDP program on `count` copies of `frame`, in batches of `together`; the kernel executes the program's
/// verdict on each.
pub fn run_live(program: BorrowedFd<'_>, frame: &[u8], count: u32, together: u32) -> io::Result<()> {
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        repeat: i32::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: together,
        ..Default::default()
    };
    // SAFETY: the options are a live structure that states its own size; its one pointer comes with the length of a
    // slice that outlives the call and that the kernel only reads.
    checked(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) }).map(drop)
}

/// Creates a tap from an open `/dev/net/tun`, named by `pattern`; returns its name.
pub fn make_tap(tun: BorrowedFd<'_>, pattern: &[u8]) -> io::Result<String> {
    // SAFETY: an `ifreq` of zeros is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(pattern) {
        *place = libc::c_char::from_ne_bytes([*byte]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is a live structure of the size that this call reads and writes.
    if unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0).flat_map(|byte| byte.to_ne_bytes());
    String::from_utf8(name.collect()).map_err(io::Error::other)
}

/// libbpf returns the negative error number.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
