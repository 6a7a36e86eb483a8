//! Checks answers about names: each must have been true at some moment between call and return.
//!
//! What must stay true: a correct answer is never reported as wrong (no false positives). If one
//! commit contains several operations, only their combined result is known. So their names are not
//! checked.

use sluice_meta::{
    op::At,
    ops::rename::{Rename, RenameMode},
    schema::{Key, Row},
};
use sluice_types::{FileType, FsError, Ino};

use crate::{history::Moment, world::World};

/// What was asked of names.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A new name: of a new node, or of this one.
    Make(At, Option<Ino>),
    /// A name less.
    Remove(At),
    /// Another place.
    Rename(At, At, RenameMode),
    /// What a name stands for.
    Lookup(At),
}

impl From<&Rename> for Asked {
    fn from(op: &Rename) -> Self {
        Self::Rename(op.from.clone(), op.to.clone(), op.mode)
    }
}

impl Asked {
    /// The names that it is about.
    pub(crate) fn places(&self) -> Vec<Key> {
        match self {
            Self::Make(at, _) | Self::Remove(at) | Self::Lookup(at) => vec![place(at)],
            Self::Rename(from, to, _) => vec![place(from), place(to)],
        }
    }

    /// Whether it may have been answered so since it was asked: by what the name stands for, if
    /// something is said of that, or by an error.
    pub(crate) fn may_be(&self, world: &World, since: Moment, answer: Result<Option<Ino>, &FsError>) -> bool {
        if self.places().iter().any(|place| world.is_unclear(place, since)) {
            return true;
        }
        let names = Names { world, since };
        match (self, answer) {
            (Self::Make(at, _) | Self::Lookup(at), Ok(Some(ino))) => names.stood_for(at, ino),
            (Self::Make(at, _), Err(FsError::Exists)) => names.was_there(at),
            (Self::Make(at, of), Err(FsError::NotFound)) => {
                names.was_closed(at.dir) || of.is_some_and(|of| names.was_closed(of))
            }
            (Self::Remove(at), Ok(_)) => names.was_removed(at),
            (Self::Remove(at) | Self::Lookup(at), Err(FsError::NotFound)) => {
                names.was_absent(at) || names.was_closed(at.dir)
            }
            (Self::Remove(at), Err(FsError::NotEmpty)) => names.was_full(at),
            (Self::Rename(from, to, _), Ok(_)) => names.was_moved(from, to),
            (Self::Rename(_, to, RenameMode::NoReplace), Err(FsError::Exists)) => names.was_there(to),
            (Self::Rename(from, to, mode), Err(FsError::NotFound)) => {
                names.was_absent(from)
                    || matches!(mode, RenameMode::Exchange) && names.was_absent(to)
                    || names.was_closed(from.dir)
                    || names.was_closed(to.dir)
            }
            (Self::Rename(_, to, _), Err(FsError::NotEmpty)) => names.was_full(to),
            _ => true,
        }
    }
}

fn place(at: &At) -> Key {
    Key::Entry(at.dir, at.name.clone())
}

/// What names stood for since some moment.
struct Names<'w> {
    world: &'w World,
    since: Moment,
}

impl Names<'_> {
    fn targets(&self, at: &At, since: Moment) -> Vec<(Moment, Option<(Ino, FileType)>)> {
        let target = |row| if let Some(Row::Entry(_, _, to)) = row { Some((to.ino, to.kind)) } else { None };
        let values = self.world.values(&place(at), since).into_iter();
        values.map(|(moment, row)| (moment, target(row))).collect()
    }

    fn stood_for(&self, at: &At, ino: Ino) -> bool {
        self.targets(at, self.since).iter().any(|(_, target)| target.is_some_and(|(found, _)| found == ino))
    }

    fn was_there(&self, at: &At) -> bool {
        self.targets(at, self.since).iter().any(|(_, target)| target.is_some())
    }

    fn was_absent(&self, at: &At) -> bool {
        self.targets(at, self.since).iter().any(|(_, target)| target.is_none())
    }

    /// Whether it stood for something, and for something else or nothing after that.
    fn was_removed(&self, at: &At) -> bool {
        let targets = self.targets(at, self.since);
        targets.iter().rev().skip(1).any(|(_, target)| target.is_some())
    }

    /// Whether one name stood for something for which the other did then or later.
    fn was_moved(&self, from: &At, to: &At) -> bool {
        self.targets(from, self.since).iter().any(|(moment, target)| {
            target.is_some() && self.targets(to, *moment).iter().any(|(_, now)| now == target)
        })
    }

    /// Whether a node was not there, had no name left, or was in the trash.
    fn was_closed(&self, ino: Ino) -> bool {
        self.world.values(&Key::Node(ino), self.since).iter().any(|(_, row)| match row {
            Some(Row::Node(_, attr)) => attr.parent.is_trash_hour() || attr.nlink == 0,
            _ => true,
        })
    }

    /// Whether a name stood for a directory with entries.
    fn was_full(&self, at: &At) -> bool {
        let targets = self.targets(at, self.since);
        let mut dirs = targets.iter().filter_map(|(_, target)| *target);
        dirs.any(|(ino, kind)| kind == FileType::Dir && self.world.had_names(ino, self.since))
    }
}
