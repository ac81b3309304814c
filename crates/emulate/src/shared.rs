//! Values shared by the pipes of many flows: a table or a pattern may take megabytes, and there may be thousands of flows.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The values of one kind that are in use, as weak references.
#[derive(Debug)]
pub(crate) struct Pool<T>(Mutex<Vec<Weak<T>>>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the existing value that is the same, or make it.
    pub(crate) fn share(&self, is_same: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> Arc<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|value| value.strong_count() > 0);
        if let Some(value) = held.iter().filter_map(Weak::upgrade).find(|value| is_same(value)) {
            return value;
        }
        let value = Arc::new(make());
        held.push(Arc::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_while_in_use() {
        let pool = Pool::new();
        let share = |word: &str| pool.share(|have: &String| have == word, || word.to_owned());
        let (one, same, other) = (share("a"), share("a"), share("b"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same));
        share("c");
        assert_eq!(pool.0.lock().unwrap().len(), 2, "b, and c until it is asked again");
    }
}
