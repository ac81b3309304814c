//! Changes the user to the caller of sudo, or to the owner of a folder, where that user may write the output; reads files
//! that the caller of sudo names with no more access than that user has.

use std::fs;
use std::panic;
use std::path::Path;
use std::thread;

use rustix::process::chdir;
use sojourn_record::private;
use sojourn_rights::{self as rights, Folders, Identity};

use crate::failure::of_path;
use crate::secret;

/// The name of the folder that [`enter`] entered.
pub const HERE: &str = ".";

/// Enters a folder with full privileges and opens it: after a change of user, [`HERE`] still reaches it although that
/// user may not traverse the folders above.
///
/// # Errors
/// If the folder does not exist or cannot be reached.
pub fn enter(folder: &Path) -> anyhow::Result<Folders> {
    chdir(folder).map_err(|error| of_path("enter", folder, error.into()))?;
    Ok(Folders::open([HERE])?)
}

/// Changes the user to the caller of sudo and keeps capabilities, if `can_have`, called as that user, returns true.
/// Otherwise the user stays root, and the output belongs to root.
///
/// # Errors
/// If the kernel refuses.
pub fn become_caller(can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    become_user(Identity::caller(), can_have)
}

/// Changes the user to the owner of a folder and keeps capabilities, if `can_have`, called as that user, returns true.
/// Otherwise the user stays the same.
///
/// # Errors
/// If the kernel refuses.
pub fn become_owner(folder: &Path, can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    become_user(Identity::owner(folder), can_have)
}

/// Calls `read` as the caller of sudo, without capabilities: root must not read for that user what the user may not read.
/// Without sudo, or if this thread may not change its user, calls it as the present user.
///
/// # Errors
/// If the kernel refuses.
pub fn as_caller<T: Send>(read: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let Some(user) = Identity::caller().filter(|_| rights::may_change()) else { return Ok(read()) };
    let read_as_user = || user.assume().map(|()| read());
    // In a separate thread, because that thread cannot change back.
    match thread::scope(|scope| scope.spawn(read_as_user).join()) {
        Ok(done) => Ok(done?),
        Err(panicked) => panic::resume_unwind(panicked),
    }
}

fn become_user(user: Option<Identity>, can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    let Some(user) = user.filter(|_| rights::may_change()) else { return Ok(()) };
    let tried = || user.assume().is_ok_and(|()| can_have());
    // In a separate thread, because that thread cannot change back.
    let can_have = thread::scope(|scope| scope.spawn(tried).join().unwrap_or(false));
    if can_have { Ok(user.assume_with_rights()?) } else { Ok(()) }
}

/// Tests whether this thread may create files in a folder: creates one and removes it.
pub fn can_write(folder: &Path) -> bool {
    let tried = secret::draft_name(&folder.join("tried"));
    tried.is_ok_and(|tried| private::create_file(&tried).is_ok() && fs::remove_file(tried).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_of_a_folder_leaves_nothing_and_removes_nothing() {
        let folder = std::env::temp_dir().join(format!("sojourn-caller-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let theirs = folder.join("tried.part");
        fs::write(&theirs, "theirs").unwrap();
        assert!(can_write(&folder) && !can_write(&folder.join("nowhere")));
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
