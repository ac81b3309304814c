//! Tests of what a power failure leaves: the sequence of writes, syncs, renames and removals that strace records, cut
//! after each one (`power/trace.rs`).

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;
#[path = "power/trace.rs"]
mod trace;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use namespace::{ip, within_permitted};
use serde_json::Value;
use sojourn_port::pcap::NgWriter;
use sojourn_time::{Clock, HostClock, Nanos, Time};
use trace::{Act, Disk, Tracing, traced};

const TABLES: [&str; 5] = ["tcp_samples", "tcp_private", "tcp_flows", "tcp_account", "tcp_gaps"];

/// Returns what a TCP log would lose although it claims to be complete, one sentence per case.
fn lost_of_tcplog(acts: &[Act]) -> Vec<String> {
    let mut disk = Disk::default();
    let mut lost = Vec::new();
    for (at, act) in acts.iter().enumerate() {
        disk.take(act);
        for table in TABLES {
            let is_safe = disk.has(&format!("records/{table}-tcplog-000.arrow"));
            if disk.may_lack("spool-000.tcplog") && !is_safe {
                lost.push(format!("{at}: neither the spool nor {table} is certain"));
            }
            if disk.may_have("footer.json") && !is_safe {
                lost.push(format!("{at}: the footer may be there without {table}"));
            }
        }
        if disk.may_lack("spool-000.tcplog") && !disk.has("/footer.json") {
            lost.push(format!("{at}: neither the spool nor the footer is certain"));
        }
        if disk.files("/footer.json").iter().any(|footer| !disk.is_whole(footer)) {
            lost.push(format!("{at}: the footer may be there and empty"));
        }
    }
    lost
}

#[test]
fn tcp_records_survive_a_power_failure_before_their_spool_is_removed() {
    let folder = folder("tcplog");
    let log = folder.join("log");
    let acts = traced(&folder, &["tcplog", "run", "--simulated", "3", "--duration", "300ms", "--out"], &log);
    let Some(acts) = acts else { return };
    assert_tcplog_is_kept(&acts);
    fs::remove_dir_all(folder).expect("removes");
}

