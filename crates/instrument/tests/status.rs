//! Tests of each failure as a user sees it: the exit status and the message of one sentence.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;

use std::process::{Command, Output};

use namespace::{ip, link, within};

const BINARY: &str = env!("CARGO_BIN_EXE_sojourn-instrument");
const MAC: &str = "02:77:00:00:01:02";

#[test]
fn missing_objects_and_values_out_of_range_end_with_status_2() {
    within("missing_objects_and_values_out_of_range_end_with_status_2", || {
        link();
        expect(2, "no such interface", "probe icmp 10.77.1.2 --dev nosuch");
        expect(2, "no such interface", &format!("probe raw --dev nosuch --to {MAC}"));
        expect(2, "does not fit", &format!("probe raw --dev near --to {MAC} --payload-bytes 1501"));
        expect(2, "--cpu 1000", "probe icmp 10.77.1.2 --cpu 1000");
        expect(2, "--cpu 100000", "probe icmp 10.77.1.2 --cpu 100000");
        expect(2, "count: expected at most 10000000", "clock sim --truth {\"count\":10000001}");
        expect(2, "at most 100 years in all", "clock sim --truth {\"interval_ns\":57977777777777098}");
    });
}

#[test]
fn problems_of_the_machine_end_with_status_3_and_name_the_fixing_command() {
    within("problems_of_the_machine_end_with_status_3_and_name_the_fixing_command", || {
        link();
        expect(3, "no route to it; `ip route get`", "probe icmp 192.0.2.1");
        ip("link set dev near down");
        expect(3, "`ip link set dev near up`", "probe icmp 10.77.1.2 --dev near");
        expect(3, "`ip link set dev near up`", &format!("probe raw --dev near --to {MAC}"));
    });
}

#[test]
fn silent_peer_ends_with_status_4() {
    within("silent_peer_ends_with_status_4", || {
        link();
        let short = "-c 3 -i 1ms --timeout 20ms";
        expect(4, "answered none of 3 probes", &format!("probe raw --dev near --to {MAC} {short}"));
        expect(4, "answered none of 3 probes", &format!("probe icmp 10.77.1.77 {short}"));
        expect(4, "nobody listens there", &format!("probe udp 10.77.1.2:9 {short}"));
    });
}

#[test]
fn missing_capability_is_named_with_the_command_that_grants_it() {
    within("missing_capability_is_named_with_the_command_that_grants_it", || {
        link();
        let raw = format!("probe raw --dev near --to {MAC}");
        for (command, right) in [(raw.as_str(), "CAP_NET_RAW"), ("probe icmp 10.77.1.2 --fifo", "CAP_SYS_NICE")] {
            let Output { status, stderr, .. } = without_rights(command);
            let said = String::from_utf8_lossy(&stderr);
            assert_eq!(status.code(), Some(3), "{command}: {said}");
            assert!(said.contains(right) && said.contains("usermod -aG"), "{command}: {said}");
        }
    });
}

#[test]
fn capability_that_is_held_but_insufficient_is_not_requested() {
    within("capability_that_is_held_but_insufficient_is_not_requested", || {
        link();
        let arguments = ["--user", "--map-root-user", BINARY, "probe", "icmp", "10.77.1.2", "--fifo"];
        let Output { status, stderr, .. } = Command::new("unshare").args(arguments).output().expect("unshare starts");
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains("although CAP_SYS_NICE is held") && said.contains("user namespace"), "{said}");
    });
}

#[test]
fn full_disk_ends_with_status_4() {
    within("full_disk_ends_with_status_4", || {
        mount_small_disk();
        let line = r#"{"forward":{"constant_ns":1},"backward":{"constant_ns":1}}"#;
        expect(4, "the disk is full", &format!("probe sim --line {line} -c 5000 --record /run/small/records"));
    });
}

fn expect(status: i32, sentence: &str, command: &str) {
    let output = Command::new(BINARY).args(command.split(' ')).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{command}: {said}");
    assert!(said.contains(sentence) && said.starts_with("sojourn-instrument: "), "{command}: {said}");
    assert_eq!(said.lines().count(), 1, "{command}: {said}");
}

/// Runs the program without any capability of root.
fn without_rights(command: &str) -> Output {
    let drop = ["--bounding-set=-all", "--inh-caps=-all", BINARY];
    Command::new("setpriv").args(drop).args(command.split(' ')).output().expect("setpriv starts")
}

fn mount_small_disk() {
    std::fs::create_dir_all("/run/small").expect("makes a folder");
    let mount = ["-t", "tmpfs", "-o", "size=64k", "none", "/run/small"];
    assert!(Command::new("mount").args(mount).status().expect("mount starts").success());
}
