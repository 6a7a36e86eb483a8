//! Clone: a new node with the slices of another one.

use sluice_types::{Access, Attr, AttrFlags, CHUNK_SIZE, Caller, FileType, FsError, Ino, Name};
use smallvec::smallvec;

use super::{
    create::Made,
    removal::{make_trash, trash_hour, trash_name},
    rules,
};
use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    op::{At, ConflictKey, ConflictKeys, Op},
    schema::{Counter, DirStat, Entry, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Chunks of a file, 4 GiB, that are asked for without knowing whether they are there.
const FEW_CHUNKS: u64 = 64;

/// Copies one node, without the entries of a directory. Two trips if `length` is still right.
#[derive(Clone, Debug)]
pub struct CloneNode {
    /// The source.
    pub source: Ino,
    /// Its length when it was seen, which tells how many chunks to read.
    pub length: u64,
    /// Number of the copy, never used before.
    pub ino: Ino,
    /// Where the copy gets its name.
    pub at: At,
    /// Whether it gets it now, and who may see that.
    pub visibility: Visibility,
    /// Whether owner, mode and times are kept; the owner only if it is the caller, unless that is
    /// root.
    pub preserve: bool,
    /// Bits taken away unless they are kept.
    pub umask: u16,
    /// Who asks.
    pub caller: Caller,
}

/// How a copy gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Later, by [`Attach`]: it is the root of a tree that is not whole yet.
    Later,
    /// Now, in a directory that nobody else can see yet.
    Hidden,
    /// Now, in a directory that others can see: it must be guarded, and its times change.
    Visible,
}

impl Op for CloneNode {
    type Out = Attr;
    const NAME: &'static str = "clone";

    fn conflict_keys(&self) -> ConflictKeys {
        if self.visibility == Visibility::Visible {
            smallvec![ConflictKey::Dir(self.at.dir)]
        } else {
            smallvec![ConflictKey::Node(self.ino)]
        }
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let guessed = self.length.div_ceil(CHUNK_SIZE).min(FEW_CHUNKS) as u32;
        // The records are held: their slices must not lose their last reference before this adds
        // one.
        let mut reads: Vec<Want> =
            (0..guessed).map(|index| Want::get(Key::Chunk(self.source, index), Hold::Lock)).collect();
        // So is the node: its length must be that of the chunks. That they are the same at the
        // commit would not tell: a file that is emptied, filled and emptied shows the same chunks
        // twice, with another length between.
        reads.push(Want::node(self.source, Hold::Lock));
        reads.push(Want::all(List::Xattrs(self.source), Hold::None));
        let At { dir, name } = &self.at;
        if self.visibility == Visibility::Visible {
            reads.push(Want::node(*dir, Hold::Guard));
            reads.push(Want::get(Key::Entry(*dir, name.clone()), Hold::None));
        }
        // A listing may show a name twice, and then the conflict is with the copy made first.
        if self.visibility == Visibility::Hidden && view.again() {
            reads.push(Want::get(Key::Entry(*dir, name.clone()), Hold::None));
        }
        view.want(&reads)?;
        if self.visibility != Visibility::Later && view.again() {
            rules::require(view.entry(*dir, name, Hold::None)?.is_none(), FsError::Exists)?;
        }
        let source = rules::existing(view, self.source, Hold::Lock)?;
        let chunks = self.chunks(view, &source, guessed)?;
        let access = if source.is_dir() { Access(5) } else { Access::READ };
        if source.kind != FileType::Symlink {
            rules::check(view, &self.caller, &source, access)?;
        }
        let attr = self.attr(view, &source);
        let dir = if self.visibility == Visibility::Later { Ino::NONE } else { *dir };
        rules::admit(view, dir, (attr.uid, attr.gid), attr.space(), 1)?;
        self.content(view, &source, &chunks)?;
        view.insert(Row::Node(self.ino, attr));
        rules::charge_volume(view, &attr, attr.space(), 1);
        self.name(view, &attr)?;
        view.log(|| self.line());
        Ok(attr)
    }
}

impl CloneNode {
    fn line(&self) -> Line {
        let Self { source, ino, preserve, umask, .. } = *self;
        let top = self.visibility != Visibility::Hidden;
        Line::Clone { source, at: self.at.clone(), ino, preserve, umask, top }
    }

