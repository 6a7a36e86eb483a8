//! Repairs, each an operation like any other.
//!
//! What must stay true: a repair that finds another state than the check does nothing. No repair
//! deletes data that a user may need: a node without a name gets one, in the root of the volume.

use sluice_types::{Attr, FileType, FsError, Ino, Name, Time};
use smallvec::smallvec;

use super::finding::Finding;
use crate::{
    change_log::Line,
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    ops::{
        compact::release,
        removal::{trash_name, trash_origin},
        rules,
    },
    schema::{Entry, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Puts one finding right, if it still holds. Answers whether it did.
#[derive(Clone, Debug)]
pub struct Repair {
    /// What to put right.
    pub finding: Finding,
    /// Permissions of directories that are made again.
    pub dir_mode: u16,
    /// If others use the volume, when the check began. What a survey counts and what it is compared
    /// with are read one after the other, and where names or slices come and go all the time two
    /// surveys may be wrong alike: nodes that were changed since then are left, and no slice is
    /// said to have fewer users.
    pub busy_since: Option<Time>,
}

impl Op for Repair {
    type Out = bool;
    const NAME: &'static str = "repair";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("repair")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        match &self.finding {
            Finding::NoRoot => self.make_dir(view, Ino::ROOT, Ino::ROOT),
            Finding::UnusableName { dir, name, ino } => rename_unusable(view, *dir, name, *ino),
            Finding::EntryWithoutNode { dir, name, ino, kind } => self.entry(view, *dir, name, *ino, *kind),
            Finding::EntryWithoutDir { dir, .. } => self.make_dir(view, *dir, Ino::ROOT),
            Finding::Kind { dir, name, ino, kind } => kind_of(view, *dir, name, *ino, *kind),
            Finding::NodeWithoutEntry { ino, .. } => Ok(self.rests(view, *ino)? && give_name(view, *ino)?),
            Finding::Links { ino, links } => {
                let mut is_dir = false;
                let done = self.change(view, *ino, |attr| {
                    let holds = i64::from(attr.nlink) == links.stored;
                    attr.nlink = links.counted as u32;
                    is_dir = attr.is_dir();
                    holds
                })?;
                if done && is_dir {
                    view.log(|| Line::RepairDir(*ino));
                }
                Ok(done)
            }
            Finding::Parent { ino, stored, found } => self.change(view, *ino, |attr| {
                let holds = attr.parent == *stored;
                attr.parent = *found;
                holds
            }),
            Finding::Parents { ino, dir, names } => {
                if !self.rests(view, *ino)? {
                    return Ok(false);
                }
                let key = Key::Parents(*ino, *dir);
                let stored =
                    if let Some(Row::Parents(_, _, names)) = view.get(&key, Hold::Lock)? { names } else { 0 };
                if stored != names.stored {
                    return Ok(false);
                }
                view.write(Write::Link(*ino, *dir, names.counted - stored));
                // A write that has read the parents compares the node alone. What else was found
                // in this node may still be repaired.
                if let Some(mut attr) = view.node(*ino, Hold::Lock)? {
                    attr.ctime = attr.ctime.next();
                    view.put(Row::Node(*ino, attr));
                }
                Ok(true)
            }
            Finding::ChunkWithoutFile { ino, index } => drop_chunk(view, *ino, *index),
            Finding::References { references, .. }
                if self.busy_since.is_some() && references.counted < references.stored =>
            {
                Ok(false)
            }
            Finding::References { id, size, references } => {
                let key = Key::SliceRef(*id, *size);
                // Without a record it counts as one.
                let found = match view.get(&key, Hold::Lock)? {
                    Some(Row::SliceRef(_, _, found)) => found,
                    _ => 1,
                };
                if found != references.stored && (references.stored != -1 || found != 1) {
                    return Ok(false);
                }
                view.put(Row::SliceRef(*id, *size, references.counted));
                Ok(true)
            }
            Finding::NextNumber { counter, next } | Finding::Total { counter, total: next } => {
                let found = rules::counter(view, *counter)?;
                if found == next.stored {
                    view.put(Row::Counter(*counter, next.counted));
                }
                Ok(found == next.stored)
            }
            Finding::Usage { dir, stored, counted } => {
                let found = match view.get(&Key::DirStat(*dir), Hold::Lock)? {
                    Some(Row::DirStat(_, found)) => Some(found),
                    _ => None,
                };
                if found != *stored {
                    return Ok(false);
                }
                view.put(Row::DirStat(*dir, *counted));
                view.log(|| Line::DirStat(*dir, *counted));
                Ok(true)
            }
            Finding::Unreadable { .. }
            | Finding::SeveralNames { .. }
            | Finding::Unreachable { .. }
            | Finding::SymlinkWithoutTarget { .. } => Ok(false),
        }
    }
}

impl Repair {
    /// Whether a node was not changed since the check began, which every change of its names would
    /// do.
    fn rests(&self, view: &mut View<'_>, ino: Ino) -> Result<bool, Stop> {
        let Some(since) = self.busy_since else { return Ok(true) };
        Ok(view.node(ino, Hold::Lock)?.is_none_or(|attr| attr.ctime < since))
    }

    /// Changes a node if `edit` finds it as it was.
    fn change(
        &self,
        view: &mut View<'_>,
        ino: Ino,
        edit: impl FnOnce(&mut Attr) -> bool,
    ) -> Result<bool, Stop> {
        if !self.rests(view, ino)? {
            return Ok(false);
        }
        let Some(mut attr) = view.node(ino, Hold::Lock)? else { return Ok(false) };
        let holds = edit(&mut attr);
        if holds {
            view.put(Row::Node(ino, attr));
        }
        Ok(holds)
    }

