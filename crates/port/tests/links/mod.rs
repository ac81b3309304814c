//! Detaches and replaces attached programs, as other tools may do.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::process::Command;

/// Detaches what a process has attached to a hook, "xdp", "tcx-in", "tcx-out" or "cgroup"; `place` is the index of the
/// interface or the ID of the cgroup.
pub fn detach(process: u32, kind: &str, place: u64) {
    does(process, "detach", kind, place);
}

/// Replaces what a process has attached by a program that passes everything.
pub fn replace(process: u32, kind: &str, place: u64) {
    does(process, "replace", kind, place);
}

fn does(process: u32, what: &str, kind: &str, place: u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../port/tests/links/links.py");
    let arguments = [script, &process.to_string(), what, kind, &place.to_string()];
    let output = Command::new("python3").args(arguments).output().expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
