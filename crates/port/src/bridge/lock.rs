//! Excludes a second emulator from an interface, by a packet socket bound to it under a reserved protocol number, and a
//! locked file. Both last as long as the process that holds them.
//!
//! The socket excludes emulators of different users: the kernel opens it only with CAP_NET_RAW, which every emulator
//! needs, and shows it to every user of the network namespace (`/proc/net/packet`), whatever their file system, user
//! namespace or PID namespace. Nothing of it remains when its process ends.
//!
//! The file names the holding process. A process that shares it keeps the lock after the holder's end, while it
//! restores the interface. The file lies in a folder that only this user may write to, so no other user can block an
//! emulator. Its name contains the network namespace and the interface. Where neither is possible there is no lock, and
//! a warning says so.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sojourn_time::{Clock, HostClock, Nanos};

use super::mark::{Mark, Other};
use crate::PortError;

/// The folder of root's locks.
const SYSTEM_FOLDER: &str = "/run/sojourn";
/// `PF_EXITING` of the flags in `/proc/PID/stat` (`linux/sched.h`): the process is exiting.
const EXITING: u32 = 4;
/// How often to reopen a file that was removed between opening and locking.
const TRIES: usize = 8;
/// How long to wait for another's mark to disappear: an ending process closes its file and its socket one after the
/// other.
const ENDS_WITHIN: Nanos = Nanos::millis(200);
/// The interval between checks.
const LOOK_EVERY: Nanos = Nanos::millis(10);

/// A lock that this process holds.
#[derive(Debug)]
pub struct Lock {
    /// `None`: no folder is usable, or the mark made it unnecessary.
    file: Option<LockedFile>,
    /// `None`: no CAP_NET_RAW.
    mark: Option<Mark>,
}

/// A file that this process has locked.
#[derive(Debug)]
struct LockedFile {
    path: PathBuf,
    /// Unlocked when it is closed, here and in each process that shares it.
    file: File,
}

/// Why a lock cannot be taken.
#[derive(Debug)]
pub enum NoLock {
    /// Another process holds it; its PID, where known.
    Held(Option<u32>),
    /// An emulator of another user, or with another lock folder, has marked the interface.
    Marked(Other),
    /// Neither a folder nor a mark is usable.
    NoFolder,
    /// The file system refused.
    Refused(io::Error),
    /// The kernel refused the mark.
    Unmarked(PortError),
}

impl Lock {
    /// Takes the lock of an interface in this thread's network namespace.
    pub fn take(index: u32) -> Result<Self, NoLock> {
        let namespace = network_namespace().map_err(NoLock::Refused)?;
        let file = match lock_folder() {
            Some(folder) => {
                let file = LockedFile::of(&folder.join(format!("port-{namespace}-{index}.lock")))?;
                file.sweep(&folder);
                Some(file)
            }
            None => None,
        };
        let mark = Mark::set(index).map_err(NoLock::Unmarked)?;
        await_alone(index, mark.as_ref())?;
        if file.is_none() && mark.is_none() { Err(NoLock::NoFolder) } else { Ok(Self { file, mark }) }
    }

    /// Removes the file where the mark alone excludes others: a process that drops privileges could not remove it
    /// later.
    pub fn settle(&mut self) {
        if self.mark.is_some() {
            self.file = None;
        }
    }

    /// Returns a descriptor that also holds the lock file, where there is one: a process that inherits it excludes
    /// emulators of this user until its own end.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn share(&self) -> io::Result<Option<OwnedFd>> {
        self.file.as_ref().map(|locked| locked.file.try_clone().map(OwnedFd::from)).transpose()
    }
}

/// Waits until no other process has marked an interface.
fn await_alone(index: u32, ours: Option<&Mark>) -> Result<(), NoLock> {
    let end = HostClock.now() + ENDS_WITHIN;
    loop {
        match Mark::other(index, ours).map_err(NoLock::Refused)? {
            None => return Ok(()),
            Some(other) if HostClock.now() >= end => return Err(NoLock::Marked(other)),
            Some(_) => {
                HostClock.wait_until(HostClock.now() + LOOK_EVERY, Nanos::ZERO);
            }
        }
    }
}

