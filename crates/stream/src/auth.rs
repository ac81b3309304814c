//! What both ends of a stream know beforehand, if they know anything: then greetings, exchanges of times and ends carry a tag that
//! nobody else can make. Packets and answers do not.

use sojourn_wire::Key;
use sojourn_wire::auth::TAG_BYTES;

/// A key that both ends share, or none. Tags stand behind all else in the user data, and cover all of it.
#[derive(Clone, Debug, Default)]
pub struct Auth(Option<Key>);

impl Auth {
    /// Returns how long a tag is.
    pub const fn bytes(&self) -> usize {
        if self.0.is_some() { TAG_BYTES } else { 0 }
    }

    /// Writes the tag at the end of `payload`, which has room for it there.
    pub fn seal(&self, payload: &mut [u8]) {
        if let (Some(key), Some((message, tag))) = (&self.0, payload.split_last_chunk_mut::<TAG_BYTES>()) {
            *tag = key.tag(&[message]);
        }
    }

    /// Returns `payload` without its tag; `None` where that is wrong.
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
