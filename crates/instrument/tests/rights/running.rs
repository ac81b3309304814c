//! A running command, as one of its starters or strace starts it, and what it holds.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use sojourn_rights::table::Who;
use sojourn_rights::{Needs, Right};
use sojourn_time::{Clock, HostClock, Nanos};

use super::send;

pub const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");
/// An unprivileged user that every Linux system has.
pub const DAEMON: u32 = 1;
pub const NOBODY: u32 = 65_534;

pub fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.expect(name).trim().to_owned()
}

/// Returns a command as root starts it, or as sudo does for another user.
pub fn command(words: &str, sudo: bool) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words.split_whitespace());
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    if sudo {
        command.envs([("SUDO_UID", "1"), ("SUDO_GID", "1"), ("SUDO_USER", "daemon"), ("SUDO_COMMAND", "sojourn")]);
    }
    command
}

/// Who starts a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// Root.
    Root,
    /// sudo, for another user.
    Sudo,
    /// That user, with the capabilities of the command's table alone, as a service has them.
    Service,
}

/// Returns all of them, where other users exist.
pub fn starters() -> Vec<Starter> {
    let mut starters = vec![Starter::Root, Starter::Sudo];
    starters.extend((rustix::process::geteuid().is_root() && is_mapped()).then_some(Starter::Service));
    starters
}

/// Copies the program to where each user may run it, whoever owns the build folder.
pub fn program_for_all(folder: &Folder) -> PathBuf {
    let program = folder.0.join("sojourn-instrument");
    fs::copy(BINARY, &program).expect("copies");
    program
}

/// Returns a command as a user starts it to whom these rights are lent.
pub fn lent(program: &Path, words: &str, rights: &[Right]) -> Command {
    let names = rights.iter().map(|right| format!(",+{}", right.name().trim_start_matches("CAP_").to_lowercase()));
    let sets = format!("-all{}", names.collect::<String>());
    let mut command = Command::new("setpriv");
    let user = DAEMON.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps", &sets, "--ambient-caps", &sets]);
    command.args(["--bounding-set", &sets]).arg(program).args(words.split_whitespace());
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command
}

/// The system calls by which Landlock is asked whether it is there, and restricts a thread.
const OF_LANDLOCK: &str = "trace=landlock_create_ruleset,landlock_restrict_self";

