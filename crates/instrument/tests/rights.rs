//! Compares the privileges of each running command, read from `/proc`, with the table that declares them. What it may write is not
//! there: strace tells whether it has asked Landlock to restrict that.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;
#[path = "rights/running.rs"]
mod running;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sojourn_rights::{Needs, Right, table};
use sojourn_time::{Clock, HostClock, Nanos};

use namespace::{ip, ip_says, link, within};
use running::{
    BINARY, DAEMON, Folder, NOBODY, Running, Starter, command, field, is_mapped, lent, may_trace, program_for_all,
    restricted, starters,
};

#[test]
fn each_command_holds_no_more_than_the_rights_of_the_table() {
    within("each_command_holds_no_more_than_the_rights_of_the_table", || {
        link();
        ip("link add name left type veth peer name left-far");
        ip("link add name right type veth peer name right-far");
        ["left", "right", "left-far", "right-far"].iter().for_each(|end| ip(&format!("link set dev {end} up")));
        let rounds = starters().into_iter().map(|starter| (starter, false));
        for (starter, is_traced) in rounds.chain(may_trace().then_some((Starter::Root, true))) {
            let folder = Folder::new("table");
            let program = program_for_all(&folder);
            let records = |name: &str| folder.0.join(name).display().to_string();
            let start = |words: &str, needs: &'static Needs| match is_traced {
                true => Running::start_traced(&program, words, needs),
                false => Running::start_as(&program, words, needs, starter),
            };

            let mut responder = start("probe respond --json --udp 0 --until-eof", &table::RESPOND);
            let port = responder.line()["udp"][0].as_str().and_then(|at| at.rsplit(':').next()?.parse::<u16>().ok());
            responder.holds_no_more();
            let mut reflector = start("stamp reflect --json --port 0 --until-eof", &table::RESPOND);
            let reflects =
                reflector.line()["udp"][0].as_str().and_then(|at| at.rsplit(':').next()?.parse::<u16>().ok());
            let words = format!("stamp send 127.0.0.1:{} -c 100000 -i 1ms", reflects.unwrap());
            start(&words, &table::PROBE).holds_the_same();
            reflector.holds_no_more();

            let words = format!(
                "clock 127.0.0.1:{} --interval 10ms --for 60s --json --record {}",
                port.unwrap(),
                records("clock")
            );
            start(&words, &table::CLOCK).holds_no_more();

            // Captures without any data yet.
            let held = pipe(&folder.0.join("capture"));
            let capture = held.0.display();
            let words = format!("match {capture} {capture} -o {}", records("matched"));
            start(&words, &table::MATCH).holds_no_more();
            // A tap's records without any data yet.
            let tap = pipe(&folder.0.join("taps-x-000.arrow"));
            let words = format!("match {0} {0} -o {1}", tap.0.display(), records("matched-taps"));
            start(&words, &table::MATCH).holds_no_more();
            let terms = r#"{"window_ns":1,"ahead_ns":0,"memory_bytes":1000000,"ways":2,"last_ns":null,"came_first_ns":[null,null],"left_last_ns":[null,null]}"#;
            start(&format!("match-slice {terms}"), &table::MATCH).holds_no_more();

            let mut blocks = start(&format!("probe blocks --record {}", records("probe")), &table::PROBE_BLOCKS);
            blocks.line();
            blocks.holds_no_more();
            blocks.ask(&probe_request(port.unwrap()));
            let answer = blocks.line();
            assert_eq!(answer["received"], 20, "{answer}");
            blocks.holds_no_more();

            let words =
                format!("probe udp 127.0.0.1:{} -c 100000 -i 1ms --record {}", port.unwrap(), records("single"));
            start(&words, &table::PROBE).holds_the_same();
            start("probe icmp 127.0.0.1 -c 100000 -i 1ms", &table::PROBE).holds_the_same();
            start("probe raw --dev left --to 02:77:00:00:00:01 -c 100000 -i 1ms", &table::PROBE).holds_the_same();
            start("stream recv --udp 59 --for 60s", &table::STREAM).holds_the_same();
            start("stream send --udp 127.0.0.1:5998 --count 100000 --rate 1kpps", &table::STREAM).holds_the_same();
            let engines =
                [("packet", &table::STREAM), ("xdp", &table::STREAM_BY_PROGRAMS), ("live", &table::STREAM_BY_PROGRAMS)];
            for (engine, needs) in engines {
                start(&format!("stream recv --dev left --engine {engine} --for 60s"), needs).holds_the_same();
                let words = format!(
                    "stream send --dev left --to 02:77:00:00:00:01 --engine {engine} --count 100000 --rate 1kpps"
                );
                start(&words, needs).holds_the_same();
            }
            connections(&start, &records);
            foreign_logs(&folder, starter, &start);

            let mut serve =
                start(&format!("stream serve --record {} --name a", records("stream")), &table::STREAM_SERVE);
            serve.line();
            serve.holds_no_more();
            serve.ask(&json!({ "do": "receive", "block": 1, "key": "0123456789abcdef", "ports": [{ "port": 3, "via": "udp", "udp_port": 5997, "address": "127.0.0.1" }], "flows": [1] }));
            let answer = serve.line();
            assert_eq!(answer["event"], "receiving", "{answer}");
            serve.holds_no_more();
            start(&format!("capture left right --out {}", records("by-hand")), &table::CAPTURE).holds_no_more();
            let words = format!("match left right --live --output {}", records("live"));
            start(&words, &table::MATCH_LIVE).holds_no_more();
            let mut taps = start("capture serve", &table::CAPTURE_SERVE);
            taps.line();
            taps.ask(&json!({ "do": "start", "folder": records("taps"), "taps": [{ "name": "left", "interface": "left", "options": { "filter": if taps_have_filters() { "udp" } else { "" } } }] }));
            let answer = taps.line();
            assert_eq!(answer["event"], "started", "{answer}");
            taps.holds_no_more();
            taps.ask(&json!({ "do": "stop" }));
            let answer = taps.line();
            assert_eq!(
                (&answer["event"], &answer["taps"][0]["account"]["conserved"]),
                (&json!("stopped"), &json!(true))
            );
            taps.holds_no_more();
            let mut emulator = start(
                &format!("emulate run left right --json --log {} --control {}", records("log"), records("socket")),
                &table::EMULATE,
            );
            emulator.line();
            emulator.holds_no_more();
            // What removes its socket restricts itself, too.
            let of_both = |trace: &str| restricted(trace).len() == 2;
            until(|| emulator.user() != NOBODY || emulator.traced().is_none_or(|trace| of_both(&trace)));
            let mut asking = start(&format!("emulate ask --control {}", records("socket")), &table::EMULATE_ASK);
            asking.ask(&json!({ "do": "begin", "block": 1 }));
            let answer = asking.line();
            assert_eq!(answer["ok"], true, "{answer}");
            asking.holds_no_more();
            asking.ask(&json!({ "do": "set", "words": "delay never" }));
            let answer = asking.line();
            assert!(answer["error"].is_string(), "a refusal is an answer: {answer}");
            asking.ask(&json!({ "do": "show" }));
            assert!(asking.line()["report"].is_object(), "and is not the end");

            let words = format!("tcplog run --simulated 1 --out {} -- cat", records("tcplog"));
            start(&words, &table::TCPLOG).holds_no_more();
            let words = format!("tcplog receive 127.0.0.1:0 --out {}", records("received"));
            start(&words, &table::TCPLOG_RECEIVE).holds_no_more();
            watched(&start, &records);
            let mut serve = start("tcplog serve --simulated 1", &table::TCPLOG_SERVE);
            serve.line();
            serve.holds_no_more();
        }
    });
}

