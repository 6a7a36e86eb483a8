//! The names of a volume's tables, and the name of the engine in its errors.
//!
//! What must stay true: a `table_prefix` of the URL names the tables as JuiceFS would, so several
//! volumes fit into one database.

use std::{borrow::Cow, ops::Deref};

use sluice_meta::engine::Label;

/// The names of a volume in a database, which all errors of its engine state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// `jfs_` and `sluice_` begin the names of tables, and after that stands this `table_prefix`,
    /// if there is one.
    infix: Option<String>,
    /// Name of the engine.
    pub(crate) label: Label,
}

impl Deref for Volume {
    type Target = Label;

    fn deref(&self) -> &Label {
        &self.label
    }
}

impl Volume {
    /// A volume without a `table_prefix`.
    pub(crate) fn new(label: &str) -> Self {
        Self { infix: None, label: Label(label.into()) }
    }

    /// Takes the `table_prefix` of a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn set_prefix(&mut self, infix: &str) -> Result<(), String> {
        if !infix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("table_prefix={infix} has other characters than letters, digits and _"));
        }
        self.infix = (!infix.is_empty()).then(|| infix.to_owned());
        Ok(())
    }

    /// Prefix of the volume's tables.
    pub(crate) fn prefix(&self) -> String {
        self.table("jfs_").into_owned()
    }

    /// Prefix of Sluice's own tables.
    pub(crate) fn own_prefix(&self) -> String {
        self.table("sluice_").into_owned()
    }

    /// What the table, or its unique index, of that usual name is called.
    pub(crate) fn table<'t>(&self, usual: &'t str) -> Cow<'t, str> {
        let Some(infix) = &self.infix else { return Cow::Borrowed(usual) };
        let kind = ["jfs_", "sluice_", "UQE_jfs_"].into_iter().find(|kind| usual.starts_with(kind));
        kind.map_or(Cow::Borrowed(usual), |kind| {
            Cow::Owned(format!("{kind}{infix}_{}", &usual[kind.len()..]))
        })
    }

    /// A statement written for the usual prefixes, with those of this volume, in backquotes.
    /// Parameters are no part of the text, so that nothing but names of tables is changed.
    pub(crate) fn sql<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.infix.is_none() {
            return Cow::Borrowed(text);
        }
        let is_edge = |pair: &[u8]| is_word(pair[0]) != is_word(pair[1]);
        let edges = text.as_bytes().windows(2).zip(1..).filter(|(pair, _)| is_edge(pair));
        let mut out = String::with_capacity(text.len() + 64);
        let mut from = 0;
        for to in edges.map(|(_, at)| at).chain([text.len()]) {
            match self.table(&text[from..to]) {
                Cow::Borrowed(same) => out.push_str(same),
                Cow::Owned(table) => out.extend(["`", &table, "`"]),
            }
            from = to;
        }
        Cow::Owned(out)
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_alone_are_changed() {
        let text = "SELECT jfs_node.mode,'sluice:' FROM jfs_node,sluice_writer n WHERE not_jfs_x=sluice";
        assert_eq!(Volume::new("").sql(text), text);
        // Each of these contains what it stands behind, or is not as the server writes names
        // without quotes.
        for infix in ["x", "sluice", "jfs_", "sluice_jfs", "Vol"] {
            let mut volume = Volume::new("");
            volume.set_prefix(infix).expect("a prefix");
            assert_eq!(
                volume.sql(text),
                format!(
                    "SELECT `jfs_{infix}_node`.mode,'sluice:' FROM `jfs_{infix}_node`,`sluice_{infix}_writer` n \
                     WHERE not_jfs_x=sluice"
                )
            );
            let prefixes = (volume.prefix(), volume.own_prefix());
            assert_eq!(prefixes, (format!("jfs_{infix}_"), format!("sluice_{infix}_")));
        }
    }
}
