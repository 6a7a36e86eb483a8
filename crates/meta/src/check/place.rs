//! Where in the tree an inode is, for messages.

use sluice_types::{FsResult, Ino};

use crate::{
    batch::Interrupt,
    engine::{Found, Hold, List, Read, Scan},
    meta::Meta,
    ops::getattr::GetAttr,
    schema::Row,
};

/// Directories above an inode at most: more is a cycle.
const DEEPEST: usize = 4096;

impl Meta {
    /// A path that leads to an inode; `None` if none does, for it is deleted or out of reach. Reads the directories
    /// above it.
    pub fn path_of(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Option<String>> {
        let mut names: Vec<String> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT && names.len() < DEEPEST {
            if at == Ino::TRASH {
                names.push(".trash".into());
                break;
            }
            let Ok(attr) = self.ask(&GetAttr(at), interrupt) else { return Ok(None) };
            let dir =
                if attr.parent == Ino::NONE { self.some_parent(at, interrupt)? } else { Some(attr.parent) };
            let Some(dir) = dir else { return Ok(None) };
            let Some(name) = self.name_in(dir, at, interrupt)? else { return Ok(None) };
            names.push(name);
            at = dir;
        }
        let path = names.iter().rev().fold(String::new(), |path, name| path + "/" + name);
        Ok(Some(if path.is_empty() { "/".into() } else { path }))
    }

    fn some_parent(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Option<Ino>> {
        let read = [Read::All(List::Parents(ino), Hold::None)];
        let found = self.patiently(interrupt, || self.engine.read(&read))?.pop();
        let rows = if let Some(Found::Rows(rows)) = found { rows } else { Vec::new() };
        Ok(rows.iter().find_map(|row| match row {
            Row::Parents(_, dir, names) if *names > 0 => Some(*dir),
            _ => None,
        }))
    }

    fn name_in(&self, dir: Ino, ino: Ino, interrupt: &Interrupt) -> FsResult<Option<String>> {
        let mut found = None;
        self.each_page(Scan::Entries { dir, nodes: false }, interrupt, |rows| {
            for row in rows {
                if let Row::Entry(_, name, entry) = row
                    && entry.ino == ino
                {
                    found = Some(String::from_utf8_lossy(name.as_ref()).into_owned());
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}
