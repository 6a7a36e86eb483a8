//! The path of an inode, for messages, and the holders of its locks.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use sluice_types::{FsError, FsResult, Ino};

use crate::{
    batch::Interrupt,
    engine::{Found, List, Read, Scan},
    meta::Meta,
    ops::getattr::GetAttr,
    schema::Row,
};

/// Directories above an inode at most: more is a cycle.
const DEEPEST: usize = 4096;
/// Paths of one inode that are told.
const MOST: usize = 1000;

impl Meta {
    /// The paths below `root` that lead to an inode: none if it is deleted or out of reach, several
    /// if it is linked several times, a thousand at most. Reads the directories above it.
    pub fn paths_of(&self, ino: Ino, root: Ino, interrupt: &Interrupt) -> FsResult<Vec<String>> {
        if ino == root {
            return Ok(vec!["/".into()]);
        }
        let attr = match self.read(&GetAttr(ino), interrupt) {
            Ok(attr) => attr,
            Err(FsError::NotFound) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let dirs =
            if attr.parent == Ino::NONE { self.parents_of(ino, interrupt)? } else { vec![attr.parent] };
        let (mut paths, mut known) = (Vec::new(), FxHashMap::default());
        for dir in dirs {
            if paths.len() >= MOST {
                break;
            }
            if let Some(above) = self.path_of_dir(dir, root, &mut known, interrupt)? {
                let names = self.names_in(dir, ino, interrupt)?;
                paths.extend(names.into_iter().map(|name| format!("{above}/{name}")));
            }
        }
        paths.truncate(MOST);
        Ok(paths)
    }

    /// The locks on a file, of both kinds, as the engine holds them. One trip.
    pub fn locks_of(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Vec<Row>> {
        self.all_of([List::Flocks(ino), List::Plocks(ino)], interrupt)
    }

    fn parents_of(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Vec<Ino>> {
        let rows = self.all_of([List::Parents(ino)], interrupt)?;
        let dirs = rows.into_iter().filter_map(|row| match row {
            Row::Parents(_, dir, names) if names > 0 => Some(dir),
            _ => None,
        });
        Ok(dirs.collect())
    }

    fn all_of<const N: usize>(&self, lists: [List; N], interrupt: &Interrupt) -> FsResult<Vec<Row>> {
        let reads = lists.map(Read::All);
        let found = self.retry(interrupt, || self.engine.read(&reads))?;
        let rows = found.into_iter().flat_map(|found| match found {
            Found::Rows(rows) => rows,
            _ => Vec::new(),
        });
        Ok(rows.collect())
    }

    /// Path of a directory, empty for `root`; `None` if it does not lie below that. `known` are the
    /// directories that were looked for before: where each lies and what it is called there.
    fn path_of_dir(
        &self,
        dir: Ino,
        root: Ino,
        known: &mut FxHashMap<Ino, Option<(Ino, String)>>,
        interrupt: &Interrupt,
    ) -> FsResult<Option<String>> {
        let (mut at, mut names) = (dir, Vec::new());
        while at != root {
            let place = match known.entry(at) {
                Entry::Occupied(place) => place.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.place_of_dir(at, interrupt)?),
            };
            let Some((parent, name)) = place.as_ref().filter(|_| names.len() < DEEPEST) else {
                return Ok(None);
            };
            names.push(name.clone());
            at = *parent;
        }
        Ok(Some(names.iter().rev().fold(String::new(), |path, name| path + "/" + name)))
    }

    /// The directory that a directory is in, and its name there.
    fn place_of_dir(&self, dir: Ino, interrupt: &Interrupt) -> FsResult<Option<(Ino, String)>> {
        if dir == Ino::TRASH {
            return Ok(Some((Ino::ROOT, ".trash".into())));
        }
        let parent = match self.read(&GetAttr(dir), interrupt) {
            Ok(attr) => attr.parent,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(self.names_in(parent, dir, interrupt)?.pop().map(|name| (parent, name)))
    }

    fn names_in(&self, dir: Ino, ino: Ino, interrupt: &Interrupt) -> FsResult<Vec<String>> {
        let mut names = Vec::new();
        self.each_page(Scan::Entries { dir, nodes: false }, interrupt, |rows| {
            names.extend(rows.into_iter().filter_map(|row| match row {
                Row::Entry(_, name, entry) if entry.ino == ino => {
                    Some(String::from_utf8_lossy(name.as_ref()).into_owned())
                }
                _ => None,
            }));
            Ok(())
        })?;
        // A scan may tell an entry twice.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}
