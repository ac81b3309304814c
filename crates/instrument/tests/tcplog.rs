//! Tests of `tcplog` as a user starts it, over a simulated TCP: what it refuses, what it answers, and what it leaves behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};
use sojourn_time::{Clock, HostClock, Nanos};

const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");

#[test]
fn invalid_request_ends_with_status_2_and_leaves_no_files() {
    let folder = Folder::new("wrong");
    let out = folder.0.join("t");
    for (words, sentence) in [
        ("--ppl 0", "--ppl 0: expected a whole number from 1"),
        ("--port 70000", "--port 70000: expected a port from 1 to 65535"),
        ("--prefix 10.0.0.0/40", "--prefix 10.0.0.0/40: expected an address"),
        ("--on-change colour", "--on-change colour: expected cwnd,"),
        ("--sample never", "--sample never: expected pre, post, both"),
        ("--cgroup /nowhere", "--cgroup /nowhere: No such file"),
        ("--netns nobody", "--netns nobody: No such file"),
        ("--one-in 0", "--one-in 0"),
        ("--flight 8 --flight-on rain", "--flight-on rain: expected rto, reset, loss"),
        ("--flight 8 --flight-on rtt<20ms", "--flight-on rtt<20ms: expected a value that it becomes larger than"),
        ("--flight 0", "--flight"),
        ("--flight 0s", "--flight"),
        ("--ring 3parsecs", "--ring"),
        ("-- no-such-command-here", "no-such-command-here: no such command"),
        ("-- /etc/passwd", "/etc/passwd: it may not be run"),
    ] {
        let command = format!("run --simulated 1 --duration 1s --out {} {words}", out.display());
        expect(2, sentence, &command);
        assert!(!out.exists(), "{words}");
    }
    expect(2, "--out", "run --ppl 1");
    expect(2, "no log is there", &format!("status {}", out.display()));
    expect(2, "nothing to set", &format!("set {}", out.display()));
    expect(2, "--interval", "watch --interval 0s");
}

#[test]
fn log_ends_at_its_size_limit_while_counting_and_the_command_continue() {
    let folder = Folder::new("limited");
    expect(
        2,
        "at least 256 KiB",
        &format!("run --simulated 3 --log-limit 255KiB --out {}", folder.0.join("x").display()),
    );
    // Some 90 KB of events a second, of which 64 KiB are accepted.
    for command in ["", " -- sleep 3"] {
        let out = folder.0.join(if command.is_empty() { "alone" } else { "beside" });
        let words =
            format!("run --simulated 3 --duration 20s --log-limit 256KiB --json --out {}{command}", out.display());
        let output = tcplog(&words);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let footer = read(&out.join("footer.json"));
        assert_eq!((&footer["conserved"], &footer["why"]), (&json!(true), &json!("log limit")), "{footer}");
        assert!(footer["duration_s"].as_f64().is_some_and(|lasted| lasted < 15.0), "{footer}");
        assert!(footer["warning"].as_str().is_some_and(|told| told.contains("--log-limit")), "{footer}");
        conserved(&footer["totals"]);
        let of = |name| count(&footer["totals"]["in"], name) + count(&footer["totals"]["out"], name);
        let (logged, broken) = (of("logged"), of("broken"));
        assert!(logged > 500 && (command.is_empty() || broken > 1_000), "{footer}");
        let samples = fs::metadata(out.join("records/tcp_samples-tcplog-000.arrow")).expect("samples").len();
        assert!(samples < 64 << 14, "{samples}");
    }
}

#[test]
fn log_has_header_records_footer_and_conserves_packets() {
    let folder = Folder::new("whole");
    let out = folder.0.join("t");
    let run = format!("run --simulated 7 --ppl 3 --sample both --duration 1s --json --out {}", out.display());
    let output = tcplog(&run);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("logs TCP's state at 1 of 3 packets of each flow"), "{}", said(&output));
    let footer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(footer, read(&out.join("footer.json")));
    assert_eq!((&footer["conserved"], &footer["why"]), (&json!(true), &json!("duration")), "{footer}");
    conserved(&footer["totals"]);
    let share = count(&footer["totals"]["in"], "logged") as f64 / count(&footer["totals"]["in"], "seen") as f64;
    assert!((0.2..0.35).contains(&share), "1 of 3, but for those without a flow: {share}");
    assert!(count(&footer, "flows") > 4, "{footer}");
    let header = read(&out.join("header.json"));
    assert_eq!((&header["options"]["ppl"], &header["options"]["sample"]), (&json!(3), &json!("both")), "{header}");
    assert!(header["hz"].as_i64().is_some_and(|hz| hz >= 100) && header["started"].as_str().is_some());
    for table in ["samples", "flows", "account", "gaps", "private"] {
        assert!(out.join(format!("records/tcp_{table}-tcplog-000.arrow")).exists(), "{table}");
    }
    assert!(!out.join("control.sock").exists() && !spools(&out), "what only a running log needs is gone");

    let before = fs::read(out.join("footer.json")).expect("the footer");
    expect(2, "of an earlier log, and logs are written once", &run);
    assert_eq!(fs::read(out.join("footer.json")).expect("the footer"), before);
    expect(2, "this log has ended", &format!("set {} --ppl 10", out.display()));
    let status = tcplog(&format!("status {}", out.display()));
    assert!(String::from_utf8_lossy(&status.stdout).starts_with("ended: duration\n"), "{status:?}");
}