    /// Chunks that the source may have; all are held. Those of a large file, most of which may not
    /// be there, are looked for first.
    fn chunks(&self, view: &mut View<'_>, source: &Attr, guessed: u32) -> Result<Vec<u32>, Stop> {
        if !source.is_file() {
            return Ok(Vec::new());
        }
        let all = source.length.div_ceil(CHUNK_SIZE);
        let mut chunks: Vec<u32> = (0..all.min(FEW_CHUNKS) as u32).collect();
        if all > FEW_CHUNKS {
            let rest = List::Chunks(self.source, FEW_CHUNKS as u32, u32::try_from(all).unwrap_or(u32::MAX));
            let rows = view.all(rest, Hold::None)?;
            chunks.extend(
                rows.iter()
                    .filter_map(|row| if let Row::Chunk(_, index, _) = row { Some(*index) } else { None }),
            );
        }
        let rest = chunks.iter().filter(|index| **index >= guessed);
        let rest: Vec<Want> =
            rest.map(|index| Want::get(Key::Chunk(self.source, *index), Hold::Lock)).collect();
        view.want(&rest)?;
        Ok(chunks)
    }

    fn attr(&self, view: &View<'_>, source: &Attr) -> Attr {
        let now = view.now();
        let mut attr = *source;
        attr.nlink = if source.is_dir() { 2 } else { 1 };
        attr.parent = if self.visibility == Visibility::Later { Ino::ROOT } else { self.at.dir };
        attr.flags = AttrFlags(source.flags.0 & !(AttrFlags::IMMUTABLE | AttrFlags::APPEND));
        attr.ctime = now;
        if self.preserve {
            // As with `cp -p`: only root gives files away.
            if !self.caller.is_privileged() && self.caller.uid != source.uid {
                (attr.uid, attr.gid) = (self.caller.uid, self.caller.gid);
                attr.mode &= !0o6000;
            }
        } else {
            attr.uid = self.caller.uid;
            attr.gid = self.caller.gid;
            attr.mode &= !(self.umask & 0o777);
            attr.atime = now;
            attr.mtime = now;
        }
        attr
    }

    /// Copies what hangs on the node.
    fn content(&self, view: &mut View<'_>, source: &Attr, chunks: &[u32]) -> Result<(), Stop> {
        for row in view.all(List::Xattrs(self.source), Hold::None)? {
            if let Row::Xattr(_, name, value) = row {
                view.insert(Row::Xattr(self.ino, name, value));
            }
        }
        match source.kind {
            FileType::File => {
                for &index in chunks {
                    if let Some(Row::Chunk(_, _, records)) =
                        view.get(&Key::Chunk(self.source, index), Hold::Lock)?
                    {
                        for slice in records.iter().filter(|slice| !slice.is_hole()) {
                            view.write(Write::Refer(slice.id, slice.size, 1));
                        }
                        view.insert(Row::Chunk(self.ino, index, records));
                    }
                }
            }
            FileType::Symlink => {
                if let Some(Row::Symlink(_, target)) = view.get(&Key::Symlink(self.source), Hold::None)? {
                    view.insert(Row::Symlink(self.ino, target));
                }
            }
            FileType::Dir if view.known().format().dir_stats => {
                view.put(Row::DirStat(self.ino, DirStat::default()));
            }
            _ => {}
        }
        Ok(())
    }

    fn name(&self, view: &mut View<'_>, attr: &Attr) -> Result<(), Stop> {
        let at = &self.at;
        if self.visibility == Visibility::Later {
            let now = view.now().sec;
            view.put(Row::Detached(self.ino, now));
            return Ok(());
        }
        if self.visibility == Visibility::Visible {
            named(view, at, self.ino, attr, (attr.space(), 1), &self.caller)?;
            return Ok(());
        }
        view.insert(Row::Entry(at.dir, at.name.clone(), Entry { kind: attr.kind, ino: self.ino }));
        if attr.is_dir() {
            view.write(Write::Bump { ino: at.dir, nlink: 1, time: None });
        }
        rules::use_dir(view, at.dir, rules::entry_usage(attr));
        Ok(())
    }
}

