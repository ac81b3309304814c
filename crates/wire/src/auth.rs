//! Authentication with a shared key: HMAC-SHA-256 truncated to its first 16 bytes, as in RFC 8762 §4.4 (STAMP).
//!
//! Hides the hash. Knows no message format: the caller chooses the bytes that the tag covers, and detects replays (a
//! tag proves who wrote a message, not when).

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a tag.
pub const TAG_BYTES: usize = 16;

/// The shortest secret accepted: 128 bits, as long as the tag.
pub const LEAST_SECRET_BYTES: usize = 16;

/// The shared key. Its `Debug` output omits the secret.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// The error of a secret that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of {0} bytes is too short; take at least {LEAST_SECRET_BYTES} random ones")]
pub struct WeakKey(pub usize);

impl Key {
    /// Creates a key from a secret of at least [`LEAST_SECRET_BYTES`].
    ///
    /// # Errors
    /// When the secret is shorter.
    pub fn new(secret: &[u8]) -> Result<Self, WeakKey> {
        if secret.len() < LEAST_SECRET_BYTES {
            return Err(WeakKey(secret.len()));
        }
        // HMAC takes secrets of any length.
        Hmac::new_from_slice(secret).map(Self).map_err(|_| WeakKey(secret.len()))
    }

    /// Returns the tag of a message, the concatenation of these parts.
    pub fn tag(&self, message: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&self.mac(message).finalize().into_bytes()[..TAG_BYTES]);
        tag
    }

    /// Returns whether `tag` is the message's. Runs in constant time, whichever byte differs.
    pub fn verifies(&self, message: &[&[u8]], tag: &[u8; TAG_BYTES]) -> bool {
        self.mac(message).verify_truncated_left(tag).is_ok()
    }

    fn mac(&self, message: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        message.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }

    /// RFC 4231: cases 1, 3, 4, 6 and 7 truncated to 16 bytes, and case 5, truncated in the RFC. The key of case 2 has
    /// only 4 bytes.
    #[test]
    fn hmac_tags_equal_those_of_rfc_4231() {
        let cases: [(Vec<u8>, Vec<u8>, &str); 6] = [
            (vec![0x0B; 20], b"Hi There".to_vec(), "b0344c61d8db38535ca8afceaf0bf12b"),
            (vec![0xAA; 20], vec![0xDD; 50], "773ea91e36800e46854db8ebd09181a7"),
            ((1..=25).collect(), vec![0xCD; 50], "82558a389a443c0ea4cc819899f2083a"),
            (vec![0x0C; 20], b"Test With Truncation".to_vec(), "a3b6167473100ee06e0c796c2955552b"),
            (
                vec![0xAA; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f",
            ),
            (
                vec![0xAA; 131],
                b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to \
                  be hashed before being used by the HMAC algorithm."
                    .to_vec(),
                "9b09ffa71b942fcb27635fbcd5b0e944",
            ),
        ];
        for (secret, message, expected) in cases {
            let key = Key::new(&secret).expect("long enough");
            assert_eq!(key.tag(&[&message]).to_vec(), hex(expected));
        }
    }

    #[test]
    fn short_secret_is_refused_and_secrets_are_never_printed() {
        assert_eq!(Key::new(&[7; 15]).expect_err("short"), WeakKey(15));
        let key = Key::new(b"correct horse battery").expect("long enough");
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    proptest! {
        #[test]
        fn any_changed_bit_is_noticed(
            secret in prop::collection::vec(any::<u8>(), 16..80), message in prop::collection::vec(any::<u8>(), 1..200),
            at: prop::sample::Index, bit in 0..8_u32, cut: prop::sample::Index,
        ) {
            let key = Key::new(&secret).expect("long enough");
            let tag = key.tag(&[&message]);
            let (head, tail) = message.split_at(cut.index(message.len()));
            prop_assert!(key.verifies(&[head, tail], &tag), "parts are one message");
            let mut forged = message.clone();
            forged[at.index(message.len())] ^= 1 << bit;
            prop_assert!(!key.verifies(&[&forged], &tag));
            let mut wrong = tag;
            wrong[at.index(TAG_BYTES)] ^= 1 << bit;
            prop_assert!(!key.verifies(&[&message], &wrong));
            let mut other = secret.clone();
            other[at.index(secret.len())] ^= 1 << bit;
            prop_assert!(!Key::new(&other).expect("long enough").verifies(&[&message], &tag));
        }
    }
}
