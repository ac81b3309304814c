//! Changes the user to the caller of sudo, or to the owner of a folder, where that user may write the output.

use std::fs;
use std::path::Path;
use std::thread;

use rustix::process::chdir;
use sojourn_record::private;
use sojourn_rights::{self as rights, Folders, Identity};

use crate::failure::of_path;

/// The name of a file that is created and removed to test write permission.
pub const TRIED: &str = "tried.part";

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

fn become_user(user: Option<Identity>, can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    let Some(user) = user.filter(|_| rights::may_change()) else { return Ok(()) };
    let tried = || user.assume().is_ok_and(|()| can_have());
    // In a separate thread, because that thread cannot change back.
    let can_have = thread::scope(|scope| scope.spawn(tried).join().unwrap_or(false));
    if can_have { Ok(user.assume_with_rights()?) } else { Ok(()) }
}

/// Tests whether this thread may create files in a folder.
pub fn can_write(folder: &Path) -> bool {
    let tried = folder.join(TRIED);
    // A killed program may have left the file.
    let _ = fs::remove_file(&tried);
    private::create_file(&tried).is_ok() && fs::remove_file(tried).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_left_by_a_killed_process_does_not_block_the_next() {
        let folder = std::env::temp_dir().join(format!("sojourn-caller-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(TRIED), "").unwrap();
        assert!(can_write(&folder));
        assert!(fs::read_dir(&folder).unwrap().next().is_none(), "nothing is left");
        fs::remove_dir(folder).unwrap();
    }
}
