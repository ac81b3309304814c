//! Records which netem qdisc `--backend kernel` has put at a port, so that it can be distinguished from others: a file
//! in the folder of the ports' locks.
//!
//! The holder of the port's lock writes the file before the qdisc is added, and removes it after the qdisc is deleted. If a program
//! gets the lock and finds a file, the program that wrote the file is dead, with all its children. No other user may write in the
//! folder. `sojourn bed clean` reads the same files (python/sojourn/bed/netem_left.py). Runs no `tc`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sojourn_port::bridge::{lock_folder, network_namespace};
use sojourn_port::kernel::Interface;

/// The maximum length of a file.
const MOST_BYTES: u64 = 4_096;
/// The boot ID: a record in a folder that survives a reboot is valid only for its own boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The record of one port.
#[derive(Clone, Debug)]
pub struct Record {
    path: PathBuf,
    here: Entry,
}

/// The contents of a record: the port, and the handle of its netem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    boot: String,
    /// The inode number of the network namespace.
    namespace: u64,
    /// The interface index: it survives a rename.
    index: u32,
    /// The interface's name when the record was written, for human readers.
    port: String,
    /// The handle in the notation of tc: "5abc:".
    handle: String,
}

impl Entry {
    fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Whether this is the text of a record.
pub fn is_record(text: &str) -> bool {
    Entry::read(text).is_some_and(|entry| {
        assert!(entry.handle.len() <= text.len());
        true
    })
}

impl Record {
    /// Returns the record of an interface; `None` if there is no folder that other users cannot write in.
    ///
    /// # Errors
    /// If the kernel does not report the boot ID or the network namespace.
    pub fn of(interface: &Interface) -> io::Result<Option<Self>> {
        let boot = fs::read_to_string(BOOT)?.trim().to_owned();
        let namespace = network_namespace()?;
        let (index, port) = (interface.index, interface.name.clone());
        let here = Entry { boot, namespace, index, port, handle: String::new() };
        Ok(lock_folder().map(|folder| Self::below(&folder, here)))
    }

    fn below(folder: &Path, here: Entry) -> Self {
        Self { path: folder.join(format!("netem-{}-{}.json", here.namespace, here.index)), here }
    }

    /// Returns the handle of the netem recorded for this port, if any.
    pub fn handle(&self) -> Option<String> {
        let mut text = String::new();
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&self.path).ok()?;
        file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
        let found = Entry::read(&text)?;
        let is_here =
            (&found.boot, found.namespace, found.index) == (&self.here.boot, self.here.namespace, self.here.index);
        is_here.then_some(found.handle)
    }

    /// Records that a netem with this handle is added here; on return, the file is on the disk.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn write(&self, handle: &str) -> io::Result<()> {
        self.remove()?;
        let text = serde_json::to_vec(&Entry { handle: handle.to_owned(), ..self.here.clone() })?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.write_all(&text)?;
        file.sync_all()?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(boot: &str, namespace: u64, index: u32) -> Entry {
        Entry { boot: boot.to_owned(), namespace, index, port: "left".to_owned(), handle: String::new() }
    }

    #[test]
    fn record_is_read_only_in_its_own_namespace_and_boot() {
        let folder = std::env::temp_dir().join(format!("sojourn-netem-record-{}", std::process::id()));
        fs::create_dir(&folder).expect("is made");
        let record = Record::below(&folder, entry("one", 7, 3));
        assert_eq!(record.handle(), None);
        record.remove().expect("absent is removed");
        record.write("5abc:").expect("writes");
        assert_eq!(record.handle().as_deref(), Some("5abc:"));
        assert_eq!(fs::metadata(record.path()).expect("is there").permissions().mode() & 0o777, 0o600);
        record.write("5abd:").expect("writes again");
        assert_eq!(record.handle().as_deref(), Some("5abd:"));
        for other in [entry("two", 7, 3), entry("one", 8, 3), entry("one", 7, 4)] {
            let mut moved = Record::below(&folder, other);
            moved.path = record.path.clone();
            assert_eq!(moved.handle(), None, "{moved:?}");
        }
        for damaged in ["", "{", "{\"handle\":\"5abc:\"}"] {
            fs::write(record.path(), damaged).expect("writes");
            assert_eq!(record.handle(), None, "{damaged}");
        }
        record.remove().expect("removes");
        std::os::unix::fs::symlink("/dev/null", record.path()).expect("links");
        assert_eq!(record.handle(), None);
        record.write("5abe:").expect("replaces a link");
        assert!(fs::symlink_metadata(record.path()).expect("is there").is_file());
        fs::remove_dir_all(folder).expect("removes");
    }
}
