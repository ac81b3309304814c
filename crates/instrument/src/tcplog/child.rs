//! COMMAND: runs it as its user, waits for it, and signals it.
//!
//! A separate thread starts it, because credentials belong to threads. The thread keeps the privileges that the logger drops until
//! COMMAND runs, then permanently becomes COMMAND's user, so that it may still signal COMMAND without any capability.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sojourn_rights::table::TCPLOG;
use sojourn_rights::{Identity, keep_only, lend_nothing};

use super::folder::MOST_WORDS;
use super::sys::end_with_us;
use crate::failure::WrongRequest;

/// The variables by which sudo names its caller: removed, because COMMAND runs as that user.
const OF_SUDO: [&str; 4] = ["SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID"];

/// A command that is ready to start.
#[derive(Debug)]
pub struct Prepared {
    start: Sender<Sender<Started>>,
    tell: Sender<Signal>,
    is_beyond_us: Arc<AtomicBool>,
}

type Started = anyhow::Result<(Child, OwnedFd)>;

/// A command that runs beside the log, with the log's terminal, input and output.
#[derive(Debug)]
pub struct Companion {
    child: Child,
    pidfd: OwnedFd,
    tell: Sender<Signal>,
    is_beyond_us: Arc<AtomicBool>,
}

/// Prepares a command before privileges are dropped. It runs as `user`, otherwise as the caller of sudo, otherwise as
/// this user. `None` without a command.
///
/// # Errors
/// If that user does not exist, or this program may not run as that user.
pub fn prepare(words: &[OsString], user: Option<&str>) -> anyhow::Result<Option<Prepared>> {
    let Some((program, arguments)) = words.split_first() else { return Ok(None) };
    let user = match user {
        Some(name) => Some(Identity::named(name).map_err(|error| WrongRequest(format!("--user {error}")))?),
        None => Identity::caller(),
    };
    let mut command = Command::new(program);
    command.args(arguments);
    user.iter().for_each(|user| environment(&mut command, user));
    let (start, begin) = channel();
    let (tell, told) = channel();
    let (become_sender, has_become) = channel();
    let name = program.clone();
    let is_beyond_us = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_beyond_us);
    let run = move || {
        let became = user.map_or(Ok(()), |user| Ok(user.assume()?)).and_then(|()| Ok(lend_nothing()?));
        let is_ready = became.is_ok();
        let _ = become_sender.send(became);
        if is_ready {
            start_and_signal((&name, command), &begin, (&told, &refused));
        }
    };
    thread::Builder::new().name("command".to_owned()).spawn(run).context("start a thread")?;
    match has_become.recv() {
        Ok(Ok(())) => Ok(Some(Prepared { start, tell, is_beyond_us })),
        Ok(Err(error)) => Err(anyhow::Error::context(error, "COMMAND")),
        Err(_) => Err(anyhow!("the thread that starts COMMAND ended early: a mistake of ours")),
    }
}

/// Sets the environment as a login of this user does; sudo does the same.
fn environment(command: &mut Command, user: &Identity) {
    OF_SUDO.iter().for_each(|name| {
        command.env_remove(name);
    });
    if let Some(account) = &user.account {
        let mail = Path::new("/var/mail").join(&account.name);
        command.env("HOME", &account.home).env("SHELL", &account.shell).env("MAIL", mail);
        command.env("USER", &account.name).env("LOGNAME", &account.name);
    }
}

/// Starts the command on request, then drops all privileges and passes on signals; records a refused signal.
fn start_and_signal(
    (program, mut command): (&OsString, Command),
    begin: &Receiver<Sender<Started>>,
    (told, is_refused): (&Receiver<Signal>, &AtomicBool),
) {
    // The channel closes if the log could not begin.
    let Ok(answer) = begin.recv() else { return };
    let started = spawn(program, &mut command);
    let own = started.as_ref().ok().and_then(|(_, pidfd)| pidfd.try_clone().ok());
    let _ = answer.send(started);
    let Some(pidfd) = own else { return };
    while let Ok(signal) = told.recv() {
        // The command may have just ended, which is not a refusal.
        if pidfd_send_signal(&pidfd, signal) == Err(Errno::PERM) {
            is_refused.store(true, Ordering::Relaxed);
        }
    }
}

