//! Tests of `tcplog` with its programs in the kernel, over the test's own connections, in a temporary cgroup and namespace.

#[path = "../../port/tests/links/mod.rs"]
mod links;
#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use sojourn_rights::table::TCPLOG;
use sojourn_time::{Clock, HostClock, Nanos};

use namespace::{ip, within};

const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");

#[test]
fn every_packet_of_a_connection_is_logged_and_accounting_is_conserved() {
    within("every_packet_of_a_connection_is_logged_and_accounting_is_conserved", || {
        let Some(bed) = Bed::make("whole") else { return };
        let logger = bed.run("--ppl 1 --netns /proc/self/ns/net");
        transfer("127.0.0.1:0", 3_000_000);
        transfer("[::1]:0", 3_000_000);
        await_closed();
        let footer = logger.end();
        assert_eq!(footer["conserved"], true, "{footer}");
        let of = |way: &str, disposition: &str| footer["totals"][way][disposition].as_u64().unwrap_or_default();
        // Each segment over loopback is sent once and received once; the kernel merges segments differently in each direction.
        let segments = |way: &str| footer["totals"]["segments"][way]["seen"].as_u64();
        assert_eq!(segments("in"), segments("out"), "{footer}");
        assert!(of("in", "logged") > 40 && of("in", "full") == 0, "{footer}");
        assert_eq!(footer["flows"], 4, "both ends of two connections: {footer}");
        assert_eq!(footer["records"].as_u64(), Some(of("in", "logged") + of("out", "logged")), "{footer}");
    });
}

