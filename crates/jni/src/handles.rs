//! Maps the handle numbers of Java to objects.
//!
//! What must stay true: a number is never used twice, and 0 is none.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
};

use parking_lot::RwLock;

use crate::failure::{Answer, Failure};

/// Things of one kind by their numbers.
pub(crate) struct Handles<T> {
    kind: &'static str,
    last: AtomicI64,
    open: LazyLock<RwLock<HashMap<i64, Arc<T>>>>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self { kind, last: AtomicI64::new(0), open: LazyLock::new(RwLock::default) }
    }

    /// Keeps something under a new number.
    pub(crate) fn add(&self, thing: T) -> i64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(thing));
        number
    }

    /// What has a number. It stays usable when somebody closes it meanwhile.
    pub(crate) fn get(&self, number: i64) -> Answer<Arc<T>> {
        let found = self.open.read().get(&number).cloned();
        found.ok_or_else(|| Failure::new(libc::EBADF, format!("this {} is closed", self.kind)))
    }

    /// Forgets a number; `None` if it was forgotten before.
    pub(crate) fn remove(&self, number: i64) -> Option<Arc<T>> {
        self.open.write().remove(&number)
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.open.read().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_closed_is_an_error_and_not_another_thing() {
        let handles = Handles::new("file");
        let (a, b) = (handles.add("a"), handles.add("b"));
        assert_eq!(handles.remove(a).as_deref(), Some(&"a"));
        assert!(handles.remove(a).is_none() && handles.get(a).is_err() && handles.get(0).is_err());
        assert_ne!(handles.add("c"), a);
        assert_eq!((handles.get(b).map(|b| *b).ok(), handles.count()), (Some("b"), 2));
    }
}
