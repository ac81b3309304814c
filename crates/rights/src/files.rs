//! Landlock: restrict the folders that a thread may still modify.

use std::io;
use std::path::Path;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};

/// The requested Landlock ABI; an older kernel enforces the rules that it supports. ABI 5 would also deny ioctls on
/// devices, which queries of a terminal need.
const NEWEST: ABI = ABI::V3;

/// How much of the ruleset the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// All of it.
    Whole,
    /// The part that this kernel supports.
    Partly,
    /// Nothing: Linux before 5.13, or Landlock is disabled (`lsm=`).
    Absent,
}

/// Folders that remain writable. Open them before privileges are dropped: afterwards a folder of another user, or one
/// below it, may be inaccessible.
#[derive(Debug, Default)]
pub struct Folders(Vec<PathFd>);

impl Folders {
    /// Open the folders.
    ///
    /// # Errors
    /// When one does not exist or is inaccessible.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> io::Result<Self> {
        let open = |path: P| {
            let path = path.as_ref();
            let opened = PathFd::new(path);
            opened.map_err(|error| io::Error::other(format!("open {}: {error}", path.display())))
        };
        paths.into_iter().map(open).collect::<io::Result<_>>().map(Self)
    }
}

/// Deny this thread to create, write, rename and remove anything outside `folders`. Open files stay open, and
/// everything can still be read.
pub(crate) fn write_only_below(folders: Folders) -> io::Result<Landlock> {
    let writing = AccessFs::from_write(NEWEST);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(writing);
    let mut ruleset = ruleset.and_then(Ruleset::create).map_err(io::Error::other)?;
    for folder in folders.0 {
        ruleset = ruleset.add_rule(PathBeneath::new(folder, writing)).map_err(io::Error::other)?;
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Whole,
        RulesetStatus::PartiallyEnforced => Landlock::Partly,
        _ => Landlock::Absent,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_given_folders_are_writable_and_everything_is_readable() {
        let folder = std::env::temp_dir().join(format!("sojourn-landlock-{}", std::process::id()));
        let inside = folder.join("inside");
        fs::create_dir_all(&inside).unwrap();
        let tried = std::thread::spawn({
            let (folder, inside) = (folder.clone(), inside.clone());
            move || {
                let landlock = write_only_below(Folders::open([&inside]).unwrap()).unwrap();
                let within =
                    fs::write(inside.join("file"), "text").is_ok() && fs::remove_file(inside.join("file")).is_ok();
                (landlock, within, fs::write(folder.join("file"), "text").is_err(), fs::read_dir("/etc").is_ok())
            }
        });
        let (landlock, within, is_shut, reads) = tried.join().unwrap();
        assert!(within && reads);
        assert_eq!(is_shut, landlock != Landlock::Absent);
        fs::remove_dir_all(folder).unwrap();
    }
}
