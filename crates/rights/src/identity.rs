//! The user that a program runs as: the caller of sudo, a named user, or nobody.

use std::env;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{User, getgrouplist};
use rustix::process::{geteuid, getppid, parent_process_death_signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, Gid, Uid, capabilities, capabilities_secure_bits,
    set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The kernel's overflow user and group, which own nothing: `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;

/// A user with its login groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user ID.
    pub uid: u32,
    /// The primary group ID.
    pub gid: u32,
    /// The entry in the user database, if there is one.
    pub account: Option<Account>,
    groups: Vec<u32>,
}

/// A user's entry in the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The home folder.
    pub home: PathBuf,
    /// The login shell.
    pub shell: PathBuf,
}

/// Why a program cannot run as a user.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is no user with this name or ID.
    #[error("{0}: no such user")]
    Unknown(String),
    /// The kernel refused.
    #[error("run as user {0}")]
    Refused(u32, #[source] std::io::Error),
}

impl Identity {
    /// Return the user that ran sudo; `None` without sudo, if it was root, or if it does not exist in this user
    /// namespace.
    pub fn caller() -> Option<Self> {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        (geteuid().is_root() && uid != 0 && is_mapped(uid)).then(|| Self::of(uid, gid))
    }

    /// Return the user for a program started by root that needs no more files: the caller of sudo, otherwise nobody.
    /// `None` if the program does not run as root, or may not change its user.
    pub fn unprivileged() -> Option<Self> {
        let nobody = || Self { uid: NOBODY, gid: NOBODY, account: None, groups: Vec::new() };
        let is_there = geteuid().is_root() && may_change() && is_mapped(NOBODY);
        is_there.then(|| Self::caller().unwrap_or_else(nobody))
    }

    /// Return the owner of a file or folder, for a program that runs as root. `None` if the owner is root or has no
    /// mapping in this user namespace, or if the program does not run as root.
    pub fn owner(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        let is_another = geteuid().is_root() && about.uid() != 0 && is_mapped(about.uid());
        is_another.then(|| Self::of(about.uid(), about.gid()))
    }

    /// Return the user with a name or ID.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(word: &str) -> Result<Self, IdentityError> {
        let user = match word.parse::<u32>() {
            Ok(uid) => User::from_uid(uid.into()),
            Err(_) => User::from_name(word),
        };
        let user = user.ok().flatten().ok_or_else(|| IdentityError::Unknown(word.to_owned()))?;
        Ok(Self::of(user.uid.as_raw(), user.gid.as_raw()))
    }

    fn of(uid: u32, gid: u32) -> Self {
        let user = User::from_uid(uid.into()).ok().flatten();
        let groups = user.as_ref().and_then(|user| {
            let name = CString::new(user.name.as_str()).ok()?;
            getgrouplist(&name, gid.into()).ok()
        });
        let groups = groups.map_or_else(|| vec![gid], |groups| groups.iter().map(|group| group.as_raw()).collect());
        let account = user.map(|user| Account { name: user.name, home: user.dir, shell: user.shell });
        Self { uid, gid, account, groups }
    }

    /// Make this thread run as this user without capabilities, to start something on the user's behalf.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn assume(&self) -> Result<(), IdentityError> {
        self.change().map_err(|error| IdentityError::Refused(self.uid, error))
    }

    /// Make this thread run as this user with its present capabilities. If a parent-death signal was set, set it again:
    /// the kernel clears it when the user changes.
    ///
    /// # Errors
    /// When the kernel refuses, or the parent has exited.
    pub fn assume_with_rights(&self) -> Result<(), IdentityError> {
        let change = || {
            let (before, parent) = (capabilities_secure_bits()?, getppid());
            let with_parent = parent_process_death_signal()?;
            set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
            self.change()?;
            set_capabilities_secure_bits(before)?;
            if with_parent.is_some() {
                set_parent_process_death_signal(with_parent)?;
                if getppid() != parent {
                    return Err(std::io::Error::other("the parent has died already"));
                }
            }
            Ok(())
        };
        change().map_err(|error| IdentityError::Refused(self.uid, error))
    }

    fn change(&self) -> std::io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        Ok(set_thread_res_uid(uid, uid, uid)?)
    }
}

/// Return whether this thread may change its user and keep its capabilities.
pub fn may_change() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Return whether a user ID is mapped in this user namespace.
fn is_mapped(uid: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let first = first.unwrap_or(u64::MAX);
        (first..first.saturating_add(count.unwrap_or(0))).contains(&u64::from(uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_name_and_by_number() {
        let root = Identity::named("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(Identity::named("0").unwrap(), root);
        assert_eq!(Identity::named("nobody-at-all").unwrap_err().to_string(), "nobody-at-all: no such user");
    }

    #[test]
    fn changing_the_user_drops_capabilities_unless_requested() {
        let Some(nobody) = Identity::unprivileged() else { return };
        let status = |with_rights: bool| {
            let nobody = nobody.clone();
            let thread = std::thread::spawn(move || {
                if with_rights { nobody.assume_with_rights() } else { nobody.assume() }.expect("root may");
                std::fs::read_to_string("/proc/thread-self/status").expect("its status")
            });
            thread.join().expect("the thread ends well")
        };
        let field = |status: &str, name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim().to_owned()
        };
        let bare = status(false);
        assert_eq!(field(&bare, "CapPrm:"), "0000000000000000");
        assert_eq!(field(&bare, "Uid:"), [nobody.uid.to_string().as_str(); 4].join("\t"));
        let all = std::fs::read_to_string("/proc/thread-self/status").expect("our status");
        assert_eq!(field(&status(true), "CapPrm:"), field(&all, "CapPrm:"));
    }
}