/// Rights of commands by hand that hold until they are set up: without one of them there is no stream, probe or receiver.
#[test]
fn a_command_by_hand_cannot_do_without_a_right_of_its_set_up() {
    within("a_command_by_hand_cannot_do_without_a_right_of_its_set_up", || {
        if !root_has_ports() {
            return;
        }
        ip("link set dev lo up");
        let folder = Folder::new("set-up");
        let program = program_for_all(&folder);
        let mut tried = Vec::new();
        let to = "--to 02:77:00:00:00:01 --count 10 --rate 1kpps";
        let programs = [Right::NetRaw, Right::NetAdmin, Right::Bpf, Right::Perfmon];
        for (engine, needed) in [("packet", &programs[..1]), ("xdp", &programs[..3]), ("live", &programs)] {
            for words in [format!("send --dev left {to}"), "recv --dev left --for 1ms".to_owned()] {
                let words = format!("stream {words} --engine {engine}");
                let needs = if engine == "packet" { &table::STREAM } else { &table::STREAM_BY_PROGRAMS };
                needed.iter().for_each(|right| tried.push((words.clone(), *right, needs)));
            }
        }
        for (words, right, needs) in [
            ("stream recv --udp 59 --for 1ms", Right::NetBindService, &table::STREAM),
            ("probe raw --dev left --to 02:77:00:00:00:01 -c 10 -i 1ms", Right::NetRaw, &table::PROBE),
            ("probe icmp 127.0.0.1 -c 10 -i 1ms", Right::NetRaw, &table::PROBE),
            ("tcp receive 127.0.0.1:80", Right::NetBindService, &table::TCP),
        ] {
            tried.push((words.to_owned(), right, needs));
        }
        for (words, right, needs) in tried {
            let others: Vec<Right> = needs.rights().filter(|other| *other != right).collect();
            assert!(others.len() < needs.rights().count(), "{} is in the table", right.name());
            let output = lent(&program, &words, &others).output().expect("setpriv starts");
            let said = String::from_utf8_lossy(&output.stderr);
            let name = right.name();
            let is_told = said.contains(name) || said.contains("Permission denied");
            assert!(output.status.code() == Some(3) && is_told, "{words} without {name}: {said}");
        }
        // Without priority and locked memory it goes on, and says so; its socket's buffer is shorter.
        let others = [Right::NetBindService, Right::NetRaw];
        for (rights, has_all) in [(table::STREAM.rights().collect::<Vec<_>>(), true), (others.to_vec(), false)] {
            let words = "stream send --udp 127.0.0.1:5998 --count 10 --rate 1kpps --json";
            let output = lent(&program, words, &rights).output().expect("setpriv starts");
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!((&told["memory_locked"], told["nice"] == -20), (&json!(has_all), has_all), "{told}");
        }
    });
}

