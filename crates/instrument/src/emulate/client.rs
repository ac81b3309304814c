//! `emulate set`, `emulate show` and `emulate ask`: clients of a running emulator.

use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde_json::{Value, json};
use sojourn_rights::table::EMULATE_ASK;
use sojourn_time::{Clock, HostClock, Nanos};

use super::arguments::{Set, Show, Which};
use super::show;
use crate::control;
use crate::failure::WrongRequest;
use crate::printed::printed;

const WHO: &str = "the emulator";
const EVERY: Nanos = Nanos::seconds(1);

/// Changes pipes.
///
/// # Errors
/// If no emulator answers, or the change is refused.
pub fn set(asked: &Set) -> anyhow::Result<()> {
    let (mut stream, path) = connect(&asked.which)?;
    let is_all = asked.pipe == "all";
    let words = asked.words.join(" ");
    let pipe = if is_all { "" } else { &asked.pipe };
    let request = json!({ "do": "set", "pipe": pipe, "all": is_all, "words": words, "replace": asked.replace });
    let answer = control::ask(&mut stream, WHO, &path, &request)?;
    let mut output = printed();
    if asked.json {
        let pipes = answer["pipes"].as_array().into_iter().flatten();
        let pipes: Vec<_> = pipes.map(|pipe| json!({ "name": pipe["name"], "words": show::words(pipe) })).collect();
        let told = json!({ "ports": answer["ports"], "at_ns": answer["at_ns"], "pipes": pipes });
        return Ok(writeln!(output, "{told}")?);
    }
    let ports: Vec<_> = answer["ports"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    writeln!(output, "changed between {}:", ports.join(" and "))?;
    for pipe in answer["pipes"].as_array().into_iter().flatten() {
        writeln!(output, "  {}: {}", pipe["name"].as_str().unwrap_or_default(), show::words(pipe))?;
    }
    Ok(())
}

/// Shows the state of the emulator.
///
/// # Errors
/// If no emulator answers.
pub fn show(asked: &Show) -> anyhow::Result<()> {
    let (mut stream, path) = connect(&asked.which)?;
    let mut before = None;
    loop {
        let answer = control::ask(&mut stream, WHO, &path, &json!({ "do": "show" }))?;
        let mut output = printed();
        if asked.json {
            writeln!(output, "{answer}")?;
            return Ok(());
        }
        if asked.watch && io::stdout().is_terminal() {
            // Terminal control: move the cursor home, clear to the end.
            write!(output, "\x1b[H\x1b[J")?;
        }
        let told = show::table(&answer["report"], &answer["config"], before.as_ref());
        writeln!(output, "{}", told.trim_end())?;
        output.flush()?;
        if !asked.watch || output.is_closed() {
            return Ok(());
        }
        before = Some(answer["report"].clone());
        HostClock.wait_until(HostClock.now() + EVERY, Nanos::ZERO);
    }
}

/// Sends requests one by one, and prints the answers.
///
/// # Errors
/// If no emulator answers, a request is not valid JSON, or the output's reader has closed it.
pub fn pass(which: &Which) -> anyhow::Result<()> {
    let (mut stream, path) = connect(which)?;
    EMULATE_ASK.confine()?;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.by_ref().take(control::LONGEST_LINE_BYTES as u64).read_until(b'\n', &mut line)? > 0 {
        let request = serde_json::from_slice(&line).map_err(|error| {
            WrongRequest(format!("'{}' is no request: {error}", String::from_utf8_lossy(&line).trim_end()))
        })?;
        let answer = control::answer(&mut stream, WHO, &path, &request)?;
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}

/// Connects to the named emulator, or to the only one that this user runs.
fn connect(which: &Which) -> anyhow::Result<(UnixStream, PathBuf)> {
    if let Some(path) = &which.control {
        return match control::connect(path) {
            Ok(stream) => Ok((stream, path.clone())),
            Err(error) => Err(unreachable(path, &error)),
        };
    }
    let folders = control::folders();
    let found: Vec<_> = folders.iter().flat_map(|folder| sockets(folder)).collect();
    let (mut own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| is_own(path));
    own.retain(|path| control::connect(path).is_ok());
    match own.as_slice() {
        [only] => Ok((control::connect(only).map_err(|error| unreachable(only, &error))?, only.clone())),
        [] => Err(nobody(&folders, &others)),
        several => {
            let problem = format!("several emulators of this user run; say which with --control: {}", listed(several));
            Err(WrongRequest(problem).into())
        }
    }
}

/// Returns the error where no emulator is found, with advice.
fn nobody(folders: &[PathBuf], others: &[PathBuf]) -> anyhow::Error {
    let closed: Vec<_> = folders.iter().filter(|folder| is_closed(folder)).cloned().collect();
    let hint = match (others, closed.as_slice()) {
        ([], []) => "start one with `sojourn emulate LEFT RIGHT`, or give --control PATH".to_owned(),
        ([], closed) => format!("another user's may, in {}: ask as that user, such as with sudo", listed(closed)),
        (others, _) => format!("another user's does, at {}: name it with --control, as that user", listed(others)),
    };
    anyhow!("this user runs no emulator that listens in {}; {hint}", listed_or(folders))
}

/// Returns the error where a named socket cannot be reached.
fn unreachable(path: &Path, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow!("--control {}: it is another user's; ask as that user, such as with sudo", path.display())
        }
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            anyhow!("--control {}: no emulator listens there", path.display())
        }
        _ => anyhow!("--control {}: {error}", path.display()),
    }
}

/// Returns the sockets of emulators in a folder.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("emulate-") && name.ends_with(".sock")
    };
    let mut paths: Vec<_> = entries.filter(is_ours).collect();
    paths.sort();
    paths
}

/// Whether this user owns the socket.
fn is_own(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

fn is_closed(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn listed_or(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
}
