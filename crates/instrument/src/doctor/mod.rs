//! `doctor`: tests what this machine lets the instruments do, and names the fix for what is missing.
//!
//! Takes a second. Changes nothing: it closes what it opens.

mod network;
mod sys;
mod tcplog;
mod timing;

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::printed::printed;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use sojourn_rights::{Right, for_a_group};

/// Runs all checks and prints the results: one line each, or JSON.
///
/// # Errors
/// If the output cannot be written.
pub fn run(as_json: bool) -> anyhow::Result<()> {
    let examined = examine();
    let mut output = printed();
    if as_json {
        serde_json::to_writer_pretty(&mut output, &examined)?;
        writeln!(output)?;
    } else {
        examined.checks.iter().try_for_each(|check| check.print(&mut output))?;
    }
    Ok(output.flush()?)
}

/// The results of all checks.
#[derive(Debug, Serialize)]
struct Examined {
    version: &'static str,
    profile: &'static str,
    checks: Vec<Check>,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// The result, for people.
    found: String,
    /// The fix, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// Measured values, for programs.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    values: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Limited,
    Missing,
}

fn examine() -> Examined {
    let mut checks = Vec::new();
    checks.extend(Right::ALL.map(right));
    checks.extend(std::env::current_exe().ok().and_then(|program| helper(&program)));
    checks.extend(network::examine());
    checks.push(bpf());
    checks.extend(tcplog::examine());
    checks.push(locked_memory());
    checks.extend(timing::examine());
    Examined { version: env!("CARGO_PKG_VERSION"), profile: crate::PROFILE, checks }
}

fn right(right: Right) -> Check {
    let purpose = match right {
        Right::NetRaw => "raw frames, and ICMP by raw sockets",
        Right::NetAdmin => "socket buffers beyond net.core.rmem_max",
        Right::SysNice => "SCHED_FIFO",
        Right::IpcLock => "memory locked beyond the limit",
        Right::Bpf => "programs in the kernel",
        Right::Perfmon => "live frames, their counter and TCP's state, in the kernel",
        Right::SysAdmin => "network namespaces",
        Right::DacOverride => "a study's log of TCP, in a folder of its caller's",
        Right::NetBindService => "connections of TCP at ports below 1024",
    };
    if right.is_held() {
        return Check::ok(right.name(), format!("held, for {purpose}"));
    }
    let fix = if rustix::process::geteuid().is_root() {
        format!("it is for {purpose}: the container that this runs in would have to permit it")
    } else {
        format!("it is for {purpose}: run as root")
    };
    Check::new(right.name(), Status::Missing, "not held".to_owned()).fix(fix)
}

/// Checks a program with file capabilities, which every user who may run it gets. `None` if it has none.
fn helper(program: &Path) -> Option<Check> {
    const NAME: &str = "file capabilities";
    if !sys::has_file_capabilities(program) {
        return None;
    }
    let about = std::fs::metadata(program).ok()?;
    let (mode, shown) = (about.mode() & 0o7777, program.display());
    let found = format!("{shown} has some, mode {mode:04o}, group {}", about.gid());
    // A user who may write the file can replace it by any program.
    let problem = match (mode & 0o001 != 0, mode & 0o022 != 0 || about.uid() != 0) {
        (true, _) => "every user of this machine may run it, and so read all traffic",
        (false, true) => "who may write it decides what has them",
        (false, false) => return Some(Check::ok(NAME, format!("{found}: for the members of that group alone"))),
    };
    let fix = format!("sudo setcap -r {shown}, and {}", for_a_group(&[Right::NetRaw]));
    Some(Check::new(NAME, Status::Limited, format!("{found}: {problem}")).fix(fix))
}

fn bpf() -> Check {
    const NAME: &str = "BPF";
    match sys::try_bpf_map() {
        Ok(()) => Check::ok(NAME, "a map can be made".to_owned()),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string())
            .fix("run as root, on a kernel with CONFIG_BPF_SYSCALL".to_owned()),
    }
}

fn locked_memory() -> Check {
    const NAME: &str = "locked memory";
    /// The memory that the instruments lock: programs, buffers, the timestamps of a block.
    const WANTED_BYTES: u64 = 64 << 20;
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if !Right::IpcLock.is_held() => {
            let status = if bytes >= WANTED_BYTES { Status::Ok } else { Status::Limited };
            let check = Check::new(NAME, status, format!("{} KiB", bytes / 1024)).value("limit_bytes", bytes);
            if status == Status::Ok { check } else { check.fix("ulimit -l unlimited, or CAP_IPC_LOCK".to_owned()) }
        }
        _ => Check::ok(NAME, "as much as is wanted".to_owned()),
    }
}

impl Check {
    fn new(name: &'static str, status: Status, found: String) -> Self {
        Self { name, status, found, fix: None, values: serde_json::Map::new() }
    }

    fn ok(name: &'static str, found: String) -> Self {
        Self::new(name, Status::Ok, found)
    }

    fn fix(self, fix: String) -> Self {
        Self { fix: Some(fix), ..self }
    }

    fn value(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.values.insert(key.to_owned(), value.into());
        self
    }

    fn print(&self, output: &mut impl Write) -> io::Result<()> {
        let mark = match self.status {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        writeln!(output, "{mark:8} {}: {}", self.name, self.found)?;
        self.fix.iter().try_for_each(|fix| writeln!(output, "         to fix it: {fix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_with_file_capabilities_executable_by_everybody_is_a_finding() {
        use std::os::unix::fs::PermissionsExt;
        let program = std::env::temp_dir().join(format!("sojourn-helper-{}", std::process::id()));
        std::fs::copy("/bin/true", &program).expect("a copy");
        assert!(helper(&program).is_none(), "it has none");
        let set = std::process::Command::new("setcap").arg("cap_net_raw=ep").arg(&program).output();
        if set.is_ok_and(|set| set.status.success()) {
            for (mode, status) in
                [(0o755, Status::Limited), (0o751, Status::Limited), (0o770, Status::Limited), (0o750, Status::Ok)]
            {
                std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("its mode");
                let check = helper(&program).expect("it has some");
                assert_eq!(check.status, status, "{mode:o}: {check:?}");
            }
        } else {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to set capabilities");
            eprintln!("skipped: setcap is missing, or may not be used here");
        }
        std::fs::remove_file(program).expect("goes");
    }

    #[test]
    fn every_failed_check_names_its_fix() {
        let examined = examine();
        for check in &examined.checks {
            assert!(check.status == Status::Ok || check.fix.is_some(), "{check:?}");
            assert!(!check.found.is_empty(), "{check:?}");
        }
        let json = serde_json::to_value(&examined).expect("JSON");
        let statuses = json["checks"].as_array().expect("checks").iter().map(|check| check["status"].as_str());
        assert!(statuses.into_iter().all(|status| matches!(status, Some("ok" | "limited" | "missing"))));
    }
}