/// Once set up, a stream by hand has none of these rights, and still counts each frame, by every engine.
#[test]
fn a_stream_by_hand_is_whole_without_the_rights_of_its_set_up() {
    within("a_stream_by_hand_is_whole_without_the_rights_of_its_set_up", || {
        if !root_has_ports() {
            return;
        }
        ip("link set dev lo up");
        ["left", "left-far"].iter().for_each(|end| ip(&format!("link set dev {end} address {}", mac(end))));
        ["left", "left-far"].iter().for_each(|end| {
            let told = Command::new("ethtool").args(["-K", end, "gro", "on"]).status().expect("ethtool starts");
            assert!(told.success());
        });
        let ways = [
            ("--udp 59".to_owned(), "--udp 127.0.0.1:59".to_owned(), &table::STREAM),
            by_engine("packet", &table::STREAM),
            by_engine("xdp", &table::STREAM_BY_PROGRAMS),
            by_engine("live", &table::STREAM_BY_PROGRAMS),
        ];
        for (receives, sends, needs) in ways {
            let mut receiver = Running::start(&format!("stream recv {receives} --for 60s --json"), needs, false);
            receiver.holds_the_same();
            let words = format!("stream send {sends} --count 2000 --rate 2kpps --json");
            let mut sender = Running::start(&words, needs, false);
            sender.holds_the_same();
            let (sent, received) = (sender.rest(), receiver.rest());
            let told = (&sent["flows"][0]["sent"], &sent["receiver_heard_the_end"]);
            assert_eq!(told, (&json!(2000), &json!(true)), "{sends}: {sent:#}");
            let counts = (&received["flows"][0]["first"], &received["flows"][0]["lost"]);
            assert_eq!(counts, (&json!(2000), &json!(0)), "{receives}: {received:#}");
            for end in ["left", "left-far"] {
                let link = ip_says(&format!("link show dev {end}"));
                assert!(!link.contains("xdp"), "{receives}: its program is left: {link}");
            }
        }
    });
}

fn by_engine(engine: &str, needs: &'static Needs) -> (String, String, &'static Needs) {
    let sends = format!("--dev left --to {} --engine {engine}", mac("left-far"));
    (format!("--dev left-far --engine {engine}"), sends, needs)
}

fn mac(end: &str) -> &'static str {
    if end == "left" { "02:77:00:00:02:01" } else { "02:77:00:00:02:02" }
}

