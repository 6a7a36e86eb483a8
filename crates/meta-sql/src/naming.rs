//! Names of a volume's tables.
//!
//! What must stay true: a `table_prefix` of the URL names the tables as JuiceFS would, so several volumes fit into one
//! database.

use std::borrow::Cow;

/// What the tables of a volume are called. `jfs_` and `sluice_` begin their names, and behind that stands the
/// `table_prefix`, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Naming(Option<String>);

impl Naming {
    /// Takes the `table_prefix` of a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(infix: &str) -> Result<Self, String> {
        if !infix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("table_prefix={infix} has other characters than letters, digits and _"));
        }
        Ok(Self((!infix.is_empty()).then(|| infix.to_owned())))
    }

    /// Prefix of the volume's tables.
    pub(crate) fn prefix(&self) -> String {
        self.0.as_ref().map_or_else(|| "jfs_".into(), |infix| format!("jfs_{infix}_"))
    }

    /// Prefix of Sluice's own tables.
    pub(crate) fn own_prefix(&self) -> String {
        self.0.as_ref().map_or_else(|| "sluice_".into(), |infix| format!("sluice_{infix}_"))
    }

    /// A statement written for the usual prefixes, with those of this volume. Parameters are no part of the text, so
    /// that nothing but names of tables is changed.
    pub(crate) fn sql<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            None => Cow::Borrowed(text),
            Some(_) => {
                Cow::Owned(text.replace("jfs_", &self.prefix()).replace("sluice_", &self.own_prefix()))
            }
        }
    }
}
