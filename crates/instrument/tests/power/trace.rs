//! The order of writes, syncs, renames and removals of a program, as strace tells it, and what of that is certain on a
//! disk: data that was not synced is lost; a name that was created, changed or removed since the last sync of its folder
//! may or may not exist.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CALLS: &str = "trace=openat,mkdir,mkdirat,write,writev,pwrite64,pwritev,pwritev2,copy_file_range,sendfile,\
                     ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,chdir,fchdir";

/// An operation on a file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A file is created, or an existing one opened so.
    Create(String),
    /// A folder is created.
    Folder(String),
    /// The content of a file is changed.
    Write(String),
    /// The content of a file is synced, or the names in a folder.
    Sync(String),
    /// A file gets another name.
    Rename(String, String),
    /// A file gets a further name.
    Link(String, String),
    /// A name is removed.
    Remove(String),
}

/// The certain state of a disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// By path: whether all written data is on the disk, and whether the name is.
    files: HashMap<String, (bool, bool)>,
    /// Names that may have been removed, and names that may exist.
    removed: Vec<String>,
    renamed: Vec<String>,
}

impl Disk {
    /// Returns the state after these operations.
    pub fn after(acts: &[Act]) -> Self {
        let mut disk = Self::default();
        acts.iter().for_each(|act| disk.take(act));
        disk
    }

    /// Does an operation.
    pub fn take(&mut self, act: &Act) {
        match act {
            Act::Create(path) => {
                self.files.insert(path.clone(), (false, false));
            }
            // A folder has no data of its own.
            Act::Folder(path) => {
                self.files.insert(path.clone(), (true, false));
            }
            Act::Write(path) => {
                if let Some(file) = self.files.get_mut(path) {
                    file.0 = false;
                }
            }
            Act::Sync(path) => {
                if let Some(file) = self.files.get_mut(path) {
                    file.0 = true;
                }
                for (name, file) in &mut self.files {
                    file.1 |= folder_of(name) == path;
                }
            }
            Act::Rename(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to.clone(), (file.0, false));
                }
                self.renamed.push(to.clone());
            }
            Act::Link(from, to) => {
                // Of a file that has no name yet (/proc/self/fd/N) nothing is known.
                let is_whole = self.is_whole(from);
                self.files.insert(to.clone(), (is_whole, false));
                self.renamed.push(to.clone());
            }
            Act::Remove(path) => self.removed.push(path.clone()),
        }
    }

    /// Whether a file's data is on the disk, and its name, and the names of the folders above it.
    pub fn has(&self, end: &str) -> bool {
        self.files.keys().any(|path| path.ends_with(end) && self.is_certain(path))
    }

    /// Whether all that was written to a file is on the disk.
    pub fn is_whole(&self, path: &str) -> bool {
        self.files.get(path).is_some_and(|file| file.0)
    }

    /// Whether the name of a file is on the disk.
    pub fn is_named(&self, end: &str) -> bool {
        self.files.iter().any(|(path, file)| path.ends_with(end) && file.1)
    }

    /// Returns the files with this suffix that were written.
    pub fn files(&self, end: &str) -> Vec<&str> {
        self.files.keys().filter(|path| path.ends_with(end)).map(String::as_str).collect()
    }

    fn is_certain(&self, path: &str) -> bool {
        let mut above = std::iter::successors(Some(path), |path| Some(folder_of(path)).filter(|path| !path.is_empty()));
        above.all(|path| self.files.get(path).is_none_or(|file| *file == (true, true)))
    }

    /// Returns the files with this suffix that may be lost.
    pub fn uncertain(&self, end: &str) -> Vec<&str> {
        let mut names = self.files(end);
        names.retain(|path| !self.is_certain(path));
        names
    }

    /// Whether a name may have been removed.
    pub fn may_lack(&self, end: &str) -> bool {
        self.removed.iter().any(|path| path.ends_with(end))
    }

    /// Whether a file may have been given this name.
    pub fn may_have(&self, end: &str) -> bool {
        self.renamed.iter().any(|path| path.ends_with(end))
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A running instrument under strace.
pub struct Tracing {
    child: Child,
    folder: PathBuf,
}

/// Ends the instrument, and with it strace, where a test ends early.
impl Drop for Tracing {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = Command::new("pkill").args(["-KILL", "-P", &self.child.id().to_string()]).status();
            let _ = self.child.wait();
        }
    }
}