/// TCP connections, also at a privileged port.
fn connections(start: &dyn Fn(&str, &'static Needs) -> Running, records: &dyn Fn(&str) -> String) {
    let mut receiver = start("tcp receive 127.0.0.1:80 --json", &table::TCP);
    assert_eq!(receiver.line()["event"], "listening");
    receiver.holds_the_same();
    let words = format!("tcp send 127.0.0.1:80 --for 60s --record {}", records("tcp-send"));
    let mut sender = start(&words, &table::TCP);
    sender.holds_the_same();
    receiver.holds_no_more();
    drop(sender);
    let mut serve = start(&format!("tcp serve --name a --record {}", records("tcp")), &table::TCP_SERVE);
    serve.line();
    serve.ask(&json!({ "do": "listen", "block": 1, "at": "127.0.0.1:81", "connections": 1, "settings": {}, "read_every_ns": null }));
    let answer = serve.line();
    assert_eq!(answer["event"], "listening", "{answer}");
    serve.holds_no_more();
}

/// Logs and captures that may be forged, without any data yet.
fn foreign_logs(folder: &Folder, starter: Starter, start: &dyn Fn(&str, &'static Needs) -> Running) {
    let of = |name: &str| folder.0.join(name);
    let log = of("emulator");
    fs::create_dir(&log).expect("makes");
    let _held = [pipe(&log.join("emulation-x-000.jsonl")), pipe(&log.join("packets-x-000.arrow"))];
    start(&format!("emulate replay {}", log.display()), &table::EMULATE_REPLAY).holds_no_more();
    let words = format!("emulate recover {} --output {}", log.display(), of("recovered").display());
    start(&words, &table::EMULATE_RECOVER).holds_no_more();
    let (input, output) = (pipe(&of("frames")), of("left.pcapng"));
    let words = format!("emulate offline {} --output {} --delay 1ms", input.0.display(), output.display());
    start(&words, &table::EMULATE_OFFLINE).holds_no_more();
    let killed = of("killed");
    fs::create_dir(&killed).expect("makes");
    let _header = pipe(&killed.join("header.json"));
    fs::write(killed.join("spool-000.tcplog"), "").expect("writes");
    if starter != Starter::Root && rustix::process::geteuid().is_root() && is_mapped() {
        below(&killed).iter().for_each(|path| chown(path, Some(DAEMON), Some(DAEMON)).expect("gives it away"));
    }
    start(&format!("tcplog recover {}", killed.display()), &table::TCPLOG_RECOVER).holds_no_more();
}

/// `tcplog watch` with a running log, and without one.
fn watched(start: &dyn Fn(&str, &'static Needs) -> Running, records: &dyn Fn(&str) -> String) {
    let out = records("watched");
    let _log = start(&format!("tcplog run --simulated 1 --out {out} -- cat"), &table::TCPLOG);
    let patience = HostClock.now() + Nanos::seconds(30);
    // The socket exists slightly before the log listens at it.
    while UnixStream::connect(Path::new(&out).join("control.sock")).is_err() && HostClock.now() < patience {
        std::thread::yield_now();
    }
    let mut watch = start(&format!("tcplog watch {out} --interval 10ms"), &table::TCPLOG_CLIENT);
    watch.line();
    watch.holds_no_more();
    let mut watch = start("tcplog watch --interval 10ms --simulated 1", &table::TCPLOG);
    watch.line();
    watch.holds_no_more();
}

/// Creates a named pipe that everybody may read. It is held open, so that opening it succeeds and reading it blocks.
fn pipe(path: &Path) -> (PathBuf, fs::File) {
    let made = Command::new("mkfifo").args(["-m", "666"]).arg(path).status();
    assert!(made.is_ok_and(|status| status.success()));
    (path.to_owned(), fs::OpenOptions::new().read(true).write(true).open(path).expect("opens"))
}

/// As a systemd unit starts it: a user without a home, with ambient capabilities.
#[test]
fn systemd_service_gives_up_its_ambient_capabilities() {
    within("systemd_service_gives_up_its_ambient_capabilities", || {
        if !rustix::process::geteuid().is_root() || !is_mapped() {
            assert!(std::env::var_os("CI").is_none(), "CI must be root");
            eprintln!("skipped: only root can become another user");
            return;
        }
        ["left", "right"].iter().for_each(|end| ip(&format!("link add name {end} type veth peer name {end}-far")));
        ["left", "right", "left-far", "right-far"].iter().for_each(|end| ip(&format!("link set dev {end} up")));
        let folder = Folder::new("service");
        let lent = "+net_raw,+net_admin,+bpf,+perfmon,+sys_nice";
        let socket = folder.0.join("socket");
        // A copy that this user can reach, whoever owns the build folder.
        let program = folder.0.join("program");
        fs::copy(BINARY, &program).expect("copies");
        let mut process = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"])
            .args(["--inh-caps", &format!("-all,{lent}"), "--ambient-caps", &format!("-all,{lent}")])
            .args(["--bounding-set", &format!("-all,{lent}")])
            .arg(&program)
            .args(["emulate", "run", "left", "right", "--json"])
            .arg("--control")
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let patience = HostClock.now() + Nanos::seconds(30);
        let status = || fs::read_to_string(format!("/proc/{}/status", process.id())).expect("its status");
        while field(&status(), "Seccomp:") != "2" {
            assert!(HostClock.now() < patience, "{line}: {}", status());
        }
        let status = status();
        let mask = |name: &str| u64::from_str_radix(&field(&status, name), 16).expect("a mask");
        assert_eq!((mask("CapPrm:") | mask("CapEff:")) & !table::EMULATE.mask(), 0, "{status}");
        assert_eq!((mask("CapAmb:"), mask("CapInh:")), (0, 0), "{status}");
        assert_eq!((field(&status, "NoNewPrivs:").as_str(), field(&status, "Uid:")), ("1", ["65534"; 4].join("\t")));
        process.kill().expect("kills");
        process.wait().expect("ends");
    });
}

/// The emulator is no longer root; its socket is removed nevertheless, however it ends, and no other socket is.
#[test]
fn emulator_started_by_root_runs_as_another_user_and_its_socket_is_removed() {
    within("emulator_started_by_root_runs_as_another_user_and_its_socket_is_removed", || {
        if !root_has_ports() {
            return;
        }
        for (sudo, owner) in [(false, 0), (true, 0), (true, DAEMON)] {
            let folder = Folder::new(&format!("socket-{sudo}-{owner}"));
            let closed = folder.0.join("closed");
            fs::create_dir(&closed).expect("makes");
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("closes it");
            chown(&closed, Some(owner), Some(owner)).expect("gives it away");
            let socket = closed.join("socket");
            let words = format!("emulate run left right --json --control {}", socket.display());
            let start = || {
                let mut emulator = Running::start(&words, &table::EMULATE, sudo);
                assert_eq!(emulator.line()["event"], "ready");
                emulator.holds_no_more();
                let remover = children(emulator.process.id());
                assert_eq!(remover.len(), 1, "who removes the socket");
                (emulator, remover[0])
            };
            let (mut emulator, remover) = start();
            let status = fs::read_to_string(format!("/proc/{remover}/status")).expect("its status");
            let mask = |name: &str| u64::from_str_radix(&field(&status, name), 16).expect("a mask");
            assert_eq!(["CapPrm:", "CapEff:", "CapInh:", "CapBnd:", "CapAmb:"].map(mask), [0; 5], "{status}");
            assert_eq!((field(&status, "Seccomp:").as_str(), field(&status, "NoNewPrivs:").as_str()), ("2", "1"));
            assert_eq!(field(&status, "Uid:"), [owner.to_string().as_str(); 4].join("\t"), "{status}");
            let about = fs::symlink_metadata(&socket).expect("is there");
            assert_eq!((about.uid(), about.permissions().mode() & 0o777), (0, 0o600));
            emulator.end();
            assert_eq!(emulator.line()["event"], "ended");
            assert!(!socket.exists(), "it is gone before its end is reported");
            assert!(emulator.process.wait().expect("ends").success());

            let (emulator, remover) = start();
            drop(emulator);
            until(|| !socket.exists() && has_ended(remover));

            // The emulator is killed, and another one listens at the path before the remover acts: a lock of the folder
            // holds the remover up. (SIGSTOP does not: the kernel continues an orphaned process group.)
            let (emulator, remover) = start();
            let lock = fs::File::open(&closed).expect("opens");
            lock.lock().expect("locks");
            let number = || fs::symlink_metadata(&socket).expect("is there").ino();
            let before = number();
            drop(emulator);
            let (next, _) = start();
            // On a slow machine the remover gives up waiting, and frees the number.
            assert!(number() != before || has_ended(remover), "the remover keeps the number of the old socket in use");
            drop(lock);
            until(|| has_ended(remover));
            UnixStream::connect(&socket).expect("the next one listens");
            drop(next);
            until(|| !socket.exists());
        }
        // Without --control.
        let mut emulator = Running::start("emulate run left right --json", &table::EMULATE, false);
        assert_eq!(emulator.line()["event"], "ready");
        let below = || fs::read_dir("/run/sojourn").expect("is there").count();
        assert_eq!(below(), 1, "the socket, and nothing that it could not remove");
        emulator.end();
        assert_eq!((&emulator.line()["event"], below()), (&json!("ended"), 0));
    });
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("its children");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

fn send(process: u32, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

fn until(is_so: impl Fn() -> bool) {
    let patience = HostClock.now() + Nanos::seconds(30);
    while !is_so() {
        assert!(HostClock.now() < patience, "it takes too long");
        HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
    }
}

#[test]
fn key_file_may_belong_to_the_user_who_called_sudo() {
    within("key_file_may_belong_to_the_user_who_called_sudo", || {
        if !rustix::process::geteuid().is_root() || !is_mapped() {
            assert!(std::env::var_os("CI").is_none(), "CI must be root");
            eprintln!("skipped: only root can give files away");
            return;
        }
        ip("link set dev lo up");
        let folder = Folder::new("key");
        let key = folder.0.join("key");
        fs::write(&key, "0123456789abcdef").expect("writes");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("sets");
        let words = format!("probe udp 127.0.0.1:9 -c 1 -i 1ms --timeout 10ms --key {}", key.display());
        for (owner, sudo, refused) in [(0, true, false), (DAEMON, true, false), (DAEMON, false, true), (2, true, true)]
        {
            chown(&key, Some(owner), None).expect("gives it away");
            let output = command(&words, sudo).output().expect("starts");
            let problem = String::from_utf8_lossy(&output.stderr);
            assert_eq!(problem.contains(&format!("belongs to user {owner}")), refused, "{problem}");
            assert_eq!(output.status.code() == Some(2), refused, "{problem}");
        }
    });
}

/// Its errors quote lines of these files, and `emulate offline` copies a capture.
#[test]
fn emulator_reads_the_files_that_options_name_as_the_user_who_called_sudo() {
    if !rustix::process::geteuid().is_root() || !is_mapped() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can give files away");
        return;
    }
    let folder = Folder::new("named");
    let secret = folder.0.join("secret");
    fs::write(&secret, "root:hash\n").expect("writes");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("closes it");
    let (named, output) = (secret.display(), folder.0.join("copy.pcapng"));
    let run = format!("emulate run left right --control none --for 1ms --trace {named}");
    let every = [
        format!("emulate explain --trace {named}"),
        format!("emulate explain --distribution {named}"),
        format!("emulate explain --config {named}"),
        format!("emulate kernel left right --trace {named}"),
        format!("{run} --backend kernel"),
        run,
        format!("emulate offline {named} --output {}", output.display()),
        format!("stream send --udp 127.0.0.1:9 --schedule replay:{named}"),
    ];
    let said = |words: &str, sudo| {
        let done = command(words, sudo).output().expect("starts");
        assert!(!done.status.success(), "{words}: {done:?}");
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    for words in &every {
        let told = said(words, true);
        assert!(told.contains("Permission denied") && !told.contains("hash"), "{words}: {told}");
        assert!(!output.exists(), "{words}");
    }
    // Root itself may read it, and so may the caller whose file it is.
    assert!(said(&every[0], false).contains("root:hash"));
    chown(&secret, Some(DAEMON), None).expect("gives it away");
    assert!(said(&every[0], true).contains("root:hash"));
    assert!(!said(&every[6], true).contains("Permission denied"));
}

/// libbpf creates a file in memory for each map; systemd counts that call as @ipc, which the units deny.
#[test]
fn systemd_units_that_load_bpf_permit_the_system_calls_of_loading() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut seen = 0;
    for unit in below(&folder).iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(unit).expect("a unit");
        let filters: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
        let has = |filter: &&str, call| !filter.starts_with('~') && filter.split(' ').any(|word| word == call);
        if filters.iter().any(|filter| has(filter, "bpf")) {
            let denied = filters.iter().rposition(|filter| filter.starts_with('~') && filter.contains("@ipc"));
            let permitted = filters.iter().rposition(|filter| has(filter, "memfd_create"));
            assert!(permitted > denied, "{}", unit.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 2, "the emulator's and the logger's");
}

/// systemd discards the private /tmp of a unit between two starts: a record there would not outlive a unit that is killed with the
/// shell that removes its netem.
#[test]
fn emulator_unit_keeps_the_record_of_its_netem_until_the_next_start() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/sojourn-emulator@.service");
    let text = fs::read_to_string(unit).expect("a unit");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).expect(name);
    assert_eq!(value("RuntimeDirectoryPreserve"), "restart");
    assert_eq!(value("Environment"), format!("XDG_RUNTIME_DIR=%t/{}", value("RuntimeDirectory")));
    assert_eq!(value("ExecStopPost"), format!("+-rm -f %t/{}", value("RuntimeDirectory")));
}

fn probe_request(port: u16) -> Value {
    json!({
        "block": 1, "device": "wire", "round": 0, "visit": 0, "cell": 0,
        "to": { "via": "udp", "address": "127.0.0.1", "port": port },
        "kind": "request-response", "request_payload_bytes": 56, "response_payload_bytes": 56, "schedule": "regular",
        "interval_ns": 1_000_000, "count": 20, "warmup": 0, "timeout_ns": 2_000_000_000_u64, "seed": 42,
    })
}

/// COMMAND prints its own status, some of its environment, and its groups.
const SHOW: &str = "cat /proc/self/status; echo HOME $HOME; echo USER $USER; echo SUDO [$SUDO_UID]; id -G";

#[test]
fn companion_command_has_the_rights_of_its_user_and_none_of_the_logger() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can become another user");
        return;
    }
    let own = fs::read_to_string("/proc/self/status").expect("our status");
    let none = "0000000000000000";
    for (name, sudo, option, uid) in [
        ("root", false, "", 0),
        ("sudo", true, "", DAEMON),
        ("user", false, "--user daemon", DAEMON),
        ("root2", true, "--user root", 0),
    ] {
        let folder = Folder::new(name);
        let out = folder.0.join("t").display().to_string();
        let output =
            command(&format!("tcplog run --simulated 1 --out {out} {option} -- sh -c"), sudo).arg(SHOW).output();
        let output = output.expect("starts");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(field(&told, "Uid:"), [uid.to_string().as_str(); 4].join("\t"), "{name}");
        let theirs = if uid == 0 { field(&own, "CapPrm:") } else { none.to_owned() };
        assert_eq!([field(&told, "CapPrm:"), field(&told, "CapEff:")], [theirs.clone(), theirs], "{name}");
        assert_eq!([field(&told, "CapAmb:"), field(&told, "CapInh:")], [none, none], "{name}");
        // So that the user's own sudo works in it.
        for same in ["CapBnd:", "NoNewPrivs:", "Seccomp:"] {
            assert_eq!(field(&told, same), field(&own, same), "{name}");
        }
        if uid == DAEMON {
            assert_eq!((field(&told, "USER"), field(&told, "SUDO")), ("daemon".to_owned(), "[]".to_owned()));
            assert_ne!(field(&told, "HOME"), "/root");
            assert_eq!(told.lines().last().map(str::trim), Some(groups("daemon").trim()), "the user's groups");
        }
    }
}

/// As a service or `setpriv` starts a log: as a user to whom rights are lent, who may not pass them on.
#[test]
fn companion_command_has_no_right_that_is_lent_to_the_logger() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = Folder::new("lent");
    let out = folder.0.join("t");
    let made = fs::create_dir(&out).and_then(|()| std::os::unix::fs::chown(&out, Some(DAEMON), Some(DAEMON)));
    made.expect("makes");
    let words = format!("tcplog run --simulated 1 --out {} -- cat /proc/self/status", out.join("log").display());
    let output = lent(&program_for_all(&folder), &words, &[Right::Bpf, Right::NetAdmin, Right::SysNice]).output();
    let output = output.expect("starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        assert_eq!(field(&told, set), "0000000000000000", "{set}");
    }
}

