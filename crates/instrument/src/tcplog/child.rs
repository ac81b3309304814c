//! COMMAND: started, waited for, told to end.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::failure::WrongRequest;

/// A command that runs beside the log, with our terminal, input and output.
#[derive(Debug)]
pub struct Companion {
    child: Child,
    pidfd: OwnedFd,
}

impl Companion {
    /// Starts it.
    ///
    /// # Errors
    /// When it is not there, or may not be run.
    pub fn start(words: &[OsString]) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = words.split_first() else { return Ok(None) };
        let child = Command::new(program).args(arguments).spawn().map_err(|error| refused(program, &error))?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watch COMMAND")?;
        Ok(Some(Self { child, pidfd }))
    }

    /// What becomes readable when it has ended.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Its exit status once it has ended; 128 + the signal's number where one ended it, as shells have it.
    pub fn status(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// Tells it to end.
    pub fn tell(&self, signal: Signal) {
        // It may have ended just now.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

/// Looks for a command before anything is begun.
///
/// # Errors
/// When it is nowhere, or cannot be run.
pub fn check(words: &[OsString]) -> anyhow::Result<()> {
    let Some(program) = words.first() else { return Ok(()) };
    let path = Path::new(program);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match path.components().count() {
        1 if !path.is_absolute() => std::env::split_paths(&folders).map(|folder| folder.join(path)).collect(),
        _ => vec![path.to_owned()],
    };
    let can_run =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    match places.iter().any(can_run) {
        true => Ok(()),
        false if places.iter().any(|path| path.exists()) => Err(refused(program, &ErrorKind::PermissionDenied.into())),
        false => Err(refused(program, &ErrorKind::NotFound.into())),
    }
}

fn refused(program: &OsString, error: &io::Error) -> anyhow::Error {
    let name = Path::new(program).display();
    match error.kind() {
        ErrorKind::NotFound => WrongRequest(format!("{name}: no such command")).into(),
        ErrorKind::PermissionDenied => WrongRequest(format!("{name}: it may not be run")).into(),
        _ => anyhow!("start {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_there_is_a_wrong_request() {
        for (word, sentence) in [("no-such-command-here", "no such command"), ("/etc/passwd", "it may not be run")] {
            let error = check(&[word.into()]).unwrap_err();
            assert!(error.to_string().contains(sentence), "{error}");
            assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
        }
        check(&["sh".into()]).unwrap();
        check(&[]).unwrap();
    }

    #[test]
    fn its_status_is_told_also_when_a_signal_ended_it() {
        let ended = |script: &str| {
            let words = ["sh", "-c", script].map(OsString::from);
            let mut companion = Companion::start(&words).unwrap().unwrap();
            companion.child.wait().unwrap();
            companion.status().unwrap()
        };
        assert_eq!((ended("exit 7"), ended("kill -TERM $$")), (7, 143));
    }
}
