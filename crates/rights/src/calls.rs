//! The system calls that a command may make after its set-up: an allow list, and a list of calls that no command ever
//! makes.
//!
//! A call on neither list fails with ENOSYS, as on an older kernel: libraries have a fallback for that, so another libc
//! does not end a measurement. In a debug build, which the tests run, it kills the process, so that a missing entry is
//! noticed. A call on the second list kills in every build: only an attacker in control of the program makes it.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// System calls by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Memory, time, threads, open files, and dropping privileges.
    Basic,
    /// Create, configure, read and write sockets.
    Sockets,
    /// BPF programs and maps.
    Programs,
    /// Create, rename and remove files and folders.
    Files,
    /// Change the scheduling of the own process.
    Priority,
    /// Enter the network namespace of a filter.
    Namespaces,
    /// Wait for, and terminate, a process started earlier.
    Companion,
}

impl Calls {
    /// Return a description of the purpose.
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Basic => "memory, time, threads, reading files, what is open",
            Self::Sockets => "sockets",
            Self::Programs => "programs in the kernel",
            Self::Files => "files made, renamed and removed",
            Self::Priority => "its own scheduling",
            Self::Namespaces => "the network namespace that a filter names",
            Self::Companion => "COMMAND, waited for and told to end",
        }
    }

    const fn numbers(self) -> &'static [i64] {
        match self {
            Self::Basic => BASIC,
            Self::Sockets => SOCKETS,
            // libbpf reserves file descriptors for maps with memfd_create.
            Self::Programs => &[libc::SYS_bpf, libc::SYS_memfd_create],
            Self::Files => FILES,
            Self::Priority => &[
                libc::SYS_sched_setscheduler,
                libc::SYS_sched_setaffinity,
                libc::SYS_setpriority,
                libc::SYS_getpriority,
            ],
            Self::Namespaces => &[libc::SYS_setns],
            Self::Companion => {
                &[libc::SYS_kill, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal]
            }
        }
    }
}

const BASIC: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_ioctl,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_prlimit64,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
    // Read the state of the kernel's clock. Changing it requires CAP_SYS_TIME.
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    // Truncate a record that a full disk cut short (best effort), and flush files to the disk.
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
];

const SOCKETS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

const FILES: &[i64] = &[
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_flock,
    libc::SYS_fstatfs,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Executing programs, access to other processes' memory, changing the root, kernel modules, keys, and ways to bypass a
/// filter.
const NEVER: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
];

/// Restrict this thread, and threads started later, to these system calls.
pub(crate) fn allow_only(calls: &[Calls]) -> io::Result<()> {
    let allowed = calls.iter().flat_map(|calls| calls.numbers());
    install(allowed, SeccompAction::Allow, otherwise())?;
    install(NEVER.iter(), SeccompAction::KillProcess, SeccompAction::Allow)
}

fn otherwise() -> SeccompAction {
    if cfg!(debug_assertions) { SeccompAction::KillProcess } else { SeccompAction::Errno(libc::ENOSYS.cast_unsigned()) }
}

fn install<'a>(
    numbers: impl Iterator<Item = &'a i64>,
    matching: SeccompAction,
    otherwise: SeccompAction,
) -> io::Result<()> {
    let rules: BTreeMap<i64, Vec<_>> = numbers.map(|number| (*number, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_system_call_is_both_needed_and_forbidden() {
        for group in crate::table::ALL.iter().flat_map(|needs| needs.calls) {
            assert!(group.numbers().iter().all(|number| !NEVER.contains(number)), "{group:?}");
        }
    }

    #[test]
    fn each_portable_system_call_is_known_on_aarch64() {
        // Calls after `cfg(x86_64)` do not exist on other architectures.
        let own = include_str!("calls.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let named = |line: &'static str| line.split("libc::SYS_").skip(1).map(|rest| rest.split([',', ']']).next());
        let lines: Vec<_> = own.lines().collect();
        let (x86, both): (Vec<_>, Vec<_>) = lines
            .iter()
            .enumerate()
            .flat_map(|(at, line)| named(line).flatten().map(move |name| (at, name)))
            .partition(|(at, _)| lines[at - 1].trim() == r#"#[cfg(target_arch = "x86_64")]"#);
        assert!(x86.len() > 5 && both.len() > 100, "{} and {}", x86.len(), both.len());
        // The generic system call table, which aarch64 uses.
        let Ok(table) = std::fs::read_to_string("/usr/include/asm-generic/unistd.h") else {
            assert!(std::env::var_os("CI").is_none(), "CI has the kernel's headers");
            eprintln!("skipped: /usr/include/asm-generic/unistd.h is not there: apt-get install linux-libc-dev");
            return;
        };
        let is_known = |name: &str| {
            let named = format!("#define __NR_{name} ");
            table.lines().any(|line| line.starts_with(&named))
        };
        for (_, name) in both {
            assert!(is_known(name), "{name}");
        }
        for (_, name) in x86 {
            assert!(!is_known(name), "{name} is there too: without it fewer calls are allowed");
        }
    }

    /// Set in the child process that a test starts of itself.
    const INSIDE: &str = "SOJOURN_TEST_CONFINED";

    #[test]
    fn confined_process_that_executes_a_program_is_killed() {
        use std::os::unix::process::{CommandExt, ExitStatusExt};
        use std::process::Command;
        if std::env::var_os(INSIDE).is_some() {
            allow_only(&[Calls::Basic]).expect("a filter");
            let error = Command::new("true").exec();
            eprintln!("it goes on: {error}");
            return;
        }
        let words = ["--exact", "calls::tests::confined_process_that_executes_a_program_is_killed", "--nocapture"];
        let test = std::env::current_exe().expect("this test's program");
        let output = Command::new(test).args(words).env(INSIDE, "1").output().expect("starts");
        assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn confined_thread_can_still_work() {
        let read = std::thread::spawn(|| {
            allow_only(&[Calls::Basic]).expect("a filter");
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("its status");
            std::thread::spawn(|| ()).join().expect("a thread");
            status
        });
        let status = read.join().expect("it ends well");
        assert!(status.contains("Seccomp:\t2\n") && status.contains("Seccomp_filters:\t2\n"), "{status}");
    }
}