#[test]
fn companion_command_of_another_user_is_terminated() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = Folder::new("told");
    for (name, sudo, option) in [("sudo", true, ""), ("user", false, "--user daemon")] {
        let out = folder.0.join(name).display().to_string();
        let words = format!("tcplog run --simulated 1 --duration 200ms --out {out} {option} -- sleep 600");
        let output = command(&words, sudo).output().expect("starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let refused =
        command("tcplog run --simulated 1 --out x --user nobody-at-all -- true", false).output().expect("starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--user nobody-at-all: no such user"), "{refused:?}");
}

#[test]
fn companion_command_that_changed_its_user_keeps_running_and_the_log_ends() {
    if !rustix::process::geteuid().is_root() || !is_mapped() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = Folder::new("left");
    let out = folder.0.join("t");
    let number = folder.0.join("number");
    let script =
        format!("echo $$ > {}; exec setpriv --reuid 65534 --regid 65534 --clear-groups sleep 60", number.display());
    let began = HostClock.now();
    let errors = folder.0.join("errors");
    let status = command("tcplog run --simulated 1 --duration 500ms --out", false)
        .arg(&out)
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&errors).expect("makes"))
        .status()
        .expect("starts");
    let took = HostClock.now() - began;
    let number: i32 = fs::read_to_string(&number).expect("it started").trim().parse().expect("a number");
    let process = rustix::process::Pid::from_raw(number).expect("a process");
    let goes_on = rustix::process::test_kill_process(process).is_ok();
    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    let told = fs::read_to_string(&errors).expect("reads");
    assert!(took < Nanos::seconds(30) && goes_on, "{took:?}: {told}");
    assert!(told.contains("COMMAND has become another user's"), "{told}");
    let footer: Value = serde_json::from_slice(&fs::read(out.join("footer.json")).expect("a footer")).expect("JSON");
    assert_eq!((status.code(), &footer["why"], &footer["command_status"]), (Some(0), &json!("duration"), &Value::Null));
}

