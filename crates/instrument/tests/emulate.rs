//! Tests of `emulate` as a user starts it, between two hosts in separate namespaces.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::SystemTime;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sojourn_port::pcap::{Capture, Writer};
use sojourn_time::{Clock, HostClock, Nanos, Time};

use namespace::{ip, ip_says, within};

const SOCKET: &str = "/run/sojourn/emulate-left-right.sock";

#[test]
fn ping_is_delayed_and_live_changes_are_applied_and_shown() {
    within("ping_is_delayed_and_live_changes_are_applied_and_shown", || {
        hosts();
        for engine in ["xdp", "packet"] {
            let emulator = Emulator::start(&["left", "right", "--delay", "5ms", "--engine", engine]);
            rtt_is("5 ms each way", 10.0);
            let told = said(&["emulate", "set", "forward", "delay", "25ms", "loss", "every", "4"]);
            assert_eq!(told.trim(), "changed between left and right:\n  forward: loss every 4 delay 25ms");
            rtt_is("25 ms there, 5 ms back", 30.0);
            said(&["emulate", "set", "all", "delay", "2ms", "--replace"]);
            rtt_is("2 ms each way", 4.0);

            let shown: Value = serde_json::from_str(&said(&["emulate", "show", "--json"])).expect("JSON");
            let [forward, backward] = [0, 1].map(|pipe| shown["report"]["pipes"][pipe].clone());
            // Ten pings, and the packets that IPv6 sends by itself.
            assert!((2..=6).contains(&count(&forward["lost"], "before")), "{shown}");
            assert_eq!(backward["lost"]["before"], 0, "{shown}");
            for pipe in [&forward, &backward] {
                let sum = count(pipe, "sent") + count(pipe, "held") + count(&pipe["lost"], "before");
                assert_eq!(count(pipe, "arrived"), sum, "{pipe}");
            }
            assert_eq!(shown["config"]["pipes"][0]["delay"]["constant"], 2_000_000);
            let table = said(&["emulate", "show"]);
            assert!(table.contains("forward: delay 2ms") && table.contains("accuracy  p50"), "{table}");
            assert!(table.contains("since the last change") && table.contains("bit/s since the start"), "{table}");
            let ended = emulator.end();
            assert!(count(&ended["report"]["pipes"][0], "sent") >= 28, "{ended}");
            assert!(!Path::new(SOCKET).exists(), "the socket is removed with it");
        }
    });
}

#[test]
fn an_idle_pipe_and_a_plain_bridge_let_pings_pass_at_once() {
    within("an_idle_pipe_and_a_plain_bridge_let_pings_pass_at_once", || {
        hosts();
        for pipes in [&["--forward", "", "--backward", ""][..], &[], &["--redirect"]] {
            let before = ["west", "east"].map(came_to);
            let emulator = Emulator::start(&[&["left", "right"], pipes].concat());
            let rtt = least_rtt_ms(20);
            assert!(rtt < 2.0, "{pipes:?}: {rtt} ms");
            let report = emulator.end()["report"].clone();
            let seen = count(&report["unmatched"], "forward");
            let through =
                report["pipes"].as_array().map_or(0, |pipes| pipes.iter().map(|pipe| count(pipe, "sent")).sum());
            assert!(seen + through >= 20, "{report}");
            let of = |port: usize, key: &str| count(&report["ports"][port], key);
            for (inward, outward) in [(0, 1), (1, 0)] {
                assert_eq!(of(inward, "received"), of(outward, "sent") + of(outward, "refused"), "{report}");
            }
            // The hosts may have received more: this host itself sends packets through its ports.
            for (port, host) in ["west", "east"].into_iter().enumerate() {
                let came = came_to(host) - before[port];
                assert!((20..=came).contains(&of(port, "sent")), "{host} received {came}: {report}");
            }
        }
    });
}

#[test]
fn bridge_without_options_reads_and_counts_every_frame_with_every_engine() {
    within("bridge_without_options_reads_and_counts_every_frame_with_every_engine", || {
        hosts();
        for engine in ["auto", "xdp", "packet"] {
            let emulator = Emulator::start(&["left", "right", "--engine", engine]);
            least_rtt_ms(20);
            let report = emulator.end()["report"].clone();
            let seen = count(&report["unmatched"], "forward");
            assert!(seen >= 20, "{engine}: what is redirected is not counted: {report}");
            let kind = if engine == "packet" { "AF_PACKET" } else { "AF_XDP" };
            assert!(report["ports"][0]["engine"].as_str().is_some_and(|told| told.starts_with(kind)), "{report}");
        }
    });
}

#[test]
fn self_test_creates_no_veth_pairs_in_a_namespace_that_is_in_use() {
    within("self_test_creates_no_veth_pairs_in_a_namespace_that_is_in_use", || {
        hosts();
        let (status, said) = done(&["emulate", "self-test"]);
        assert!(status == 2 && said.contains("in a new network namespace"), "{status} {said}");
        assert!(!ip_says("link show").contains("near"), "nothing is left behind");
    });
}

