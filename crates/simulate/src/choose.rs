//! Chooses the next operation of a program at random, from the existing files and the theme of the
//! seed.

use bytes::Bytes;
use sluice_meta::{
    op::At,
    ops::{
        create::Create,
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        setattr::{Changes, SetAttr, SetTime},
        truncate::Truncate,
        unlink::Unlink,
    },
    schema::Row,
};
use sluice_types::{Caller, FileType, Ino, Name, Time};

use crate::{
    act::Act,
    plan::{Kind, Theme},
    world::World,
};

/// Names of which a seed uses some: few, so that they meet.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A name and what it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Where it is.
    pub(crate) at: At,
    /// What it stands for.
    pub(crate) ino: Ino,
    /// What kind that is.
    pub(crate) kind: FileType,
}

/// What there is, to choose from.
pub(crate) struct Scene<'w> {
    world: &'w World,
    dirs: Vec<Ino>,
    entries: Vec<Known>,
}

impl<'w> Scene<'w> {
    /// As it is now, outside of the trash.
    pub(crate) fn of(world: &'w World) -> Self {
        let (mut dirs, mut entries) = (vec![Ino::ROOT], Vec::new());
        for row in world.mem.records().into_values() {
            match row {
                Row::Node(ino, attr) if attr.is_dir() && !ino.is_trash() && ino != Ino::ROOT => {
                    dirs.push(ino);
                }
                Row::Entry(dir, name, to) if !dir.is_trash() => {
                    entries.push(Known { at: At::new(dir, name), ino: to.ino, kind: to.kind });
                }
                _ => {}
            }
        }
        Self { world, dirs, entries }
    }

    fn below(&self, bound: usize) -> usize {
        self.world.sched.below(bound as u64) as usize
    }

    /// Some directory.
    pub(crate) fn dir(&self) -> Ino {
        self.dirs[self.below(self.dirs.len())]
    }

    /// Some name somewhere.
    pub(crate) fn place(&self) -> At {
        let name = Name::stored(NAMES[self.below(self.world.plan.names)].as_bytes());
        At::new(self.dir(), name)
    }

    /// Some entry of that kind.
    pub(crate) fn entry(&self, wanted: impl Fn(FileType) -> bool) -> Option<Known> {
        let fit: Vec<&Known> = self.entries.iter().filter(|entry| wanted(entry.kind)).collect();
        (!fit.is_empty()).then(|| fit[self.below(fit.len())].clone())
    }

    /// Some file that has a name.
    pub(crate) fn file(&self) -> Option<Known> {
        self.entry(|kind| kind == FileType::File)
    }

    fn create(at: At, ino: Ino, kind: FileType) -> Act {
        let target = (kind == FileType::Symlink).then(|| Bytes::from_static(b"t"));
        Act::Create(Create {
            at,
            ino,
            kind,
            mode: 0o755,
            umask: 0,
            rdev: 0,
            target,
            caller: Caller::client(),
        })
    }

    fn rename(&self, from: At, to: At) -> Act {
        let mode = match self.below(8) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        Act::Rename(Rename { from, to, mode, caller: Caller::client() })
    }

    /// The directory that holds the entry of a directory.
    fn parent(&self, dir: Ino) -> Option<Ino> {
        self.entries.iter().find(|entry| entry.ino == dir).map(|entry| entry.at.dir)
    }

    /// The names that lead from the root to a directory.
    pub(crate) fn path(&self, dir: Ino) -> Option<Vec<Name>> {
        let (mut path, mut at) = (Vec::new(), dir);
        while at != Ino::ROOT {
            // Others may move directories while they are looked at.
            let entry = self.entries.iter().find(|entry| entry.ino == at && path.len() < 64)?;
            path.push(entry.at.name.clone());
            at = entry.at.dir;
        }
        path.reverse();
        Some(path)
    }

    /// Whether `dir` is `other` or below it.
    fn is_in(&self, dir: Ino, other: Ino) -> bool {
        let above = std::iter::successors(Some(dir), |dir| self.parent(*dir));
        above.take(self.dirs.len()).any(|dir| dir == other)
    }