/// As `sudo sojourn run` does from the second time on: only the caller may enter the folder of all runs.
#[test]
fn root_can_log_below_a_private_folder_of_the_user_who_called_sudo() {
    within("root_can_log_below_a_private_folder_of_the_user_who_called_sudo", || {
        if !root_has_ports() {
            return;
        }
        let folder = Folder::new("second");
        let runs = folder.0.join("runs");
        for inner in ["emulate", "tcplog"] {
            fs::create_dir_all(runs.join(inner)).expect("makes");
        }
        for path in [&runs, &runs.join("emulate"), &runs.join("tcplog")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("closes it");
            chown(path, Some(DAEMON), Some(DAEMON)).expect("gives it away");
        }
        let log = runs.join("emulate/log");
        let words = format!("emulate run left right --json --control none --for 300ms --log {}", log.display());
        let output = command(&words, true).output().expect("starts");
        assert!(output.status.success(), "{output:?}");
        assert!(log.join("packets-emulate-000.arrow").exists(), "{output:?}");

        let mut serve = Running::start("tcplog serve --simulated 1", &table::TCPLOG_SERVE, true);
        serve.line();
        for block in [1, 2] {
            serve.ask(
                &json!({ "do": "begin", "block": block, "who": "a", "records": runs.join("tcplog"), "mode": "on" }),
            );
            let answer = serve.line();
            assert_eq!(answer["event"], "begun", "{answer}");
            HostClock.wait_until(HostClock.now() + Nanos::millis(300), Nanos::ZERO);
            serve.holds_no_more();
            serve.ask(&json!({ "do": "end" }));
            let answer = serve.line();
            assert_eq!((&answer["event"], &answer["conserved"]), (&json!("ended"), &json!(true)), "{answer}");
            assert!(answer["records"].as_u64() > Some(10), "{answer}");
        }
    });
}

