//! Tests of `probe blocks` as other programs use it: requests, answers, exit status, records. Over simulated lines only.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");

fn request(block: u32, line: &Value) -> Value {
    json!({
        "block": block, "device": "wire", "round": 0, "visit": 0, "cell": 0, "to": { "via": "sim", "line": line },
        "kind": "icmp", "request_payload_bytes": 56, "response_payload_bytes": 56, "schedule": "regular",
        "interval_ns": 1_000_000, "count": 44, "warmup": 4, "timeout_ns": 200_000_000, "seed": 42,
    })
}

fn constant() -> Value {
    json!({ "forward": { "constant_ns": 5_000 }, "backward": { "constant_ns": 7_000 } })
}

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-blocks-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn argument(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `probe blocks`.
struct Blocks {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Blocks {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(BINARY)
            .args(["probe", "blocks", "--record", folder.argument(), "--part", "3", "--simulated", "--die-with-parent"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut blocks = Self { child, input, output };
        let ready = blocks.answer().unwrap();
        assert_eq!((&ready["event"], &ready["wait"]), (&json!("ready"), &json!("sleep-then-spin")));
        blocks
    }

    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.answer().unwrap()
    }

    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn end(mut self) -> ExitStatus {
        drop(self.input.take());
        assert_eq!(self.answer(), None);
        self.child.wait().unwrap()
    }
}

#[test]
fn each_request_is_answered_and_wrong_ones_do_not_end_it() {
    let folder = Folder::new("answers");
    let mut blocks = Blocks::start(&folder);
    let answer = blocks.ask(&request(5, &constant()).to_string());
    assert_eq!(answer["event"], "block");
    assert_eq!(
        (answer["block"].as_u64(), answer["sent"].as_u64(), answer["lost"].as_u64()),
        (Some(5), Some(44), Some(0))
    );
    assert_eq!((answer["rtt"]["min_ns"].as_u64(), answer["rtt"]["n"].as_u64()), (Some(12_000), Some(40)));

    let mut lossy = constant();
    lossy["los"] = json!(0.1);
    let mut endless = request(9, &constant());
    endless["count"] = json!(10_000_001);
    for (line, block) in [
        (endless.to_string(), json!(9)),
        ("{".to_owned(), Value::Null),
        (request(6, &lossy).to_string(), json!(6)),
        (
            request(7, &json!({ "forward": { "constant_ns": -1 }, "backward": { "constant_ns": 0 } })).to_string(),
            json!(7),
        ),
    ] {
        let answer = blocks.ask(&line);
        assert_eq!((&answer["event"], &answer["status"]), (&json!("error"), &json!(2)), "{answer}");
        assert_eq!(answer["block"], block);
    }
    assert_eq!(blocks.ask(&request(8, &constant()).to_string())["event"], "block");
    assert_eq!(blocks.end().code(), Some(0));
    assert!(folder.0.join("probes-003.arrow").exists() && folder.0.join("blocks-003.arrow").exists());
}

#[test]
fn endless_request_ends_the_service_with_one_sentence() {
    let folder = Folder::new("long");
    let mut child = Command::new(BINARY)
        .args(["probe", "blocks", "--record", folder.argument()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program stops reading after 1 MiB.
    let _ = child.stdin.take().unwrap().write_all(&vec![b'x'; 3 << 20]);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a request is longer than 1 MiB"), "{said}");
}

#[test]
fn simulated_time_goes_on_from_block_to_block() {
    let folder = Folder::new("time");
    let mut blocks = Blocks::start(&folder);
    let mut drifting = constant();
    drifting["drift_ns_per_s"] = json!(1_000_000);
    let mut mean = || blocks.ask(&request(0, &drifting).to_string())["rtt"]["mean_ns"].as_f64().unwrap();
    let (first, second) = (mean(), mean());
    // 44 probes, 1 ms apart, and the pauses between blocks: about 44 µs of drift.
    assert!((43_000.0..46_000.0).contains(&(second - first)), "{first} {second}");
}

#[test]
fn simulated_and_real_blocks_cannot_share_one_record() {
    let folder = Folder::new("one-clock");
    let mut blocks = Blocks::start(&folder);
    let mut asked = request(0, &constant());
    asked["to"] = json!({ "via": "icmp", "address": "127.0.0.1", "dev": "lo" });
    asked["kind"] = json!("icmp");
    let answer = blocks.ask(&asked.to_string());
    assert_eq!((&answer["event"], &answer["status"]), (&json!("error"), &json!(2)), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("--simulated"), "{answer}");
    assert_eq!(blocks.ask(&request(1, &constant()).to_string())["event"], "block");
    assert_eq!(blocks.end().code(), Some(0));
}

#[test]
fn signal_ends_the_service_with_complete_records() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = Folder::new(&format!("signal-{}", signal.as_raw()));
        let mut blocks = Blocks::start(&folder);
        blocks.ask(&request(0, &constant()).to_string());
        kill_process(Pid::from_child(&blocks.child), signal).unwrap();
        assert_eq!(blocks.answer(), None);
        assert_eq!(blocks.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn existing_records_are_not_overwritten() {
    let folder = Folder::new("twice");
    let mut blocks = Blocks::start(&folder);
    blocks.ask(&request(0, &constant()).to_string());
    blocks.end();
    let before = fs::read(folder.0.join("probes-003.arrow")).unwrap();
    let again = Command::new(BINARY)
        .args(["probe", "blocks", "--record", folder.argument(), "--part", "3", "--simulated"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert_eq!((again.status.code(), again.stdout.as_slice()), (Some(2), &b""[..]), "{said}");
    assert!(said.contains("probes-003.arrow"), "{said}");
    assert_eq!(fs::read(folder.0.join("probes-003.arrow")).unwrap(), before);
}

#[test]
fn single_run_reports_in_json_and_by_exit_status() {
    let folder = Folder::new("single");
    let run = |line: &Value, options: &[&str]| -> Output {
        Command::new(BINARY)
            .args(["probe", "sim", "--line", &line.to_string(), "--json", "-c", "50"])
            .args(options)
            .output()
            .unwrap()
    };
    let good = run(&constant(), &["--record", folder.argument(), "--as", "udp6", "--response-bytes", "1400"]);
    let told: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!((good.status.code(), &told["rtt"]["p50_ns"]), (Some(0), &json!(12_000)));
    assert_eq!(told["response_frame_bytes"], 1_400 + 8 + 40 + 14 + 4);
    assert!(folder.0.join("probes-000.arrow").exists());

    let mut silent = constant();
    silent["loss"] = json!(1);
    let silent = run(&silent, &[]);
    assert_eq!(silent.status.code(), Some(4));
    let said = String::from_utf8(silent.stderr).unwrap();
    assert!(said.starts_with("sojourn-instrument: a simulated line answered none of 50 probes"), "{said}");
    let wrong = run(&constant(), &["--warmup", "51"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(String::from_utf8(wrong.stderr).unwrap().lines().count(), 1);
}
