//! Secrets: random numbers that an off-path attacker cannot guess, and pre-shared keys from files that only their owner may read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rustix::rand::{GetRandomFlags, getrandom};
use sojourn_rights::Identity;
use sojourn_stream::Auth;
use sojourn_wire::{Key, WeakKey};

use crate::failure::WrongRequest;

/// The size limit of a key file; no key needs more.
const MOST_KEY_BYTES: u64 = 4_096;
/// The maximum number of characters of a file's name that the name of its draft begins with.
const MOST_CHARACTERS: usize = 50;
/// The prefix of a key in hexadecimal digits.
const HEX: &[u8] = b"hex:";

/// Why bytes are not a valid key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The prefix is followed by something else than pairs of hexadecimal digits.
    #[error("behind hex: an even number of hexadecimal digits is expected")]
    Digits,
    /// The key is too short.
    #[error(transparent)]
    Weak(#[from] WeakKey),
}

/// Returns a random number from the kernel, used as a session key.
///
/// # Errors
/// If the kernel returns none.
pub fn random() -> anyhow::Result<u64> {
    random_bytes().map(u64::from_ne_bytes)
}

/// Returns random bytes from the kernel.
///
/// # Errors
/// If the kernel returns none, or fewer.
pub fn random_bytes<const LENGTH: usize>() -> anyhow::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let count = getrandom(&mut bytes, GetRandomFlags::empty()).context("draw a random session key")?;
    anyhow::ensure!(count == LENGTH, "draw a random session key: the kernel gave {count} of {LENGTH} bytes");
    Ok(bytes)
}

/// Returns the name of a draft beside a file, which no other program uses: `.NAME.0123456789abcdef.part`.
///
/// # Errors
/// If the kernel returns no random number.
pub fn draft_name(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(MOST_CHARACTERS).collect();
    Ok(path.with_file_name(format!(".{name}.{:016x}.part", random()?)))
}

/// Reads the key in a file: the bytes without the last line end or, after `hex:`, the bytes that the hexadecimal digits
/// encode. Both endpoints need the same key.
///
/// # Errors
/// If the file cannot be read, users other than its owner may use it, or the key is too short.
pub fn key_in(path: &Path) -> anyhow::Result<Key> {
    key_for("--key", path)
}

/// As [`key_in`], with the name of the option for errors.
///
/// # Errors
/// As [`key_in`].
pub fn key_for(option: &str, path: &Path) -> anyhow::Result<Key> {
    let shown = path.display();
    let wrong = |problem: String| WrongRequest(format!("{option} {shown}: {problem}"));
    // Opening a pipe would block until its other end is opened, so pipes and devices are refused.
    let found = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("this is no file".to_owned()).into());
    }
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let (mode, owner) = file.metadata().map(|about| (about.permissions().mode(), about.uid()))?;
    let ours = rustix::process::geteuid().as_raw();
    if mode & 0o077 != 0 {
        let problem = format!("others than its owner may use it (mode {:04o}); run: chmod 600 {shown}", mode & 0o7777);
        return Err(wrong(problem).into());
    }
    // The owner can change the key, so it must be this user, root, or the caller of sudo.
    let caller = Identity::caller().map(|caller| caller.uid);
    if owner != ours && owner != 0 && Some(owner) != caller {
        return Err(wrong(format!("it belongs to user {owner}, who can change it; run: chown {ours} {shown}")).into());
    }
    let mut bytes = Vec::new();
    file.take(MOST_KEY_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_KEY_BYTES {
        return Err(wrong(format!("a key has at most {MOST_KEY_BYTES} bytes")).into());
    }
    key_from(&bytes).map_err(|error| match error {
        Unfit::Digits => wrong(error.to_string()).into(),
        Unfit::Weak(_) => wrong(format!("{error}: openssl rand -hex 32 > {shown}")).into(),
    })
}

/// Returns the key that the bytes of a file contain.
///
/// # Errors
/// If they are not a valid key.
pub fn key_from(bytes: &[u8]) -> Result<Key, Unfit> {
    Ok(Key::new(&secret_of(bytes).ok_or(Unfit::Digits)?)?)
}

/// Returns the authentication of stream frames with the key in a file; without a file, frames are not authenticated.
///
/// # Errors
/// As [`key_in`].
pub fn auth(path: Option<&Path>) -> anyhow::Result<Auth> {
    Ok(Auth::from(path.map(key_in).transpose()?))
}

/// Reads the key in a file, if one is named.
///
/// # Errors
/// As [`key_in`].
pub fn key_of(path: Option<&Path>) -> anyhow::Result<Option<Arc<Key>>> {
    Ok(path.map(key_in).transpose()?.map(Arc::new))
}

fn secret_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some(digits) = line.strip_prefix(HEX) else { return Some(line.to_vec()) };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    /// A file that is removed when dropped.
    struct Written(PathBuf);

    impl Written {
        fn new(name: &str, bytes: &[u8], mode: u32) -> Self {
            let path = std::env::temp_dir().join(format!("sojourn-{name}-{}", std::process::id()));
            std::fs::write(&path, bytes).expect("writes");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("sets");
            Self(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn refusal(file: &Written) -> String {
        crate::failure::sentence(&key_in(&file.0).expect_err("is refused"))
    }

    #[test]
    fn key_is_the_same_in_every_notation() {
        let tag = |bytes: &[u8], mode| {
            let file = Written::new("same", bytes, mode);
            key_in(&file.0).expect("a key").tag(&[b"message"])
        };
        let plain = tag(b"0123456789abcdef", 0o600);
        assert_eq!(tag(b"0123456789abcdef\n", 0o400), plain);
        assert_eq!(tag(b"0123456789abcdef\r\n", 0o600), plain);
        assert_eq!(tag(b"hex:30313233343536373839616263646566\n", 0o600), plain);
        assert_ne!(tag(b"0123456789abcdeF", 0o600), plain);
    }

    #[test]
    fn key_file_readable_by_others_is_refused() {
        for mode in [0o640, 0o604, 0o620, 0o610] {
            let told = refusal(&Written::new("open", b"0123456789abcdef", mode));
            assert!(told.contains(&format!("mode {mode:04o}")) && told.contains("chmod 600"), "{told}");
        }
        let told = crate::failure::sentence(&key_in(Path::new("/dev/null")).expect_err("no file"));
        assert!(told.contains("no file"), "{told}");
        assert!(key_in(Path::new("/nosuch")).is_err());
    }

    #[test]
    fn a_key_that_is_too_short_too_long_or_garbled_is_refused() {
        assert!(refusal(&Written::new("short", b"secret\n", 0o600)).contains("6 bytes is too short"));
        assert!(refusal(&Written::new("long", &[b'x'; 5_000], 0o600)).contains("at most 4096"));
        for garbled in [&b"hex:303"[..], b"hex:3g31", b"hex:\xFF\xFF"] {
            assert!(refusal(&Written::new("garbled", garbled, 0o600)).contains("hexadecimal"));
        }
    }

    #[test]
    fn no_two_random_numbers_and_drafts_are_alike() {
        assert_ne!(random().expect("one"), random().expect("another"));
        let path = Path::new("/there/out.pcapng");
        let [one, other] = [path; 2].map(|path| draft_name(path).expect("a name"));
        assert!(one != other && one.starts_with("/there"), "{one:?} {other:?}");
        assert_eq!(one.file_name().map(|name| name.len()), Some(".out.pcapng.0123456789abcdef.part".len()));
        let long = draft_name(Path::new(&"ü".repeat(120))).expect("a name");
        assert!(long.as_os_str().len() <= 255, "{long:?}");
    }
}
