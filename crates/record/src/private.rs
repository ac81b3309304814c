//! Create files and folders that only their owner can read, because records hold addresses, payloads and command lines.
//!
//! Files that root creates under sudo belong to the user that called it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fchmod, fstat, fsync, mkdirat, openat, stat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Create a new file of mode 0600 for writing; an existing link is not followed.
///
/// # Errors
/// When the path exists, or the file cannot be created.
pub fn create_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Some((uid, gid)) = caller() {
        // Only root may change the owner; any other user keeps the file.
        let _ = fchown(&file, Some(uid), Some(gid));
    }
    Ok(file)
}

/// Create a folder of mode 0700 with its missing parents; an existing empty one of ours gets that mode, except a sticky
/// one, the root of a file system and, for root, one below /. One with content is unchanged. New names are flushed to
/// the disk.
///
/// Each folder is created, flushed and given away through a descriptor of the one above it: who may rename a folder
/// meanwhile, and put a link in its place, is given nothing else.
///
/// # Errors
/// When it cannot be created, something else exists there, an empty one belongs to another user who is not root, or
/// everybody can write in it and replace what is there.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| fs::symlink_metadata(folder).is_err())
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    let Some(first) = missing.last() else {
        return if path.as_os_str().is_empty() { Ok(()) } else { close(path) };
    };
    let above = first.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // To create something in a folder it need not be readable.
    let mut within = openat(CWD, above, OFlags::PATH | FOLDER, Mode::empty())?;
    for folder in missing.iter().rev() {
        let name = folder.file_name().unwrap_or(OsStr::new(".."));
        within = create_within(&within, name)?;
    }
    Ok(())
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Make an existing folder private before anything is written in it, if it is empty.
fn close(path: &Path) -> io::Result<()> {
    let folder = match openat(CWD, path, OFlags::RDONLY | FOLDER, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) if path.is_dir() => return Ok(()), // one that cannot be read
        Err(error) => return Err(error.into()),
    };
    let is_ours = |owner: u32| match caller().filter(|_| geteuid().is_root()) {
        Some((uid, _)) => uid == owner,
        None => geteuid().as_raw() == owner,
    };
    let found = fstat(&folder)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    if is_empty(&folder)? {
        if is_ours(found.st_uid) && !mode.contains(Mode::SVTX) && !is_shared(&folder, &found)? {
            // Some file systems have no modes of their own.
            let _ = fchmod(&folder, Mode::RWXU);
            if !is_empty(&folder)? {
                return Err(refused(FILLED));
            }
        } else if !is_ours(found.st_uid) && found.st_uid != 0 && !works_for_others() {
            return Err(refused(OF_ANOTHER));
        }
    }
    let is_open = |mode: Mode| mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX);
    let mode = Mode::from_raw_mode(fstat(&folder)?.st_mode);
    if !is_open(mode) || works_for_others() || (is_ours(found.st_uid) && has_no_modes(&folder, mode)?) {
        return Ok(());
    }
    Err(refused(OPEN))
}

/// Root without a caller works in folders of others: in a container they are nobody's here.
fn works_for_others() -> bool {
    geteuid().is_root() && caller().is_none()
}

/// Whether an empty folder is the system's or a volume: the root of a file system, or one below / that root is told to use.
fn is_shared(folder: &OwnedFd, found: &Stat) -> io::Result<bool> {
    let above = statat(folder, "..", AtFlags::empty())?;
    let root = stat("/")?;
    let is_below_root = (above.st_dev, above.st_ino) == (root.st_dev, root.st_ino);
    Ok(above.st_dev != found.st_dev || (geteuid().is_root() && is_below_root))
}

/// Whether the file system ignores changes of modes.
fn has_no_modes(folder: &OwnedFd, mode: Mode) -> io::Result<bool> {
    let changed = fchmod(folder, mode - Mode::WOTH);
    let is_unchanged = Mode::from_raw_mode(fstat(folder)?.st_mode) == mode;
    if changed.is_ok() && !is_unchanged {
        fchmod(folder, mode)?;
    }
    Ok(is_unchanged)
}

const OF_ANOTHER: &str = "it belongs to another user, who can replace what is written there: name a folder of your own";
const FILLED: &str = "something was put in it at this moment: name another folder";
const OPEN: &str = "every user can replace what is written there: `chmod go-w` it, or name another folder";

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn is_empty(folder: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        if ![c".", c".."].contains(&entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Create a folder in another one and open it; an existing one is opened and unchanged, a link is not followed.
fn create_within(above: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let is_new = match mkdirat(above, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let made = openat(above, name, OFlags::RDONLY | OFlags::NOFOLLOW | FOLDER, Mode::empty())?;
    // A parent folder that cannot be read is not flushed.
    if let Ok(above) = openat(above, ".", OFlags::RDONLY | FOLDER, Mode::empty()) {
        let _ = fsync(above);
    }
    if let Some((uid, gid)) = caller().filter(|_| is_new) {
        // Only root may change the owner; any other user keeps the folder.
        let _ = fchown(&made, Some(uid), Some(gid));
    }
    Ok(made)
}

/// Return the user and group ID of the caller of sudo.
fn caller() -> Option<(u32, u32)> {
    let number = |name: &str| env::var(name).ok()?.parse().ok();
    Some((number("SUDO_UID")?, number("SUDO_GID")?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn created_files_are_private_and_symbolic_links_are_not_followed() {
        let folder = env::temp_dir().join(format!("sojourn-private-{}", std::process::id()));
        let inner = folder.join("a/b");
        create_folder(&inner).unwrap();
        create_folder(&inner).unwrap();
        create_file(&inner.join("file")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!([&folder, &inner, &inner.join("file")].map(|path| mode(path)), [0o700, 0o700, 0o600]);
        symlink(folder.join("elsewhere"), inner.join("link")).unwrap();
        assert_eq!(create_file(&inner.join("link")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.join("elsewhere").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_existing_empty_folder_becomes_private_and_one_open_to_all_is_refused() {
        let folder = env::temp_dir().join(format!("sojourn-private-open-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o7777;
        let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        for (open, then) in [(0o755, 0o700), (0o777, 0o700), (0o1777, 0o1777)] {
            set(open);
            create_folder(&folder).unwrap();
            assert_eq!(mode(), then, "{open:o}");
        }
        fs::write(folder.join("theirs"), "").unwrap();
        for (open, is_refused) in [(0o755, false), (0o775, false), (0o777, true), (0o1777, false)] {
            set(open);
            let refused = create_folder(&folder).map_err(|error| error.to_string());
            let is_refused = is_refused && !works_for_others();
            assert_eq!(refused, if is_refused { Err(OPEN.to_owned()) } else { Ok(()) }, "{open:o}");
            assert_eq!(mode(), open);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// As one that somebody put in the place of a new folder a moment after it was created.
    #[test]
    fn symbolic_link_at_the_place_of_a_folder_is_an_error_and_its_target_is_unchanged() {
        let folder = env::temp_dir().join(format!("sojourn-private-link-{}", std::process::id()));
        create_folder(&folder.join("target")).unwrap();
        symlink(folder.join("target"), folder.join("link")).unwrap();
        let above = openat(CWD, &folder, OFlags::PATH | FOLDER, Mode::empty()).unwrap();
        let refused = create_within(&above, OsStr::new("link")).unwrap_err();
        assert!([Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error).contains(&refused.raw_os_error().unwrap()));
        create_within(&above, OsStr::new("target")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        assert_eq!(create_folder(&folder.join("file")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(create_folder(&folder.join("file/below")).is_err());
        create_folder(Path::new("")).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
