//! Authentication by a key that both ends of a stream share, if any: greetings, time exchanges and ends then carry a
//! tag that nobody else can forge. Packets and answers do not.

use sojourn_wire::Key;
use sojourn_wire::auth::TAG_BYTES;

/// A shared key, or none. A tag is at the end of the payload, and covers all of it.
#[derive(Clone, Debug, Default)]
pub struct Auth(Option<Key>);

impl Auth {
    /// Returns the length of a tag in bytes.
    pub const fn bytes(&self) -> usize {
        if self.0.is_some() { TAG_BYTES } else { 0 }
    }

    /// Writes the tag into the last bytes of `payload`.
    pub fn seal(&self, payload: &mut [u8]) {
        if let (Some(key), Some((message, tag))) = (&self.0, payload.split_last_chunk_mut::<TAG_BYTES>()) {
            *tag = key.tag(&[message]);
        }
    }

    /// Returns `payload` without its tag; `None` if the tag is wrong.
    pub fn open<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        let Some(key) = &self.0 else { return Some(payload) };
        let (message, tag) = payload.split_last_chunk::<TAG_BYTES>()?;
        key.verifies(&[message], tag).then_some(message)
    }
}

impl From<Option<Key>> for Auth {
    fn from(key: Option<Key>) -> Self {
        Self(key)
    }
}