/// Returns the number of frames that a host has received.
fn came_to(host: &str) -> u64 {
    let shown = ip_says(&format!("netns exec {host} cat /proc/net/dev"));
    let line = shown.lines().find_map(|line| line.trim().strip_prefix(&format!("{host}:")).map(str::to_owned));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).expect("it is counted")
}

#[test]
fn external_path_delay_is_measured_at_start_and_compensated() {
    within("external_path_delay_is_measured_at_start_and_compensated", || {
        hosts();
        let folder = folder("compensated");
        let log = folder.join("log").display().to_string();
        let words = ["left", "right", "--delay", "3ms", "--compensate", "auto", "--log", &log];
        let emulator = Emulator::start(&words);
        assert_eq!(ip_says("link show").matches("near").count(), 0, "its cables are elsewhere");
        rtt_is("3 ms each way", 6.0);
        let table = said(&["emulate", "show"]);
        assert!(table.contains("path delay compensation: packets leave"), "{table}");
        let report = emulator.end()["report"].clone();
        let (found, frames) = (count(&report["compensated"], "path_delay_ns"), count(&report["compensated"], "frames"));
        assert!((300..1_000_000).contains(&found) && frames >= 100, "{report}");
        assert_eq!(count(&report["calibration"], "compensation_ns"), found);
        let events = fs::read_to_string(folder.join("log/emulation-emulate-000.jsonl")).expect("reads");
        let start: Value = serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
        assert_eq!(start["compensated"], report["compensated"]);
        assert!(said(&["emulate", "replay", &log]).contains("identical"));
        // A path delay measured with one engine must not be subtracted from the departures of another.
        let jumbo = ["left", "right", "--delay", "3ms", "--compensate", "auto"];
        for (device, place) in [("left", ""), ("right", ""), ("west", "-n west "), ("east", "-n east ")] {
            ip(&format!("{place}link set {device} mtu 9000"));
        }
        let (status, said) = done(&[&["emulate", "run"], &jumbo[..], &["--for", "1s"]].concat());
        assert!(status == 2 && said.contains("measured the path by AF_XDP"), "{status} {said}");
        Emulator::start(&[&jumbo[..], &["--engine", "packet"]].concat()).end();
        ip("link add name other type bridge");
        ip("link set other up");
        let (status, said) = done(&["emulate", "run", "left", "other", "--delay", "1ms", "--compensate", "auto"]);
        assert!(status == 2 && said.contains("other is none (driver bridge)"), "{status} {said}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn readiness_is_written_to_the_given_file_descriptor() {
    within("readiness_is_written_to_the_given_file_descriptor", || {
        hosts();
        let folder = folder("ready");
        fs::create_dir(&folder).expect("makes");
        let (program, told) = (env!("CARGO_BIN_EXE_sojourn-instrument"), folder.join("told"));
        let script = "exec \"$0\" emulate run left right --control none --for 100ms --ready-fd 7 7>\"$1\"";
        let output = Command::new("sh").args(["-c", script, program]).arg(&told).output().expect("starts");
        assert!(output.status.success(), "{output:?}");
        let ready: Value = serde_json::from_slice(&fs::read(&told).expect("reads")).expect("JSON");
        assert_eq!((&ready["event"], &ready["left"]), (&json!("ready"), &json!("left")), "{ready}");
        let (status, said) = done(&["emulate", "run", "left", "right", "--ready-fd", "7", "--for", "1ms"]);
        assert!(status == 2 && said.contains("--ready-fd 7: nothing to write to is open there"), "{said}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn killed_emulator_leaves_nothing_that_blocks_the_next() {
    within("killed_emulator_leaves_nothing_that_blocks_the_next", || {
        hosts();
        let mut killed = Emulator::start(&["left", "right", "--delay", "1ms"]);
        assert!(ip_says("-d link show left").contains("xdp"), "its program is attached");
        killed.process.kill().expect("kills");
        killed.process.wait().expect("ends");
        let patience = HostClock.now() + Nanos::seconds(30);
        while ip_says("-d link show left").contains("xdp") {
            assert!(HostClock.now() < patience, "its program is still attached");
        }
        let gone = |patience: Time| {
            while Path::new(SOCKET).exists() {
                assert!(HostClock.now() < patience, "a process of its own removes it");
            }
        };
        gone(patience);
        let mut next = Emulator::start(&["left", "right", "--delay", "1ms"]);
        rtt_is("1 ms each way", 2.0);
        next.process.kill().expect("kills");
        next.process.wait().expect("ends");
        gone(HostClock.now() + Nanos::seconds(30));
        let other = Emulator::start(&["right", "left", "--delay", "1ms"]);
        other.end();
    });
}

#[test]
fn emulator_gives_up_every_capability_that_it_does_not_need() {
    within("emulator_gives_up_every_capability_that_it_does_not_need", || {
        hosts();
        let emulator = Emulator::start(&["left", "right"]);
        let status = fs::read_to_string(format!("/proc/{}/status", emulator.process.id())).expect("its status");
        let held = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).expect("its rights").trim().to_owned();
        let (ipc_lock, sys_nice) = (1 << 14, 1 << 23);
        assert_eq!(u64::from_str_radix(&held, 16).expect("a mask") & !(ipc_lock | sys_nice), 0, "{held}");
        emulator.end();
    });
}

#[test]
fn log_replays_identically_and_an_altered_log_does_not() {
    within("log_replays_identically_and_an_altered_log_does_not", || {
        hosts();
        let folder = folder("replay");
        let log = folder.to_str().expect("a name");
        let words = "delay 3ms jitter 1ms distribution normal loss 20% duplicate 5%";
        let emulator = Emulator::start(&["left", "right", "--forward", words, "--seed", "9", "--log", log]);
        least_rtt_ms(40);
        said(&["emulate", "set", "forward", "rate", "1Mbit/s", "loss", "burst", "10%", "3"]);
        let answer = ask(&json!({ "do": "begin", "block": 7 }));
        assert_eq!((&answer["ok"], &answer["block"]), (&json!(true), &json!(0)), "{answer}");
        assert!(count(&answer["summary"]["pipes"][0]["accuracy"], "count") > 10, "{answer}");
        least_rtt_ms(40);
        let report = emulator.end()["report"].clone();
        assert_eq!(report["log"]["skipped"], 0);

        let (status, told) = done(&["emulate", "replay", log, "--json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!((status, &told["identical"]), (0, &json!(true)), "{told}");
        assert_eq!(told["packets"], report["log"]["written"], "{told}");
        assert!(count(&told, "departures") > 40, "{told}");

        // Replay the same arrivals with another seed.
        let events = folder.join("emulation-emulate-000.jsonl");
        let text = fs::read_to_string(&events).expect("reads");
        fs::write(&events, text.replacen("\"seed\":9", "\"seed\":10", 1)).expect("writes");
        let (status, told) = done(&["emulate", "replay", log]);
        assert_eq!(status, 4, "{told}");
        assert!(told.contains("have another disposition"), "{told}");
        // Replay a log without its last line.
        let lines: Vec<_> = text.lines().collect();
        fs::write(&events, lines[..lines.len() - 1].join("\n")).expect("writes");
        let (status, told) = done(&["emulate", "replay", log]);
        assert!(status == 0 && told.contains("its emulator did not end"), "{told}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn log_of_a_killed_emulator_is_recovered_and_replayed_to_its_end() {
    within("log_of_a_killed_emulator_is_recovered_and_replayed_to_its_end", || {
        hosts();
        let (folder, whole) = (folder("killed"), folder("recovered"));
        let [log, whole] = [&folder, &whole].map(|path| path.to_str().expect("a name").to_owned());
        let words = "delay 3ms jitter 1ms distribution normal loss 20% duplicate 5%";
        let mut emulator = Emulator::start(&["left", "right", "--forward", words, "--log", &log]);
        least_rtt_ms(40);
        HostClock.wait_until(HostClock.now() + Nanos::millis(200), Nanos::ZERO);
        least_rtt_ms(10);
        emulator.process.kill().expect("kills");
        emulator.process.wait().expect("ends");
        // Append a line that ends within a character.
        let events = folder.join("emulation-emulate-000.jsonl");
        let mut events = File::options().append(true).open(events).expect("opens");
        events.write_all(b"{\"event\":\"notice\",\"sentence\":\"\xc3").expect("writes");
        let replayed = |folder: &str| {
            let (status, told) = done(&["emulate", "replay", folder, "--json"]);
            let told: Value = serde_json::from_str(&told).expect("JSON");
            assert_eq!((status, &told["identical"], &told["is_cut"]), (0, &json!(true), &json!(true)), "{told}");
            count(&told, "packets")
        };
        let packets = replayed(&log);
        assert!(packets > 40, "{packets}");
        let told = said(&["emulate", "recover", &log, "-o", &whole]);
        assert!(told.contains("packets written to"), "{told}");
        assert_eq!(replayed(&whole), packets);
        fs::remove_dir_all(folder).expect("removes");
        fs::remove_dir_all(whole).expect("removes");
    });
}

#[test]
fn too_many_logs_at_once_are_refused_and_a_subset_is_read() {
    let (folder, whole) = (folder("many"), folder("never"));
    fs::create_dir_all(&folder).expect("makes");
    for part in 0..481 {
        fs::write(folder.join(format!("emulation-x-{part:03}.jsonl")), "").expect("writes");
    }
    let [log, whole] = [&folder, &whole].map(|path| path.to_str().expect("a name").to_owned());
    for words in [&["emulate", "replay", &log][..], &["emulate", "recover", &log, "-o", &whole]] {
        let (status, problem) = done(words);
        assert!(status == 2 && problem.contains("at most 480 are read at once"), "{problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
    // The maximum number of logs is open at the same time; the first is read, and its first line is missing.
    fs::remove_file(folder.join("emulation-x-480.jsonl")).expect("removes");
    for part in 0..480 {
        fs::write(folder.join(format!("packets-x-{part:03}.arrow")), "").expect("writes");
    }
    for words in [&["emulate", "replay", &log][..], &["emulate", "replay", &log, "--part", "479"]] {
        let (status, problem) = done(words);
        assert!(status == 4 && problem.contains("its first line is missing"), "{problem}");
    }
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn events_with_a_line_above_the_maximum_length_are_refused_in_one_sentence() {
    let (folder, whole) = (folder("endless"), folder("whole"));
    fs::create_dir_all(&folder).expect("makes");
    // Sparse: one line of zeros.
    let events = File::create(folder.join("emulation-x-000.jsonl")).expect("creates");
    events.set_len((640 << 20) + 1).expect("is that long");
    File::create(folder.join("packets-x-000.arrow")).expect("creates");
    let [log, output] = [&folder, &whole].map(|path| path.to_str().expect("a name").to_owned());
    for words in [&["emulate", "replay", &log][..], &["emulate", "recover", &log, "-o", &output]] {
        let (status, problem) = done(words);
        let sentence = "emulation-x-000.jsonl: it has a line of more than 640 MiB";
        assert!(status == 4 && problem.trim_end().ends_with(sentence), "{words:?}: {problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
    [folder, whole].iter().for_each(|path| fs::remove_dir_all(path).expect("removes"));
}

#[test]
fn port_of_a_linux_bridge_that_would_forward_its_frames_twice_is_refused() {
    within("port_of_a_linux_bridge_that_would_forward_its_frames_twice_is_refused", || {
        hosts();
        ip("link add br0 type bridge");
        ip("link set left master br0");
        let (status, told) = done(&["emulate", "left", "right", "--engine", "packet"]);
        assert!(status == 2 && told.contains("left: it belongs to br0, so this host uses it"), "{told}");
        let (status, told) = done(&["emulate", "left", "right", "--engine", "packet", "--take-over"]);
        assert!(status == 2 && told.contains("left: it is a port of br0") && told.contains("nomaster"), "{told}");
    });
}

#[test]
fn emulators_of_other_users_are_queried_only_if_named() {
    within("emulators_of_other_users_are_queried_only_if_named", || {
        hosts();
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms"]);
        std::os::unix::fs::chown(SOCKET, Some(65_534), None).expect("it is given away");
        let (status, told) = done(&["emulate", "show"]);
        assert!(status == 3 && told.contains("another user's does, at /run/sojourn/"), "{told}");
        assert!(said(&["emulate", "show", "--control", SOCKET]).contains("forward: delay 1ms"));
        emulator.end();
    });
}

#[test]
fn error_suggests_the_correct_spelling() {
    for (arguments, expected) in [
        (&["l", "r", "--dleay", "5ms"][..], "did you mean --delay?"),
        (&["explain", "--rate", "1Mbit/s", "--aqm", "codle"], "did you mean \"codel\"?"),
        (&["explain", "--forward", "delya 5ms"], "did you mean \"delay\"?"),
        (&["explian", "l", "r", "--delay", "5ms"], "did you mean explain?"),
        (
            &["explain", "loss", "2"],
            "loss is a word of the configuration, and no interface has that name: did you mean --loss 2, or",
        ),
        (&["explain", "l", "delay"], "delay is a word of the configuration"),
        (&["delay", "5ms"], "did you mean --delay 5ms, or --forward \"delay 5ms\"?"),
        (&["explain", "codle"], "did you mean --forward \"codel\"?"),
        (&["explain", "delya", "20ms"], "did you mean --forward \"delay 20ms\"?"),
        (&["explain", "elsewhere"], "elsewhere: that is one port; give two, as in emulate explain elsewhere OTHER"),
        (&["explain", "lo", "--delay", "5ms"], "lo: that is one port; give two"),
        (&["explain", "lo", "lo"], "lo lo: that is one port twice"),
        (&["kernel", "l", "l", "--delay", "5ms"], "one port twice"),
        (&["explain", "--delay", "-5ms"], "-5ms: a time cannot be below zero; write it as 5ms"),
        (&["explain", "--loss", "2"], "2 has no percent sign: write 2%"),
        (&["explain", "--loss", "150"], "150% is not from 0% to 100%"),
        (&["explain", "--rate", "10Gbit/s", "--delay", "1s"], "--memory 1193MB"),
    ] {
        let (status, told) = done(&[&["emulate"], arguments].concat());
        assert!(status == 2 && told.contains(expected), "{arguments:?}: {told}");
    }
    let told = said(&["emulate", "explain", "l", "r", "--delay", "5ms", "--log", "/tmp/never", "--engine", "packet"]);
    assert!(told.contains("forward: delay 5ms"), "{told}");
    assert_eq!(said(&["emulate", "explain", "l", "r"]).trim(), "no pipe: a plain bridge");
}

#[test]
fn a_log_with_gaps_is_not_replayed() {
    within("a_log_with_gaps_is_not_replayed", || {
        hosts();
        let folder = folder("gaps");
        let log = folder.to_str().expect("a name");
        let emulator =
            Emulator::start(&["left", "right", "--delay", "1ms", "--log", log, "--name", "d", "--part", "3"]);
        ask(&json!({ "do": "begin", "block": -1, "keep": false }));
        least_rtt_ms(5);
        emulator.end();
        let (status, told) = done(&["emulate", "replay", log]);
        assert!(status == 4 && told.contains("the log has gaps"), "{told}");
        // The same for the log of a killed emulator.
        let mut killed = Emulator::start(&["left", "right", "--delay", "1ms", "--log", log, "--part", "4"]);
        ask(&json!({ "do": "begin", "block": -1, "keep": false }));
        least_rtt_ms(5);
        ask(&json!({ "do": "begin", "block": 0 }));
        least_rtt_ms(5);
        HostClock.wait_until(HostClock.now() + Nanos::millis(200), Nanos::ZERO);
        killed.process.kill().expect("kills");
        killed.process.wait().expect("ends");
        let (status, told) = done(&["emulate", "replay", log, "--part", "4"]);
        // A frame that the kernel itself sent before the first request is a row before the gap; replay reaches that far.
        let none = status == 4 && told.contains("none can be replayed");
        assert!(none || told.contains("only those before the first missing packet count"), "{told}");
        fs::remove_dir_all(folder).expect("removes");
    });
}

#[test]
fn invalid_control_requests_are_refused_and_change_nothing() {
    within("invalid_control_requests_are_refused_and_change_nothing", || {
        hosts();
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms"]);
        for request in [
            json!({ "do": "dance" }),
            json!({ "do": "set", "pipe": "sideways", "words": "delay 1ms" }),
            json!({ "do": "set", "pipe": "forward", "words": "delay 1" }),
            json!({ "do": "set", "pipe": "forward", "words": "loss 200%" }),
            json!({ "do": "show", "loudly": true }),
            json!(7),
        ] {
            let answer = ask(&request);
            assert!(answer["error"].as_str().is_some_and(|told| !told.contains('\n')), "{request}: {answer}");
        }
        let shown = ask(&json!({ "do": "show" }));
        assert_eq!(shown["config"]["pipes"][0]["delay"]["constant"], 1_000_000);
        assert_eq!(shown["report"]["pipes"][0]["since_change"], Value::Null);
        assert_eq!(ask(&json!({ "do": "stop" }))["ok"], true);
        emulator.ended();
    });
}

#[test]
fn deleted_port_ends_the_emulator_with_one_sentence() {
    within("deleted_port_ends_the_emulator_with_one_sentence", || {
        hosts();
        for engine in ["xdp", "packet"] {
            let mut emulator = Emulator::start(&["left", "right", "--delay", "1ms", "--engine", engine]);
            ip("link delete left");
            let status = emulator.process.wait().expect("ends");
            let mut told = String::new();
            emulator.process.stderr.take().expect("a pipe").read_to_string(&mut told).expect("reads");
            assert_eq!(status.code(), Some(4), "{told}");
            // The kernel sets an interface down before it deletes it; if the emulator checks in between, it reports that, too.
            let lines: Vec<_> = told.lines().filter(|line| !line.contains("left is down or has no carrier")).collect();
            assert!(matches!(lines[..], [line] if line.contains("left: the interface has vanished")), "{told}");
            ip("netns delete west");
            host("west", "left", 1);
        }
    });
}

#[test]
fn an_interface_that_goes_down_and_up_again_is_bridged_again() {
    within("an_interface_that_goes_down_and_up_again_is_bridged_again", || {
        hosts();
        let emulator = Emulator::start(&["left", "right", "--delay", "1ms"]);
        rtt_is("1 ms each way", 2.0);
        ip("link set left down");
        let lost = Command::new("ip").args("netns exec west ping -c 2 -i 0.1 -W 1 10.77.2.2".split(' ')).output();
        assert!(!lost.expect("ping").status.success());
        ip("link set left up");
        // The kernel delays the carrier notification to the far end by up to a second.
        least_rtt_ms(100);
        rtt_is("1 ms each way", 2.0);
        let marks = emulator.end()["marks"].to_string();
        assert!(marks.contains("left is down or has no carrier") && marks.contains("left is up again"), "{marks}");
    });
}

#[test]
fn errors_are_one_sentence() {
    within("errors_are_one_sentence", || {
        hosts();
        let mine = folder("wrong");
        fs::create_dir_all(&mine).expect("makes");
        let trace = mine.join("back.csv");
        fs::write(&trace, "time,rate\n0s,1Mbit/s\n2s,2Mbit/s\n1s,1Mbit/s\n").expect("writes");
        let trace = trace.to_str().expect("a name");
        let cases: &[(&[&str], u8)] = &[
            (&["left", "nowhere"], 2),
            (&["left"], 2),
            (&["left", "right", "--delay", "20"], 2),
            (&["left", "right", "--loss", "1"], 2),
            (&["left", "right", "--forward", "delay 1ms nonsense 3"], 2),
            (&["left", "right", "--queue", "50"], 2),
            (&["left", "right", "--rate", "1Mbit/s", "--queue", "0"], 2),
            (&["left", "right", "--trace", trace], 2),
            (&["left", "right", "--config", "/no/such/file"], 2),
            (&["left", "right", "--config", trace, "--delay", "1ms"], 2),
            (&["left", "right", "--memory", "lots"], 2),
            (&["left", "right", "--spin", "--fifo"], 2),
            (&["left", "right", "--cpu", "9999"], 2),
            (&["left", "right", "--backend", "kernel", "--delay", "1ms"], 3),
            (&["kernel", "left", "right", "--loss", "segment 3"], 2),
            (&["replay", "/no/such/folder"], 2),
            (&["offline", "/no/such.pcap", "-o", "/tmp/never.pcapng"], 2),
            (&["recover", "/no/such/folder", "-o", "/tmp/never"], 2),
            (&["left", "right", "--log", "/proc/nothing"], 2),
            (&["left", "left"], 2),
            (&["replay", mine.to_str().expect("a name")], 2),
            (&["offline", trace, "-o", "/tmp/never.pcapng"], 2),
            (&["set", "forward", "delay", "1ms"], 3),
            (&["show", "--control", "/no/such/socket"], 3),
        ];
        for (arguments, expected) in cases {
            let (status, told) = done(&[&["emulate"], *arguments].concat());
            assert_eq!(status, i32::from(*expected), "{arguments:?}: {told}");
            assert!(
                told.starts_with("sojourn-instrument: ") && told.trim().lines().count() == 1,
                "{arguments:?}: {told}"
            );
        }
        ip("link set right down");
        let (status, told) = done(&["emulate", "left", "right"]);
        assert!(status == 3 && told.contains("right"), "{told}");
        ip("link set right up");
        let first = Emulator::start(&["left", "right"]);
        let (status, told) = done(&["emulate", "left", "right", "--control", "none"]);
        assert!(status == 3 && told.contains("left"), "two on one port: {told}");
        // Another emulator can run at the same time.
        host("south", "port", 3);
        host("north", "starboard", 4);
        let second = Emulator::start(&["port", "starboard"]);
        second.end();
        first.end();
        fs::remove_dir_all(mine).expect("removes");
    });
}

#[test]
fn offline_emulation_uses_the_timestamps_of_the_capture() {
    let folder = folder("offline");
    fs::create_dir_all(&folder).expect("makes");
    let [input, output, again] = ["in.pcap", "out.pcapng", "again.pcapng"].map(|name| folder.join(name));
    let start = Time(1_700_000_000_000_000_000);
    let mut writer = Writer::new(File::create(&input).expect("creates")).expect("writes");
    for number in 0..1_000_u32 {
        let mut frame = [0_u8; 60];
        frame[20..24].copy_from_slice(&number.to_be_bytes());
        writer.write(start + Nanos::millis(i64::from(number)), &frame).expect("writes");
    }
    writer.finish().expect("writes");
    let name = |path: &PathBuf| path.to_str().expect("a name").to_owned();
    let (status, told) =
        done(&["emulate", "--offline", &name(&input), "--delay", "20ms", "--loss", "every 10", "-o", &name(&output)]);
    assert_eq!(status, 0, "{told}");
    assert!(told.contains("1,000 received, 900 sent") && told.contains("100 before"), "{told}");
    let frames = frames(&output);
    assert_eq!(frames.len(), 900);
    for (at, number) in &frames {
        assert_eq!(*at, start + Nanos::millis(20 + i64::from(*number)));
        assert_ne!(number % 10, 9, "every tenth is lost");
    }
    // Read the output again, from pcapng.
    let (status, told) =
        done(&["emulate", "offline", &name(&output), "--rate", "1Gbit/s", "-o", &name(&again), "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((status, &told["frames"]), (0, &json!(900)), "{told}");
    assert_eq!(self::frames(&again)[0].0, start + Nanos::millis(20) + Nanos(480), "60 bytes at 1 Gbit/s");
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn a_capture_that_is_missing_or_empty_is_refused_and_nothing_is_written() {
    let folder = folder("refused");
    fs::create_dir_all(&folder).expect("makes");
    let [missing, empty, output] = ["missing.pcap", "empty.pcap", "out.pcapng"].map(|name| folder.join(name));
    Writer::new(File::create(&empty).expect("creates")).expect("writes").finish().expect("writes");
    let name = |path: &PathBuf| path.to_str().expect("a name").to_owned();
    for (input, expected) in
        [(&missing, "missing.pcap: No such file or directory"), (&empty, "the capture has no frame")]
    {
        let (status, told) = done(&["emulate", "offline", &name(input), "--delay", "1ms", "-o", &name(&output)]);
        assert!(status == 2 && told.trim_end().ends_with(expected), "{status}: {told}");
        assert!(!output.exists(), "{told}");
    }
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn symbolic_link_as_output_is_refused_and_its_target_is_unchanged() {
    let folder = folder("links");
    fs::create_dir_all(&folder).expect("makes");
    let [input, theirs, link, hard] = ["in.pcap", "theirs", "link", "hard"].map(|name| folder.join(name));
    let mut writer = Writer::new(File::create(&input).expect("creates")).expect("writes");
    writer.write(Time(1_700_000_000_000_000_000), &[7; 100]).expect("writes");
    writer.finish().expect("writes");
    fs::write(&theirs, "theirs").expect("writes");
    std::os::unix::fs::symlink(&theirs, &link).expect("links");
    fs::hard_link(&theirs, &hard).expect("links");
    let offline =
        |output: &str| done(&["emulate", "offline", input.to_str().expect("a name"), "--delay", "1ms", "-o", output]);
    for output in [&link, &hard] {
        let (status, told) = offline(output.to_str().expect("a name"));
        assert!(status == 2 && told.contains("it is a link"), "{status}: {told}");
        assert_eq!(fs::read_to_string(&theirs).expect("reads"), "theirs");
    }
    let (status, told) = offline("/dev/null");
    assert_eq!(status, 0, "{told}");
    let words =
        ["emulate", "offline", input.to_str().expect("a name"), "--delay", "1ms", "-o", "/dev/stdout", "--json"];
    let out = File::create(folder.join("stdout")).expect("creates");
    assert!(
        Command::new(env!("CARGO_BIN_EXE_sojourn-instrument"))
            .args(words)
            .stdout(out)
            .status()
            .expect("runs")
            .success()
    );
    assert!(fs::symlink_metadata("/dev/stdout").expect("is there").is_symlink());
    assert!(fs::metadata(folder.join("stdout")).expect("is there").len() > 100);
    fs::remove_file(&hard).expect("removes");
    // A file without links is replaced once everything is written.
    let mode = || fs::metadata(&theirs).expect("is there").permissions().mode() & 0o777;
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o640)).expect("sets");
    let empty = folder.join("empty.pcap");
    Writer::new(File::create(&empty).expect("creates")).expect("writes").finish().expect("writes");
    let words = [empty.to_str().expect("a name"), "-o", theirs.to_str().expect("a name")];
    let (status, told) = done(&[&["emulate", "offline", "--delay", "1ms"][..], &words].concat());
    assert!(status == 2 && fs::read_to_string(&theirs).expect("reads") == "theirs", "{status}: {told}");
    let (status, told) = offline(theirs.to_str().expect("a name"));
    assert!(status == 0 && fs::metadata(&theirs).expect("is there").len() > 100, "{told}");
    assert_eq!(mode(), 0o640);
    let names = fs::read_dir(&folder).expect("reads").map(|one| one.expect("a name").file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".part")));
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn two_offline_emulations_with_one_output_leave_it_whole_and_foreign_files_alone() {
    let folder = folder("drafts");
    fs::create_dir_all(&folder).expect("makes");
    let [output, theirs, captured] = ["out.pcapng", ".out.pcapng.part", "capture"].map(|name| folder.join(name));
    for path in [&output, &theirs] {
        fs::write(path, "theirs").expect("writes");
    }
    let drafts = || {
        let names = fs::read_dir(&folder).expect("reads").map(|one| one.expect("a name").file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".out.pcapng.")).count() - 1
    };
    let start = |name: &str| {
        let input = folder.join(name);
        assert!(Command::new("mkfifo").arg(&input).status().is_ok_and(|status| status.success()));
        // Held open, so that opening it succeeds and reading it blocks.
        let held = File::options().read(true).write(true).open(&input).expect("opens");
        let mut command = instrument();
        command.args(["emulate", "offline", "--delay", "1ms"]).arg(&input).arg("-o").arg(&output);
        (held, command.stdout(Stdio::null()).spawn().expect("starts"))
    };
    let both = [start("one"), start("other")];
    let patience = HostClock.now() + Nanos::seconds(30);
    while drafts() < 2 {
        assert!(HostClock.now() < patience, "each has a draft of its own");
        HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
    }
    for (count, (mut held, mut process)) in [3_u32, 5].into_iter().zip(both) {
        let mut writer = Writer::new(File::create(&captured).expect("creates")).expect("writes");
        for number in 0..count {
            writer.write(Time(1_700_000_000_000_000_000) + Nanos::millis(i64::from(number)), &[7; 60]).expect("writes");
        }
        writer.finish().expect("writes");
        held.write_all(&fs::read(&captured).expect("reads")).expect("writes");
        drop(held);
        assert!(process.wait().expect("ends").success());
        assert_eq!(frames(&output).len(), count as usize);
    }
    assert_eq!((fs::read_to_string(&theirs).expect("reads").as_str(), drafts()), ("theirs", 0));
    // Of drafts that nobody has locked, one that a killed program left goes, and one that is new stays.
    let [left, new] = ["0123456789abcdef", "fedcba9876543210"].map(|n| folder.join(format!(".out.pcapng.{n}.part")));
    File::create(&left).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH)).expect("creates");
    File::create(&new).expect("creates");
    let [input, output] = [&captured, &output].map(|path| path.to_str().expect("a name"));
    assert_eq!(done(&["emulate", "offline", "--delay", "1ms", input, "-o", output]).0, 0);
    assert!(!left.exists() && new.exists());
    fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn truncated_frame_is_serialised_at_its_original_length() {
    let folder = folder("cut");
    fs::create_dir_all(&folder).expect("makes");
    let [input, output] = ["in.pcap", "out.pcapng"].map(|name| folder.join(name));
    let start = Time(1_700_000_000_000_000_000);
    let mut writer = Writer::new(File::create(&input).expect("creates")).expect("writes");
    writer.write(start, &[0; 128]).expect("writes");
    // A longer frame that the capture kept completely, although it truncated the first.
    writer.write(start + Nanos::seconds(1), &[7; 1_000]).expect("writes");
    writer.finish().expect("writes");
    // The original length: the last word of the record header, which follows the file header of 24 bytes.
    let mut bytes = fs::read(&input).expect("reads");
    bytes[36..40].copy_from_slice(&1_250_u32.to_le_bytes());
    fs::write(&input, bytes).expect("writes");
    let name = |path: &PathBuf| path.to_str().expect("a name").to_owned();
    let told = said(&["emulate", "offline", &name(&input), "--rate", "1Mbit/s", "-o", &name(&output)]);
    assert!(told.contains("had not kept 1 of them whole"), "{told}");
    let mut capture = Capture::new(BufReader::new(File::open(&output).expect("opens"))).expect("a capture");
    let mut frame = Vec::new();
    let record = capture.next(&mut frame).expect("reads").expect("a frame");
    assert_eq!((record.at - start, record.original_bytes, frame.len()), (Nanos::millis(10), 1_250, 128));
    let record = capture.next(&mut frame).expect("reads").expect("a frame");
    assert_eq!((record.original_bytes, &frame), (1_000, &vec![7; 1_000]));
    fs::remove_dir_all(folder).expect("removes");
}

/// Returns the timestamp and the number of each frame of a capture.
fn frames(path: &Path) -> Vec<(Time, u32)> {
    let mut capture = Capture::new(BufReader::new(File::open(path).expect("opens"))).expect("a capture");
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    while let Some(record) = capture.next(&mut frame).expect("reads") {
        frames.push((record.at, u32::from_be_bytes(frame[20..24].try_into().expect("four bytes"))));
    }
    frames
}

/// Creates a host in a separate namespace, at the other end of a port's cable.
fn host(name: &str, port: &str, number: u8) {
    ip(&format!("netns add {name}"));
    ip(&format!("link add name {port} type veth peer name {name} netns {name}"));
    ip(&format!("link set dev {port} up"));
    ip(&format!("-n {name} address add 10.77.2.{number}/24 dev {name}"));
    ip(&format!("-n {name} link set dev {name} up"));
}

/// Creates two hosts; the emulator runs between `left` and `right`.
fn hosts() {
    host("west", "left", 1);
    host("east", "right", 2);
}

/// Pings from west to east, and returns the minimum round-trip time in milliseconds, whatever was lost.
fn least_rtt_ms(count: u32) -> f64 {
    let ping = format!("netns exec west ping -c {count} -i 0.02 -W 1 10.77.2.2");
    let output = Command::new("ip").args(ping.split(' ')).output().expect("ping starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let least = told.rsplit_once("= ").and_then(|(_, times)| times.split('/').next()?.parse().ok());
    assert!(least.is_some(), "no answer: {told}");
    least.unwrap_or_default()
}

/// Checks the round-trip time: up to 0.1 ms below the expected value, because ping rounds to microseconds and the
/// emulator learns its departure offset; and up to 5 ms above it, on a busy machine.
fn rtt_is(what: &str, expected_ms: f64) {
    let least = least_rtt_ms(10);
    assert!((expected_ms - 0.1..expected_ms + 5.0).contains(&least), "{what}: {least} ms");
}

fn count(value: &Value, key: &str) -> u64 {
    assert!(value[key].is_u64(), "{key} in {value}");
    value[key].as_u64().unwrap_or_default()
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

fn said(arguments: &[&str]) -> String {
    let (status, told) = done(arguments);
    assert_eq!(status, 0, "{arguments:?}: {told}");
    told
}

/// Sends a request to the emulator, and returns its answer.
fn ask(request: &Value) -> Value {
    let mut stream = UnixStream::connect(SOCKET).expect("connects");
    writeln!(stream, "{request}").expect("asks");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("is answered");
    serde_json::from_str(&answer).expect("JSON")
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-emulate-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// A running emulator.
struct Emulator {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Emulator {
    /// Starts an emulator, and waits until it forwards frames.
    fn start(arguments: &[&str]) -> Self {
        let mut command = instrument();
        command.args(["emulate", "run"]).args(arguments).args(["--json", "--die-with-parent"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the instrument starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut emulator = Self { process, output };
        let ready = emulator.event();
        assert_eq!(ready["event"], "ready", "{ready}");
        emulator
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("reads");
        let mut told = String::new();
        if line.is_empty() {
            let _ = self.process.stderr.take().map(|mut pipe| pipe.read_to_string(&mut told));
        }
        assert!(!line.is_empty(), "it ended: {told}");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Ends it by SIGINT, and returns the final event.
    fn end(self) -> Value {
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::INT).expect("can be signalled");
        self.ended()
    }

    /// Waits for its end.
    fn ended(mut self) -> Value {
        let ended = self.event();
        assert_eq!(ended["event"], "ended", "{ended}");
        assert!(self.process.wait().expect("ends").success());
        ended
    }
}

#[test]
fn equivalent_netem_commands_are_printed_for_tc() {
    let told = said(&["emulate", "kernel", "l", "r", "--delay", "20ms", "--loss", "1%"]);
    let expected = "tc qdisc replace dev r root netem";
    assert!(told.starts_with(expected) && told.contains("# tc qdisc del dev l root"), "{told}");
}
