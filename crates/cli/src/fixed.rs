//! Settings that an upgrade cannot change.
//!
//! What must stay true: a new mount process with other values is refused before the old mount
//! process stops.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The volume, and the options that the kernel got when it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fixed {
    /// The volume's UUID.
    pub(crate) uuid: String,
    /// Options by their names on the command line, with their values.
    pub(crate) options: BTreeMap<String, String>,
    /// Cache directories that may hold staged blocks.
    pub(crate) staging: Vec<String>,
}

impl Fixed {
    /// Whether a mount process with the settings `next` may take over; if not, why. `caches` are
    /// its cache directories.
    pub(crate) fn allows(&self, next: &Self, caches: &[String]) -> Result<(), String> {
        if self.uuid != next.uuid {
            return Err("another volume is mounted there already; unmount it, or say --force".into());
        }
        for (name, value) in &next.options {
            // An older build does not report all of them.
            if let Some(now) = self.options.get(name)
                && now != value
            {
                return Err(format!(
                    "a volume is mounted there already, and {name} cannot change from `{now}` to `{value}` while it is; \
                     unmount it first"
                ));
            }
        }
        match self.staging.iter().find(|dir| !caches.contains(dir)) {
            Some(dir) => Err(format!(
                "{dir} may hold blocks that are not uploaded yet: keep it in --cache-dir, or unmount with --flush first"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_was_told_cannot_change() {
        let fixed = |uuid: &str, root: &str| Fixed {
            uuid: uuid.into(),
            options: [("--subdir".to_owned(), root.to_owned())].into(),
            staging: vec!["/c".into()],
        };
        let caches = ["/c".to_owned(), "/d".to_owned()];
        assert_eq!(fixed("a", "1").allows(&fixed("a", "1"), &caches), Ok(()));
        let refused = |next: &Fixed, caches| fixed("a", "1").allows(next, caches).expect_err("refused");
        assert!(refused(&fixed("b", "1"), &caches).contains("another volume"));
        assert!(refused(&fixed("a", "2"), &caches).contains("--subdir cannot change from `1` to `2`"));
        assert!(refused(&fixed("a", "1"), &caches[1..]).contains("/c"));
    }
}
