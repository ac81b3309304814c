//! A network namespace and a cgroup for one test, removed with it.
//!
//! The test starts itself again under `unshare`, and that process moves into a cgroup of its own, so that programs
//! attached there see only its sockets. Where the kernel does not permit it, the test is skipped with the reason; with
//! `CI` set it fails.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use sojourn_tcplog::kernel::{KernelError, cgroup_root};
use sojourn_tcplog::{Kernel, KernelOptions};

const INSIDE: &str = "SOJOURN_TEST_INSIDE_NAMESPACE";

/// A cgroup that contains this process.
pub struct Place {
    root: PathBuf,
    path: PathBuf,
}

impl Place {
    fn make() -> Self {
        let root = cgroup_root().expect("cgroup2 is mounted");
        let path = root.join(format!("sojourn-test-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a cgroup can be made");
        std::fs::write(path.join("cgroup.procs"), "0").expect("this process can move");
        Self { root, path }
    }

    /// Return its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::write(self.root.join("cgroup.procs"), "0");
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Run `test` in a network namespace and a cgroup of its own; `name` is the name of the test function.
pub fn within(name: &str, test: fn(&Place)) {
    if std::env::var_os(INSIDE).is_some() {
        let up = Command::new("ip").args(["link", "set", "dev", "lo", "up"]).status().expect("ip starts");
        assert!(up.success());
        return test(&Place::make());
    }
    if let Err(why) = Kernel::open(&KernelOptions { flows: 1, ring_bytes: 4096, ..KernelOptions::default() }) {
        // A refused program is a fault of the program on any machine.
        assert!(matches!(why, KernelError::Denied(_) | KernelError::NoCgroup(..)), "{why}");
        assert!(std::env::var_os("CI").is_none(), "CI must be able to load programs: {why}");
        eprintln!("skipped: cannot load programs here: {why}");
        return;
    }
    let program = std::env::current_exe().expect("this test's program");
    let output = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare starts");
    let said = [output.stdout, output.stderr].concat();
    print!("{}", String::from_utf8_lossy(&said));
    assert!(output.status.success(), "inside the namespace: {}", String::from_utf8_lossy(&said));
}
