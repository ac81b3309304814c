//! The system calls that a command may make after its set-up: an allow list, and a list of calls that no command ever
//! makes.
//!
//! A call on neither list fails with ENOSYS, as on an older kernel: libraries have a fallback for that, so another libc
//! does not end a measurement. In a debug build, which the tests run, it kills the process, so that a missing entry is
//! noticed. A call on the second list kills in every build: only an attacker in control of the program makes it.
//!
//! Of two calls on the first list the arguments decide. `clone` makes threads; without CLONE_THREAD it makes a process, and
//! kills. `ioctl` asks terminals and interfaces; where it types into a terminal, it kills. `clone3` has its flags in memory,
//! which no filter reads: it fails with ENOSYS in every build, so that libraries make their threads by `clone`.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// System calls with the arguments that are meant: those of one of the rules, or any where there is no rule.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

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

/// Executing programs, making processes and namespaces, access to other processes' memory, changing the root, kernel
/// modules, keys, and ways to bypass a filter.
const NEVER: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
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
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// The flag of `clone` that makes a thread. The kernel makes none in another user namespace.
const THREAD: u64 = libc::CLONE_THREAD as u64;
/// The requests of `ioctl` that type into a terminal: a byte, and what is selected on a console. The C libraries differ in
/// their type.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

/// Restrict this thread, and threads started later, to these system calls.
pub(crate) fn allow_only(calls: &[Calls]) -> io::Result<()> {
    let allowed = with_any_arguments(calls.iter().flat_map(|calls| calls.numbers()));
    install(allowed, SeccompAction::Allow, otherwise())?;
    refuse_attacks()
}

/// Refuse this thread, and threads started later, what no command does. The kernel takes the strictest answer of all
/// filters, so this holds whatever the list of a command allows.
fn refuse_attacks() -> io::Result<()> {
    install(with_any_arguments(&[libc::SYS_clone3]), no_such_call(), SeccompAction::Allow)?;
    let mut never = with_any_arguments(NEVER);
    never.extend(never_with_these_arguments().map_err(io::Error::other)?);
    install(never, SeccompAction::KillProcess, SeccompAction::Allow)
}

fn otherwise() -> SeccompAction {
    if cfg!(debug_assertions) { SeccompAction::KillProcess } else { no_such_call() }
}

fn no_such_call() -> SeccompAction {
    SeccompAction::Errno(libc::ENOSYS.cast_unsigned())
}

fn with_any_arguments<'a>(numbers: impl IntoIterator<Item = &'a i64>) -> Rules {
    numbers.into_iter().map(|number| (*number, Vec::new())).collect()
}

fn never_with_these_arguments() -> Result<Rules, BackendError> {
    let makes_a_process = argument(0, SeccompCmpOp::MaskedEq(THREAD), 0)?;
    let types = [argument(1, SeccompCmpOp::Eq, TIOCSTI)?, argument(1, SeccompCmpOp::Eq, TIOCLINUX)?];
    Ok(Rules::from([(libc::SYS_clone, vec![makes_a_process]), (libc::SYS_ioctl, Vec::from(types))]))
}

/// Return the rule that an argument is so. The kernel reads 32 bits of the flags of `clone` and of the request of `ioctl`:
/// a rule about all 64 would be evaded by the others.
fn argument(index: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, is, value)?])
}