/// As root does without sudo: the folder lies in the home of another user, which only that user may enter.
#[test]
fn root_can_recover_logs_below_a_private_home() {
    within("root_can_recover_logs_below_a_private_home", || {
        if !root_has_ports() {
            return;
        }
        let folder = Folder::new("home");
        let home = folder.0.join("home");
        fs::create_dir(&home).expect("makes");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("closes it");
        let [emulated, whole, tcp] = ["emulated", "whole", "tcp"].map(|name| home.join(name).display().to_string());
        let mut emulator = Running::start(
            &format!("emulate run left right --json --control none --log {emulated}"),
            &table::EMULATE,
            false,
        );
        emulator.line();
        let logger = Running::start(&format!("tcplog run --simulated 5 --out {tcp}"), &table::TCPLOG, false);
        let patience = HostClock.now() + Nanos::seconds(60);
        let length = || fs::metadata(format!("{tcp}/spool-000.tcplog")).map_or(0, |about| about.len());
        while length() < 100_000 {
            assert!(HostClock.now() < patience, "nothing is logged");
            HostClock.wait_until(HostClock.now() + Nanos::millis(50), Nanos::ZERO);
        }
        // Kill both.
        drop((emulator, logger));
        chown(&home, Some(DAEMON), Some(DAEMON)).expect("gives it away");
        for words in [format!("emulate recover {emulated} --output {whole}"), format!("tcplog recover {tcp} --json")] {
            let output = command(&words, false).output().expect("starts");
            assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
        }
        let footer = fs::read(home.join("tcp/footer.json")).expect("a footer");
        let footer: Value = serde_json::from_slice(&footer).expect("JSON");
        assert!(footer["why"] == "killed" && footer["records"].as_u64() > Some(100), "{footer}");
        assert!(home.join("whole/packets-emulate-000.arrow").exists());

        // A log that no single user can read and write is refused before any of it is read.
        let mixed = home.join("mixed");
        fs::create_dir(&mixed).expect("makes");
        fs::write(mixed.join("header.json"), "{}").expect("writes");
        fs::set_permissions(mixed.join("header.json"), fs::Permissions::from_mode(0o600)).expect("closes it");
        fs::set_permissions(&mixed, fs::Permissions::from_mode(0o700)).expect("closes it");
        chown(&mixed, Some(DAEMON), Some(DAEMON)).expect("gives it away");
        let output = command(&format!("tcplog recover {}", mixed.display()), false).output().expect("starts");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && problem.contains("give it to one user"), "{problem}");
    });
}