/// Gives a detached tree its name. Two trips.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Root of the tree.
    pub ino: Ino,
    /// Its place.
    pub at: At,
    /// Bytes and inodes that it uses, its root included: they count for the quotas above its place
    /// from now on.
    pub usage: (i64, i64),
    /// Who asks.
    pub caller: Caller,
}

impl Op for Attach {
    type Out = Made;
    const NAME: &'static str = "attach";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Dir(self.at.dir), ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Made, Stop> {
        view.want(&[
            Want::node(self.at.dir, Hold::Guard),
            Want::get(Key::Entry(self.at.dir, self.at.name.clone()), Hold::None),
            Want::node(self.ino, Hold::Lock),
            Want::get(Key::Detached(self.ino), Hold::Lock),
        ])?;
        let mut attr = rules::existing(view, self.ino, Hold::Lock)?;
        rules::require(view.get(&Key::Detached(self.ino), Hold::Lock)?.is_some(), FsError::NotFound)?;
        view.delete(Key::Detached(self.ino));
        attr.parent = self.at.dir;
        view.put(Row::Node(self.ino, attr));
        let (space, inodes) = self.usage;
        rules::admit_tree(view, self.at.dir, space, inodes)?;
        let dir = named(view, &self.at, self.ino, &attr, self.usage, &self.caller)?;
        view.log(|| Line::Attach { ino: self.ino, at: self.at.clone() });
        Ok(Made { attr, dir })
    }
}

/// Moves a detached tree to the trash, from where it can be removed like every tree. Nobody sees it
/// elsewhere. If its removal ends early, the tree goes with its hour. Two trips. Returns its place.
#[derive(Clone, Debug)]
pub struct TrashDetached {
    /// Root of the tree.
    pub ino: Ino,
}

impl Op for TrashDetached {
    type Out = At;
    const NAME: &'static str = "trash_detached";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<At, Stop> {
        view.want(&[
            Want::node(self.ino, Hold::Lock),
            Want::get(Key::Detached(self.ino), Hold::Lock),
            Want::get(Key::Counter(Counter::DirMoves), Hold::Lock),
            Want::node(Ino::TRASH, Hold::None),
        ])?;
        let attr = rules::existing(view, self.ino, Hold::Lock)?;
        rules::require(view.get(&Key::Detached(self.ino), Hold::Lock)?.is_some(), FsError::NotFound)?;
        // Its parent was the directory in which it would have got its name. No quota there counts
        // it.
        let moves = rules::counter(view, Counter::DirMoves)?;
        view.put(Row::Counter(Counter::DirMoves, moves + 1));
        make_trash(view)?;
        let hour = trash_hour(view)?;
        let at = At::new(hour, trash_name(Ino::NONE, self.ino, &Name::new(b"clone")?));
        view.delete(Key::Detached(self.ino));
        view.put(Row::Node(self.ino, Attr { parent: hour, ..attr }));
        view.insert(Row::Entry(hour, at.name.clone(), Entry { kind: attr.kind, ino: self.ino }));
        rules::use_dir(view, hour, rules::entry_usage(&attr));
        view.log(|| Line::Attach { ino: self.ino, at: at.clone() });
        Ok(at)
    }
}

/// Makes the first entry of a node in a directory that others see. With all below it uses (bytes,
/// inodes).
fn named(
    view: &mut View<'_>,
    at: &At,
    ino: Ino,
    attr: &Attr,
    (space, inodes): (i64, i64),
    caller: &Caller,
) -> Result<Attr, Stop> {
    let mut dir = rules::changing_dir(view, at.dir, caller)?;
    rules::require(view.entry(at.dir, &at.name, Hold::None)?.is_none(), FsError::Exists)?;
    let now = view.now();
    let nlink = i32::from(attr.is_dir());
    view.insert(Row::Entry(at.dir, at.name.clone(), Entry { kind: attr.kind, ino }));
    view.write(Write::Bump { ino: at.dir, nlink, time: Some(now) });
    rules::use_dir(view, at.dir, rules::entry_usage(attr));
    rules::charge_tree(view, at.dir, space, inodes)?;
    dir.nlink = dir.nlink.saturating_add_signed(nlink);
    dir.mtime = dir.mtime.max(now);
    dir.ctime = dir.ctime.max(now);
    Ok(dir)
}