#[test]
fn missing_capability_is_named_and_nothing_is_left_behind() {
    within("missing_capability_is_named_and_nothing_is_left_behind", || {
        let out = std::env::temp_dir().join(format!("sojourn-tcplog-rights-{}", std::process::id()));
        let drop = ["--bounding-set=-all", "--inh-caps=-all", BINARY, "tcplog", "run", "--duration", "1s", "--out"];
        let output = Command::new("setpriv").args(drop).arg(&out).output().expect("setpriv starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("CAP_") && said.lines().count() == 1, "{said}");
        assert!(!out.exists());
    });
}

#[test]
fn logger_gives_up_every_capability_that_it_does_not_need() {
    within("logger_gives_up_every_capability_that_it_does_not_need", || {
        let Some(bed) = Bed::make("least") else { return };
        let logger = bed.run("--ppl 1");
        let needless = || statuses(logger.process.id()).into_iter().find(|status| !holds_no_more(status));
        let patience = HostClock.now() + Nanos::seconds(30);
        while let Some(status) = needless() {
            assert!(HostClock.now() < patience, "{status}");
        }
        logger.end();
    });
}

#[test]
fn log_whose_bpf_programs_were_detached_reports_it_with_status_4() {
    within("log_whose_bpf_programs_were_detached_reports_it_with_status_4", || {
        let Some(bed) = Bed::make("taken") else { return };
        let number = fs::metadata(&bed.cgroup).expect("is there").ino();
        for (what, expected) in [("detach", "was detached from"), ("replace", "was replaced by another one")] {
            let logger = bed.run("--ppl 1");
            transfer("127.0.0.1:0", 100_000);
            match what {
                "detach" => links::detach(logger.process.id(), "cgroup", number),
                _ => links::replace(logger.process.id(), "cgroup", number),
            }
            let footer = logger.ends_by_itself();
            assert!(footer["interruption"]["why"].as_str().is_some_and(|why| why.contains(expected)), "{footer}");
            assert!(footer["records"].as_u64() > Some(10) && footer["gaps"].as_u64() > Some(0), "{footer}");
            fs::remove_dir_all(bed.folder.join("t")).expect("removes");
        }
    });
}

#[test]
fn watch_without_a_log_reports_that_its_bpf_programs_were_detached() {
    within("watch_without_a_log_reports_that_its_bpf_programs_were_detached", || {
        let Some(bed) = Bed::make("watched") else { return };
        let number = fs::metadata(&bed.cgroup).expect("is there").ino();
        let mut process = Command::new(BINARY)
            .args(["tcplog", "watch", "--ring", "1MiB", "--flows", "64", "--interval", "50ms", "--attach"])
            .arg(&bed.cgroup)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(process.stdout.take().expect("its output"));
        lines.read_line(&mut String::new()).expect("a line");
        links::detach(process.id(), "cgroup", number);
        let began = HostClock.now();
        // It prints flows until it detects the detachment.
        lines.read_to_end(&mut Vec::new()).expect("it ends");
        let output = process.wait_with_output().expect("ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(4) && told.contains("was detached from"), "{told}");
        assert!(HostClock.now() - began < Nanos::seconds(3));
    });
}

#[test]
fn removed_cgroup_ends_the_log_but_not_the_command() {
    within("removed_cgroup_ends_the_log_but_not_the_command", || {
        let Some(bed) = Bed::make("removed") else { return };
        let inner = bed.cgroup.join("inner");
        let removed = |footer: &Value| {
            let why = format!("the cgroup {} was removed", inner.display());
            assert_eq!(footer["interruption"]["why"], json!(why), "{footer}");
            let [after, before] = ["after_ns", "before_ns"].map(|key| footer["interruption"][key].as_i64());
            assert!(before.zip(after).is_some_and(|(before, after)| (1..1_000_000_000).contains(&(before - after))));
        };
        fs::create_dir(&inner).expect("makes");
        let logger = bed.run_at(&inner, "--ppl 1");
        fs::remove_dir(&inner).expect("removes");
        removed(&logger.ends_by_itself());
        fs::remove_dir_all(bed.folder.join("t")).expect("removes");

        fs::create_dir(&inner).expect("makes");
        let logger = bed.run_at(&inner, "--ppl 1 -- sleep 2");
        fs::remove_dir(&inner).expect("removes");
        let (status, footer) = logger.ended();
        assert_eq!((status, &footer["why"], &footer["command_status"]), (4, &json!("command ended"), &json!(0)));
        removed(&footer);
        assert!(footer["duration_s"].as_f64() >= Some(2.0), "{footer}");
    });
}

#[test]
fn study_continues_after_a_block_whose_bpf_programs_were_detached() {
    within("study_continues_after_a_block_whose_bpf_programs_were_detached", || {
        let Some(bed) = Bed::make("served") else { return };
        let number = fs::metadata(&bed.cgroup).expect("is there").ino();
        let mut process = Command::new(BINARY)
            .args(["tcplog", "serve", "--ring", "1MiB", "--flows", "64", "--attach"])
            .arg(&bed.cgroup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let (mut input, output) = (process.stdin.take().expect("its input"), process.stdout.take());
        let mut lines = BufReader::new(output.expect("its output")).lines();
        let mut hear = || serde_json::from_str::<Value>(&lines.next().expect("a line").expect("reads")).expect("JSON");
        assert_eq!(hear()["event"], "ready");
        let mut ask = |request: Value| {
            writeln!(input, "{request}").expect("asks");
            hear()
        };
        for (block, what) in [(0, "nothing"), (1, "detach"), (2, "replace"), (3, "nothing")] {
            let begin = json!({ "do": "begin", "block": block, "who": "a", "records": bed.folder, "mode": "on" });
            assert_eq!(ask(begin)["event"], "begun");
            transfer("127.0.0.1:0", 100_000);
            match what {
                "detach" => links::detach(process.id(), "cgroup", number),
                "replace" => links::replace(process.id(), "cgroup", number),
                _ => {}
            }
            // A new attachment before the next check must not hide the detachment.
            for mode in ["off", "on"] {
                assert_eq!(ask(json!({ "do": "mode", "mode": mode }))["event"], "mode");
            }
            transfer("127.0.0.1:0", 100_000);
            let ended = ask(json!({ "do": "end" }));
            assert_eq!((&ended["event"], &ended["conserved"]), (&json!("ended"), &json!(what == "nothing")), "{ended}");
            assert_eq!(ended["interruption"].is_null(), what == "nothing", "{ended}");
            assert!(ended["records"].as_u64() > Some(20), "{ended}");
        }
        drop(input);
        assert!(process.wait().expect("ends").success());
    });
}

/// Returns the kernel's status of each thread of a process.
fn statuses(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect()
}

/// Whether a thread has the declared capabilities, in every set, and no more.
fn holds_no_more(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim();
    let mask = |name: &str| u64::from_str_radix(field(name), 16).expect("a mask");
    let is_confined = field("NoNewPrivs:") == "1" && field("Seccomp:") == "2";
    let held = (mask("CapPrm:") | mask("CapEff:")) & !TCPLOG.mask();
    is_confined && held | mask("CapBnd:") | mask("CapAmb:") | mask("CapInh:") == 0
}

/// Sends so many bytes over a connection within this process, and closes it.
fn transfer(address: &str, bytes: usize) {
    let listener = TcpListener::bind(address).expect("listens");
    let address = listener.local_addr().expect("its address");
    let receive = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.read_to_end(&mut Vec::new()).expect("receives")
    });
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(&vec![7; bytes]).expect("sends");
    // A socket that is closed before its peer is in TIME_WAIT at once, where the kernel runs no program for what arrives.
    stream.shutdown(Shutdown::Write).expect("sends its FIN");
    assert_eq!(stream.read_to_end(&mut Vec::new()).expect("receives the peer's FIN"), 0);
    assert_eq!(receive.join().expect("ends"), bytes);
}

/// Waits until the last segment of every connection of this namespace has arrived: only TIME_WAIT sockets remain then.
fn await_closed() {
    const TIME_WAIT: &str = "06";
    let patience = HostClock.now() + Nanos::seconds(30);
    loop {
        let sockets =
            ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).expect("is read"));
        let open = |table: &String| table.lines().skip(1).any(|line| line.split_whitespace().nth(3) != Some(TIME_WAIT));
        if !sockets.iter().any(open) {
            return;
        }
        assert!(HostClock.now() < patience, "connections that do not close: {sockets:?}");
    }
}

