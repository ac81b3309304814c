//! Tests of the priority that the programs request from the kernel.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, getpriority_process};
use serde_json::Value;

const RESPOND: [&str; 6] = ["probe", "respond", "--udp", "0", "--json", "--until-eof"];

#[test]
fn permitted_program_runs_at_nice_minus_20() {
    // Only root of the initial user namespace is permitted; `nice` tests that.
    let may = Command::new("nice").args(["-n", "-1", "true"]).output().is_ok_and(|output| output.stderr.is_empty());
    let expected = if may { -20 } else { getpriority_process(None).expect("the test's own") };
    assert_eq!(said_and_true(&RESPOND), (Some(expected.into()), expected));
    let record = std::env::temp_dir().join(format!("sojourn-urgency-{}", std::process::id()));
    let record = record.to_str().expect("text");
    let blocks = ["probe", "blocks", "--record", record];
    assert_eq!(said_and_true(&blocks), (Some(expected.into()), expected));
}

#[test]
fn session_led_from_outside_the_pid_namespace_gets_no_own_autogroup_priority() {
    let namespace = ["--pid", "--fork", "--kill-child"];
    if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
        return; // Not permitted here: the root's own CI run lives in such a namespace.
    }
    let output = Command::new("unshare")
        .args(namespace)
        .arg(env!("CARGO_BIN_EXE_sojourn-instrument"))
        .args(RESPOND)
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the nice value in the ready line, and that of the kernel.
fn said_and_true(arguments: &[&str]) -> (Option<i64>, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    let kernel = getpriority_process(Some(Pid::from_child(&child))).expect("runs");
    drop(child.stdin.take());
    assert!(child.wait().expect("ends").success());
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    (ready["nice"].as_i64(), kernel)
}
