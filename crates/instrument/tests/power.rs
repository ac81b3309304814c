//! Tests of what a power failure leaves: the sequence of writes, syncs, renames and removals that strace records, cut
//! after each one. Data that was not synced is lost; a name that was created, changed or removed since the last sync of
//! its folder may or may not exist.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use namespace::{ip, within_permitted};

const CALLS: &str =
    "trace=openat,mkdir,mkdirat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat";

/// An operation on a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Create(String),
    Folder(String),
    Write(String),
    Sync(String),
    Rename(String, String),
    Remove(String),
}

/// The certain state of a disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// By path: whether all written data is on the disk, and whether the name is.
    files: HashMap<String, (bool, bool)>,
    /// Names that may have been removed, and names that may exist.
    removed: Vec<String>,
    renamed: Vec<String>,
}

impl Disk {
    fn take(&mut self, act: &Act) {
        match act {
            Act::Create(path) => {
                self.files.insert(path.clone(), (false, false));
            }
            // A folder has no data of its own.
            Act::Folder(path) => {
                self.files.insert(path.clone(), (true, false));
            }
            Act::Write(path) => {
                if let Some(file) = self.files.get_mut(path) {
                    file.0 = false;
                }
            }
            Act::Sync(path) => {
                if let Some(file) = self.files.get_mut(path) {
                    file.0 = true;
                }
                for (name, file) in &mut self.files {
                    file.1 |= folder_of(name) == path;
                }
            }
            Act::Rename(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to.clone(), (file.0, false));
                }
                self.renamed.push(to.clone());
            }
            Act::Remove(path) => self.removed.push(path.clone()),
        }
    }

    /// Whether a file's data is on the disk, and its name, and the names of the folders above it.
    fn has(&self, end: &str) -> bool {
        self.files.keys().any(|path| path.ends_with(end) && self.is_certain(path))
    }

    fn is_certain(&self, path: &str) -> bool {
        let mut above = std::iter::successors(Some(path), |path| Some(folder_of(path)).filter(|path| !path.is_empty()));
        above.all(|path| self.files.get(path).is_none_or(|file| *file == (true, true)))
    }

    /// Returns the files with this suffix that may be lost.
    fn uncertain(&self, end: &str) -> Vec<&str> {
        let names = self.files.keys().filter(|path| path.ends_with(end) && !self.is_certain(path));
        names.map(String::as_str).collect()
    }

    fn may_lack(&self, end: &str) -> bool {
        self.removed.iter().any(|path| path.ends_with(end))
    }

    fn may_have(&self, end: &str) -> bool {
        self.renamed.iter().any(|path| path.ends_with(end))
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

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
        let footer = disk.files.iter().find(|(path, _)| path.ends_with("/footer.json"));
        if footer.is_some_and(|(_, (is_whole, _))| !is_whole) {
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
    assert_eq!(lost_of_tcplog(&acts), [""; 0]);
    let mut disk = Disk::default();
    acts.iter().for_each(|act| disk.take(act));
    assert!(disk.may_lack("spool-000.tcplog") && disk.has("/footer.json"), "{acts:?}");
    // Counter-check: the same operations in another order must fail.
    let removal = acts.iter().position(|act| matches!(act, Act::Remove(path) if path.ends_with("spool-000.tcplog")));
    let mut early = acts.clone();
    let removal = early.remove(removal.expect("it is removed"));
    early.insert(1, removal);
    assert!(!lost_of_tcplog(&early).is_empty());
    for unsynced in ["tcp_flows-tcplog-000.arrow", "/records", "footer.json.part"] {
        let kept = acts.iter().filter(|act| !matches!(act, Act::Sync(path) if path.ends_with(unsynced)));
        assert!(!lost_of_tcplog(&kept.cloned().collect::<Vec<_>>()).is_empty(), "{unsynced}");
    }
    fs::remove_dir_all(folder).expect("removes");
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
            let is_named = disk.files.iter().any(|(path, file)| path.ends_with("/spool-spent") && file.1);
            (parts, lost) = (parts + 1, lost + usize::from(!is_named));
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
        for (host, port) in [("west", "left"), ("east", "right")] {
            ip(&format!("link add name {port} type veth peer name {host}"));
            ip(&format!("link set dev {port} up"));
            ip(&format!("link set dev {host} up"));
        }
        // The second run ends by its size limit: its last line states the number of rows, too.
        for limit in ["1GB", "1KB"] {
            let folder = folder("emulate");
            let log = folder.join("log");
            let arguments = ["emulate", "run", "left", "right", "--control", "none", "--for", "500ms"];
            let arguments = [&arguments[..], &["--log-limit", limit, "--log"]].concat();
            let Some(acts) = traced(&folder, &arguments, &log) else { return };
            let of = |end: &str| {
                let is_it = |path: &String| path.ends_with(end);
                let last = |is: &dyn Fn(&Act) -> bool| acts.iter().rposition(is);
                let written = last(&|act| matches!(act, Act::Write(path) if is_it(path)));
                (written, last(&|act| matches!(act, Act::Sync(path) if is_it(path))))
            };
            let (packets, events) = (of("packets-emulate-000.arrow"), of("emulation-emulate-000.jsonl"));
            assert!(packets.0.is_some() && packets.0 < packets.1, "{limit}: its rows are synced: {acts:?}");
            assert!(packets.1 < events.0 && events.0 < events.1, "{limit}: before the line that says so: {acts:?}");
            let told = fs::read_to_string(log.join("emulation-emulate-000.jsonl")).expect("events");
            let last = if limit == "1GB" { "\"end\"" } else { "\"stopped\"" };
            assert!(told.lines().last().is_some_and(|line| line.contains(last)), "{limit}: {told}");
            fs::remove_dir_all(folder).expect("removes");
        }
    });
}