/// A cgroup that contains this test, and a folder.
struct Bed {
    cgroup: PathBuf,
    root: PathBuf,
    folder: PathBuf,
}

impl Bed {
    /// Creates it; `None`, with a message, if no cgroup can be created.
    fn make(name: &str) -> Option<Self> {
        ip("link set dev lo up");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let root = PathBuf::from(line.and_then(|line| line.split(' ').nth(4)).unwrap_or("/sys/fs/cgroup"));
        let cgroup = root.join(format!("sojourn-test-{}-{name}", std::process::id()));
        let entered = fs::create_dir(&cgroup).and_then(|()| enter(&cgroup));
        if let Err(why) = entered {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to make a cgroup: {why}");
            eprintln!("skipped: cannot make a cgroup here: {why}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("sojourn-tcplog-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Some(Self { cgroup, root, folder })
    }

    fn run(&self, words: &str) -> Logger {
        self.run_at(&self.cgroup, words)
    }

    fn run_at(&self, cgroup: &Path, words: &str) -> Logger {
        let out = self.folder.join("t");
        let mut process = Command::new(BINARY)
            .args(["tcplog", "run", "--ring", "1MiB", "--flows", "64", "--attach"])
            .arg(cgroup)
            .arg("--out")
            .arg(&out)
            .args(words.split_whitespace())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let mut errors = BufReader::new(process.stderr.take().expect("its messages"));
        errors.read_line(&mut line).expect("a line");
        assert!(line.contains("logs TCP's state"), "{line}");
        thread::spawn(move || errors.lines().map_while(Result::ok).for_each(drop));
        Logger { process, out }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = enter(&self.root);
        let _ = fs::remove_dir(&self.cgroup);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn enter(cgroup: &Path) -> std::io::Result<()> {
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
}

struct Logger {
    process: Child,
    out: PathBuf,
}

impl Logger {
    fn end(self) -> Value {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("signals");
        let (status, footer) = self.ended();
        assert_eq!((status, &footer["why"]), (0, &json!("signal")));
        footer
    }

    /// Waits until it ends because its programs were detached, which takes a second at most.
    fn ends_by_itself(self) -> Value {
        let start = HostClock.now();
        let (status, footer) = self.ended();
        let took = HostClock.now() - start;
        assert!(took < Nanos::seconds(3), "a second, and what converting takes: {took:?}");
        let expected = (4, &json!("interrupted"), &json!(false));
        assert_eq!((status, &footer["why"], &footer["conserved"]), expected, "{footer}");
        footer
    }

    /// Waits for its end; returns its exit status and its footer.
    fn ended(mut self) -> (i32, Value) {
        let status = self.process.wait().expect("ends").code().expect("a status");
        let footer = fs::read(self.out.join("footer.json")).expect("a footer");
        (status, serde_json::from_slice(&footer).expect("JSON"))
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