#[test]
fn running_log_reports_its_accounting_and_accepts_option_changes() {
    let folder = Folder::new("live");
    let out = folder.0.join("t");
    let mut running = Running::start(&out, "--simulated 3 --disabled --duration 60s");
    let at = |command: &str| {
        let output = tcplog(&command.replace("OUT", &out.display().to_string()));
        assert_eq!(output.status.code(), Some(0), "{command}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let status = |_: ()| serde_json::from_str::<Value>(&at("status OUT --json")).expect("JSON");
    assert_eq!(count(&status(())["totals"]["in"], "seen"), 0, "it begins switched off");
    assert_eq!(at("set OUT --enable --ppl 10 --port 5201,80").trim(), "enabled, port [5201,80], ppl 10");
    let patience = HostClock.now() + Nanos::seconds(60);
    while count(&status(())["totals"]["in"], "seen") < 1_000 {
        assert!(HostClock.now() < patience, "nothing is counted: {}", status(()));
    }
    let now = status(());
    assert!(count(&now["totals"]["in"], "filtered") > 0 && now["enabled"] == json!(true), "{now}");
    at("set OUT --port all");
    let line = at("watch OUT --count 1 --interval 10ms");
    let watched: Value = serde_json::from_str(&line).expect("JSON");
    let flow = &watched["flows"][0];
    assert!(
        flow["cookie"].is_u64() && flow["local_address"].is_string() && flow["dispositions"]["in"].is_object(),
        "{flow}"
    );
    let sampled = watched["flows"].as_array().expect("flows").iter().find(|flow| !flow["sample"].is_null());
    assert!(sampled.is_none_or(|flow| flow["sample"]["snd_cwnd"].is_u64()), "{watched}");
    expect(2, "--ppl 0", &format!("set {} --ppl 0", out.display()));
    expect(2, "this log goes on", &format!("recover {}", out.display()));
    at("set OUT --disable");
    let [first, second] = [(); 2].map(status).map(|status| status["totals"].clone());
    assert_eq!(first, second, "while it is switched off nothing is counted");
    running.signal(rustix::process::Signal::TERM);
    let (code, footer) = running.end();
    assert_eq!((code, &footer["why"], &footer["conserved"]), (Some(0), &json!("signal"), &json!(true)), "{footer}");
}

#[test]
fn command_keeps_its_output_and_its_exit_status_is_returned() {
    let folder = Folder::new("command");
    for (script, status, sentence) in [
        ("echo said; exit 7", 7, "the command ended with status 7"),
        ("echo said", 0, ""),
        ("echo said; kill -TERM $$", 143, "the command ended with status 143"),
    ] {
        let out = folder.0.join(format!("t{status}"));
        let words =
            ["tcplog", "run", "--simulated", "1", "--out", out.to_str().expect("a name"), "--", "sh", "-c", script];
        let output = Command::new(BINARY).args(words).output().expect("starts");
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(sentence), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "said\n");
        let footer = read(&out.join("footer.json"));
        assert_eq!((&footer["command_status"], &footer["why"]), (&json!(status), &json!("command ended")));
    }
}

/// Returns a COMMAND that waits until the log has failed, and then prints that it ended by itself.
fn waits_for_failure(out: &Path, begins: &str) -> String {
    let status = format!("{BINARY} tcplog status {} --json", out.display());
    format!("{begins}; until {status} | grep -q '\"failed\":\"'; do sleep 0.05; done; echo finished")
}

/// Checks the results of a log that failed while COMMAND ran to its end.
fn expect_counted(out: &Path, output: &Output, why: &str) -> Value {
    assert_eq!(output.status.code(), Some(4), "{}", said(output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "finished\n", "it was not asked to end");
    let footer = read(&out.join("footer.json"));
    assert_eq!((&footer["why"], &footer["command_status"]), (&json!(why), &json!(0)), "{footer}");
    conserved(&footer["totals"]);
    assert!(count(&footer["totals"]["in"], "broken") > 0, "it was counted on: {footer}");
    footer
}

#[test]
fn removed_log_does_not_end_the_command_and_counting_continues() {
    let folder = Folder::new("removed");
    let out = folder.0.join("t");
    let script = waits_for_failure(&out, &format!("rm {}/spool-000.tcplog", out.display()));
    let words = ["tcplog", "run", "--simulated", "1", "--out", out.to_str().expect("a name"), "--", "sh", "-c"];
    let output = Command::new(BINARY).args(words).arg(script).output().expect("starts");
    expect_counted(&out, &output, "log file removed");
    assert!(said(&output).contains("was removed or replaced"), "{}", said(&output));
}

#[test]
fn full_disk_does_not_end_the_command_and_keeps_what_was_written() {
    let folder = Folder::new("no-room");
    let out = folder.0.join("t");
    // A file-size limit in units of 512 bytes simulates a full disk without privileges.
    let begin = "ulimit -f 2400; exec \"$0\" \"$@\"";
    let words = ["-c", begin, BINARY, "tcplog", "run", "--simulated", "1", "--sample", "both", "--out"];
    let script = waits_for_failure(&out, "true");
    let output = Command::new("sh").args(words).arg(&out).args(["--", "sh", "-c", &script]).output().expect("starts");
    let footer = expect_counted(&out, &output, "disk full");
    assert!(said(&output).contains("the disk is full"), "{}", said(&output));
    let warning = footer["warning"].as_str().unwrap_or_default();
    assert!(warning.starts_with("the disk was full: ") && said(&output).contains(&format!("! {warning}")), "{footer}");
    assert!(!said(&output).contains("a larger --ring"), "nothing else would have helped: {}", said(&output));
    if spools(&out) {
        fs::remove_file(out.join("footer.json")).expect("it is there");
        assert_eq!(tcplog(&format!("recover {}", out.display())).status.code(), Some(0));
    }
    let recovered = out.join("records/tcp_samples-tcplog-000.arrow");
    assert!(fs::metadata(recovered).expect("records").len() > 10_000 && count(&footer, "records") > 1_000, "{footer}");
}

#[test]
fn command_is_terminated_when_the_logger_is() {
    let folder = Folder::new("told");
    let out = folder.0.join("t");
    let mut running = Running::start(&out, "--simulated 1 -- sleep 600");
    running.signal(rustix::process::Signal::TERM);
    let (code, footer) = running.end();
    assert_eq!((code, &footer["why"], &footer["command_status"]), (Some(0), &json!("signal"), &json!(143)), "{footer}");
}

#[test]
fn a_killed_log_is_recovered() {
    let folder = Folder::new("killed");
    let out = folder.0.join("t");
    let mut running = Running::start(&out, "--simulated 5 --duration 60s");
    let written = |out: &Path| {
        let status = tcplog(&format!("status {} --json", out.display()));
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        count(&status, "records")
    };
    let patience = HostClock.now() + Nanos::seconds(60);
    while written(&out) < 2_000 {
        assert!(HostClock.now() < patience, "nothing is logged");
    }
    HostClock.wait_until(HostClock.now() + Nanos::millis(1_500), Nanos::ZERO);
    running.signal(rustix::process::Signal::KILL);
    running.process.wait().expect("ends");
    assert!(spools(&out) && !out.join("footer.json").exists());
    expect(3, "tcplog recover", &format!("status {}", out.display()));
    let output = tcplog(&format!("recover {} --json", out.display()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let footer = read(&out.join("footer.json"));
    assert_eq!(footer["why"], "killed");
    assert!(count(&footer, "records") >= 2_000, "{footer}");
    assert!(out.join("records/tcp_samples-tcplog-000.arrow").exists() && !spools(&out));
    let samples = fs::read(out.join("records/tcp_samples-tcplog-000.arrow")).unwrap();
    assert!(String::from_utf8_lossy(&samples).contains("simulated"), "what is simulated stays so");
}

#[test]
fn log_killed_after_writing_its_footer_keeps_the_footer() {
    let folder = Folder::new("footed");
    let out = folder.0.join("t");
    let mut running = Running::start(&out, "--simulated 5 --duration 60s");
    HostClock.wait_until(HostClock.now() + Nanos::millis(1_500), Nanos::ZERO);
    running.signal(rustix::process::Signal::KILL);
    running.process.wait().expect("ends");
    // The last action of a log is to remove its spool.
    let footer = json!({ "why": "duration", "conserved": true, "totals": {}, "records": 7 });
    fs::write(out.join("footer.json"), footer.to_string()).expect("writes");
    let output = tcplog(&format!("recover {} --json", out.display()));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(read(&out.join("footer.json")), footer);
    assert!(out.join("records/tcp_samples-tcplog-000.arrow").exists() && !spools(&out));
}

#[test]
fn a_study_logs_block_by_block() {
    let folder = Folder::new("serve");
    let records = folder.0.join("records");
    let mut served = Served::start("--simulated 11");
    let answer = served.ask(&json!({ "do": "end" }));
    assert_eq!((&answer["event"], &answer["status"]), (&json!("error"), &json!(2)), "{answer}");
    for (block, keep) in [(1, true), (2, false), (3, true)] {
        let begin = json!({ "do": "begin", "block": block, "who": "a", "records": records, "keep": keep,
                            "options": { "ppl": block, "ppl_by": "packet" }, "mode": "on" });
        let answer = served.ask(&begin);
        assert_eq!(
            (&answer["event"], &answer["header"]["options"]["ppl"]),
            (&json!("begun"), &json!(block)),
            "{answer}"
        );
        assert_eq!(served.ask(&begin)["event"], "error", "one block at a time");
        let patience = HostClock.now() + Nanos::seconds(60);
        while count(&served.ask(&json!({ "do": "status" })), "records") < 100 {
            assert!(HostClock.now() < patience, "nothing is logged");
        }
        assert_eq!(served.ask(&json!({ "do": "mode", "mode": "disabled" }))["event"], "mode");
        let [first, second] = [(); 2].map(|()| served.ask(&json!({ "do": "status" }))["totals"].clone());
        assert_eq!(first, second);
        let ended = served.ask(&json!({ "do": "end" }));
        assert_eq!((&ended["event"], &ended["conserved"]), (&json!("ended"), &json!(true)), "{ended}");
        conserved(&ended["account"]);
        assert!(count(&ended, "records") >= 100, "{ended}");
        assert!(ended["logger_cpu_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{ended}");
    }
    assert_eq!(served.ask(&json!({ "do": "dance" }))["status"], 2);
    let wrong = json!({ "do": "begin", "block": 4, "who": "a", "records": records, "options": { "ppl": 0 } });
    assert!(served.ask(&wrong)["message"].as_str().is_some_and(|sentence| sentence.contains("--ppl 0")));
    served.end();
    let files: Vec<_> = fs::read_dir(&records).expect("the records").flatten().map(|entry| entry.file_name()).collect();
    assert!(files.iter().all(|name| name.to_string_lossy().ends_with(".arrow")), "no spool is left: {files:?}");
}

/// Checks that each direction's packets and segments have one disposition each.
fn conserved(totals: &Value) {
    for unit in [totals, &totals["segments"]] {
        for way in ["in", "out"] {
            let dispositions = unit[way].as_object().expect("dispositions");
            let met: u64 =
                dispositions.iter().filter(|(name, _)| *name != "seen").filter_map(|(_, count)| count.as_u64()).sum();
            assert_eq!(count(&unit[way], "seen"), met, "{unit}");
        }
    }
}

fn tcplog(words: &str) -> Output {
    Command::new(BINARY).arg("tcplog").args(words.split_whitespace()).output().expect("starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn expect(status: i32, sentence: &str, words: &str) {
    let output = tcplog(words);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(status), "{words}: {said}");
    assert!(said.contains(sentence), "{words}: {said}");
    assert_eq!(said.lines().count(), 1, "{words}: {said}");
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the file")).expect("JSON")
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

fn spools(out: &Path) -> bool {
    let entries = fs::read_dir(out).expect("the folder").flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("spool-"))
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-tcplog-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A log that runs until it is signalled.
struct Running {
    process: Child,
    out: PathBuf,
}

impl Running {
    fn start(out: &Path, words: &str) -> Self {
        let mut process = Command::new(BINARY)
            .args(["tcplog", "run", "--out"])
            .arg(out)
            .args(words.split_whitespace())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let mut errors = BufReader::new(process.stderr.take().expect("its messages"));
        errors.read_line(&mut line).expect("a line");
        assert!(line.contains("log"), "{line}");
        // Read its remaining output, so that it does not block.
        std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(drop));
        Self { process, out: out.to_owned() }
    }

    fn signal(&mut self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).expect("signals");
    }

    fn end(mut self) -> (Option<i32>, Value) {
        let status = self.process.wait().expect("ends");
        (status.code(), read(&self.out.join("footer.json")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `tcplog serve`, with its input and output.
struct Served {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Served {
    fn start(words: &str) -> Self {
        let mut process = Command::new(BINARY)
            .args(["tcplog", "serve"])
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("its answers"));
        let mut served = Self { process, input, output };
        let ready = served.hear();
        assert_eq!(ready["event"], json!("ready"), "{ready}");
        served
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.input.as_mut().expect("its input"), "{request}").expect("asks");
        self.hear()
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }

    fn end(mut self) {
        self.input = None;
        assert!(self.process.wait().expect("ends").success());
    }
}