    /// An entry whose node is missing: a directory is made again, since what is in it still exists;
    /// anything else is lost, and its entry goes.
    fn entry(
        &self,
        view: &mut View<'_>,
        dir: Ino,
        name: &Name,
        ino: Ino,
        kind: FileType,
    ) -> Result<bool, Stop> {
        if kind == FileType::Dir {
            return self.make_dir(view, ino, dir);
        }
        let key = Key::Entry(dir, name.clone());
        view.want(&[Want::get(key.clone(), Hold::Lock), Want::node(ino, Hold::None)])?;
        let entry = view.entry(dir, name, Hold::Lock)?;
        if view.node(ino, Hold::None)?.is_some() || entry != Some(Entry { kind, ino }) {
            return Ok(false);
        }
        view.delete(key);
        Ok(true)
    }

    fn make_dir(&self, view: &mut View<'_>, ino: Ino, parent: Ino) -> Result<bool, Stop> {
        if view.node(ino, Hold::None)?.is_some() {
            return Ok(false);
        }
        let attr = Attr::new(FileType::Dir, self.dir_mode, 0, 0, parent, view.now());
        view.insert(Row::Node(ino, attr));
        Ok(true)
    }
}

fn kind_of(view: &mut View<'_>, dir: Ino, name: &Name, ino: Ino, kind: FileType) -> Result<bool, Stop> {
    let key = Key::Entry(dir, name.clone());
    view.want(&[Want::get(key, Hold::Lock), Want::node(ino, Hold::Guard)])?;
    let entry = view.entry(dir, name, Hold::Lock)?;
    let node = view.node(ino, Hold::Guard)?;
    if entry.is_none_or(|entry| entry.ino != ino) || node.is_none_or(|node| node.kind != kind) {
        return Ok(false);
    }
    view.put(Row::Entry(dir, name.clone(), Entry { kind, ino }));
    Ok(true)
}

/// The name that a repair gives to a node.
fn repaired_name(ino: Ino) -> Result<Name, Stop> {
    Name::new(format!("lost+found.{ino}").as_bytes()).map_err(Stop::Fail)
}

/// Replaces a name that no program can use, in the same directory. In the trash, the new name still
/// says where the file was.
fn rename_unusable(view: &mut View<'_>, dir: Ino, unusable: &Name, ino: Ino) -> Result<bool, Stop> {
    let mut name = repaired_name(ino)?;
    if dir.is_trash_hour()
        && let Some((origin, _)) = trash_origin(unusable)
    {
        name = trash_name(origin, ino, &name);
    }
    let (from, to) = (Key::Entry(dir, unusable.clone()), Key::Entry(dir, name.clone()));
    view.want(&[
        Want::node(dir, Hold::Guard),
        Want::get(from.clone(), Hold::Lock),
        Want::get(to, Hold::None),
    ])?;
    let entry = view.entry(dir, unusable, Hold::Lock)?;
    let Some(entry) = entry.filter(|entry| entry.ino == ino) else { return Ok(false) };
    if view.node(dir, Hold::Guard)?.is_none() || view.entry(dir, &name, Hold::None)?.is_some() {
        return Ok(false);
    }
    view.delete(from);
    view.insert(Row::Entry(dir, name, entry));
    view.write(Write::Bump { ino: dir, nlink: 0, time: Some(view.now()) });
    Ok(true)
}

/// Gives a node without a name one in the root.
fn give_name(view: &mut View<'_>, ino: Ino) -> Result<bool, Stop> {
    let name = repaired_name(ino)?;
    view.want(&[
        Want::node(Ino::ROOT, Hold::Guard),
        Want::node(ino, Hold::Lock),
        Want::get(Key::Entry(Ino::ROOT, name.clone()), Hold::None),
    ])?;
    if view.node(Ino::ROOT, Hold::Guard)?.is_none() {
        return Err(FsError::NotFound.into());
    }
    let Some(mut attr) = view.node(ino, Hold::Lock)? else { return Ok(false) };
    if view.entry(Ino::ROOT, &name, Hold::None)?.is_some() {
        return Ok(false);
    }
    attr.parent = Ino::ROOT;
    if !attr.is_dir() {
        attr.nlink = 1;
    }
    view.put(Row::Node(ino, attr));
    view.insert(Row::Entry(Ino::ROOT, name, Entry { kind: attr.kind, ino }));
    let time = Some(view.now());
    view.write(Write::Bump { ino: Ino::ROOT, nlink: i32::from(attr.is_dir()), time });
    Ok(true)
}

/// Drops a chunk that belongs to nobody; the cleaning deletes what only it used.
fn drop_chunk(view: &mut View<'_>, ino: Ino, index: u32) -> Result<bool, Stop> {
    let key = Key::Chunk(ino, index);
    view.want(&[Want::get(key.clone(), Hold::Lock), Want::node(ino, Hold::None)])?;
    let records = match view.get(&key, Hold::Lock)? {
        Some(Row::Chunk(_, _, records)) if view.node(ino, Hold::None)?.is_none() => records,
        _ => return Ok(false),
    };
    let slices: Vec<(u64, u32)> =
        records.iter().filter(|record| !record.is_hole()).map(|record| (record.id, record.size)).collect();
    let reads: Vec<Want> =
        slices.iter().map(|(id, size)| Want::get(Key::SliceRef(*id, *size), Hold::Lock)).collect();
    view.want(&reads)?;
    view.delete(key);
    release(view, &slices)?;
    Ok(true)
}