/// The log of another host, whose sender ends it.
#[test]
fn received_tcp_records_survive_a_power_failure_before_their_spool_is_removed() {
    let folder = folder("received");
    let at = format!("127.0.0.1:{}", free_port());
    let out = folder.join("log");
    let Some(receiver) = Tracing::start(&folder, &["tcplog", "receive", &at, "--out"], &out) else { return };
    // A connection that sends nothing is reported and closed.
    wait_for("it listens", || TcpStream::connect(&at).is_ok());
    let words = ["tcplog", "run", "--simulated", "3", "--duration", "300ms", "--export", at.as_str(), "--out"];
    let sent = Command::new(INSTRUMENT).args(words).arg(folder.join("sent")).output().expect("it runs");
    assert!(sent.status.success(), "{sent:?}");
    assert_tcplog_is_kept(&receiver.acts());
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn recovered_tcp_records_survive_a_power_failure_before_their_spool_is_removed() {
    let folder = folder("recovered");
    fs::create_dir_all(&folder).expect("makes");
    let log = folder.join("log");
    let words = ["tcplog", "run", "--simulated", "3", "--duration", "60s", "--out"];
    let logger = Started::new(&[&words[..], &[path(&log)]].concat());
    let spool = log.join("spool-000.tcplog");
    wait_for("it logs", || fs::metadata(&spool).is_ok_and(|about| about.len() > 100_000));
    drop(logger);
    let Some(acts) = traced(&folder, &["tcplog", "recover"], &log) else { return };
    assert_tcplog_is_kept(&acts);
    fs::remove_dir_all(folder).expect("removes");
}

/// Asserts that no record of a TCP log is lost, and that the same operations in another order would lose some.
fn assert_tcplog_is_kept(acts: &[Act]) {
    assert_eq!(lost_of_tcplog(acts), [""; 0]);
    let disk = Disk::after(acts);
    assert!(disk.may_lack("spool-000.tcplog") && disk.has("/footer.json"), "{acts:?}");
    // Counter-check: the same operations in another order must fail.
    let removal = acts.iter().position(|act| matches!(act, Act::Remove(path) if path.ends_with("spool-000.tcplog")));
    let mut early = acts.to_vec();
    let removal = early.remove(removal.expect("it is removed"));
    early.insert(1, removal);
    assert!(!lost_of_tcplog(&early).is_empty());
    for unsynced in ["tcp_flows-tcplog-000.arrow", "/records", "footer.json.part"] {
        let kept = acts.iter().filter(|act| !matches!(act, Act::Sync(path) if path.ends_with(unsynced)));
        assert!(!lost_of_tcplog(&kept.cloned().collect::<Vec<_>>()).is_empty(), "{unsynced}");
    }
}

/// The first file of a log in parts is renamed before parts are removed: once that is on the disk, the rest is no longer a log.
#[test]
fn power_failure_leaves_a_log_in_parts_complete_or_absent() {
    let folder = folder("parts");
    let words = ["tcplog", "run", "--simulated", "3", "--duration", "500ms", "--rotate-size", "64KiB", "--out"];
    let Some(acts) = traced(&folder, &words, &folder.join("log")) else { return };
    let is_rename = |act: &Act| matches!(act, Act::Rename(_, to) if to.ends_with("/spool-spent"));
    let renamed = acts.iter().position(is_rename).expect("it has parts, and its first is renamed");
    assert_eq!(lost_of_parts(&acts), (acts.iter().filter(|act| part_of(act).is_some()).count(), 0), "{acts:?}");
    // Counter-check: without a sync of the folder after the rename, the test must fail.
    let unsynced = acts.iter().enumerate().filter(|(at, act)| *at < renamed || !matches!(act, Act::Sync(_)));
    let unsynced: Vec<Act> = unsynced.map(|(_, act)| act.clone()).collect();
    let (parts, lost) = lost_of_parts(&unsynced);
    assert!(parts > 0 && lost == parts, "{lost} of {parts}");
    fs::remove_dir_all(folder).expect("removes");
}

/// Returns the number of removed parts, and how many of them were removed while the old name of the first could still
/// be on the disk.
fn lost_of_parts(acts: &[Act]) -> (usize, usize) {
    let mut disk = Disk::default();
    let (mut parts, mut lost) = (0, 0);
    for act in acts {
        disk.take(act);
        if part_of(act).is_some() {
            (parts, lost) = (parts + 1, lost + usize::from(!disk.is_named("/spool-spent")));
        }
    }
    (parts, lost)
}

/// Returns the name of the part that an operation removes, if any.
fn part_of(act: &Act) -> Option<&str> {
    let Act::Remove(path) = act else { return None };
    let name = path.rsplit('/').next()?;
    (name.starts_with("spool-") && name.ends_with(".tcplog")).then_some(name)
}

#[test]
fn emulator_log_is_declared_complete_only_when_it_is_on_the_disk() {
    within_permitted("emulator_log_is_declared_complete_only_when_it_is_on_the_disk", || {
        ports();
        // The second run ends by its size limit: its last line states the number of rows, too.
        for limit in ["1GB", "1KB"] {
            let folder = folder("emulate");
            let log = folder.join("log");
            let arguments = ["emulate", "run", "left", "right", "--control", "none", "--for", "500ms"];
            let arguments = [&arguments[..], &["--log-limit", limit, "--log"]].concat();
            let Some(acts) = traced(&folder, &arguments, &log) else { return };
            assert_declared_when_complete(&acts, limit);
            let told = fs::read_to_string(log.join("emulation-emulate-000.jsonl")).expect("events");
            let last = if limit == "1GB" { "\"end\"" } else { "\"stopped\"" };
            assert!(told.lines().last().is_some_and(|line| line.contains(last)), "{limit}: {told}");
            fs::remove_dir_all(folder).expect("removes");
        }
    });
}

#[test]
fn recovered_emulator_log_is_declared_complete_only_when_it_is_on_the_disk() {
    within_permitted("recovered_emulator_log_is_declared_complete_only_when_it_is_on_the_disk", || {
        ports();
        let folder = folder("recovered-emulation");
        fs::create_dir_all(&folder).expect("makes");
        let log = folder.join("log");
        let emulator = Started::new(&["emulate", "run", "left", "right", "--control", "none", "--log", path(&log)]);
        let events = log.join("emulation-emulate-000.jsonl");
        wait_for("it logs", || fs::metadata(&events).is_ok_and(|about| about.len() > 0));
        drop(emulator);
        let arguments = ["emulate", "recover", path(&log), "--output"];
        let Some(acts) = traced(&folder, &arguments, &folder.join("recovered")) else { return };
        assert_declared_when_complete(&acts, "recovered");
        let told = fs::read_to_string(folder.join("recovered/emulation-emulate-000.jsonl")).expect("events");
        assert!(told.lines().last().is_some_and(|line| line.contains("\"recovered\"")), "{told}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

/// The two ports of an emulator.
fn ports() {
    for (host, port) in [("west", "left"), ("east", "right")] {
        ip(&format!("link add name {port} type veth peer name {host}"));
        ip(&format!("link set dev {port} up"));
        ip(&format!("link set dev {host} up"));
    }
}

/// Asserts that the rows of an emulator's log are synced before the line that says so is written, and this line, too.
fn assert_declared_when_complete(acts: &[Act], case: &str) {
    let of = |end: &str| {
        let is_it = |path: &String| path.ends_with(end);
        let last = |is: &dyn Fn(&Act) -> bool| acts.iter().rposition(is);
        let written = last(&|act| matches!(act, Act::Write(path) if is_it(path)));
        (written, last(&|act| matches!(act, Act::Sync(path) if is_it(path))))
    };
    let (packets, events) = (of("packets-emulate-000.arrow"), of("emulation-emulate-000.jsonl"));
    assert!(packets.0.is_some() && packets.0 < packets.1, "{case}: its rows are synced: {acts:?}");
    assert!(packets.1 < events.0 && events.0 < events.1, "{case}: before the line that says so: {acts:?}");
    assert_eq!(lost_at_the_end(acts, &["packets-emulate-000.arrow", "emulation-emulate-000.jsonl"]), [""; 0]);
}

/// Returns the files, by the ends of their names, that may be lost after all operations.
fn lost_at_the_end(acts: &[Act], ends: &[&str]) -> Vec<String> {
    let disk = Disk::after(acts);
    ends.iter().filter(|end| !disk.has(end)).map(|end| format!("{end} is not certain")).collect()
}

/// Asserts that something would be lost without the syncs of any one of these: else the test finds nothing.
fn assert_each_sync_is_needed(acts: &[Act], lost: impl Fn(&[Act]) -> Vec<String>, synced: &[&str]) {
    for end in synced {
        let kept = acts.iter().filter(|act| !matches!(act, Act::Sync(path) if path.ends_with(end)));
        let kept: Vec<Act> = kept.cloned().collect();
        assert!(kept.len() < acts.len(), "{end} is synced: {acts:?}");
        assert!(!lost(&kept).is_empty(), "without the sync of {end}");
    }
}

#[test]
fn summary_of_a_match_is_written_only_when_its_records_are_on_the_disk() {
    let folder = folder("match");
    fs::create_dir_all(&folder).expect("makes");
    let taps = ["a", "b"].map(|name| folder.join(name));
    taps.iter().zip([0, 50_000]).for_each(|(tap, later_ns)| write_capture(tap, later_ns));
    let words = ["match", path(&taps[0]), path(&taps[1]), "--same-clock", "-o"];
    let Some(acts) = traced(&folder, &words, &folder.join("matched/one")) else { return };
    assert_eq!(lost_of_match(&acts), [""; 0], "{acts:?}");
    let synced = ["crossings-match-000.arrow", "unmatched-match-000.arrow", "summary.json", "/one", "/matched"];
    assert_each_sync_is_needed(&acts, lost_of_match, &synced);
    fs::remove_dir_all(folder).expect("removes");
}

/// Returns what a match may lose although its summary is written. The summary is created first, and empty until then.
fn lost_of_match(acts: &[Act]) -> Vec<String> {
    let mut disk = Disk::default();
    let mut lost = Vec::new();
    let mut is_written = false;
    for act in acts {
        disk.take(act);
        is_written |= matches!(act, Act::Write(path) if path.ends_with("summary.json"));
        let records = ["crossings-match-000.arrow", "unmatched-match-000.arrow"];
        let uncertain = records.iter().filter(|end| is_written && !disk.has(end));
        lost.extend(uncertain.map(|end| format!("the summary may be there without {end}")));
    }
    lost.extend(lost_at_the_end(acts, &["summary.json"]));
    lost
}

#[test]
fn offline_emulation_is_on_the_disk_when_the_command_ends_and_replaces_only_when_it_is_whole() {
    let folder = folder("offline");
    fs::create_dir_all(&folder).expect("makes");
    let input = folder.join("input");
    write_capture(&input, 0);
    let words = ["emulate", "offline", path(&input), "--delay", "20ms", "-o"];
    // The second time there is a file to replace.
    for (written, is_new) in [("/out.pcapng", true), (".part", false)] {
        let Some(acts) = traced(&folder, &words, &folder.join("out.pcapng")) else { return };
        let renamed =
            acts.iter().filter(|act| matches!(act, Act::Rename(_, to) if to.ends_with("/out.pcapng"))).count();
        assert_eq!(renamed == 0, is_new, "{acts:?}");
        assert_eq!(lost_of_offline(&acts), [""; 0], "{acts:?}");
        assert_each_sync_is_needed(&acts, lost_of_offline, &[written, path(&folder)]);
    }
    fs::remove_dir_all(folder).expect("removes");
}

/// Returns whether the output may be lost at the end, or be there incomplete in place of an earlier one.
fn lost_of_offline(acts: &[Act]) -> Vec<String> {
    let mut disk = Disk::default();
    let mut lost = Vec::new();
    for act in acts {
        if let Act::Rename(from, _) = act
            && !disk.is_whole(from)
        {
            lost.push("the earlier output may be replaced by a part of this one".to_owned());
        }
        disk.take(act);
    }
    lost.extend(lost_at_the_end(acts, &["/out.pcapng"]));
    lost
}

/// Records of probes, streams, clocks and connections by hand are complete when the command ends, and survive a power
/// failure then.
#[test]
fn records_by_hand_are_on_the_disk_when_the_command_ends() {
    let line = r#"{"forward":{"constant_ns":1000},"backward":{"constant_ns":1000}}"#;
    let path = r#"{"delay":{"constant_ns":1000}}"#;
    let probe = ["probe", "sim", "--line", line, "-c", "20", "--record"];
    let stream = ["stream", "sim", "--path", path, "--rate", "1kpps", "-c", "20", "--record"];
    let mut responder = Responder::start();
    let clock = ["clock", responder.at.as_str(), "--for", "1s", "--interval", "5ms", "--record"];
    let receiver = receives();
    let tcp = ["tcp", "send", receiver.as_str(), "--for", "300ms", "--record"];
    let every = [("probe", &probe[..], 2), ("stream", &stream[..], 4), ("clock", &clock[..], 2), ("tcp", &tcp[..], 1)];
    for (name, words, files) in every {
        let folder = folder(name);
        // Two folders that do not exist yet.
        let Some(acts) = traced(&folder, words, &folder.join("runs/one")) else { return };
        let left = |acts: &[Act]| {
            let disk = Disk::after(acts);
            let all = disk.files(".arrow").len();
            assert!(all >= files, "{name}: {all} of {acts:?}");
            disk.uncertain(".arrow").len()
        };
        assert_eq!(left(&acts), 0, "{name}: {acts:?}");
        // Counter-check: without any one of the syncs, the test must fail.
        let root = folder.to_str().expect("a name");
        let needed = ["/runs/one".to_owned(), "/runs".to_owned(), String::new()].map(|end| format!("{root}{end}"));
        let file = acts.iter().rev().find_map(|act| match act {
            Act::Sync(path) if path.ends_with(".arrow") => Some(path.clone()),
            _ => None,
        });
        for unsynced in needed.into_iter().chain(file) {
            let kept = acts.iter().filter(|act| !matches!(act, Act::Sync(path) if *path == unsynced));
            assert!(left(&kept.cloned().collect::<Vec<_>>()) > 0, "{name}: without the sync of {unsynced}");
        }
        fs::remove_dir_all(folder).expect("removes");
    }
    responder.end();
}

#[test]
fn capture_is_declared_complete_only_when_it_is_on_the_disk() {
    within_permitted("capture_is_declared_complete_only_when_it_is_on_the_disk", || {
        ip("link add name left type veth peer name right");
        ["left", "right"].iter().for_each(|end| ip(&format!("link set dev {end} up")));
        for format in ["records", "pcapng", "both"] {
            let folder = folder("capture");
            let arguments = ["capture", "left", "--format", format, "--for", "300ms", "-o"];
            let Some(acts) = traced(&folder, &arguments, &folder.join("captures/one")) else { return };
            assert!(lost_of_capture(&acts).is_empty(), "{format}: {:?} of {acts:?}", lost_of_capture(&acts));
            let said = acts.iter().position(|act| matches!(act, Act::Rename(_, to) if to.ends_with("capture.json")));
            let said = said.expect("it says so");
            // Counter-check: without a sync before the summary, the test must fail.
            let early = acts.iter().enumerate().filter(|(at, act)| *at > said || !matches!(act, Act::Sync(_)));
            let early: Vec<Act> = early.map(|(_, act)| act.clone()).collect();
            assert!(!lost_of_capture(&early).is_empty(), "{format}");
            fs::remove_dir_all(folder).expect("removes");
        }
    });
}

/// Returns what a capture may lose although its summary may exist, or after the command has ended.
fn lost_of_capture(acts: &[Act]) -> Vec<String> {
    let mut disk = Disk::default();
    let mut lost = Vec::new();
    let mut seen = 0;
    for act in acts {
        disk.take(act);
        if disk.may_have("capture.json") {
            let uncertain = [".arrow", ".pcapng"].map(|end| disk.uncertain(end));
            lost.extend(uncertain.concat().iter().map(|path| format!("the summary may be there without {path}")));
            seen = disk.files(".arrow").len() + disk.files(".pcapng").len();
        }
    }
    assert!(seen > 0, "{acts:?}");
    lost.extend((!disk.has("/capture.json")).then(|| "the summary is not certain".to_owned()));
    lost
}

const INSTRUMENT: &str = env!("CARGO_BIN_EXE_sojourn-instrument");

/// A running instrument that is not traced; killed when dropped.
struct Started(Child);

impl Started {
    fn new(words: &[&str]) -> Self {
        Self(Command::new(INSTRUMENT).args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answering end of exchanges of clocks.
struct Responder {
    child: Child,
    at: String,
}

impl Responder {
    fn start() -> Self {
        let words = ["probe", "respond", "--udp", "0", "--json", "--until-eof"];
        let mut command = Command::new(INSTRUMENT);
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        let port = ready["udp"][0].as_str().and_then(|at| at.rsplit(':').next()).expect("a port");
        Self { child, at: format!("127.0.0.1:{port}") }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("ends");
    }
}

/// Receives one connection in a thread of its own, and returns its address.
fn receives() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let at = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let (mut stream, _) = listener.accept().expect("a connection");
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    at
}

/// Returns a port at which nobody listens now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = HostClock.now() + Nanos::seconds(60);
    while !is_so() {
        assert!(HostClock.now() < patience, "not yet after a minute: {what}");
        HostClock.wait_until(HostClock.now() + Nanos::millis(10), Nanos::ZERO);
    }
}

/// Writes a capture of 200 UDP packets, a millisecond apart.
fn write_capture(path: &Path, later_ns: i64) {
    let mut writer = NgWriter::new(Vec::new()).expect("begins");
    for number in 0..200_u8 {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0];
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 26, 0, 0, number]);
        frame.resize(60, 0);
        let at = 1_700_000_000_000_000_000 + i64::from(number) * 1_000_000 + later_ns;
        writer.write(Time(at), &frame).expect("writes");
    }
    fs::write(path, writer.finish().expect("ends")).expect("writes");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-power-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}