impl Tracing {
    /// Starts the instrument, whose last argument is `out`; `None` if tracing is not permitted here.
    pub fn start(folder: &Path, arguments: &[&str], out: &Path) -> Option<Self> {
        fs::create_dir_all(folder).expect("makes");
        if !is_permitted() {
            return None;
        }
        let child = Command::new("strace")
            .args(["-f", "-y", "-s", "0", "-e", CALLS, "-o"])
            .arg(folder.join("trace"))
            .arg(env!("CARGO_BIN_EXE_sojourn-instrument"))
            .args(arguments)
            .arg(out)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace starts");
        Some(Self { child, folder: folder.to_owned() })
    }

    /// Waits for its end, and returns its operations below the folder.
    pub fn acts(mut self) -> Vec<Act> {
        assert!(self.child.wait().expect("ends").success());
        let text = fs::read_to_string(self.folder.join("trace")).expect("a trace");
        let root = self.folder.to_str().expect("a name");
        text_acts(&text).into_iter().filter(|act| path_of(act).starts_with(root)).collect()
    }
}

/// Runs the instrument under strace to its end, and returns its operations below `folder`; `None` if tracing is not permitted.
pub fn traced(folder: &Path, arguments: &[&str], out: &Path) -> Option<Vec<Act>> {
    Some(Tracing::start(folder, arguments, out)?.acts())
}

/// Whether this machine lets a program be traced. Set-up installs strace: without it the tests fail.
fn is_permitted() -> bool {
    let mut tried = Command::new("strace");
    tried.args(["-o", "/dev/null", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    match tried.status() {
        Ok(status) if status.success() => return true,
        Err(error) => assert!(error.kind() != ErrorKind::NotFound, "strace is missing: `make setup` installs it"),
        Ok(_) => {}
    }
    assert!(std::env::var_os("CI").is_none(), "CI must be able to trace");
    eprintln!("skipped: strace may trace nothing here");
    false
}

fn path_of(act: &Act) -> &str {
    match act {
        Act::Create(path)
        | Act::Folder(path)
        | Act::Write(path)
        | Act::Sync(path)
        | Act::Rename(path, _)
        | Act::Remove(path) => path,
        // Its source may be a descriptor.
        Act::Link(_, path) => path,
    }
}

/// Parses a trace. A call that another thread interrupts takes two lines: its changes count from the first one, its
/// guarantees from the second.
fn text_acts(text: &str) -> Vec<Act> {
    let mut pending: HashMap<&str, &str> = HashMap::new();
    let mut acts = Vec::new();
    let mut here = String::new();
    for line in text.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<... ") {
            if let Some(began) = pending.remove(process).filter(|_| !call.contains("= -1")) {
                acts.extend(act(began, &here).filter(makes_certain));
                here = folder_after(began, &here).unwrap_or(here);
            }
        } else if call.contains("<unfinished ...>") {
            pending.insert(process, call);
            acts.extend(act(call, &here).filter(|act| !makes_certain(act)));
        } else if !call.contains("= -1") {
            acts.extend(act(call, &here));
            here = folder_after(call, &here).unwrap_or(here);
        }
    }
    acts
}

fn makes_certain(act: &Act) -> bool {
    matches!(act, Act::Sync(_) | Act::Create(_) | Act::Folder(_))
}

/// Returns what a call does; relative paths are below `here`, or below the folder that the call names.
fn act(call: &str, here: &str) -> Option<Act> {
    let (name, rest) = call.split_once('(')?;
    let mut paths = paths(rest, here).into_iter();
    match name {
        "openat" => rest.contains("O_CREAT").then(|| paths.next()).flatten().map(Act::Create),
        "mkdir" | "mkdirat" => paths.next().map(Act::Folder),
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "sendfile" | "ftruncate" => {
            descriptor(rest, 0).map(Act::Write)
        }
        "copy_file_range" => descriptor(rest, 1).map(Act::Write),
        "fsync" | "fdatasync" => descriptor(rest, 0).map(Act::Sync),
        "rename" | "renameat" | "renameat2" => Some(Act::Rename(paths.next()?, paths.next()?)),
        "link" | "linkat" => Some(Act::Link(paths.next()?, paths.next()?)),
        "unlink" | "unlinkat" => paths.next().map(Act::Remove),
        _ => None,
    }
}