/// Starts the command; afterwards this thread keeps no privilege and may start nothing else.
fn spawn(program: &OsString, command: &mut Command) -> Started {
    end_with_us(command);
    let mut child = command.spawn().map_err(|error| refused(program, &error))?;
    let confined = keep_only(&[]).and_then(|()| TCPLOG.restrict_calls()).context("give up rights");
    let watched =
        confined.and_then(|()| pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("watch COMMAND"));
    match watched {
        Ok(pidfd) => Ok((child, pidfd)),
        Err(error) => {
            let _ = child.kill();
            Err(error)
        }
    }
}

impl Prepared {
    /// Starts the command.
    ///
    /// # Errors
    /// If it does not exist, or may not be run.
    pub fn start(self) -> anyhow::Result<Companion> {
        let (answer, started) = channel();
        let Self { start, tell, is_beyond_us } = self;
        let ended = || anyhow!("the thread that starts COMMAND ended early: a mistake of ours");
        start.send(answer).map_err(|_| ended())?;
        let (child, pidfd) = started.recv().map_err(|_| ended())??;
        Ok(Companion { child, pidfd, tell, is_beyond_us })
    }
}

impl Companion {
    /// Returns a descriptor that becomes readable when the command has ended.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the exit status once the command has ended; 128 + the signal number if a signal ended it, as in shells.
    pub fn status(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// Whether a signal was refused because the command now runs as another user.
    pub fn is_beyond_us(&self) -> bool {
        self.is_beyond_us.load(Ordering::Relaxed)
    }

    /// Sends a signal to the command.
    pub fn tell(&self, signal: Signal) {
        let _ = self.tell.send(signal);
    }
}

/// Checks that a command exists before anything is started.
///
/// # Errors
/// If it is not found, or cannot be run.
pub fn check(words: &[OsString]) -> anyhow::Result<()> {
    let Some(program) = words.first() else { return Ok(()) };
    // The parser of headers counts commas and brackets, also within words.
    let counted = words.iter().flat_map(|word| word.as_encoded_bytes()).filter(|byte| b",[{".contains(byte)).count();
    let size = words.len() + counted;
    if size > MOST_WORDS {
        let problem = format!(
            "COMMAND: it has {size} words, commas and brackets, and the header of a log takes {MOST_WORDS}: put them into a \
             script or a file"
        );
        return Err(WrongRequest(problem).into());
    }
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
    fn missing_command_is_a_wrong_request() {
        for (word, sentence) in [("no-such-command-here", "no such command"), ("/etc/passwd", "it may not be run")] {
            let error = check(&[word.into()]).unwrap_err();
            assert!(error.to_string().contains(sentence), "{error}");
            assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
        }
        check(&["sh".into()]).unwrap();
        check(&[]).unwrap();
    }

    #[test]
    fn command_too_long_for_the_header_is_a_wrong_request() {
        check(&vec!["sh".into(); MOST_WORDS]).unwrap();
        for words in [vec!["sh".into(); MOST_WORDS + 1], vec!["sh".into(), ",".repeat(MOST_WORDS - 1).into()]] {
            let error = check(&words).unwrap_err();
            assert!(error.to_string().starts_with("COMMAND: it has 196609 words"), "{error}");
            assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
        }
    }

    #[test]
    fn exit_status_of_the_command_is_reported_also_after_a_signal() {
        let ended = |script: &str| {
            let words = ["sh", "-c", script].map(OsString::from);
            let mut companion = prepare(&words, None).unwrap().unwrap().start().unwrap();
            companion.child.wait().unwrap();
            companion.status().unwrap()
        };
        assert_eq!((ended("exit 7"), ended("kill -TERM $$")), (7, 143));
    }
}
