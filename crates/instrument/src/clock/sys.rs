//! The one system call that tells of the kernel's clock and that no safe crate offers: adjtimex, read only.

#![expect(unsafe_code, reason = "adjtimex(2) has no safe interface in rustix")]

use std::io;

/// What the kernel says of its clock.
#[derive(Clone, Copy, Debug)]
pub struct KernelClock {
    pub state: i32,
    pub status: i32,
    pub max_error_us: i64,
    pub estimated_error_us: i64,
    /// In 1/65536 ppm.
    pub frequency: i64,
    pub tai_offset_s: i32,
}

/// Asks the kernel, and changes nothing.
pub fn kernel_clock() -> io::Result<KernelClock> {
    // SAFETY: all-zero is a valid timex, and modes 0 asks only; the pointer is to one that lives.
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
