//! Safe wrapper of adjtimex(2), read-only: the one system call about the kernel's clock that no safe crate offers.

#![expect(unsafe_code, reason = "adjtimex(2) has no safe interface in rustix")]

use std::io;

/// The state of the kernel's clock.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    pub state: i32,
    pub status: i32,
    pub max_error_us: i64,
    pub estimated_error_us: i64,
    /// Unit: 1/65536 ppm.
    pub frequency: i64,
    pub tai_offset_s: i32,
}

/// Reads the state; changes nothing.
pub fn kernel_clock() -> io::Result<KernelClock> {
    // SAFETY: all-zero is a valid timex, and modes 0 only reads; the pointer is to a live value.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(KernelClock {
        state,
        status: timex.status,
        max_error_us: timex.maxerror,
        estimated_error_us: timex.esterror,
        frequency: timex.freq,
        tai_offset_s: timex.tai,
    })
}