/// Whether this machine lets a program be traced. Set-up installs strace: without it the tests fail.
pub fn may_trace() -> bool {
    let mut tried = Command::new("strace");
    tried.args(["-D", "-e", OF_LANDLOCK, "-o", "/dev/null", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    match tried.status() {
        Ok(status) if status.success() => return true,
        Err(error) => assert!(error.kind() != ErrorKind::NotFound, "strace is missing: `make setup` installs it"),
        Ok(_) => {}
    }
    assert!(std::env::var_os("CI").is_none(), "CI must be able to trace");
    eprintln!("skipped: strace may trace nothing here: whether commands ask Landlock to restrict them is not seen");
    false
}

/// Returns the threads that have restricted where they may write, by the output of strace. Where the kernel has no Landlock: those
/// that have asked for it, and got that answer.
pub fn restricted(trace: &str) -> BTreeSet<u32> {
    let is_restriction = |call: &str| {
        let is_refused = ["= -1 ENOSYS", "= -1 EOPNOTSUPP"].iter().any(|answer| call.contains(answer));
        (call.contains("landlock_restrict_self") && call.ends_with("= 0"))
            || (call.contains("landlock_create_ruleset") && is_refused)
    };
    let thread_of = |line: &str| {
        let (thread, call) = line.split_once(' ')?;
        if is_restriction(call) { thread.parse::<u32>().ok() } else { None }
    };
    trace.lines().filter_map(thread_of).collect()
}

#[test]
fn thread_is_restricted_where_landlock_did_it_or_is_not_there() {
    let restricts = "7  landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) = 7\n\
                     8  landlock_create_ruleset({handled_access_fs=LANDLOCK_ACCESS_FS_WRITE_FILE}, 8, 0) = 5\n\
                     8  landlock_restrict_self(5, 0)     = 0\n\
                     9  landlock_restrict_self(-1, 0)     = -1 EBADF (Bad file descriptor)\n\
                     10 landlock_restrict_self(5, 0 <unfinished ...>\n\
                     11 <... landlock_restrict_self resumed>) = 0\n";
    assert_eq!(restricted(restricts), BTreeSet::from([8, 11]));
    let asks = "7  landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)";
    for answer in ["-1 ENOSYS (Function not implemented)", "-1 EOPNOTSUPP (Operation not supported)"] {
        assert_eq!(restricted(&format!("{asks} = {answer}")), BTreeSet::from([7]));
    }
}

/// A running command, ended when dropped.
pub struct Running {
    pub process: Child,
    input: Option<ChildStdin>,
    output: BufReader<Box<dyn Read>>,
    needs: &'static Needs,
    starter: Starter,
    /// The output of strace.
    trace: Option<PathBuf>,
}

impl Running {
    pub fn start(words: &str, needs: &'static Needs, sudo: bool) -> Self {
        let starter = if sudo { Starter::Sudo } else { Starter::Root };
        Self::start_as(Path::new(BINARY), words, needs, starter)
    }

    pub fn start_as(program: &Path, words: &str, needs: &'static Needs, starter: Starter) -> Self {
        let command = match starter {
            Starter::Root | Starter::Sudo => command(words, starter == Starter::Sudo),
            Starter::Service => lent(program, words, &needs.rights().collect::<Vec<_>>()),
        };
        Self::spawn(command, needs, starter)
    }

    /// Starts a command as root does, below strace, which traces it from a process apart: the command has the number of the process.
    pub fn start_traced(program: &Path, words: &str, needs: &'static Needs) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let trace = program.with_file_name(format!("trace-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-e", OF_LANDLOCK, "-o"]).arg(&trace);
        command.arg(program).args(words.split_whitespace()).env_remove("SUDO_UID").env_remove("SUDO_GID");
        let mut running = Self::spawn(command, needs, Starter::Root);
        running.trace = Some(trace);
        running
    }

    fn spawn(mut command: Command, needs: &'static Needs, starter: Starter) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let input = process.stdin.take();
        let output: Box<dyn Read> = Box::new(process.stdout.take().expect("its output"));
        Self { process, input, output: BufReader::new(output), needs, starter, trace: None }
    }

    pub fn ask(&mut self, request: &Value) {
        writeln!(self.input.as_mut().expect("its input"), "{request}").expect("it reads");
    }

    pub fn end(&self) {
        send(self.process.id(), "TERM");
    }

    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect(&line)
    }

    /// Waits for its end, and returns what it prints until then.
    pub fn rest(&mut self) -> Value {
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("its output");
        serde_json::from_str(&text).expect(&text)
    }

    /// Checks all its threads until they hold no more privileges than declared.
    pub fn holds_no_more(&mut self) {
        let patience = HostClock.now() + Nanos::seconds(30);
        loop {
            let wrong = self.wrong();
            if wrong.is_empty() {
                return;
            }
            assert!(self.process.try_wait().expect("its state").is_none(), "{} has ended", self.needs.command);
            assert!(HostClock.now() < patience, "{}: {wrong:#?}", self.needs.command);
            std::thread::yield_now();
        }
    }

    /// Checks that its first thread holds all of the declared capabilities and no other, in the permitted and the effective set,
    /// and none in the others.
    pub fn holds_the_same(&mut self) {
        self.holds_no_more();
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("its status");
        let own = fs::read_to_string("/proc/self/status").expect("our status");
        let mask = |status: &str, name: &str| u64::from_str_radix(&field(status, name), 16).expect("a mask");
        let kept = self.needs.mask() & mask(&own, "CapPrm:");
        let sets = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].map(|set| mask(&status, set));
        assert_eq!(sets, [kept, kept, 0, 0], "{}: {status}", self.needs.command);
    }

    /// Returns the deviations from the declaration.
    pub fn wrong(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("its threads");
        let statuses = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
        statuses.flat_map(|status| self.wrong_of(&status)).chain(self.unrestricted()).collect()
    }

    /// Returns what is wrong where its first thread has not restricted where it may write, although the table says where.
    fn unrestricted(&self) -> Option<String> {
        let trace = self.traced()?;
        let is_free = self.needs.writes.starts_with("all that its user may");
        let is_restricted = is_free || restricted(&trace).contains(&self.process.id());
        (!is_restricted).then(|| format!("it may write more than {}: it has not asked Landlock", self.needs.writes))
    }

    /// Returns what strace has told so far.
    pub fn traced(&self) -> Option<String> {
        self.trace.as_ref().map(|trace| fs::read_to_string(trace).unwrap_or_default())
    }

    fn wrong_of(&self, status: &str) -> Vec<String> {
        let name = field(status, "Name:");
        let mask = |name: &str| u64::from_str_radix(&field(status, name), 16).expect("a mask");
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("thread {name}: {what} {}", field(status, what)));
            }
        };
        for set in ["CapPrm:", "CapEff:"] {
            expect(mask(set) & !self.needs.mask() == 0, set);
        }
        for set in ["CapInh:", "CapAmb:"] {
            expect(mask(set) == 0, set);
        }
        // The thread that starts COMMAND keeps the bounding set until COMMAND runs, and then drops it with everything else.
        // Without CAP_SETPCAP it stays, out of reach.
        let bound = if self.starter == Starter::Service { self.needs.rights().map(Right::bit).sum() } else { 0 };
        expect(mask("CapBnd:") == bound || name == "command", "CapBnd:");
        expect(field(status, "NoNewPrivs:") == "1", "NoNewPrivs:");
        expect(field(status, "Seccomp:") == "2", "Seccomp:");
        let user = self.user().to_string();
        expect(field(status, "Uid:") == [user.as_str(); 4].join("\t"), "Uid:");
        wrong
    }

    pub fn user(&self) -> u32 {
        let own = rustix::process::geteuid();
        match self.needs.user {
            _ if !own.is_root() || !is_mapped() => own.as_raw(),
            _ if self.starter == Starter::Service => DAEMON,
            Who::Unprivileged if self.starter == Starter::Root => NOBODY,
            Who::Unprivileged => DAEMON,
            Who::Caller(_) | Who::Owner(_) if self.starter == Starter::Sudo => DAEMON,
            Who::Caller(_) | Who::Owner(_) | Who::Unchanged(_) => own.as_raw(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether other users exist: an unprivileged user namespace contains root alone.
pub fn is_mapped() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().nth(2) != Some("1"))
}

/// A folder in which every user may write, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-rights-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("its mode");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
