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

use rustix::fs::{CWD, Mode, OFlags, fsync, mkdirat, openat};
use rustix::io::Errno;

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

/// Create a folder of mode 0700 with its missing parents; an existing one is unchanged. New names are flushed to the
/// disk.
///
/// Each folder is created, flushed and given away through a descriptor of the one above it: who may rename a folder
/// meanwhile, and put a link in its place, is given nothing else.
///
/// # Errors
/// When it cannot be created, or something else exists there.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|folder| fs::symlink_metadata(folder).is_err())
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    let Some(first) = missing.last() else {
        let is_there = path.as_os_str().is_empty() || path.is_dir();
        return if is_there { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) };
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