/// Returns the current folder after a call that changes it.
fn folder_after(call: &str, here: &str) -> Option<String> {
    let (name, rest) = call.split_once('(')?;
    match name {
        "chdir" => paths(rest, here).into_iter().next(),
        "fchdir" => descriptor(rest, 0),
        _ => None,
    }
}

/// Returns the path of the nth descriptor in the words of a call: `3</d/a>`.
fn descriptor(words: &str, nth: usize) -> Option<String> {
    Some(words.split('<').nth(nth + 1)?.split_once('>')?.0.to_owned())
}

/// Returns the quoted paths in the words of a call. A folder stands before its path, or it is the current one.
fn paths(words: &str, here: &str) -> Vec<String> {
    let mut parts = words.split('"');
    let mut found = Vec::new();
    while let (Some(before), Some(path)) = (parts.next(), parts.next()) {
        let folder =
            before.trim_end_matches(", ").strip_suffix('>').and_then(|before| Some(before.rsplit_once('<')?.1));
        found.push(match path.strip_prefix("./").unwrap_or(path) {
            "." => folder.unwrap_or(here).to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => format!("{}/{path}", folder.unwrap_or(here)),
        });
    }
    found
}

#[test]
fn strace_output_is_parsed_in_kernel_order() {
    let text = "7 openat(AT_FDCWD</d>, \"/d/a\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3</d/a>\n\
                7 write(3</d/a>, \"\"..., 8) = 8\n\
                7 fsync(3</d/a> <unfinished ...>\n\
                8 unlink(\"/d/b\") = -1 ENOENT (No such file or directory)\n\
                8 rename(\"/d/c\", \"/d/e\") = 0\n\
                7 <... fsync resumed>) = 0\n\
                7 unlink(\"/d/b\") = 0\n";
    let path = |name: &str| format!("/d/{name}");
    let expected = [
        Act::Create(path("a")),
        Act::Write(path("a")),
        Act::Rename(path("c"), path("e")),
        Act::Sync(path("a")),
        Act::Remove(path("b")),
    ];
    assert_eq!(text_acts(text), expected);
}

#[test]
fn relative_paths_vectored_writes_and_links_are_parsed() {
    let text = "7 chdir(\"/d\") = 0\n\
                7 chdir(\"/none\") = -1 ENOENT (No such file or directory)\n\
                7 openat(AT_FDCWD</d>, \"./a\", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3</d/a>\n\
                7 writev(3</d/a>, [{iov_base=\"\"..., iov_len=8}], 1) = 8\n\
                7 pwritev(3</d/a>, [{iov_base=\"\"..., iov_len=8}], 1, 8) = 8\n\
                7 copy_file_range(4</d/b>, NULL, 3</d/a>, NULL, 8, 0) = 8\n\
                7 fsync(3</d/a>) = 0\n\
                7 linkat(AT_FDCWD</d>, \"/proc/self/fd/5\", 6</d/e>, \"c\", AT_SYMLINK_FOLLOW) = 0\n\
                7 linkat(AT_FDCWD</d>, \"a\", AT_FDCWD</d>, \"f\", 0) = 0\n\
                7 rename(\"a\", \"./g\") = 0\n\
                7 fchdir(6</d/e>) = 0\n\
                7 unlink(\"c\") = 0\n";
    let path = |name: &str| format!("/d/{name}");
    let expected = [
        Act::Create(path("a")),
        Act::Write(path("a")),
        Act::Write(path("a")),
        Act::Write(path("a")),
        Act::Sync(path("a")),
        Act::Link("/proc/self/fd/5".to_owned(), path("e/c")),
        Act::Link(path("a"), path("f")),
        Act::Rename(path("a"), path("g")),
        Act::Remove(path("e/c")),
    ];
    let acts = text_acts(text);
    assert_eq!(acts, expected);
    let disk = Disk::after(&acts);
    let known = ["/d/f", "/d/g", "/d/e/c"].map(|path| (disk.is_whole(path), disk.is_named(path)));
    assert_eq!(known, [(true, false), (true, false), (false, false)]);
}