    /// For one batch: something that fails after it read a directory, and a move of another
    /// directory to below that. It builds a circle if the first directory moves below the second
    /// meanwhile and nobody notices. If all is below one directory, something moves to the root.
    pub(crate) fn crossing(&self, ino: Ino) -> Option<Vec<Act>> {
        let dirs = || self.entries.iter().filter(|entry| entry.kind == FileType::Dir);
        let deep: Vec<&Known> = dirs().filter(|entry| entry.at.dir != Ino::ROOT).collect();
        let into = *deep.get(self.below(deep.len().max(1)))?;
        let apart = |entry: &&Known| entry.at.dir == Ino::ROOT && !self.is_in(into.ino, entry.ino);
        let apart: Vec<&Known> = dirs().filter(apart).collect();
        let name = || Name::stored(NAMES[self.below(self.world.plan.names)].as_bytes());
        let Some(moved) = apart.get(self.below(apart.len().max(1))) else {
            return Some(vec![self.rename(into.at.clone(), At::new(Ino::ROOT, name()))]);
        };
        let fails = Self::create(into.at.clone(), ino, FileType::Dir);
        Some(vec![fails, self.rename(moved.at.clone(), At::new(into.ino, name()))])
    }

    /// What to do next; `ino` is that of a node that may be made.
    pub(crate) fn act(&self, ino: Ino) -> Act {
        let kind = self.world.plan.kinds.next(|bound| self.world.sched.below(bound));
        self.act_of(kind, ino).unwrap_or_else(|| Self::create(self.place(), ino, FileType::Dir))
    }

    fn act_of(&self, kind: Kind, ino: Ino) -> Option<Act> {
        let caller = Caller::client();
        Some(match kind {
            Kind::Mkdir => {
                // One that fails leaves the records in the batch that it was told.
                let taken = self.world.plan.theme == Theme::Moves && self.below(8) > 0;
                let at = if taken { self.entry(|_| true)?.at } else { self.place() };
                Self::create(at, ino, FileType::Dir)
            }
            Kind::Create => {
                let kind = if self.below(6) == 0 { FileType::Symlink } else { FileType::File };
                Self::create(self.place(), ino, kind)
            }
            Kind::Rmdir => {
                let dir = self.entry(|kind| kind == FileType::Dir)?;
                let hint = (self.below(2) == 0).then_some(dir.ino);
                Act::Rmdir(Rmdir { at: dir.at, hint, skip_trash: false, caller })
            }
            Kind::Unlink => {
                let file = self.entry(|kind| kind != FileType::Dir)?;
                if self.below(4) == 0 {
                    let other = self.entry(|kind| kind != FileType::Dir)?;
                    return Some(self.rename(other.at, file.at));
                }
                Act::Unlink(Unlink { at: file.at, only: None, skip_trash: false, caller })
            }
            Kind::Link => Act::Link(Link { ino: self.file()?.ino, at: self.place(), caller }),
            Kind::SetAttr => {
                let theme = self.world.plan.theme;
                let ino = if theme == Theme::Attributes || self.below(2) == 0 {
                    self.dir()
                } else {
                    self.file()?.ino
                };
                let time = Time { sec: 1_000_000_000 + self.below(1000) as i64, nsec: 0 };
                let changes = Changes { mtime: Some(SetTime::At(time)), ..Changes::default() };
                Act::SetAttr(SetAttr { ino, changes, caller })
            }
            Kind::Truncate => {
                let length = 4096 * self.below(5) as u64;
                let ino = self.file()?.ino;
                Act::Truncate(Truncate { ino, length, opened: true, kill_suid: false, caller })
            }
            Kind::Rename => {
                let theme = self.world.plan.theme;
                let top = |known: &&Known| known.kind == FileType::Dir && known.at.dir == Ino::ROOT;
                if theme == Theme::Moves && self.below(2) == 0 {
                    let tops: Vec<&Known> = self.entries.iter().filter(top).collect();
                    let from = tops.get(self.below(tops.len().max(1)))?;
                    return Some(self.rename(from.at.clone(), self.place()));
                }
                let from = self.entry(|kind| theme != Theme::Moves || kind == FileType::Dir)?;
                let to = if self.below(4) == 0 { self.entry(|_| true)?.at } else { self.place() };
                self.rename(from.at, to)
            }
        })
    }
}
