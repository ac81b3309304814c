//! Does to programs that hang somewhere what other tools may do.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::process::Command;

/// Takes away what a process has attached to a place, "xdp", "tcx-in", "tcx-out" or "cgroup", by the number of the interface or of
/// the cgroup.
pub fn detach(process: u32, kind: &str, place: u64) {
    does(process, "detach", kind, place);
}

/// Puts a program that passes everything in the place of what a process has attached.
pub fn replace(process: u32, kind: &str, place: u64) {
    does(process, "replace", kind, place);
}

fn does(process: u32, what: &str, kind: &str, place: u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../port/tests/links/links.py");
    let arguments = [script, &process.to_string(), what, kind, &place.to_string()];
    let output = Command::new("python3").args(arguments).output().expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
