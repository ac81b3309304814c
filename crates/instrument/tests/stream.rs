//! Tests of `stream` as other programs use it: requests, answers, exit status, records. Over simulated paths, and
//! requests over the loopback interface.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

const KEY: &str = "0123456789abcdef";
const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sojourn-stream-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn argument(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(folder: &Folder) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["stream", "serve", "--record", folder.argument(), "--part", "2", "--name", "sim"]);
    command.arg("--die-with-parent");
    command
}

/// A running `stream serve`.
struct Serve {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Serve {
    fn start(folder: &Folder) -> Self {
        Self::begin(command(folder).arg("--simulated"))
    }

    fn begin(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut serve = Self { child, input, output };
        assert_eq!(serve.answer().unwrap()["event"], "ready");
        serve
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.say(&request.to_string());
        self.answer().unwrap()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        assert_eq!(self.answer(), None);
        self.child.wait().unwrap().code()
    }
}

fn simulation(block: u32, path: Value) -> Value {
    json!({
        "do": "simulate", "block": block, "device": "wire", "round": 0, "visit": 0, "cell": 0, "purpose": "measure",
        "path": path, "clock": "shared", "keep": "packets",
        "flows": [{ "flow": 1, "schedule": "regular", "rate_pps": 10000.0, "count": 1000, "payload_bytes": 46, "seed": 1 }],
        "receive": { "keep": "packets", "late_after_ns": 1e9, "room": 1000 },
    })
}

fn constant() -> Value {
    json!({ "delay": { "constant_ns": 5_000 } })
}

#[test]
fn each_request_is_answered_and_wrong_ones_do_not_end_it() {
    let folder = Folder::new("answers");
    let mut serve = Serve::start(&folder);
    let answer = serve.ask(&simulation(5, constant()));
    assert_eq!((&answer["event"], &answer["block"]), (&json!("simulated"), &json!(5)), "{answer}");
    let (sent, received) = (&answer["sent"][0], &answer["received"][0]);
    assert_eq!((&sent["asked"], &sent["sent"], &received["first"]), (&json!(1000), &json!(1000), &json!(1000)));
    // Accurate to three digits.
    assert!((4_995..=5_005).contains(&received["delay_ns"]["p50"].as_i64().unwrap()), "{received}");

    let wrong = [
        ("{".to_owned(), Value::Null),
        (json!({ "do": "dance", "block": 6 }).to_string(), json!(6)),
        (simulation(7, json!({ "delay": { "constant_ns": 5 }, "los": 1 })).to_string(), json!(7)),
        (json!({ "do": "finish", "block": 8 }).to_string(), json!(8)),
        (json!({ "do": "send", "block": 9, "key": KEY, "flows": [] }).to_string(), json!(9)),
    ];
    for (line, block) in wrong {
        serve.say(&line);
        let answer = serve.answer().unwrap();
        assert_eq!((&answer["event"], &answer["status"]), (&json!("error"), &json!(2)), "{line}: {answer}");
        assert_eq!(answer["block"], block, "{line}");
    }
    let mut many = simulation(10, constant());
    let flow = many["flows"][0].clone();
    let numbered = |number: u32| {
        let mut flow = flow.clone();
        flow["flow"] = json!(number);
        flow
    };
    many["flows"] = (1..=65).map(numbered).collect();
    let refused = serve.ask(&many);
    assert!(refused["status"] == 2 && refused["message"].to_string().contains("65 streams are more"), "{refused}");
    let mut none = simulation(10, constant());
    none["flows"][0]["count"] = json!(0);
    assert_eq!(serve.ask(&none)["status"], 2);
    // A stop request while nothing is sent has no answer.
    serve.say(&json!({ "do": "stop" }).to_string());
    assert_eq!(serve.ask(&simulation(11, constant()))["sent"][0]["sent"], 1000);
    assert_eq!(serve.end(), Some(0));
    let tables = ["arrivals", "clock_lines", "exchanges", "histograms", "sends", "streams"];
    assert_eq!(folder.names(), tables.map(|table| format!("{table}-sim-002.arrow")));
}

#[test]
fn a_lossy_path_conserves_every_packet() {
    let folder = Folder::new("lossy");
    let mut serve = Serve::start(&folder);
    let path = json!({
        "delay": { "constant_ns": 5_000 }, "loss": 0.1, "duplicate": 0.05, "corrupt": 0.02, "own_drop": 0.03, "seed": 3,
    });
    let answer = serve.ask(&simulation(1, path));
    let received = &answer["received"][0];
    let count = |name: &str| received[name].as_u64().unwrap();
    assert_eq!(count("first") + count("corrupted") + count("local_drops") + count("lost"), 1000, "{received}");
    for name in ["duplicated", "corrupted", "local_drops", "lost"] {
        assert!(count(name) > 0, "{name}: {received}");
    }
    assert_eq!(serve.end(), Some(0));
}

#[test]
fn offset_and_skew_between_clocks_are_removed() {
    let folder = Folder::new("clocks");
    let mut serve = Serve::start(&folder);
    let mut path = constant();
    path["delay_backward"] = json!({ "constant_ns": 5_000 });
    path["clocks"] = json!({ "receiver": { "offset_ns": 2_000_000_000, "skew_ppm": 30.0 } });
    let answer = serve.ask(&simulation(1, path));
    let clock = &answer["clock"][0];
    assert_eq!(clock["shared"], false, "{answer}");
    let line = &clock["lines"][0];
    let offset = line["offset_ns"].as_f64().unwrap();
    assert!((offset - 2e9).abs() < 1e6, "{line}");
    assert!(line["bound_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(serve.end(), Some(0));
}

#[test]
fn existing_records_are_not_overwritten() {
    let folder = Folder::new("twice");
    let mut serve = Serve::start(&folder);
    serve.ask(&simulation(0, constant()));
    serve.end();
    let before = fs::read(folder.0.join("sends-sim-002.arrow")).unwrap();
    let again = command(&folder).arg("--simulated").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert_eq!((again.status.code(), again.stdout.as_slice()), (Some(2), &b""[..]), "{said}");
    assert!(said.contains("sends-sim-002.arrow"), "{said}");
    assert_eq!(fs::read(folder.0.join("sends-sim-002.arrow")).unwrap(), before);
}

fn sim(options: &[&str]) -> Output {
    Command::new(BINARY).args(["stream", "sim"]).args(options).output().unwrap()
}

#[test]
fn manual_run_reports_in_json_and_by_exit_status() {
    let path = constant().to_string();
    let good = sim(&["--path", &path, "--schedule", "poisson", "--rate", "10kpps", "--count", "500", "--json"]);
    let told: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(0), "{}", String::from_utf8_lossy(&good.stderr));
    assert_eq!((&told["sent"][0]["sent"], &told["received"][0]["first"]), (&json!(500), &json!(500)));
    assert!(told["sent"][0]["anderson_darling"]["p"].as_f64().unwrap() > 0.0);
    let clock = &told["received"][0]["one_way_delay"]["clock"];
    assert!(clock["bound_ns"].is_number(), "no one-way delay without its error: {told}");

    let silent = sim(&["--path", &json!({ "delay": { "constant_ns": 1 }, "loss": 1.0 }).to_string(), "--count", "10"]);
    assert_eq!(silent.status.code(), Some(4));
    let said = String::from_utf8(silent.stderr).unwrap();
    assert!(said.starts_with("sojourn-instrument: no frame of a stream arrived"), "{said}");
}

#[test]
fn impossible_requests_end_with_status_2() {
    let path = constant().to_string();
    for (options, word) in [
        (vec!["--count", "0"], "0 packets"),
        (vec!["--schedule", "flood", "--rate", "1kpps"], "--rate"),
        (vec!["--schedule", "burst:0"], "burst"),
        (vec!["--schedule", "often"], "often"),
        (vec!["--rate", "10"], "10kpps"),
        (vec!["--size", "50"], "46"),
        (vec!["--duration", "1us", "--rate", "1pps"], "--duration"),
        (vec!["--schedule", "replay:/nowhere"], "/nowhere"),
    ] {
        let output = sim(&[&["--path", path.as_str()], options.as_slice()].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{options:?}: {said}");
    }
}

/// The kernel makes these frames without a rest.
#[test]
fn live_frames_are_not_sent_in_real_time() {
    let words = "stream send --engine live --dev lo --to 02:00:00:00:00:01 --count 1 --rate 1kpps --fifo";
    let output =
        Command::new(env!("CARGO_BIN_EXE_sojourn-instrument")).args(words.split(' ')).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("leave --fifo out"), "{said}");
}

#[test]
fn packets_sent_to_no_receiver_are_reported() {
    let folder = Folder::new("finish");
    let mut serve = Serve::begin(&mut command(&folder));
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = json!({ "port": 3, "via": "udp", "udp_port": port, "address": "127.0.0.1" });
    let twice = json!({ "do": "receive", "block": 8, "key": KEY, "ports": [listen, listen], "flows": [1] });
    assert_eq!(serve.ask(&twice)["status"], 2);
    let receive = json!({ "do": "receive", "block": 9, "key": KEY, "ports": [listen], "flows": [1] });
    assert_eq!(serve.ask(&receive)["event"], "receiving");
    for sent in [json!({ "flow": 2, "sent": 5 }), json!({ "flow": 1, "port": 4, "sent": 5 })] {
        let refused = serve.ask(&json!({ "do": "finish", "block": 9, "sent": [sent] }));
        assert_eq!((&refused["event"], &refused["status"]), (&json!("error"), &json!(2)), "{refused}");
    }
    let received = serve.ask(&json!({ "do": "finish", "block": 9, "sent": [{ "flow": 1, "port": 3, "sent": 5 }] }));
    assert_eq!(received["flows"][0]["lost"], 5, "{received}");
    assert_eq!(serve.end(), Some(0));
}

#[test]
fn requests_beyond_the_queue_limit_are_answered_in_order() {
    let folder = Folder::new("many");
    let mut serve = Serve::start(&folder);
    let mut input = serve.input.take().unwrap();
    let several = 3_000;
    let asks = std::thread::spawn(move || {
        for _ in 0..several {
            writeln!(input, "{}", json!({ "do": "count", "block": 7 })).unwrap();
        }
    });
    for _ in 0..several {
        assert_eq!(serve.answer().unwrap()["block"], 7);
    }
    asks.join().unwrap();
    assert_eq!(serve.end(), Some(0));
}

#[test]
fn each_stop_ends_only_streams_requested_before_it() {
    let folder = Folder::new("stops");
    let mut serve = Serve::start(&folder);
    let stop = json!({ "do": "stop" }).to_string();
    serve.say(&format!("{stop}\n{stop}"));
    let answer = serve.ask(&simulation(1, constant()));
    assert_eq!(serve.ask(&simulation(2, constant()))["sent"][0]["unsent"], 0, "{answer}");
    assert_eq!(serve.end(), Some(0));
}

/// Starts `stream recv` at a port, and waits until it listens or ends with an error; returns its first line.
fn receiver(port: u16, options: &[&str]) -> (Child, String) {
    let mut child = Command::new(BINARY)
        .args(["stream", "recv", "--udp", &port.to_string(), "--for", "60s", "--json"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    (child, said)
}

#[test]
fn bound_receiver_accepts_only_packets_to_its_address() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (child, said) = receiver(port, &["--bind", "127.0.0.3"]);
    assert!(said.starts_with("receiving"), "{said}");
    // Any other address stays free for other programs.
    UdpSocket::bind(("127.0.0.1", port)).unwrap();
    assert!(UdpSocket::bind(("127.0.0.3", port)).is_err());
    let to = format!("127.0.0.3:{port}");
    let sent = Command::new(BINARY)
        .args(["stream", "send", "--udp", &to, "--count", "20", "--rate", "1kpps"])
        .output()
        .unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", String::from_utf8_lossy(&sent.stderr));
    let told = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["flows"][0]["first"], 20, "{told}");
}

#[test]
fn receiver_refuses_impossible_bind_addresses() {
    for (options, status, word) in [
        (["--bind", "192.0.2.1"].as_slice(), 3, "192.0.2.1"),
        (&["--bind", "eth0"], 2, "eth0"),
        (&["--bind", "127.0.0.1", "--ipv6"], 2, "--ipv6"),
        (&["--bind", "127.0.0.1", "--group", "239.77.0.1"], 2, "--group"),
    ] {
        let (mut child, said) = receiver(7708, options);
        assert_eq!(child.wait().unwrap().code(), Some(status), "{options:?}: {said}");
        assert!(said.contains(word), "{options:?}: {said}");
    }
}
