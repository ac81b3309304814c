//! Tests of `stamp` as a user starts it, across a veth link: with itself, with forged packets, and with another implementation.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::Key;
use sojourn_wire::stamp::{ErrorEstimate, Format, Reflected, Scale, Sent};

use namespace::{link, within};

const SECRET: &str = "hex:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A reflector in the far namespace.
struct Reflector {
    process: Child,
    output: BufReader<ChildStdout>,
    ready: Value,
}

impl Reflector {
    fn start(options: &[&str]) -> Self {
        let mut process = Command::new("ip")
            .args(["netns", "exec", "peer", env!("CARGO_BIN_EXE_sojourn-instrument"), "stamp", "reflect", "--json"])
            .args(["--die-with-parent", "--until-eof"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a first line");
        let ready = serde_json::from_str(&line).expect("JSON");
        Self { process, output, ready }
    }

    fn finish(mut self) -> Value {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("its final message");
        assert_eq!(self.process.wait().expect("ends").code(), Some(0));
        serde_json::from_str(&rest).expect("one line of JSON")
    }
}

fn instrument(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sojourn-instrument")).args(words).output().expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a session, and returns its summary.
fn send(to: &str, options: &[&str]) -> Value {
    let words = [&["stamp", "send", to, "-c", "100", "-i", "2ms", "--json"][..], options].concat();
    let (status, told, problem) = instrument(&words);
    // A busy machine sends late, which makes a session doubtful, not wrong.
    assert_eq!(status, Some(0), "{told} {problem}");
    serde_json::from_str(&told).expect("JSON")
}

fn key_file(name: &str, secret: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::write(&path, secret).expect("writes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("sets");
    path
}

fn assert_counts(told: &Value, expected: [u64; 4]) {
    let counts = ["sent", "received", "lost", "unexpected"].map(|key| told[key].as_u64().expect(key));
    assert_eq!(counts, expected, "{told}");
}

#[test]
fn session_reports_round_trip_times_and_one_way_delays() {
    within("session_reports_round_trip_times_and_one_way_delays", || {
        link();
        let key = key_file("stamp-key", SECRET);
        let key = key.to_str().expect("a path");
        for (reflect, sends) in [
            (vec![], vec!["--timestamps", "ptp"]),
            (vec!["--stateful", "--timestamps", "ptp"], vec!["--payload-bytes", "1000"]),
            (vec!["--stateful", "--key", key], vec!["--key", key, "--ssid", "4711"]),
        ] {
            let reflector = Reflector::start(&reflect);
            assert_eq!(
                reflector.ready["numbering"],
                if reflect.contains(&"--stateful") { "stateful" } else { "stateless" }
            );
            for to in ["10.77.1.2", "fd77::2", "[fd77::2]:862"] {
                let told = send(to, &[&["--stateful", "--shared-clock"][..], &sends].concat());
                assert_counts(&told, [100, 100, 0, 0]);
                assert_eq!((&told["reflector"]["ttl_min"], &told["reflector"]["ttl_max"]), (&64.into(), &64.into()));
                assert_eq!(told["loss_by_direction"], serde_json::json!({ "there": 0, "back": 0, "unknown": 0 }));
                let mean = |figure: &Value| figure["mean_ns"].as_f64().expect("a mean");
                let (there, back, rtt) =
                    (mean(&told["one_way"]["there"]), mean(&told["one_way"]["back"]), mean(&told["rtt"]));
                assert!(there > 0.0 && back > 0.0 && there + back < rtt, "{told}");
            }
            let end = reflector.finish();
            assert_eq!((&end["answered"], &end["unexpected"]), (&300.into(), &0.into()), "{end}");
        }
    });
}

/// Relays datagrams between the senders to the returned address and `to`, except every fifth one on the way there and
/// every fourth one on the way back.
fn lossy_relay(to: &'static str) -> std::net::SocketAddr {
    let near = UdpSocket::bind("127.0.0.1:0").expect("binds");
    let far = UdpSocket::bind("10.77.1.1:0").expect("binds");
    let address = near.local_addr().expect("an address");
    let asker = Arc::new(Mutex::new(None));
    let (near_back, far_back, asked) =
        (near.try_clone().expect("clones"), far.try_clone().expect("clones"), Arc::clone(&asker));
    std::thread::spawn(move || {
        let mut bytes = [0; 2_000];
        for nth in 0.. {
            let (length, from) = near.recv_from(&mut bytes).expect("receives");
            *asker.lock().expect("is whole") = Some(from);
            if nth % 5 != 4 {
                far.send_to(&bytes[..length], to).expect("sends");
            }
        }
    });
    std::thread::spawn(move || {
        let mut bytes = [0; 2_000];
        for nth in 0.. {
            let (length, _) = far_back.recv_from(&mut bytes).expect("receives");
            let to = asked.lock().expect("is whole").expect("somebody asked");
            if nth % 4 != 3 {
                near_back.send_to(&bytes[..length], to).expect("sends");
            }
        }
    });
    address
}

#[test]
fn loss_is_reported_per_direction() {
    within("loss_is_reported_per_direction", || {
        link();
        for (stateful, knows) in [(true, true), (false, false)] {
            let reflector = Reflector::start(if stateful { &["--stateful"] } else { &[] });
            let relay = lossy_relay("10.77.1.2:862").to_string();
            // A spinning sender with a higher priority than the relay would keep it from its CPU.
            let told = send(&relay, &["--wait", "sleep", "--timeout", "2s"]);
            // 80 of 100 probes arrived, and 60 of their replies returned; the last probe was lost, and so was the reply
            // to the one before.
            assert_counts(&told, [100, 60, 40, 0]);
            let expected = serde_json::json!({ "there": 19, "back": 19, "unknown": 2 });
            assert_eq!(told["loss_by_direction"], if knows { expected } else { Value::Null }, "{told}");
            assert_eq!(reflector.finish()["answered"], 80);
        }
    });
}

#[test]
fn forged_replayed_and_reflected_packets_are_ignored_and_counted() {
    within("forged_replayed_and_reflected_packets_are_ignored_and_counted", || {
        link();
        let file = key_file("stamp-forged", SECRET);
        let reflector = Reflector::start(&["--key", file.to_str().expect("a path")]);
        let key = Key::new(&(0..32).collect::<Vec<u8>>()).expect("long enough");
        let packet = |seq, key: Option<&Key>| {
            let mut payload = vec![0; 112];
            let timestamp = Scale::default().write(HostClock.now());
            Sent { seq, timestamp, error: ErrorEstimate::new(Format::Ntp, false, Nanos(1)), ssid: 3 }
                .write(&mut payload, key);
            payload
        };
        let socket = UdpSocket::bind("10.77.1.1:0").expect("binds");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("sets");
        let ask = |request: &[u8]| {
            socket.send_to(request, "10.77.1.2:862").expect("sends");
            let mut reply = vec![0; 2_000];
            socket.recv(&mut reply).ok().map(|length| reply[..length].to_vec())
        };
        let good = packet(0, Some(&key));
        let reply = ask(&good).expect("an answer");
        assert!(Reflected::read(&reply, Some(&key)).is_ok());
        assert_eq!(ask(&good), None, "a replay");
        assert_eq!(ask(&packet(1, None)), None, "without a tag");
        assert_eq!(ask(&packet(1, Some(&Key::new(&[9; 32]).expect("long enough")))), None, "by another key");
        assert_eq!(ask(&reply), None, "an answer sent back to the reflector");
        namespace::ip("address add 10.77.1.3/24 dev near");
        namespace::ip("-n peer neighbor replace 10.77.1.3 lladdr 02:77:00:00:01:01 dev far nud permanent");
        for address in ["10.77.1.1:0", "10.77.1.1:0", "10.77.1.3:0"] {
            let other = UdpSocket::bind(address).expect("binds");
            other.set_read_timeout(Some(Duration::from_millis(300))).expect("sets");
            other.send_to(&good, "10.77.1.2:862").expect("sends");
            assert!(other.recv(&mut [0; 200]).is_err(), "a replay from {address}");
        }
        let loops = UdpSocket::bind("10.77.1.1:862").expect("binds");
        loops.send_to(&packet(2, Some(&key)), "10.77.1.2:862").expect("sends");
        assert!(ask(&packet(3, Some(&key))).is_some());
        let end = reflector.finish();
        let counts =
            ["answered", "replayed", "reflected", "unauthenticated", "source_port"].map(|key| end[key].as_u64());
        assert_eq!(counts, [2, 4, 1, 2, 1].map(Some), "{end}");
    });
}

/// Sends one datagram from the address of one reflector to another: neither may answer the other's replies.
#[test]
fn two_reflectors_do_not_answer_each_other() {
    within("two_reflectors_do_not_answer_each_other", || {
        link();
        let reflector = Reflector::start(&["--port", "8620"]);
        let other = UdpSocket::bind("10.77.1.1:8621").expect("binds");
        other.set_read_timeout(Some(Duration::from_secs(5))).expect("sets");
        let mut payload = [0; 44];
        let timestamp = Scale::default().write(HostClock.now());
        Sent { seq: 0, timestamp, error: ErrorEstimate::new(Format::Ntp, false, Nanos(1)), ssid: 0 }
            .write(&mut payload, None);
        other.send_to(&payload, "10.77.1.2:8620").expect("sends");
        let mut answer = [0; 44];
        assert_eq!(other.recv(&mut answer).expect("an answer"), 44);
        // A reply as a reflector at that port would send it, with its own timestamps.
        let asked = Sent::read(&answer, None).expect("a packet");
        let now = Scale::default().write(HostClock.now());
        Reflected { seq: 0, timestamp: now, error: asked.error, ssid: 0, receive: now, sender: asked, ttl: 64 }
            .write(&mut answer, None);
        other.send_to(&answer, "10.77.1.2:8620").expect("sends");
        other.set_read_timeout(Some(Duration::from_millis(300))).expect("sets");
        assert!(other.recv(&mut answer).is_err(), "it ends");
        let end = reflector.finish();
        assert_eq!((&end["answered"], &end["reflected"]), (&1.into(), &1.into()), "{end}");
    });
}

#[test]
fn sender_rejects_a_reflector_without_its_key() {
    within("sender_rejects_a_reflector_without_its_key", || {
        link();
        let (file, other) = (key_file("stamp-mine", SECRET), key_file("stamp-theirs", "another secret of theirs"));
        let [file, other] = [&file, &other].map(|path| path.to_str().expect("a path"));
        for options in [vec![], vec!["--key", other]] {
            let reflector = Reflector::start(&options);
            let (status, told, problem) = instrument(&[
                "stamp",
                "send",
                "10.77.1.2",
                "-c",
                "10",
                "-i",
                "1ms",
                "--timeout",
                "200ms",
                "--json",
                "--key",
                file,
            ]);
            let told: Value = serde_json::from_str(&told).expect("JSON");
            assert_eq!((status, &told["received"]), (Some(4), &0.into()), "{told}");
            assert!(problem.contains("same key"), "{problem}");
            reflector.finish();
        }
        fs::set_permissions(file, Permissions::from_mode(0o644)).expect("sets");
        let (status, _, problem) = instrument(&["stamp", "send", "10.77.1.2", "--key", file]);
        assert!(status == Some(2) && problem.contains("chmod 600"), "{problem}");
        let (status, _, problem) = instrument(&["stamp", "send", "10.77.1.2", "--payload-bytes", "43"]);
        assert!(status == Some(2) && problem.contains("at least 44"), "{problem}");
    });
}

/// Builds another implementation, independent of this project: stamp-suite from crates.io, if it is not built yet.
fn stamp_suite() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stamp-suite");
    let program = root.join("bin/stamp-suite");
    if !program.exists() {
        let install = ["install", "stamp-suite", "--version", "1.0.0", "--locked", "--debug", "--root"];
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let done = Command::new(cargo).args(install).arg(&root).env("CARGO_TARGET_DIR", root.join("target")).status();
        assert!(done.expect("cargo starts").success(), "cargo install stamp-suite");
        let _ = fs::remove_dir_all(root.join("target"));
    }
    program
}

#[test]
#[ignore = "proof: builds stamp-suite of crates.io"]
fn another_stamp_implementation_works_at_either_end() {
    // Before entering the namespace, from which no registry is reachable.
    assert!(stamp_suite().exists());
    within("another_stamp_implementation_works_at_either_end", interoperate);
}

fn interoperate() {
    link();
    let file = key_file("stamp-inter", SECRET);
    let ours = file.to_str().expect("a path");
    let theirs = key_file("stamp-suite", SECRET.trim_start_matches("hex:"));
    let theirs = theirs.to_str().expect("a path");
    for (clock, keyed) in [("NTP", false), ("PTP", false), ("NTP", true)] {
        let mode = if keyed { vec!["-A", "A", "--hmac-key-file", theirs] } else { vec![] };
        let key = if keyed { vec!["--key", ours] } else { vec![] };
        // Sojourn's reflector with the other sender.
        let reflector = Reflector::start(&[&["--stateful"][..], &key].concat());
        let sends = [
            "--remote-addr",
            "10.77.1.2",
            "--count",
            "20",
            "--send-delay",
            "10",
            "--timeout",
            "2",
            "--clock-source",
            clock,
        ];
        let done = Command::new(stamp_suite()).args(sends).args(&mode).output().expect("starts");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("Packets received: 20") && said.contains("Packets lost: 0"), "{said}");
        let end = reflector.finish();
        assert_eq!(
            (&end["answered"], &end["unexpected"], &end["unauthenticated"]),
            (&20.into(), &0.into(), &0.into()),
            "{end}"
        );
        // Sojourn's sender with the other reflector.
        let listens = ["netns", "exec", "peer"];
        let mut reflector = Command::new("ip")
            .args(listens)
            .arg(stamp_suite())
            .args([
                "-i",
                "--local-addr",
                "10.77.1.2",
                "--local-port",
                "862",
                "--stateful-reflector",
                "--clock-source",
                clock,
            ])
            .args(&mode)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        HostClock.wait_until(HostClock.now() + Nanos::seconds(1), Nanos::ZERO);
        let sizes = if keyed { vec![] } else { vec!["--payload-bytes", "200"] };
        let told = send("10.77.1.2", &[&["--stateful", "--shared-clock"][..], &sizes, &key].concat());
        assert_counts(&told, [100, 100, 0, 0]);
        assert_eq!(told["loss_by_direction"], serde_json::json!({ "there": 0, "back": 0, "unknown": 0 }));
        let mean = |figure: &Value| figure["mean_ns"].as_f64().expect("a mean");
        let (there, back, rtt) = (mean(&told["one_way"]["there"]), mean(&told["one_way"]["back"]), mean(&told["rtt"]));
        assert!(there > 0.0 && back > 0.0 && there + back < rtt, "both clocks are this kernel's: {told}");
        reflector.kill().expect("is there");
        reflector.wait().expect("ends");
    }
}
