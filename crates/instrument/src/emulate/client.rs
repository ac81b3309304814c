//! `emulate set` and `emulate show`: ask a running emulator.

use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::json;
use sojourn_time::{Clock, HostClock, Nanos};

use super::arguments::{Set, Show, Which};
use super::show;
use crate::control;
use crate::failure::WrongRequest;

const WHO: &str = "the emulator";
const EVERY: Nanos = Nanos::seconds(1);

/// Changes pipes.
///
/// # Errors
/// When nobody answers, or the change is refused.
pub fn set(asked: &Set) -> anyhow::Result<()> {
    let (mut stream, path) = connect(&asked.which)?;
    let is_all = asked.pipe == "all";
    let words = asked.words.join(" ");
    let pipe = if is_all { "" } else { &asked.pipe };
    let request = json!({ "do": "set", "pipe": pipe, "all": is_all, "words": words, "replace": asked.replace });
    let answer = control::ask(&mut stream, (WHO, &path), &request)?;
    let mut output = io::stdout().lock();
    for pipe in answer["pipes"].as_array().into_iter().flatten() {
        writeln!(output, "{}: {}", pipe["name"].as_str().unwrap_or_default(), show::words(pipe))?;
    }
    Ok(())
}

/// Shows how it is going.
///
/// # Errors
/// When nobody answers.
pub fn show(asked: &Show) -> anyhow::Result<()> {
    let (mut stream, path) = connect(&asked.which)?;
    loop {
        let answer = control::ask(&mut stream, (WHO, &path), &json!({ "do": "show" }))?;
        let mut output = io::stdout().lock();
        if asked.json {
            writeln!(output, "{answer}")?;
            return Ok(());
        }
        if asked.watch && output.is_terminal() {
            // Home, and clear to the end.
            write!(output, "\x1b[H\x1b[J")?;
        }
        writeln!(output, "{}", show::table(&answer["report"], &answer["config"]).trim_end())?;
        output.flush()?;
        if !asked.watch {
            return Ok(());
        }
        HostClock.wait_until(HostClock.now() + EVERY, Nanos::ZERO);
    }
}

/// Connects to the emulator that is meant, or to the only one there is.
fn connect(which: &Which) -> anyhow::Result<(UnixStream, PathBuf)> {
    if let Some(path) = &which.control {
        let stream = UnixStream::connect(path)
            .with_context(|| format!("--control {}: no emulator that we may ask listens there", path.display()))?;
        return Ok((stream, path.clone()));
    }
    let folders = control::folders();
    let mut found: Vec<_> = folders.iter().flat_map(|folder| sockets(folder)).collect();
    match (found.pop(), found.as_slice()) {
        (Some(only), []) => Ok(only),
        (Some(last), others) => {
            let paths = others.iter().chain([&last]).map(|(_, path)| path.display().to_string());
            let problem =
                format!("several emulators run; say which with --control: {}", paths.collect::<Vec<_>>().join(", "));
            Err(WrongRequest(problem).into())
        }
        (None, _) => {
            let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            Err(anyhow!(
                "no emulator that we may ask listens in {}; start one with `sojourn emulate run LEFT RIGHT`, or give --control PATH",
                places.join(" or ")
            ))
        }
    }
}

/// The emulators that listen in a folder.
fn sockets(folder: &Path) -> Vec<(UnixStream, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("emulate-") && name.ends_with(".sock")
    };
    let mut paths: Vec<_> = entries.filter(is_ours).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| UnixStream::connect(&path).ok().map(|stream| (stream, path))).collect()
}
