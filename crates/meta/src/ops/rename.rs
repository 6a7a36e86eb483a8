//! Rename: moves a name. The target name may be free, replaced or exchanged.

use std::sync::Arc;

use sluice_types::{Attr, AttrFlags, Caller, FsError, Ino};
use smallvec::smallvec;

use super::{
    removal::{Removal, RemovedNode, check_hour},
    rules,
    tree_usage::{TreeUsage, tree_usage},
    unlink::target,
};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{At, ConflictKey, ConflictKeys, Op},
    schema::{Counter, Entry, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Swap both.
    Exchange,
    /// Fail; but the new directory may be in the trash itself, where a tree is built again.
    Restore,
}

/// Moves a name. Two trips, three if it replaces a directory; one more per level of the target when
/// a directory changes its parent. A directory with directories in it that moves between quotas is
/// refused: [`Meta::rename`](crate::Meta::rename) finds them, and says so by [`MoveTrees`].
#[derive(Clone, Debug)]
pub struct Rename {
    /// Old place.
    pub from: At,
    /// New place.
    pub to: At,
    /// What to do with an existing target.
    pub mode: RenameMode,
    /// Who asks.
    pub caller: Caller,
}

/// What a rename changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The node moved.
    pub ino: Ino,
    /// Its attributes after the move.
    pub attr: Attr,
    /// The node that was replaced, and what became of it.
    pub replaced: Option<(Ino, RemovedNode)>,
    /// The node that was swapped against.
    pub exchanged: Option<(Ino, Attr)>,
    /// Old directory.
    pub from_dir: Attr,
    /// New directory; the same as the old one for a rename within it.
    pub to_dir: Attr,
}

/// What is known of what lies below a directory that moves.
#[derive(Clone, Debug)]
pub enum Below {
    /// It and all directories below it: their statistics, which are held, say the rest.
    Dirs(Arc<[Ino]>),
    /// Bytes and inodes, as they were counted before.
    Counted(i64, i64),
}

/// A rename of directories that are charged to other quotas afterwards, with all below them. One
/// trip more than [`Rename`].
#[derive(Clone, Debug)]
pub struct MoveTrees {
    /// The rename.
    pub rename: Rename,
    /// What lies below the directories that move.
    pub below: Vec<(Ino, Below)>,
}

impl Op for MoveTrees {
    type Out = Renamed;
    const NAME: &'static str = Rename::NAME;

    fn conflict_keys(&self) -> ConflictKeys {
        self.rename.conflict_keys()
    }

    fn effect(&self, renamed: &Renamed) -> Option<Effect> {
        self.rename.effect(renamed)
    }

    /// # Errors
    /// [`FsError::Again`] if what lies below is not what the caller says.
    fn run(&self, view: &mut View<'_>) -> Result<Renamed, Stop> {
        self.rename.decide(view, &self.below)
    }
}

/// One of the two names, with what it stands for.
struct Side {
    ino: Ino,
    attr: Attr,
}

impl Op for Rename {
    type Out = Renamed;
    const NAME: &'static str = "rename";

    fn conflict_keys(&self) -> ConflictKeys {
        if self.from.dir == self.to.dir {
            smallvec![ConflictKey::Dir(self.from.dir)]
        } else {
            smallvec![ConflictKey::Dir(self.from.dir), ConflictKey::Dir(self.to.dir)]
        }
    }

    fn effect(&self, _renamed: &Renamed) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Rename, value: 0 })
    }

    /// # Errors
    /// [`FsError::Again`] if what lies below a directory has to be counted first.
    fn run(&self, view: &mut View<'_>) -> Result<Renamed, Stop> {
        self.decide(view, &[])
    }
}

