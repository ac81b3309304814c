//! Tests of events while an emulator is in the path: none of their effects may go unreported.
//!
//! Kernel programs need root: without it, these tests are skipped and state the reason; with `CI` set, that is a failure.

#[path = "../../port/tests/links/mod.rs"]
mod links;
#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sojourn_port::kernel::Interface;
use sojourn_record::packet::{HEAD_BYTES, Head};
use sojourn_record::{Origin, Packet, PacketFile};
use sojourn_time::{Clock, Nanos, Source, Stamp, SteadyClock, Time};

use namespace::{ip, run, within_permitted};

const SOON: Nanos = Nanos::seconds(1);

#[test]
fn detached_program_is_reported_everywhere_and_forwarding_continues() {
    within_permitted("detached_program_is_reported_everywhere_and_forwarding_continues", || {
        hosts();
        let folder = folder("detached");
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--log", name(&folder)]);
        pings(5);
        let off = Command::new("ip").args(["link", "set", "dev", "left", "xdp", "off"]).output().expect("ip starts");
        assert!(!off.status.success(), "a program attached by a BPF link cannot be removed by name");
        pings(5);
        links::detach(emulator.process.id(), "xdp", index("left"));
        let told = soon("it is said", || {
            let shown = show();
            shown["report"]["said"][0].as_str().map(str::to_owned)
        });
        assert!(told.contains("the XDP program of left was detached and was attached again"), "{told}");
        pings(20);
        let (status, ended, errors) = emulator.end();
        assert_eq!(status, 0, "{errors}");
        assert!(ended["marks"].to_string().contains(&told) && errors.contains(&told), "{ended} {errors}");
        assert!(events(&folder).iter().any(|event| event["event"] == "notice" && event["sentence"] == told.as_str()));
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn replaced_xdp_program_ends_the_emulator_with_status_4() {
    within_permitted("replaced_xdp_program_ends_the_emulator_with_status_4", || {
        hosts();
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms"]);
        links::replace(emulator.process.id(), "xdp", index("right"));
        let (status, _, errors) = emulator.ends_soon();
        assert!(status == 4 && errors.contains("right: its XDP program was replaced by another one"), "{errors}");
    });
}

/// Between the last look of the watch and the end, as many times as it takes to see both orders.
#[test]
fn program_replaced_just_before_the_end_is_reported() {
    within_permitted("program_replaced_just_before_the_end_is_reported", || {
        hosts();
        let (by_xdp, by_tc) = (["left", "right", "--delay", "1ms"].as_slice(), ["left", "right", "--redirect"]);
        for (words, kind, program) in [(by_xdp, "xdp", "its XDP program"), (&by_tc, "tcx-in", "its program of traffic")]
        {
            for _ in 0..5 {
                let emulator = Emulator::start(words);
                let process = Pid::from_child(&emulator.process);
                kill_process(process, Signal::STOP).expect("stops");
                links::replace(emulator.process.id(), kind, index("right"));
                kill_process(process, Signal::INT).expect("can be signalled");
                kill_process(process, Signal::CONT).expect("goes on");
                let (status, _, errors) = emulator.ended();
                assert!(status == 4 && errors.contains(&format!("right: {program}")), "{status} {errors}");
            }
        }
    });
}

#[test]
fn detached_or_replaced_tc_program_ends_the_emulator_with_status_4() {
    within_permitted("detached_or_replaced_tc_program_ends_the_emulator_with_status_4", || {
        hosts();
        for (does, becomes) in [(links::detach as fn(u32, &str, u64), "detached"), (links::replace, "replaced")] {
            let emulator = Emulator::start(&["left", "right", "--redirect"]);
            pings(5);
            does(emulator.process.id(), "tcx-in", index("right"));
            let (status, _, errors) = emulator.ends_soon();
            let told = format!("right: its program of traffic control was {becomes}");
            assert!(status == 4 && errors.contains(&told), "{status} {errors}");
        }
    });
}

#[test]
fn port_lost_with_or_to_a_namespace_ends_the_emulator_with_status_4() {
    within_permitted("port_lost_with_or_to_a_namespace_ends_the_emulator_with_status_4", || {
        for engine in ["xdp", "packet"] {
            for gone in ["netns delete west", "link set left netns west"] {
                hosts();
                let emulator = Emulator::start(&["left", "right", "--engine", engine]);
                ip(gone);
                let (status, _, errors) = emulator.ends_soon();
                assert!(status == 4 && errors.contains("left: the interface has vanished"), "{errors}");
                for host in ["west", "east"] {
                    let _ = Command::new("ip").args(["netns", "delete", host]).output();
                }
                let none_left = || !run("ip", "-o link show").contains("right");
                soon("its cables are gone", || none_left().then_some(()));
            }
        }
    });
}

#[test]
fn stopped_emulator_forwards_the_queued_frames_when_it_continues() {
    within_permitted("stopped_emulator_forwards_the_queued_frames_when_it_continues", || {
        for engine in ["xdp", "packet"] {
            hosts();
            let emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--engine", engine]);
            pings(5);
            let process = Pid::from_child(&emulator.process);
            kill_process(process, Signal::STOP).expect("stops");
            let still = Command::new("ip")
                .args("netns exec west ping -c 20 -i 0.01 -W 10 10.77.2.2".split(' '))
                .stdout(Stdio::piped())
                .spawn()
                .expect("ping starts");
            let clock = SteadyClock::begin();
            clock.wait_until(clock.now() + Nanos::seconds(1), Nanos::ZERO);
            kill_process(process, Signal::CONT).expect("goes on");
            let told = String::from_utf8(still.wait_with_output().expect("ends").stdout).expect("text");
            assert!(told.contains(" 0% packet loss"), "{engine}: {told}");
            let longest = told.rsplit('/').nth(1).and_then(|word| word.parse::<f64>().ok());
            assert!(longest >= Some(500.0), "{engine}: {told}");
            pings(20);
            let (status, _, errors) = emulator.end();
            assert_eq!(status, 0, "{errors}");
            for host in ["west", "east"] {
                ip(&format!("netns delete {host}"));
            }
            soon("its cables are gone", || (!run("ip", "-o link show").contains("right")).then_some(()));
        }
    });
}

#[test]
fn full_disk_ends_the_log_but_not_forwarding() {
    within_permitted("full_disk_ends_the_log_but_not_forwarding", || {
        hosts();
        let folder = folder("full");
        fs::create_dir(&folder).expect("makes");
        run("mount", &format!("-t tmpfs -o size=192k none {}", name(&folder)));
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--log", name(&folder)]);
        let patience = SteadyClock::begin();
        let give_up = patience.now() + Nanos::seconds(30);
        let mut told = None;
        while told.is_none() {
            assert!(patience.now() < give_up, "it never is full");
            pings(50);
            told = show()["report"]["log"]["stopped"].as_str().map(str::to_owned);
        }
        assert!(told.as_ref().is_some_and(|told| told.contains("the disk is full")), "{told:?}");
        pings(100);
        let (status, ended, errors) = emulator.end();
        assert_eq!(status, 4, "{errors}");
        assert!(errors.contains("the log has ended, and the emulator goes on"), "{errors}");
        let log = &ended["report"]["log"];
        assert!(log["unwritten"].as_u64() >= Some(200), "{log}");
        let events = events(&folder);
        let last = events.last().expect("events");
        assert_eq!((&last["event"], &last["written"]), (&Value::from("stopped"), &log["written"]), "{last}");
        // The log can be replayed up to the point where logging stopped.
        let (status, told) = done(&["emulate", "replay", name(&folder)]);
        assert!(status == 0 && told.contains("identical") && told.contains("it ended before its emulator"), "{told}");
        run("umount", name(&folder));
        fs::remove_dir(folder).expect("removes");
    });
}

#[test]
fn limit_of_file_sizes_ends_the_log_but_not_forwarding() {
    within_permitted("limit_of_file_sizes_ends_the_log_but_not_forwarding", || {
        hosts();
        let folder = folder("file-limit");
        let mut command = Command::new("sh");
        // In units of 512 bytes.
        command.args(["-c", "ulimit -f 384; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sojourn-instrument")]);
        command.env_remove("XDG_RUNTIME_DIR");
        let words = ["left", "right", "--delay", "1ms", "--log", name(&folder)];
        let emulator = Emulator::start_by(command, Stdio::piped(), &words);
        let mut sent = 0;
        while show()["report"]["log"]["stopped"].is_null() {
            assert!(sent < 5_000, "the log goes on");
            pings(50);
            sent += 50;
        }
        pings(50);
        let (status, _, errors) = emulator.end();
        assert!(status == 4 && errors.contains("the log has ended, and the emulator goes on"), "{status} {errors}");
        let (status, told) = done(&["emulate", "replay", name(&folder)]);
        assert!(status == 0 && told.contains("identical"), "{told}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn unread_standard_error_stops_neither_forwarding_nor_the_end() {
    within_permitted("unread_standard_error_stops_neither_forwarding_nor_the_end", || {
        hosts();
        let (unread, mut full) = std::io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&full, true).expect("a pipe");
        while full.write(b".").is_ok() {}
        rustix::io::ioctl_fionbio(&full, false).expect("a pipe");
        let words = ["left", "right", "--delay", "1ms"];
        let mut emulator = Emulator::start_by(instrument(), full.into(), &words);
        for mtu in [1400, 1300] {
            ip(&format!("link set dev left mtu {mtu}"));
            soon("it is said", || show()["report"]["said"].to_string().contains(&mtu.to_string()).then_some(()));
            pings(20);
        }
        kill_process(Pid::from_child(&emulator.process), Signal::INT).expect("can be signalled");
        let status = soon_within("it ends", Nanos::seconds(5), || emulator.process.try_wait().expect("waits"));
        assert_eq!(status.code(), Some(0));
        drop(unread);
    });
}

#[test]
fn a_log_is_never_larger_than_its_limit() {
    within_permitted("a_log_is_never_larger_than_its_limit", || {
        hosts();
        let folder = folder("limit");
        let limit = 100 << 10;
        let words = ["left", "right", "--delay", "1ms", "--log", name(&folder), "--log-limit", "100KB"];
        let emulator = Emulator::start(&words);
        let size = || {
            let files = fs::read_dir(&folder).expect("reads").flatten();
            files.map(|file| file.metadata().expect("is there").len()).sum::<u64>()
        };
        let mut sent = 0;
        while show()["report"]["log"]["stopped"].is_null() {
            assert!(sent < 1_000 && size() <= limit, "{sent}: {}", size());
            pings(50);
            sent += 50;
        }
        pings(50);
        let (status, ended, errors) = emulator.end();
        assert_eq!(status, 0, "it was asked for: {errors}");
        assert!(ended["marks"].to_string().contains("the limit of its size is reached"), "{ended}");
        assert!((limit / 2..=limit).contains(&size()), "{}", size());
        let (status, told) = done(&["emulate", "replay", name(&folder)]);
        assert!(status == 0 && told.contains("limit of its size"), "{told}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn forged_log_that_needs_too_much_memory_is_refused_in_one_sentence() {
    let folder = folder("crafted");
    let row = |number: u64, frame_bytes: u32| Packet {
        block: 0,
        number,
        copy_of: None,
        direction: "forward",
        pipe: Some(0),
        flow: 0,
        frame_bytes,
        head: Head { bytes: [0; HEAD_BYTES], length: 0 },
        arrival: Stamp { at: Time(number as i64), source: Source::Kernel },
        entered: Time(number as i64),
        disposition: "sent",
        cause: "",
        drawn: Some(Nanos::seconds(3)),
        link_left: None,
        intended: Some(Time(3_000_000_000)),
        departure: Some(Time(3_000_000_000)),
        is_marked: false,
        flipped: 0,
        is_reordered: false,
        queue_slots: 0,
        queue_bytes: 0,
        class: 0,
    };
    let explained = done(&["emulate", "explain", "--delay", "3s", "--json"]);
    let config = serde_json::from_str::<Value>(&explained.1).expect("JSON")["config"].clone();
    let write = |rows: &[Packet]| {
        let _ = fs::remove_dir_all(&folder);
        let mut file =
            PacketFile::create(&folder, ("emulate", 0), vec!["forward".into()], &Origin::default()).expect("creates");
        file.write(rows).expect("writes");
        file.finish().expect("writes");
        let start = json!({
            "event": "start", "config": config, "start_ns": 0, "left": "a", "right": "b", "engine": ["x", "y"],
            "wait": "spin", "version": "0", "profile": "debug",
        });
        let end = json!({ "event": "end", "written": rows.len(), "skipped": 0, "not_kept": 0, "report": {} });
        fs::write(folder.join("emulation-emulate-000.jsonl"), format!("{start}\n{end}\n")).expect("writes");
    };
    let replayed = || {
        let program = env!("CARGO_BIN_EXE_sojourn-instrument");
        let arguments = ["--as=1500000000", program, "emulate", "replay", name(&folder)];
        let output = Command::new("prlimit").args(arguments).output().expect("prlimit starts");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    write(&[row(0, i32::MAX as u32)]);
    let (status, told) = replayed();
    let sentence = "packet 0: a frame of 2147483647 bytes, which no interface carries";
    assert!(status == Some(4) && told.contains(sentence) && told.lines().count() == 1, "{status:?} {told}");
    // The longest frames, all at once: memory is limited to what the emulator may have needed.
    write(&(0..12_000).map(|number| row(number, 1 << 16)).collect::<Vec<_>>());
    let (status, told) = replayed();
    assert!(status == Some(4) && told.contains("have another disposition"), "{status:?} {told}");
    // A batch with a claimed length of a terabyte.
    write(&[row(0, 64)]);
    let path = folder.join("packets-emulate-000.arrow");
    let mut bytes = fs::read(&path).expect("reads");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a word")) as usize;
    let (mut at, mut body) = (0, (0, 0, 0));
    // The last message before the end mark has the rows.
    while word(at + 4) > 0 {
        let head = 8 + word(at + 4);
        body = (at, head, body_of(&bytes[at + 8..at + head]));
        at += head + body.2;
    }
    let place = bytes[body.0..body.0 + body.1].windows(8).position(|eight| eight == (body.2 as u64).to_le_bytes());
    let place = body.0 + place.expect("its length");
    bytes[place..place + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(&path, bytes).expect("writes");
    let (status, told) = replayed();
    assert!(status == Some(3) && told.contains("a batch says that it has 1099511627776 bytes"), "{status:?} {told}");
    fs::remove_dir_all(folder).expect("removes");
}

/// Returns the body length of a message with this header.
fn body_of(head: &[u8]) -> usize {
    let message = arrow_ipc::root_as_message(head).expect("a message");
    usize::try_from(message.bodyLength()).expect("a length")
}

#[test]
fn ports_of_this_host_are_refused_unless_they_are_taken_over() {
    within_permitted("ports_of_this_host_are_refused_unless_they_are_taken_over", || {
        hosts();
        ip("address add 10.77.2.9/24 dev left");
        let (status, told) = done(&["emulate", "left", "right", "--for", "10ms"]);
        assert!(status == 2 && told.contains("left: it has the address 10.77.2.9, so this host uses it"), "{told}");
        for engine in ["xdp", "packet"] {
            let (status, told) =
                done(&["emulate", "left", "right", "--take-over", "--for", "10ms", "--engine", engine]);
            assert!(status == 0 && told.contains("this host loses the use of it"), "{told}");
        }
        ip("address flush dev left");
        ip("link add one type veth peer name other");
        run("ip", "link set one up");
        run("ip", "link set other up");
        let (status, told) = done(&["emulate", "one", "other"]);
        assert!(status == 2 && told.contains("the two ends of one veth"), "{told}");
    });
}

#[test]
fn ipv6_configures_itself_through_an_emulator() {
    within_permitted("ipv6_configures_itself_through_an_emulator", || {
        for engine in ["xdp", "packet"] {
            hosts();
            let emulator = Emulator::start(&["left", "right", "--delay", "2ms", "--engine", engine]);
            // A router advertisement of 2001:db8:77::/64, valid for an hour.
            let advertise = "import socket,struct;s=socket.socket(socket.AF_INET6,socket.SOCK_RAW,58);\
                 s.setsockopt(41,17,socket.if_nametoindex('east'));s.setsockopt(41,18,255);\
                 p=struct.pack('!BBBBIII',3,4,64,192,3600,3600,0)+bytes.fromhex('20010db8007700000000000000000000');\
                 s.sendto(struct.pack('!BBHBBHII',134,0,0,64,0,1800,0,0)+p,('ff02::1',0))";
            let got = soon_within("it has an address", Nanos::seconds(10), || {
                // The sender's own address is not usable immediately.
                let _ = Command::new("ip").args(["netns", "exec", "east", "python3", "-c", advertise]).output();
                let addresses = run("ip", "-n west -6 address show dev west scope global");
                addresses.contains("2001:db8:77:").then_some(addresses)
            });
            assert!(!got.contains("dadfailed"), "{got}");
            // This host's own stack receives the advertisement only with AF_PACKET, and the emulator reports that.
            let own = || run("ip", "-6 address show scope global").contains("2001:db8:77:");
            if engine == "xdp" {
                assert!(!own());
            } else {
                soon_within("it has one, too", Nanos::seconds(5), || own().then_some(()));
                let is_said = || show()["report"]["said"].to_string().contains("has the address 2001:db8:77:");
                // The kernel reports the address once duplicate address detection has finished.
                soon_within("it is said", Nanos::seconds(5), || is_said().then_some(()));
            }
            let (status, _, errors) = emulator.end();
            assert_eq!(status, 0, "{errors}");
            for host in ["west", "east"] {
                ip(&format!("netns delete {host}"));
            }
            soon("its cables are gone", || (!run("ip", "-o link show").contains("right")).then_some(()));
        }
    });
}

#[test]
fn jumbo_frames_and_tags_pass_a_pipe_as_they_are() {
    within_permitted("jumbo_frames_and_tags_pass_a_pipe_as_they_are", || {
        hosts();
        for (engine, mtu) in [("xdp", 3_486), ("packet", 9_000)] {
            for (port, host) in [("left", "west"), ("right", "east")] {
                ip(&format!("link set dev {port} mtu {mtu}"));
                ip(&format!("-n {host} link set dev {host} mtu {mtu}"));
            }
            let emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--engine", engine]);
            let ping = format!("netns exec west ping -c 3 -i 0.05 -W 2 -M do -s {} 10.77.2.2", mtu - 28);
            assert!(run("ip", &ping).contains(" 0% packet loss"));
            // 802.1Q and 802.1ad.
            for tags in ["8100000a", "88a80014810060ff"] {
                let frame = format!("020000000099020000000098{tags}88b5{}", "5a".repeat(60));
                let listen = "import socket;s=socket.socket(17,3,socket.htons(3));s.bind(('east',0));s.settimeout(5)\n\
                     s.setsockopt(263,8,1)\nprint('ready',flush=True)\n\
                     while 1:\n m,a,_,_=s.recvmsg(2000,99)\n if m[:6]==bytes.fromhex('020000000099'):\n  \
                     t=a[0][2][16:20] if a and a[0][2][0]&16 else b''\n  \
                     t=t[2:4][::-1]+t[:2][::-1]\n  print((m[:12]+t+m[12:]).hex());break";
                let mut listener = Command::new("ip")
                    .args(["netns", "exec", "east", "python3", "-c", listen])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("python3 starts");
                let mut output = BufReader::new(listener.stdout.take().expect("a pipe"));
                let mut line = String::new();
                output.read_line(&mut line).expect("is ready");
                let send =
                    format!("import socket;s=socket.socket(17,3);s.bind(('west',0));s.send(bytes.fromhex('{frame}'))");
                let sent = Command::new("ip").args(["netns", "exec", "west", "python3", "-c", &send]).output();
                assert!(sent.expect("python3 starts").status.success());
                line.clear();
                output.read_line(&mut line).expect("reads");
                assert!(listener.wait().expect("ends").success());
                assert_eq!(line.trim(), frame, "{engine}");
            }
            emulator.end();
        }
    });
}

#[test]
fn capture_on_an_emulator_port_sees_the_frames_that_the_guide_states() {
    within_permitted("capture_on_an_emulator_port_sees_the_frames_that_the_guide_states", || {
        hosts();
        for engine in ["xdp", "packet"] {
            let emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--engine", engine]);
            let count = "import socket,time;s=socket.socket(17,3,socket.htons(3));s.bind(('left',0));s.settimeout(0.5)\n\
                 print('ready',flush=True)\nseen=[0,0]\nend=time.monotonic()+1.5\n\
                 while time.monotonic()<end:\n try: m,a=s.recvfrom(2000)\n except TimeoutError: continue\n \
                 seen[a[2]==4]+=m[23:24]==bytes([1])\nprint(*seen)";
            let mut capture =
                Command::new("python3").args(["-c", count]).stdout(Stdio::piped()).spawn().expect("starts");
            let mut output = BufReader::new(capture.stdout.take().expect("a pipe"));
            let mut line = String::new();
            output.read_line(&mut line).expect("is ready");
            pings(20);
            line.clear();
            output.read_line(&mut line).expect("reads");
            capture.wait().expect("ends");
            let expected = if engine == "xdp" { "0 0" } else { "20 0" };
            assert_eq!(line.trim(), expected, "{engine}: in and out");
            emulator.end();
        }
    });
}

fn index(name: &str) -> u64 {
    Interface::named(name).expect("is there").index.into()
}

/// Creates two hosts; the emulator runs between `left` and `right`.
fn hosts() {
    for (host, port, number) in [("west", "left", 1), ("east", "right", 2)] {
        ip(&format!("netns add {host}"));
        ip(&format!("link add name {port} type veth peer name {host} netns {host}"));
        ip(&format!("link set dev {port} up"));
        ip(&format!("-n {host} address add 10.77.2.{number}/24 dev {host}"));
        ip(&format!("-n {host} link set dev {host} up"));
    }
}

/// Pings from west to east; every reply must arrive, however late. With `-w`, ping sends further requests while it
/// waits for replies.
fn pings(count: u32) {
    let told = run("ip", &format!("netns exec west ping -c {count} -i 0.002 -w 30 10.77.2.2"));
    for number in 1..=count {
        assert!(told.contains(&format!("icmp_seq={number} ttl=")), "{number} has no answer: {told}");
    }
}

/// Waits for an event that must occur within a second.
fn soon<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    soon_within(what, SOON, look)
}

fn soon_within<T>(what: &str, span: Nanos, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = SteadyClock::begin();
    let give_up = clock.now() + span;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.now() < give_up, "it is not so that {what}");
        clock.wait_until(clock.now() + Nanos::millis(5), Nanos::ZERO);
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-in-the-path-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("emulation-emulate-000.jsonl")).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn instrument() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"));
    command.env_remove("XDG_RUNTIME_DIR");
    command
}

/// Runs the instrument to its end; returns the exit status and the whole output.
fn done(arguments: &[&str]) -> (i32, String) {
    let output = instrument().args(arguments).output().expect("starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a status"), String::from_utf8_lossy(&said).into_owned())
}

fn show() -> Value {
    let (status, told) = done(&["emulate", "show", "--json"]);
    assert_eq!(status, 0, "{told}");
    serde_json::from_str(&told).expect("JSON")
}

/// A running emulator.
struct Emulator {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Emulator {
    /// Starts an emulator, and waits until it forwards frames.
    fn start(arguments: &[&str]) -> Self {
        Self::start_by(instrument(), Stdio::piped(), arguments)
    }

    /// The same by a command that executes the instrument, and with this standard error.
    fn start_by(mut command: Command, errors: Stdio, arguments: &[&str]) -> Self {
        command.args(["emulate", "run"]).args(arguments).args(["--json", "--die-with-parent"]);
        let mut process = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the instrument starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("reads");
        let mut errors = String::new();
        if line.is_empty() {
            let _ = process.stderr.take().map(|mut pipe| pipe.read_to_string(&mut errors));
        }
        assert!(line.contains("ready"), "it ended: {errors}");
        Self { process, output }
    }

    /// Ends it by SIGINT; returns the exit status, the final event, and the error output.
    fn end(self) -> (i32, Value, String) {
        kill_process(Pid::from_child(&self.process), Signal::INT).expect("can be signalled");
        self.ended()
    }

    /// The same for an emulator that ends by itself, within a second.
    fn ends_soon(mut self) -> (i32, Value, String) {
        soon("it ends", || self.process.try_wait().expect("waits"));
        self.ended()
    }

    fn ended(mut self) -> (i32, Value, String) {
        let (mut said, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut said).expect("reads");
        self.process.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("reads");
        let status = self.process.wait().expect("ends").code().expect("a status");
        (status, serde_json::from_str(said.trim()).expect("JSON"), errors)
    }
}

/// Creates the same two hosts, but `left` and `west` have four queues, of which `left` uses one.
fn hosts_with_queues() {
    hosts();
    ip("link delete dev left");
    let queues = "numrxqueues 4 numtxqueues 4";
    ip(&format!("link add name left {queues} type veth peer name west {queues} netns west"));
    run("ethtool", "-L left rx 1");
    ip("link set dev left up");
    ip("-n west address add 10.77.2.1/24 dev west");
    ip("-n west link set dev west up");
}

#[test]
fn more_queues_at_an_af_xdp_port_end_the_emulator_with_status_4() {
    within_permitted("more_queues_at_an_af_xdp_port_end_the_emulator_with_status_4", || {
        hosts_with_queues();
        let emulator = Emulator::start(&["left", "right", "--engine", "xdp"]);
        pings(5);
        run("ethtool", "-L left rx 4");
        let (status, _, errors) = emulator.ends_soon();
        let told = "left: its frames come in by 4 queues, and AF_XDP here listens to one";
        assert!(status == 4 && errors.contains(told), "{status} {errors}");
    });
}

#[test]
fn af_packet_port_with_a_foreign_xdp_program_is_refused() {
    within_permitted("af_packet_port_with_a_foreign_xdp_program_is_refused", || {
        hosts();
        let foreign = sojourn_port::xdp::XdpPort::open("left", 0x88B5).expect("attaches");
        for engine in ["packet", "auto"] {
            let (status, told) = done(&["emulate", "left", "right", "--for", "10ms", "--engine", engine]);
            let sentence = "left: an XDP program hangs on it already; `ip link show dev left` tells which";
            assert!(status == 3 && told.contains(sentence), "{engine}: {status} {told}");
        }
        drop(foreign);
        let (status, told) = done(&["emulate", "left", "right", "--for", "10ms", "--engine", "packet"]);
        assert_eq!(status, 0, "{told}");
    });
}
