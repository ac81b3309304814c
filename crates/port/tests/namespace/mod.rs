//! Two network namespaces with a veth link, for the duration of one test.
//!
//! The test starts itself again under `unshare` (as root, or in a user namespace), with its names of namespaces in a
//! private mount namespace. Where the kernel permits neither, it is skipped with a message; with `CI` set that is a
//! failure.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::stream::{Kind, Link, StreamHeader, Tag};
use sojourn_wire::{MacAddress, SessionKey};

/// The key of a [`stream_frame`].
pub const KEY: SessionKey = SessionKey(0x0123_4567_89AB_CDEF);

const INSIDE: &str = "SOJOURN_TEST_INSIDE_NAMESPACE";
const PRIVATE_NAMES: &str = "mount -t tmpfs none /run && exec \"$@\"";

/// Runs `test` in a namespace of its own, at the near end of a link; `name` is the test function's.
pub fn within(name: &str, test: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--net", "--mount"]);
    if let Err(why) = permitted(&unshare) {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to make namespaces: {why}");
        eprintln!("skipped: cannot make namespaces here: {why}");
        return;
    }
    let program = std::env::current_exe().expect("this test's program");
    unshare.args(["sh", "-c", PRIVATE_NAMES, "sh"]).arg(program).args([
        "--exact",
        name,
        "--nocapture",
        "--include-ignored",
    ]);
    let output = unshare.env(INSIDE, "1").output().expect("unshare starts");
    let said = [output.stdout, output.stderr].concat();
    print!("{}", String::from_utf8_lossy(&said));
    assert!(output.status.success(), "inside the namespace: {}", String::from_utf8_lossy(&said));
}

/// Builds the link: `near` here, `far` in another namespace, with addresses and neighbours.
pub fn link() {
    ip("link set dev lo up");
    ip("netns add peer");
    ip("link add name near index 11 address 02:77:00:00:01:01 type veth \
        peer name far index 12 address 02:77:00:00:01:02 netns peer");
    for (end, prefix, host) in [("near", "", 1), ("far", "-n peer ", 2)] {
        ip(&format!("{prefix}address add 10.77.1.{host}/24 dev {end}"));
        ip(&format!("{prefix}address add fd77::{host}/64 dev {end} nodad"));
        ip(&format!("{prefix}link set dev {end} up"));
    }
    for (prefix, end, host) in [("", "near", 2), ("-n peer ", "far", 1)] {
        for address in [format!("10.77.1.{host}"), format!("fd77::{host}")] {
            ip(&format!("{prefix}neighbor replace {address} lladdr 02:77:00:00:01:0{host} dev {end} nud permanent"));
        }
    }
}

/// Runs `test` as [`within`] does, where BPF programs are permitted: a user namespace does not permit them.
pub fn within_permitted(name: &str, test: fn()) {
    if std::env::var_os("CI").is_none() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: programs in the kernel need root");
        return;
    }
    within(name, test);
}

/// Runs `open` at the far end; the sockets that it opens stay there.
pub fn at_far_end<T>(open: impl FnOnce() -> T) -> T {
    at("peer", open)
}

/// Runs `open` in another namespace; the sockets that it opens stay there.
pub fn at<T>(namespace: &str, open: impl FnOnce() -> T) -> T {
    let here = File::open("/proc/thread-self/ns/net").expect("this namespace");
    let there = File::open(format!("/run/netns/{namespace}")).expect("the other namespace");
    enter(&there);
    let opened = open();
    enter(&here);
    opened
}

/// Keeps the caller's resources until the process is killed.
pub fn hold() -> ! {
    println!("held");
    loop {
        HostClock.wait_until(HostClock.now() + Nanos::seconds(1), Nanos::ZERO);
    }
}

/// Starts the test `name` again in this namespace with the variable `holds` set, so that it attaches a program; kills
/// it once the program is attached, and waits until the program is gone.
pub fn goes_when_killed(name: &str, holds: &str, is_there: impl Fn() -> bool) {
    let program = std::env::current_exe().expect("this test's program");
    let mut holder = Command::new(program);
    holder.args(["--exact", name, "--nocapture"]).env(holds, "1").stdout(Stdio::null());
    let mut holder = holder.spawn().expect("starts");
    wait_until("the program was never there", 60, &is_there);
    holder.kill().expect("is killed");
    holder.wait().expect("ends");
    wait_until("the program is still there", 10, || !is_there());
}

fn wait_until(problem: &str, seconds: i64, done: impl Fn() -> bool) {
    let give_up = HostClock.now() + Nanos::seconds(seconds);
    while !done() {
        assert!(HostClock.now() < give_up, "{problem}");
        HostClock.wait_until(HostClock.now() + Nanos::millis(5), Nanos::ZERO);
    }
}

/// Returns a frame of a stream from `near` to `far`.
pub fn stream_frame(kind: Kind, flow: u16, seq: u64, tag: Option<Tag>) -> Vec<u8> {
    let [source, destination] = [1, 2].map(|host| MacAddress([0x02, 0x77, 0, 0, 1, host]));
    let link = Link { destination, source, tag };
    let mut frame = vec![0; 60];
    link.write(&mut frame);
    let sent = HostClock.now();
    let header = StreamHeader { kind, node: 0, flow, key: KEY, seq, intended: sent, sent };
    header.write(&mut frame[link.header_bytes()..]);
    frame
}

/// Gives the kernel time to deliver outstanding frames, even on a busy host.
pub fn wait_for_delivery() {
    HostClock.wait_until(HostClock.now() + Nanos::millis(300), Nanos::ZERO);
}

/// Runs an `ip` command.
pub fn ip(command: &str) {
    ip_says(command);
}

/// Runs an `ip` command and returns its output.
pub fn ip_says(command: &str) -> String {
    run("ip", command)
}

/// Runs a `tc` command.
pub fn tc(command: &str) {
    run("tc", command);
}

/// Runs a command and returns its output.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("the program starts");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn permitted(unshare: &Command) -> Result<(), String> {
    let tried =
        Command::new("unshare").args(unshare.get_args()).args(["sh", "-c", PRIVATE_NAMES, "sh", "ip", "link"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("enters the namespace");
}