/// The owner of the folder may have put a socket there, at which any program answers.
#[test]
fn recovery_connects_to_the_socket_of_a_log_only_after_it_gave_up_its_rights() {
    let folder = Folder::new("socket");
    let killed = folder.0.join("killed");
    fs::create_dir(&killed).expect("makes");
    fs::write(killed.join("header.json"), "{}").expect("writes");
    let theirs = std::os::unix::net::UnixListener::bind(killed.join("control.sock")).expect("listens");
    let recover = Running::start(&format!("tcplog recover {}", killed.display()), &table::TCPLOG_RECOVER, false);
    let (mut asked, _) = theirs.accept().expect("it asks");
    let mut line = String::new();
    BufReader::new(&mut asked).read_line(&mut line).expect("a line");
    assert!(line.contains("status"), "{line}");
    assert_eq!(recover.wrong(), Vec::<String>::new());
}

#[test]
fn files_with_addresses_are_private_and_a_log_belongs_to_the_user_who_called_sudo() {
    let is_root = rustix::process::geteuid().is_root();
    for sudo in [false, true].into_iter().take(if is_root { 2 } else { 1 }) {
        let folder = Folder::new(&format!("modes-{sudo}"));
        let out = folder.0.join("log");
        let output =
            command(&format!("tcplog run --simulated 1 --duration 100ms --out {}", out.display()), sudo).output();
        assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
        let line = r#"{"forward":{"constant_ns":1},"backward":{"constant_ns":1}}"#;
        let records = folder.0.join("records");
        let output = command(&format!("probe sim --line {line} -c 20 --record {}", records.display()), sudo).output();
        assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
        let owner = if sudo { DAEMON } else { rustix::process::geteuid().as_raw() };
        let mut seen = 0;
        for path in below(&out).into_iter().chain(below(&records)) {
            let about = fs::symlink_metadata(&path).expect("is there");
            let mode = if about.is_dir() { 0o700 } else { 0o600 };
            assert_eq!((about.permissions().mode() & 0o7777, about.uid()), (mode, owner), "{}", path.display());
            seen += 1;
        }
        assert!(seen >= 10, "{seen}");
    }
}

/// Whether libpcap is installed, which the set-up does together with tcpdump.
fn taps_have_filters() -> bool {
    sojourn_capture::filter::load()
}

fn below(path: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(path).into_iter().flatten().flatten().flat_map(|entry| below(&entry.path()));
    std::iter::once(path.to_owned()).chain(inside).collect()
}

fn groups(user: &str) -> String {
    let output: Output = Command::new("id").args(["-G", user]).output().expect("id starts");
    String::from_utf8(output.stdout).expect("text")
}

/// Creates two ports in the test's namespace, if root can change the owner of a folder; otherwise prints why not and returns false.
fn root_has_ports() -> bool {
    if !rustix::process::geteuid().is_root() || !is_mapped() {
        assert!(std::env::var_os("CI").is_none(), "CI must be root");
        eprintln!("skipped: only root can give a folder away");
        return false;
    }
    ["left", "right"].iter().for_each(|end| ip(&format!("link add name {end} type veth peer name {end}-far")));
    ["left", "right", "left-far", "right-far"].iter().for_each(|end| ip(&format!("link set dev {end} up")));
    true
}
