//! Safe wrappers of the system calls that need unsafe code: signal handlers, the scheduler, the umask, the session ID.

#![expect(
    unsafe_code,
    reason = "signal handlers, sched_setscheduler, umask and getsid have no safe interface in rustix as it is built here"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Set once SIGINT or SIGTERM has arrived.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// The descriptor to which the signal handler writes, so that a poll returns; -1: none.
static WAKER: AtomicI32 = AtomicI32::new(-1);

/// Makes SIGINT and SIGTERM set [`STOP`] and write to `waker`, an eventfd that stays open. They no longer end the program.
pub fn stop_on_signals(waker: BorrowedFd<'static>) -> io::Result<()> {
    WAKER.store(waker.as_raw_fd(), Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is a valid sigaction; the handler does only what a handler may (two atomics and a write).
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        check(result)?;
    }
    Ok(())
}

/// Gives SIGINT and SIGTERM their ordinary effect again: what is printed at the end may wait for a reader for ever.
pub fn let_signals_end() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the numbers are those of signals, and the disposition is the system's own.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Makes a write beyond the limit of file sizes an error, as a full disk is, in place of the end of this program. Programs that it
/// executes have the signal's ordinary effect, for a handler does not outlive that.
pub fn take_file_limits_as_errors() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, on_file_limit as *const () as libc::sighandler_t) };
}

/// Runs this thread under SCHED_FIFO.
pub fn run_real_time(priority: i32) -> io::Result<()> {
    schedule(libc::SCHED_FIFO, priority)
}

/// Runs this thread under SCHED_OTHER.
pub fn run_ordinarily() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, 0)
}

fn schedule(policy: libc::c_int, priority: i32) -> io::Result<()> {
    // SAFETY: all-zero is a valid sched_param; the pointer outlives the call.
    let result = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &raw const parameters)
    };
    check(result)
}

/// Sets the umask of the whole process; returns the previous one.
pub fn set_umask(mask: libc::mode_t) -> libc::mode_t {
    // SAFETY: it takes a number and cannot fail.
    unsafe { libc::umask(mask) }
}

/// Returns this process's session ID: 0 if the leader is outside this PID namespace, a case that rustix does not support.
pub fn session() -> libc::pid_t {
    // SAFETY: it takes a number and reads only this process's session ID.
    unsafe { libc::getsid(0) }
}

extern "C" fn on_file_limit(_signal: libc::c_int) {}

extern "C" fn on_signal(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
    let waker = WAKER.load(Ordering::Relaxed);
    if waker >= 0 {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: write is async-signal-safe; the length is that of the buffer. errno is restored for the interrupted code.
        unsafe {
            let errno = *libc::__errno_location();
            libc::write(waker, one.as_ptr().cast(), one.len());
            *libc::__errno_location() = errno;
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