impl Rename {
    fn decide(&self, view: &mut View<'_>, below: &[(Ino, Below)]) -> Result<Renamed, Stop> {
        let (from, to) = (&self.from, &self.to);
        view.want(&[
            Want::node(from.dir, Hold::Guard),
            Want::node(to.dir, Hold::Guard),
            Want::follow(from.dir, from.name.clone(), Hold::Lock),
            Want::follow(to.dir, to.name.clone(), Hold::Lock),
        ])?;
        let from_dir = self.source_dir(view)?;
        let (ino, attr) = target(view, from)?;
        let source = Side { ino, attr };
        rules::check_removable(&source.attr)?;
        rules::check_sticky(&self.caller, &from_dir, &source.attr)?;
        let to_dir = self.to_dir(view)?;
        let existing = match view.follow(to.dir, &to.name, Hold::Lock)? {
            Some(_) => {
                let (ino, attr) = target(view, to)?;
                Some(Side { ino, attr })
            }
            None => None,
        };
        if from == to || existing.as_ref().is_some_and(|old| old.ino == source.ino) {
            return self.nothing_to_do(&source, existing.is_some(), from_dir, to_dir);
        }
        match (self.mode, &existing) {
            (RenameMode::NoReplace | RenameMode::Restore, Some(_)) => return Err(FsError::Exists.into()),
            (RenameMode::Exchange, None) => return Err(FsError::NotFound.into()),
            _ => {}
        }
        self.check_moved_dir(view, &source, self.to.dir)?;
        match (self.mode, existing) {
            (RenameMode::Exchange, Some(other)) => {
                rules::require(!to_dir.flags.has(AttrFlags::APPEND), FsError::Perm)?;
                rules::check_removable(&other.attr)?;
                rules::check_sticky(&self.caller, &to_dir, &other.attr)?;
                self.check_moved_dir(view, &other, self.from.dir)?;
                let (comes, goes) =
                    (self.tree_usage(view, &source, below)?, self.tree_usage(view, &other, below)?);
                let (space, inodes) = (comes.0 - goes.0, comes.1 - goes.1);
                rules::admit_move(view, (self.from.dir, self.to.dir), space, inodes)?;
                rules::admit_move(view, (self.to.dir, self.from.dir), -space, -inodes)?;
                self.exchange(view, (&source, comes), (&other, goes), from_dir, to_dir)
            }
            (_, existing) => {
                let usage = self.tree_usage(view, &source, below)?;
                self.replace(view, (&source, usage), existing, from_dir, to_dir)
            }
        }
    }