fn install(rules: Rules, matching: SeccompAction, otherwise: SeccompAction) -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    mod sys;

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

    /// As systemd refuses it to a service without capabilities (`SystemCallFilter=~@privileged`).
    #[test]
    fn who_holds_nothing_needs_no_call_to_give_it_up() {
        let given_up = std::thread::spawn(|| {
            crate::keep_only(&[]).expect("gives up");
            install(with_any_arguments(&[libc::SYS_capset]), no_such_call(), SeccompAction::Allow).expect("a filter");
            crate::keep_only(&[])
        });
        given_up.join().expect("it ends well").expect("there is nothing to give up");
    }

    #[test]
    fn confined_process_that_makes_another_is_killed() {
        let child = i64::from(libc::SIGCHLD);
        let calls = [
            (libc::SYS_clone, [child, 0, 0, 0]),
            (libc::SYS_clone, [i64::from(libc::CLONE_PARENT) | child, 0, 0, 0]),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_fork, [0; 4]),
        ];
        for outcome in outcomes("confined_process_that_makes_another_is_killed", &calls) {
            assert_eq!(outcome, KILLED);
        }
    }

    #[test]
    fn confined_process_can_make_no_user_namespace() {
        let (user, child) = (i64::from(libc::CLONE_NEWUSER), i64::from(libc::SIGCHLD));
        let thread = i64::from(libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM);
        let calls = [
            (libc::SYS_unshare, [user, 0, 0, 0]),
            (libc::SYS_clone, [user | child, 0, 0, 0]),
            // The kernel itself refuses a thread in another user namespace.
            (libc::SYS_clone, [user | thread, 0, 0, 0]),
        ];
        let outcomes = outcomes("confined_process_can_make_no_user_namespace", &calls);
        assert_eq!(outcomes[..2], [KILLED, KILLED]);
        assert!(outcomes[2] != CARRIED_OUT && outcomes[2] != KILLED, "{:?}", outcomes[2]);
    }

    #[test]
    fn clone3_whose_flags_no_filter_can_read_does_not_exist() {
        let outcomes = outcomes("clone3_whose_flags_no_filter_can_read_does_not_exist", &[(libc::SYS_clone3, [0; 4])]);
        assert_eq!(outcomes, [(None, Some(libc::ENOSYS))]);
    }

    #[test]
    fn confined_process_that_types_into_a_terminal_is_killed() {
        let [sti, linux] = [TIOCSTI, TIOCLINUX].map(u64::cast_signed);
        // A bit that the kernel does not read, and a request beside these two: TIOCGWINSZ.
        let (beyond, size) = (1_i64 << 32, 0x5413);
        let calls = [
            (libc::SYS_ioctl, [0, sti, 0, 0]),
            (libc::SYS_ioctl, [0, sti | beyond, 0, 0]),
            (libc::SYS_ioctl, [0, linux, 0, 0]),
            (libc::SYS_ioctl, [-1, size, 0, 0]),
        ];
        let outcomes = outcomes("confined_process_that_types_into_a_terminal_is_killed", &calls);
        assert_eq!(outcomes[..3], [KILLED; 3]);
        assert_eq!(outcomes[3], (None, Some(libc::EBADF)), "other requests reach the kernel");
    }

    /// The signal that ended a process, and the status that it ended with: the error number of its call, or 0.
    type Outcome = (Option<i32>, Option<i32>);
    const KILLED: Outcome = (Some(libc::SIGSYS), None);
    const CARRIED_OUT: Outcome = (None, Some(0));

    /// Makes each call, with these arguments, in a process of its own that is refused what no command does and nothing else.
    /// These processes run the test of this name again, in which this does not return.
    fn outcomes(test: &str, calls: &[(i64, [i64; 4])]) -> Vec<Outcome> {
        use std::os::unix::process::ExitStatusExt;
        use std::process::Command;
        if let Ok(nth) = std::env::var(INSIDE) {
            let (number, arguments) = calls[nth.parse::<usize>().expect("a number")];
            refuse_attacks().expect("a filter");
            sys::make_call(number, arguments);
        }
        let program = std::env::current_exe().expect("this test's program");
        let name = format!("calls::tests::{test}");
        let outcome = |nth: usize| {
            let mut again = Command::new(&program);
            let output = again.args(["--exact", &name, "--nocapture"]).env(INSIDE, nth.to_string()).output();
            let status = output.expect("starts").status;
            (status.signal(), status.code())
        };
        (0..calls.len()).map(outcome).collect()
    }

    /// `clone3`, by which glibc would make the thread, fails.
    #[test]
    fn confined_thread_can_still_work() {
        let read = std::thread::spawn(|| {
            allow_only(&[Calls::Basic]).expect("a filter");
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("its status");
            std::thread::spawn(|| ()).join().expect("a thread");
            status
        });
        let status = read.join().expect("it ends well");
        assert!(status.contains("Seccomp:\t2\n") && status.contains("Seccomp_filters:\t3\n"), "{status}");
    }
}
