//! Safe wrappers of the system calls that need unsafe code: signal handlers, the scheduler, the umask, the session ID.

#![expect(
    unsafe_code,
    reason = "signal handlers, sched_setscheduler, umask and getsid have no safe interface in rustix as it is built here"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

/// Set once SIGINT or SIGTERM has arrived.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// The descriptor to which the signal handler writes, so that a poll returns; -1: none.
static WAKER: AtomicI32 = AtomicI32::new(-1);

/// When a further signal ends the program, in nanoseconds of CLOCK_MONOTONIC.
static ENDS_FROM: AtomicI64 = AtomicI64::new(i64::MAX);

/// Nanoseconds.
const ENDS_AFTER: i64 = 1_000_000_000;

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

/// Has SIGINT and SIGTERM end the program from [`ENDS_AFTER`] on, for what is printed at the end may wait for a reader for
/// ever. A first signal may come twice within that time: from the terminal, and from the program that started this one.
pub fn let_signals_end() {
    ENDS_FROM.store(monotonic() + ENDS_AFTER, Ordering::Relaxed);
}

/// Makes a write beyond the limit of file sizes an error, as a full disk is, in place of the end of this program. Programs that it
/// executes have the signal's ordinary effect, for a handler does not outlive that.
pub fn take_file_limits_as_errors() {
    // SAFETY: the handler does nothing.
    unsafe {
        let before = libc::signal(libc::SIGXFSZ, on_file_limit as *const () as libc::sighandler_t);
        if before == libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, before);
        }
    }
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

fn monotonic() -> i64 {
    // SAFETY: all-zero is a valid timespec, which outlives the call; the call is async-signal-safe.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
    if monotonic() >= ENDS_FROM.load(Ordering::Relaxed) {
        // SAFETY: it does not return, and is async-signal-safe.
        unsafe { libc::_exit(128 + signal) };
    }
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