/// Records of streams and probes by hand are complete when the command ends, and survive a power failure then.
#[test]
fn records_of_probes_and_streams_are_on_the_disk_when_the_command_ends() {
    let line = r#"{"forward":{"constant_ns":1000},"backward":{"constant_ns":1000}}"#;
    let path = r#"{"delay":{"constant_ns":1000}}"#;
    let probe = ["probe", "sim", "--line", line, "-c", "20", "--record"];
    let stream = ["stream", "sim", "--path", path, "--rate", "1kpps", "-c", "20", "--record"];
    for (name, words, files) in [("probe", &probe[..], 2), ("stream", &stream[..], 4)] {
        let folder = folder(name);
        // Two folders that do not exist yet.
        let Some(acts) = traced(&folder, words, &folder.join("runs/one")) else { return };
        let left = |acts: &[Act]| {
            let mut disk = Disk::default();
            acts.iter().for_each(|act| disk.take(act));
            let all = disk.files.keys().filter(|path| path.ends_with(".arrow")).count();
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
            seen = disk.files.keys().filter(|path| path.ends_with(".arrow") || path.ends_with(".pcapng")).count();
        }
    }
    assert!(seen > 0, "{acts:?}");
    lost.extend((!disk.has("/capture.json")).then(|| "the summary is not certain".to_owned()));
    lost
}

/// Runs the instrument under strace to its end, and returns its operations below `folder`; `None` if tracing is not permitted.
fn traced(folder: &PathBuf, arguments: &[&str], out: &PathBuf) -> Option<Vec<Act>> {
    fs::create_dir_all(folder).expect("makes");
    let trace = folder.join("trace");
    let strace = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let can = strace(Command::new("strace").args(["-o", "/dev/null", "true"]));
    if !can.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to trace: strace is missing or refused");
        eprintln!("skipped: strace is missing or may trace nothing here");
        return None;
    }
    let mut child = Command::new("strace")
        .args(["-f", "-y", "-s", "0", "-e", CALLS, "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_sojourn-instrument"))
        .args(arguments)
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace starts");
    assert!(child.wait().expect("ends").success());
    let text = fs::read_to_string(&trace).expect("a trace");
    let root = folder.to_str().expect("a name");
    Some(text_acts(&text).into_iter().filter(|act| path_of(act).starts_with(root)).collect())
}

fn path_of(act: &Act) -> &str {
    match act {
        Act::Create(path)
        | Act::Folder(path)
        | Act::Write(path)
        | Act::Sync(path)
        | Act::Rename(path, _)
        | Act::Remove(path) => path,
    }
}

/// Parses a trace. A call that another thread interrupts takes two lines: its changes count from the first one, its
/// guarantees from the second.
fn text_acts(text: &str) -> Vec<Act> {
    let mut pending: HashMap<&str, &str> = HashMap::new();
    let mut acts = Vec::new();
    for line in text.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<... ") {
            if let Some(began) = pending.remove(process).filter(|_| !call.contains("= -1")) {
                acts.extend(act(began).filter(makes_certain));
            }
        } else if call.contains("<unfinished ...>") {
            pending.insert(process, call);
            acts.extend(act(call).filter(|act| !makes_certain(act)));
        } else if !call.contains("= -1") {
            acts.extend(act(call));
        }
    }
    acts
}

fn makes_certain(act: &Act) -> bool {
    matches!(act, Act::Sync(_) | Act::Create(_) | Act::Folder(_))
}

fn act(call: &str) -> Option<Act> {
    let (name, rest) = call.split_once('(')?;
    let mut quoted = rest.split('"').skip(1).step_by(2).map(str::to_owned);
    let descriptor = || Some(rest.split_once('<')?.1.split_once('>')?.0.to_owned());
    match name {
        "openat" => rest.contains("O_CREAT").then(|| quoted.next()).flatten().map(Act::Create),
        "mkdir" | "mkdirat" => quoted.next().map(Act::Folder),
        "write" | "pwrite64" | "ftruncate" => descriptor().map(Act::Write),
        "fsync" | "fdatasync" => descriptor().map(Act::Sync),
        "rename" | "renameat" | "renameat2" => Some(Act::Rename(quoted.next()?, quoted.next()?)),
        "unlink" | "unlinkat" => quoted.next().map(Act::Remove),
        _ => None,
    }
}

#[test]
fn strace_output_is_parsed_in_kernel_order() {
    let text = "7 openat(AT_FDCWD</d>, \"/d/a\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3</d/a>\n\
                7 write(3</d/a>, \"\"..., 8) = 8\n\
                7 fsync(3</d/a> <unfinished ...>\n\
                8 unlink(\"/d/b\") = -1 ENOENT (No such file or directory)\n\
                8 rename(\"/d/c\", \"/d/e\") = 0\n\
                7 <... fsync resumed>) = 0\n\
                7 unlink(\"/d/b\") = 0\n";
    let acts = text_acts(text);
    let path = |name: &str| format!("/d/{name}");
    let expected = [
        Act::Create(path("a")),
        Act::Write(path("a")),
        Act::Rename(path("c"), path("e")),
        Act::Sync(path("a")),
        Act::Remove(path("b")),
    ];
    assert_eq!(acts, expected);
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-power-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}