impl LockedFile {
    /// Removes lock files of killed processes: those that nobody has locked.
    fn sweep(&self, folder: &Path) {
        let is_one = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("port-") && name.ends_with(".lock") && *path != self.path
        };
        let others = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_one);
        for path in others {
            // Removed while locked: a process that opens it meanwhile finds that it is gone, and creates another.
            if let Ok(file) = open(&path)
                && file.try_lock().is_ok()
            {
                let _ = fs::remove_file(&path);
            }
        }
    }

    fn of(path: &Path) -> Result<Self, NoLock> {
        for _ in 0..TRIES {
            let mut file = open(path).map_err(NoLock::Refused)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(NoLock::Held(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(NoLock::Refused(error)),
            }
            // A previous holder may have removed the file.
            let is_there = fs::symlink_metadata(path).is_ok_and(|there| {
                file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            });
            if is_there {
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                return Ok(Self { path: path.to_owned(), file });
            }
        }
        Err(NoLock::Held(None))
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // While it is locked. Without permission an empty file remains, in a folder that a reboot clears.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the folder of this user's locks: the first one that nobody else may write to.
pub fn lock_folder() -> Option<PathBuf> {
    folders().into_iter().find(|folder| is_own(folder))
}

/// Returns the inode of this thread's network namespace, unique on this machine for the namespace's lifetime.
///
/// # Errors
/// When there is no `/proc`.
pub fn network_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Whether a process is gone, exiting, or a zombie. A killed process first closes its sockets, and the kernel takes a
/// while to close packet sockets.
pub fn has_ended(process: u32) -> bool {
    let stat = fs::read(format!("/proc/{process}/stat")); // with the name of the process, which may be any bytes
    stat.map_or(true, |stat| is_of_an_ended(&String::from_utf8_lossy(&stat)))
}

pub(crate) fn is_of_an_ended(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let flags = words.get(6).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
    words.first().is_some_and(|state| state.starts_with(['Z', 'X'])) || flags & EXITING != 0
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

pub(crate) fn holder<F: Read + Seek>(file: &mut F) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Candidate folders: root's own, the session's, and one that only its owner may enter.
fn folders() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let system = user.is_root().then(|| PathBuf::from(SYSTEM_FOLDER));
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("sojourn"));
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let other = std::env::temp_dir().join(format!("sojourn-{}", number_outside(&map, user.as_raw())));
    system.into_iter().chain(session).chain([other]).collect()
}

/// Returns a user's ID outside this user namespace, by the namespace's map: inside, every user may be 0. It only forms
/// a name; the folder's owner is checked separately.
pub(crate) fn number_outside(map: &str, user: u32) -> u32 {
    let numbers = |line: &str| {
        let mut words = line.split_whitespace().map_while(|word| word.parse::<u32>().ok());
        Some([words.next()?, words.next()?, words.next()?])
    };
    let outside = |[inside, outside, count]: [u32; 3]| {
        let nth = user.checked_sub(inside).filter(|nth| *nth < count)?;
        outside.checked_add(nth)
    };
    map.lines().filter_map(numbers).find_map(outside).unwrap_or(user)
}

/// Whether a folder exists, or can be created, that nobody else may write to.
fn is_own(folder: &Path) -> bool {
    let _ = DirBuilder::new().mode(0o700).create(folder);
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sojourn-lock-{}-{name}", std::process::id()));
        fs::create_dir(&folder).expect("is made");
        folder
    }

    #[test]
    fn it_is_held_once_and_names_its_holder() {
        let folder = folder("once");
        let path = folder.join("port-1-2.lock");
        let first = LockedFile::of(&path).expect("is free");
        let own = std::process::id();
        assert!(matches!(LockedFile::of(&path), Err(NoLock::Held(Some(holder))) if holder == own));
        drop(first);
        assert!(!path.exists());
        // A killed holder's file is unlocked.
        fs::write(&path, "99999").expect("writes");
        let held = LockedFile::of(&path).expect("is free");
        let others = ["port-3-4.lock", "port-5-6.lock", "mine"].map(|name| folder.join(name));
        let second = LockedFile::of(&others[0]).expect("is free");
        others[1..].iter().for_each(|path| fs::write(path, "7").expect("writes"));
        held.sweep(&folder);
        assert_eq!(others.each_ref().map(|path| path.exists()), [true, false, true], "only what nobody holds goes");
        drop((held, second));
        fs::remove_file(&others[2]).expect("is there");
        fs::remove_dir(folder).expect("is empty");
    }

    #[test]
    fn process_that_inherited_the_lock_holds_it_after_its_owner_ended() {
        let folder = folder("shared");
        let path = folder.join("port-1-2.lock");
        let first = LockedFile::of(&path).expect("is free");
        let mut shell = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(first.file.try_clone().expect("is shared"))
            .spawn()
            .expect("cat starts");
        // As after a kill: the holder runs no code, and its file remains.
        let mut killed = std::mem::ManuallyDrop::new(first);
        killed.file = File::open("/dev/null").expect("opens");
        assert!(matches!(LockedFile::of(&path), Err(NoLock::Held(_))));
        drop(shell.stdin.take());
        shell.wait().expect("ends");
        drop(LockedFile::of(&path).expect("is free"));
        fs::remove_dir(folder).expect("is empty");
    }

    #[test]
    fn ended_processes_are_detected() {
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().expect("true starts");
        let process = child.id();
        while !has_ended(process) {
            std::thread::yield_now();
        }
        child.wait().expect("was not waited for");
        assert!(has_ended(process));
    }

    #[test]
    fn a_process_whose_name_is_not_utf8_has_not_ended() {
        let named = r"printf '\377' >/proc/$$/comm; echo; read -r _";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", named])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh starts");
        shell.stdout.take().expect("has one").read_exact(&mut [0]).expect("it has its name");
        assert!(!has_ended(shell.id()));
        shell.wait().expect("was not waited for");
    }

    #[test]
    fn exiting_process_counts_as_ended() {
        for (stat, has_ended) in [
            ("7 (a) b) S 1 7 7 0 -1 4194304 95 0 0", false),
            ("7 (a) b) R 1 7 7 0 -1 4194308 95 0 0", true),
            ("7 (a) b) Z 1 7 7 0 -1 4194304 95 0 0", true),
            ("7 (a) b) S", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_of_an_ended(stat), has_ended, "{stat}");
        }
    }

    #[test]
    fn root_of_a_user_namespace_is_mapped_to_its_outer_user() {
        let own = "         0       1001          1\n";
        let several = "0 100000 65536\n65536 7 1\nnonsense\n";
        for (map, user, outside) in [
            (own, 0, 1001),
            (own, 5, 5),
            (several, 0, 100_000),
            (several, 65_535, 165_535),
            (several, 65_536, 7),
            ("0 0 4294967295", 1000, 1000),
            ("0 4294967290 100", 50, 50),
            ("", 3, 3),
        ] {
            assert_eq!(number_outside(map, user), outside, "{map:?} {user}");
        }
    }

    /// Emulates two users of one machine, each root in a user namespace of its own.
    #[test]
    fn two_users_that_are_root_in_namespaces_of_their_own_have_two_folders() {
        let program = std::env::current_exe().expect("its path");
        let told = |user: u32| {
            let words =
                ["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"].map(str::to_owned);
            let copy = std::env::temp_dir().join(format!("sojourn-lock-test-{}-{user}", std::process::id()));
            fs::copy(&program, &copy).expect("copies");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("for all");
            let output = std::process::Command::new("setpriv")
                .args(words)
                .args(["unshare", "--user", "--map-root-user"])
                .arg(&copy)
                .args(["--exact", "--nocapture", "bridge::lock::tests::prints_its_lock_folder"])
                .env("SOJOURN_SAYS_ITS_FOLDER", "yes")
                .env_remove("XDG_RUNTIME_DIR")
                .output()
                .expect("setpriv starts");
            let _ = fs::remove_file(copy);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let folder = said.lines().find_map(|line| line.split_once("its folder: ")).map(|(_, told)| told.to_owned());
            folder.ok_or_else(|| format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
        };
        let (first, second) = match (told(64_001), told(64_002)) {
            (Ok(first), Ok(second)) => (first, second),
            (one, other) => {
                let is_root = rustix::process::geteuid().is_root();
                assert!(std::env::var_os("CI").is_none() || !is_root, "{one:?} {other:?}");
                eprintln!("skipped: no user namespace for another user here: {one:?} {other:?}");
                return;
            }
        };
        assert!(first.contains("sojourn-64001") && second.contains("sojourn-64002"), "{first} {second}");
        for folder in [first, second] {
            fs::remove_dir(folder.trim_start_matches("Some(\"").trim_end_matches("\")")).expect("is empty");
        }
    }

    /// A helper of the test above, which runs it in another namespace.
    #[test]
    fn prints_its_lock_folder() {
        if std::env::var_os("SOJOURN_SAYS_ITS_FOLDER").is_some() {
            println!("its folder: {:?}", lock_folder());
        }
    }

    #[test]
    fn symbolic_link_is_not_followed_and_a_folder_writable_by_others_is_not_used() {
        let folder = folder("link");
        let (path, theirs) = (folder.join("port-1-2.lock"), folder.join("theirs"));
        fs::write(&theirs, "theirs").expect("writes");
        std::os::unix::fs::symlink(&theirs, &path).expect("links");
        assert!(matches!(LockedFile::of(&path), Err(NoLock::Refused(_))));
        assert_eq!(fs::read_to_string(&theirs).expect("reads"), "theirs");
        assert!(is_own(&folder));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("opens it to all");
        assert!(!is_own(&folder));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("closes it");
        let link = folder.join("folder");
        std::os::unix::fs::symlink(&folder, &link).expect("links");
        assert!(!is_own(&link));
        // As the XDG_RUNTIME_DIR of the emulator's unit, which systemd makes a link to a private folder.
        assert!(is_own(&link.join("sojourn")));
        fs::remove_dir_all(folder).expect("removes");
    }
}
