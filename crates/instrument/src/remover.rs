//! Removes a control socket for a program that drops the privilege to do so. A separate process waits until that
//! program has ended or requests the removal.
//!
//! It starts with full privileges and keeps only what removal needs: it runs as the owner of the folder, has no
//! capability, may write only there where the kernel has Landlock, and reads only the end of a pipe. It removes only
//! the socket that existed at its start: a later program has created another one. It also removes the socket after the
//! other program was killed by SIGKILL.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use sojourn_rights::Folders;
use sojourn_rights::table::EMULATE_REMOVE;
use sojourn_time::{Clock, HostClock, Nanos};

use crate::caller;
use crate::failure::{self, of_path};
use crate::place::{self, Processors};

/// Its command, which is hidden.
const COMMAND: &str = "remove-socket";
const PURPOSE: &str = "start what removes the control socket in the end";
/// What it says once it waits.
const READY: &str = "ready";
/// For how long the other program waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who is about to listen in the folder has it locked for so long at most; then the socket is left to it.
const LOCKED_FOR: Nanos = Nanos::seconds(5);
const TRY_EVERY: Nanos = Nanos::millis(10);

/// Removes a socket at the end of standard input.
#[derive(Debug, Args)]
pub struct RemoveSocket {
    /// The socket
    path: PathBuf,
}

/// Who removes a socket.
#[derive(Debug)]
pub struct Remover {
    /// At its end the socket is removed.
    pipe: UnixStream,
    /// Nobody waits for it: it ends with this program, or shortly after.
    _process: Child,
}

impl Remover {
    /// Starts it; it has given up what it does not need when this returns.
    ///
    /// # Errors
    /// When it cannot be started, or cannot begin.
    pub fn start(path: &Path) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("create a pair of sockets")?;
        ours.set_read_timeout(Some(PATIENCE)).context("set a timeout")?;
        let mut itself = Command::new("/proc/self/exe");
        itself.arg0(env::args_os().next().unwrap_or_default()).arg(COMMAND).arg(path);
        // A signal to the program's process group or terminal must not end the remover.
        itself.process_group(0).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let process = itself.spawn().context(PURPOSE)?;
        // Close this process's copy of the remover's end of the pair.
        drop(itself);
        let mut told = String::new();
        BufReader::new(&ours).read_line(&mut told).context(PURPOSE)?;
        if told.trim_end() != READY {
            return Err(anyhow!(told.trim_end().to_owned()).context(PURPOSE));
        }
        Ok(Self { pipe: ours, _process: process })
    }

    /// Has the socket removed, and waits for that.
    pub fn finish(mut self) {
        // The remover may have been killed; the next program at this path then replaces the socket.
        let _ = self.pipe.shutdown(Shutdown::Write);
        let _ = self.pipe.read(&mut [0]);
    }
}

/// Waits, and removes.
///
/// # Errors
/// When the socket cannot be found, or rights not be given up.
pub fn run(asked: &RemoveSocket) -> anyhow::Result<()> {
    let mut pipe = File::from(io::stdin().as_fd().try_clone_to_owned().context("use standard input")?);
    let socket = match begin(&asked.path) {
        Ok(socket) => socket,
        Err(error) => {
            // Standard error has no reader; the error goes into the pipe.
            let _ = writeln!(pipe, "{}", failure::sentence(&error));
            return Err(error);
        }
    };
    writeln!(pipe, "{READY}").context("say that it is ready")?;
    // Only EINTR continues the wait; any other error also means that the other program has ended.
    while matches!(rustix::io::read(&pipe, &mut [0; 1]), Ok(1..) | Err(Errno::INTR)) {}
    socket.remove();
    Ok(())
}

/// Finds the socket, and gives up what is not needed to remove it.
fn begin(path: &Path) -> anyhow::Result<Socket<'_>> {
    // SIGINT or SIGTERM to all processes must not end the remover: the other program ends as well.
    place::stop_signal()?;
    Processors::own()?.lower_priority();
    let socket = Socket::at(path)?;
    let writable = Folders::open([socket.folder_path])?;
    caller::become_owner(socket.folder_path, || true)?;
    EMULATE_REMOVE.drop_privileges()?;
    EMULATE_REMOVE.write_only_below(writable)?;
    EMULATE_REMOVE.restrict_calls()?;
    Ok(socket)
}

/// A socket in its folder.
struct Socket<'a> {
    folder_path: &'a Path,
    folder: File,
    name: &'a OsStr,
    found: Stat,
    /// Keeps the inode allocated after the socket is removed. A file system gives the number of a free inode to the
    /// next file, and a later program's socket would look like this one.
    _held: OwnedFd,
}

impl<'a> Socket<'a> {
    fn at(path: &'a Path) -> anyhow::Result<Self> {
        let name = path.file_name().context("a socket has a name")?;
        let folder_path = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = File::open(folder_path).map_err(|error| of_path("open", folder_path, error))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held =
            openat(&folder, name, flags, Mode::empty()).map_err(|error| of_path("look at", path, error.into()))?;
        let found = fstat(&held).map_err(|error| of_path("look at", path, error.into()))?;
        Ok(Self { folder_path, folder, name, found, _held: held })
    }

    /// Removes it, where it is still there.
    fn remove(&self) {
        let end = HostClock.now() + LOCKED_FOR;
        while self.folder.try_lock().is_err() {
            if HostClock.now() >= end {
                return;
            }
            HostClock.wait_until(HostClock.now() + TRY_EVERY, Nanos::ZERO);
        }
        let is_same = |there: Stat| (there.st_dev, there.st_ino) == (self.found.st_dev, self.found.st_ino);
        if look(&self.folder, self.name).is_ok_and(is_same) {
            let _ = unlinkat(&self.folder, self.name, AtFlags::empty());
        }
    }
}

fn look(folder: &File, name: &OsStr) -> io::Result<Stat> {
    Ok(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}
