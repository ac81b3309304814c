//! Becoming who called sudo, or whose a folder is, where what is to be written can be that user's.

use std::fs;
use std::path::Path;
use std::thread;

use rustix::process::chdir;
use sojourn_record::private;
use sojourn_rights::{self as rights, Folders, Identity};

use crate::failure::of_path;

/// Made and removed again, to try whether files can be.
pub const TRIED: &str = "tried.part";

/// What a folder is called that [`enter`] went into.
pub const HERE: &str = ".";

/// Goes into a folder while every right is held, and opens it: whoever this becomes finds [`HERE`] although the folders above are
/// closed to that user, as another's home is to root without capabilities.
///
/// # Errors
/// When there is no such folder, or it is out of reach.
pub fn enter(folder: &Path) -> anyhow::Result<Folders> {
    chdir(folder).map_err(|error| of_path("enter", folder, error.into()))?;
    Ok(Folders::open([HERE])?)
}

/// Becomes who called sudo, capabilities kept, where `can_have` finds as that user that all that is needed can be had; else stays
/// root, whose it then is.
///
/// # Errors
/// When the kernel refuses.
pub fn become_caller(can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    become_user(Identity::caller(), can_have)
}

/// Becomes whose a folder is, capabilities kept, where `can_have` finds as that user that all that is needed can be had; else
/// stays who it is.
///
/// # Errors
/// When the kernel refuses.
pub fn become_owner(folder: &Path, can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    become_user(Identity::owner(folder), can_have)
}

fn become_user(user: Option<Identity>, can_have: impl FnOnce() -> bool + Send) -> anyhow::Result<()> {
    let Some(user) = user.filter(|_| rights::may_change()) else { return Ok(()) };
    let tried = || user.assume().is_ok_and(|()| can_have());
    // In a thread of its own, which does not come back.
    let can_have = thread::scope(|scope| scope.spawn(tried).join().unwrap_or(false));
    if can_have { Ok(user.assume_with_rights()?) } else { Ok(()) }
}

/// Tries whether this thread can make files in a folder.
pub fn can_write(folder: &Path) -> bool {
    let tried = folder.join(TRIED);
    // One that was killed may have left it.
    let _ = fs::remove_file(&tried);
    private::create_file(&tried).is_ok() && fs::remove_file(tried).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_that_was_killed_left_is_in_nobodys_way() {
        let folder = std::env::temp_dir().join(format!("sojourn-caller-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(TRIED), "").unwrap();
        assert!(can_write(&folder));
        assert!(fs::read_dir(&folder).unwrap().next().is_none(), "nothing is left");
        fs::remove_dir(folder).unwrap();
    }
}