    /// What the change log says: `over` had the new name.
    fn line(&self, ino: Ino, over: Ino, trash: Ino) -> Line {
        let flags = match self.mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
            RenameMode::Restore => 33,
        };
        Line::Move { from: self.from.clone(), to: self.to.clone(), flags, over, trash, ino }
    }

    /// The old directory, which must accept the change.
    fn source_dir(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        // Out of the trash, for the superuser, is how files are restored; into it there is no way.
        let from_dir = if self.from.dir.is_trash() {
            rules::require(!self.caller.check || self.caller.superuser, FsError::Perm)?;
            rules::existing_dir(view, self.from.dir, Hold::Guard)?
        } else {
            rules::changing_dir(view, self.from.dir, &self.caller)?
        };
        check_hour(view, &self.from, &self.caller)?;
        rules::require(!self.to.dir.is_trash(), FsError::Perm)?;
        rules::require(!from_dir.flags.has(AttrFlags::APPEND), FsError::Perm)?;
        Ok(from_dir)
    }

    /// The new directory, which must accept the change.
    fn to_dir(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        if self.mode == RenameMode::Restore && self.from.dir.is_trash() {
            rules::changing_dir_in_trash(view, self.to.dir, &self.caller)
        } else {
            rules::changing_dir(view, self.to.dir, &self.caller)
        }
    }

    /// Two names of one file, or a name onto itself: POSIX asks for success without a change.
    fn nothing_to_do(
        &self,
        source: &Side,
        exists: bool,
        from_dir: Attr,
        to_dir: Attr,
    ) -> Result<Renamed, Stop> {
        if matches!(self.mode, RenameMode::NoReplace | RenameMode::Restore) && exists {
            return Err(FsError::Exists.into());
        }
        Ok(Renamed { ino: source.ino, attr: source.attr, replaced: None, exchanged: None, from_dir, to_dir })
    }

    /// A directory that changes its parent must not move below itself, however others move
    /// directories meanwhile.
    fn check_moved_dir(&self, view: &mut View<'_>, moved: &Side, into: Ino) -> Result<(), Stop> {
        if !moved.attr.is_dir() || self.from.dir == self.to.dir {
            return Ok(());
        }
        view.want(&[Want::get(Key::Counter(Counter::DirMoves), Hold::Lock), Want::node(into, Hold::Guard)])?;
        let moves = rules::counter(view, Counter::DirMoves)?;
        // Guarded: the batch may have read one of them before others moved it, for an operation
        // that failed.
        if rules::ancestors(view, into, Hold::Guard)?.contains(&moved.ino) {
            return Err(FsError::Invalid.into());
        }
        view.put(Row::Counter(Counter::DirMoves, moves + 1));
        // Another ".." is a change of the directory itself, for which its owner too needs
        // permission.
        rules::check(view, &self.caller, &moved.attr, sluice_types::Access::WRITE)
    }

    fn replace(
        &self,
        view: &mut View<'_>,
        (source, (space, inodes)): (&Side, (i64, i64)),
        existing: Option<Side>,
        mut from_dir: Attr,
        mut to_dir: Attr,
    ) -> Result<Renamed, Stop> {
        let (from, to) = (&self.from, &self.to);
        let goes = existing.as_ref().map_or((0, 0), |old| (old.attr.space(), 1));
        rules::admit_move(view, (from.dir, to.dir), space - goes.0, inodes - goes.1)?;
        let mut nlink = i32::from(source.attr.is_dir());
        let (mut replaced, mut over, mut trash) = (None, Ino::NONE, Ino::NONE);
        let entry = Row::Entry(to.dir, to.name.clone(), Entry { kind: source.attr.kind, ino: source.ino });
        if let Some(old) = existing {
            self.check_replaced(view, source, &old, &to_dir)?;
            nlink -= i32::from(old.attr.is_dir());
            let removal = Removal {
                dir: to.dir,
                name: to.name.clone(),
                ino: old.ino,
                attr: old.attr,
                skip_trash: false,
            };
            let (node, hour) = removal.apply(view)?;
            (replaced, over, trash) = (Some((old.ino, node)), old.ino, hour);
            view.put(entry);
        } else {
            view.insert(entry);
        }
        view.delete(Key::Entry(from.dir, from.name.clone()));
        view.log(|| self.line(source.ino, over, trash));
        let attr = Self::moved(view, source, (space, inodes), from.dir, to.dir)?;
        let leaves = -i32::from(source.attr.is_dir() && !from.dir.is_trash());
        if from.dir == to.dir {
            Self::bump(view, from.dir, &mut from_dir, leaves + nlink);
            to_dir = from_dir;
        } else {
            Self::bump(view, from.dir, &mut from_dir, leaves);
            Self::bump(view, to.dir, &mut to_dir, nlink);
        }
        Ok(Renamed { ino: source.ino, attr, replaced, exchanged: None, from_dir, to_dir })
    }

    fn check_replaced(
        &self,
        view: &mut View<'_>,
        source: &Side,
        old: &Side,
        to_dir: &Attr,
    ) -> Result<(), Stop> {
        rules::require(!to_dir.flags.has(AttrFlags::APPEND), FsError::Perm)?;
        rules::check_removable(&old.attr)?;
        rules::check_sticky(&self.caller, to_dir, &old.attr)?;
        match (source.attr.is_dir(), old.attr.is_dir()) {
            (true, false) => Err(FsError::NotDir.into()),
            (false, true) => Err(FsError::IsDir.into()),
            (true, true) if !view.is_empty(old.ino)? => Err(FsError::NotEmpty.into()),
            _ => Ok(()),
        }
    }

    fn exchange(
        &self,
        view: &mut View<'_>,
        (source, comes): (&Side, (i64, i64)),
        (other, goes): (&Side, (i64, i64)),
        mut from_dir: Attr,
        mut to_dir: Attr,
    ) -> Result<Renamed, Stop> {
        let (from, to) = (&self.from, &self.to);
        view.put(Row::Entry(to.dir, to.name.clone(), Entry { kind: source.attr.kind, ino: source.ino }));
        view.put(Row::Entry(from.dir, from.name.clone(), Entry { kind: other.attr.kind, ino: other.ino }));
        view.log(|| self.line(source.ino, other.ino, Ino::NONE));
        let attr = Self::moved(view, source, comes, from.dir, to.dir)?;
        let exchanged = Self::moved(view, other, goes, to.dir, from.dir)?;
        let gain = i32::from(source.attr.is_dir()) - i32::from(other.attr.is_dir());
        if from.dir == to.dir {
            Self::bump(view, from.dir, &mut from_dir, 0);
            to_dir = from_dir;
        } else {
            Self::bump(view, from.dir, &mut from_dir, -gain);
            Self::bump(view, to.dir, &mut to_dir, gain);
        }
        Ok(Renamed {
            ino: source.ino,
            attr,
            replaced: None,
            exchanged: Some((other.ino, exchanged)),
            from_dir,
            to_dir,
        })
    }

    /// States the changes to a node that moves between directories, and to what is counted there.
    fn moved(
        view: &mut View<'_>,
        node: &Side,
        (space, inodes): (i64, i64),
        from: Ino,
        to: Ino,
    ) -> Result<Attr, Stop> {
        let mut attr = node.attr;
        rules::advance_ctime(&mut attr, view.now());
        if from != to {
            if attr.parent == Ino::NONE {
                view.write(Write::Link(node.ino, from, -1));
                view.write(Write::Link(node.ino, to, 1));
            } else {
                attr.parent = to;
            }
            let usage = rules::entry_usage(&attr);
            rules::use_dir(view, from, rules::minus(usage));
            rules::use_dir(view, to, usage);
            rules::charge_tree(view, from, -space, -inodes)?;
            rules::charge_tree(view, to, space, inodes)?;
        }
        view.put(Row::Node(node.ino, attr));
        Ok(attr)
    }

    /// Bytes and inodes that move with a node. What lies below a directory matters only to quotas
    /// above one of both places.
    fn tree_usage(
        &self,
        view: &mut View<'_>,
        node: &Side,
        below: &[(Ino, Below)],
    ) -> Result<(i64, i64), Stop> {
        let own = (node.attr.space(), 1);
        if !node.attr.is_dir() || !rules::counted_apart(view, self.from.dir, self.to.dir)? {
            return Ok(own);
        }
        let alone = [node.ino];
        let dirs = match below.iter().find(|(ino, _)| *ino == node.ino) {
            Some((_, Below::Counted(space, inodes))) => return Ok((own.0 + space, own.1 + inodes)),
            Some((_, Below::Dirs(dirs))) => dirs.as_ref(),
            None if node.attr.nlink <= 2 => &alone,
            None => return Err(FsError::Again.into()),
        };
        match tree_usage(view, node.ino, dirs, Hold::Lock)?.0 {
            TreeUsage::Exact(space, inodes) => Ok((own.0 + space, own.1 + inodes)),
            TreeUsage::Changed => Err(FsError::Again.into()),
        }
    }

    fn bump(view: &mut View<'_>, dir: Ino, attr: &mut Attr, nlink: i32) {
        let now = view.now();
        view.write(Write::Bump { ino: dir, nlink, time: Some(now) });
        attr.nlink = attr.nlink.saturating_add_signed(nlink);
        attr.mtime = attr.mtime.max(now);
        attr.ctime = attr.ctime.max(now);
    }
}
