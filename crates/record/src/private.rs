//! Create files and folders that only their owner can read, because records hold addresses, payloads and command lines.
//!
//! Files that root creates under sudo belong to the user that called it.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, fchown};
use std::path::Path;

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
/// # Errors
/// When it cannot be created, or something else exists there.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| fs::symlink_metadata(folder).is_err()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // A parent folder that cannot be opened is not flushed.
    missing.iter().filter_map(|folder| above(folder)).for_each(|folder| drop(folder.sync_all()));
    if let Some((uid, gid)) = caller() {
        missing.iter().filter(|folder| !folder.as_os_str().is_empty()).for_each(|folder| {
            let _ = chown(folder, Some(uid), Some(gid));
        });
    }
    Ok(())
}

/// Open the parent folder of a path.
fn above(path: &Path) -> Option<File> {
    let folder = path.parent()?;
    File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }).ok()
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
}
