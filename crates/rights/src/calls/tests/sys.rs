//! System calls that no safe interface makes, because no command makes them: tests try what is refused.

#![expect(unsafe_code, reason = "raw system calls")]

/// Makes a call, and ends the process, and the one that the call made, with its error number.
pub(crate) fn make_call(number: i64, [first, second, third, fourth]: [i64; 4]) -> ! {
    // SAFETY: the pointers among the arguments are null, and nothing but `_exit` follows in a process that was made.
    unsafe {
        let answer = libc::syscall(number, first, second, third, fourth, 0_i64);
        let error = if answer < 0 { *libc::__errno_location() } else { 0 };
        libc::_exit(error)
    }
}
