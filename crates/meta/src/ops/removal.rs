//! The effect on a node when one of its names is removed: it moves to the trash, loses a link, or
//! is deleted.
//!
//! Unlink, rmdir and a rename over an existing name all end here.

use bytes::Bytes;
use sluice_types::{Attr, AttrFlags, Caller, FileType, FsError, Ino, Name, Time};

use super::rules;
use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    fact::Fact,
    op::At,
    schema::{Counter, DirStat, Entry, Key, QuotaKey, Row},
    view::{Stop, View},
};

/// Seconds of an hour.
const HOUR: i64 = 3600;

/// A name that is about to go, and the node it stands for, which is locked.
#[derive(Clone, Debug)]
pub struct Removal {
    /// Directory of the name.
    pub dir: Ino,
    /// The name.
    pub name: Name,
    /// The node.
    pub ino: Ino,
    /// Its attributes.
    pub attr: Attr,
    /// Whether the trash is passed by.
    pub skip_trash: bool,
}

/// What became of the node whose name was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedNode {
    /// It has other names, or sits in the trash.
    Kept(Attr),
    /// It has no name but this client has it open.
    Sustained(Attr),
    /// It is gone. If it was a file, its chunks wait to be deleted up to this length.
    Deleted {
        /// Length of a deleted file.
        file_length: Option<u64>,
        /// Its attributes, without links; none if it was missing before.
        attr: Option<Attr>,
    },
}

impl Removal {
    /// States all changes but those to the entry itself and to the directory's own record. What
    /// became of the node, and the hour directory to which its name moved, if it did.
    pub fn apply(&self, view: &mut View<'_>) -> Result<(RemovedNode, Ino), Stop> {
        rules::use_dir(view, self.dir, rules::minus(rules::entry_usage(&self.attr)));
        if self.attr.is_dir() || self.attr.nlink <= 1 || self.attr.parent == Ino::NONE {
            rules::charge_tree(view, self.dir, -self.attr.space(), -1)?;
        }
        if self.goes_to_trash(view)
            && let Some(moved) = self.to_trash(view)?
        {
            return Ok(moved);
        }
        let node = if self.attr.is_dir() { self.remove_dir(view) } else { self.remove_link(view) };
        Ok((node, Ino::NONE))
    }

    fn goes_to_trash(&self, view: &View<'_>) -> bool {
        !self.skip_trash
            && view.known().format().trash_days > 0
            && !self.dir.is_trash()
            && !self.attr.flags.has(AttrFlags::SKIP_TRASH)
    }

    /// Moves the entry to the hour directory; `None` if the same link is there already.
    fn to_trash(&self, view: &mut View<'_>) -> Result<Option<(RemovedNode, Ino)>, Stop> {
        let hour = trash_hour(view)?;
        let name = trash_name(self.dir, self.ino, &self.name);
        let single = self.attr.is_dir() || self.attr.parent != Ino::NONE;
        if !single && view.entry(hour, &name, Hold::None)?.is_some() {
            return Ok(None);
        }
        let mut attr = self.attr;
        rules::advance_ctime(&mut attr, view.now());
        if single {
            attr.parent = hour;
        } else {
            view.write(Write::Link(self.ino, hour, 1));
            view.write(Write::Link(self.ino, self.dir, -1));
        }
        view.put(Row::Node(self.ino, attr));
        view.insert(Row::Entry(hour, name, Entry { kind: attr.kind, ino: self.ino }));
        rules::use_dir(view, hour, rules::entry_usage(&attr));
        if attr.is_dir() {
            discard_usage(view, self.ino);
        }
        Ok(Some((RemovedNode::Kept(attr), hour)))
    }

    fn remove_dir(&self, view: &mut View<'_>) -> RemovedNode {
        view.delete(Key::Node(self.ino));
        discard_usage(view, self.ino);
        view.write(Write::Clear(List::Xattrs(self.ino)));
        rules::charge_volume(view, &self.attr, -4096, -1);
        let mut attr = Attr { nlink: 0, ..self.attr };
        rules::advance_ctime(&mut attr, view.now());
        RemovedNode::Deleted { file_length: None, attr: Some(attr) }
    }

    fn remove_link(&self, view: &mut View<'_>) -> RemovedNode {
        let mut attr = self.attr;
        attr.nlink = attr.nlink.saturating_sub(1);
        rules::advance_ctime(&mut attr, view.now());
        if attr.nlink > 0 {
            if attr.parent == Ino::NONE {
                view.write(Write::Link(self.ino, self.dir, -1));
            }
            view.put(Row::Node(self.ino, attr));
            return RemovedNode::Kept(attr);
        }
        let sid = view.known().sid();
        if attr.is_file() && sid != 0 && !view.destroys(self.ino) {
            view.put(Row::Node(self.ino, attr));
            view.put(Row::Sustained(sid, self.ino));
            if attr.parent == Ino::NONE {
                view.write(Write::Clear(List::Parents(self.ino)));
            }
            return RemovedNode::Sustained(attr);
        }
        RemovedNode::Deleted { file_length: destroy(view, self.ino, &self.attr), attr: Some(attr) }
    }
}

/// A removed directory counts nothing any more.
fn discard_usage(view: &mut View<'_>, dir: Ino) {
    view.write(Write::Discard(Key::DirStat(dir)));
    // It may have a quota that this client has not heard of yet.
    if view.known().limits_dirs() {
        view.write(Write::Discard(Key::Quota(QuotaKey::Dir(dir))));
    }
}

/// Removes a node without names, and all that belongs to it. A file's chunks are left to a
/// deleted-file record.
pub fn destroy(view: &mut View<'_>, ino: Ino, attr: &Attr) -> Option<u64> {
    view.delete(Key::Node(ino));
    view.write(Write::Clear(List::Xattrs(ino)));
    if attr.parent == Ino::NONE {
        view.write(Write::Clear(List::Parents(ino)));
    }
    rules::charge_volume(view, attr, -attr.space(), -1);
    match attr.kind {
        FileType::File => {
            let now = view.now().sec;
            view.put(Row::DelFile(ino, attr.length, now));
            Some(attr.length)
        }
        FileType::Symlink => {
            view.write(Write::Discard(Key::Symlink(ino)));
            None
        }
        _ => None,
    }
}

/// Makes the root of the trash, if the volume has none.
pub(super) fn make_trash(view: &mut View<'_>) -> Result<(), Stop> {
    if view.node(Ino::TRASH, Hold::None)?.is_none() {
        let root = Attr::new(FileType::Dir, 0o555, 0, 0, Ino::ROOT, view.now());
        view.insert(Row::Node(Ino::TRASH, root));
    }
    Ok(())
}

/// The hour directory of the trash for now, made if this is the first deletion of the hour. It
/// needs no lane and no guard: nobody removes the hour that is ([`check_hour`]).
pub(super) fn trash_hour(view: &mut View<'_>) -> Result<Ino, Stop> {
    let hour = view.now().sec.div_euclid(HOUR);
    if let Some(dir) = view.known().trash_hour(hour) {
        return Ok(dir);
    }
    let entry_name = Name::new(hour_name(view.now()).as_bytes())?;
    if let Some(entry) = view.entry(Ino::TRASH, &entry_name, Hold::None)? {
        // One that this very batch makes may never be: its commit can fail, and the next try has to
        // make it again.
        if !view.is_pending(&Key::Entry(Ino::TRASH, entry_name)) {
            view.learns(Fact::TrashHour(hour, entry.ino));
        }
        return Ok(entry.ino);
    }
    let offset = rules::counter(view, Counter::NextTrash)? + 1;
    let ino = Ino(Ino::TRASH.0 + offset as u64);
    let now = view.now();
    let attr = Attr::new(FileType::Dir, 0o555, 0, 0, Ino::TRASH, now);
    view.put(Row::Counter(Counter::NextTrash, offset));
    view.log(|| Line::Create {
        at: At::new(Ino::TRASH, entry_name.clone()),
        owner: (0, 0),
        kind: FileType::Dir,
        mode: 0o555,
        umask: 0,
        target: Bytes::new(),
        ino,
    });
    view.insert(Row::Entry(Ino::TRASH, entry_name, Entry { kind: FileType::Dir, ino }));
    view.insert(Row::Node(ino, attr));
    if view.known().format().dir_stats {
        view.put(Row::DirStat(ino, DirStat::default()));
    }
    rules::charge_volume(view, &attr, 4096, 1);
    Ok(ino)
}

/// Hour directories that deletions may still go to, by the clock of any client, stay where they
/// are: whoever knows one puts files there without asking whether it is there.
pub(super) fn check_hour(view: &View<'_>, at: &At, caller: &Caller) -> Result<(), FsError> {
    if at.dir != Ino::TRASH || !caller.check {
        return Ok(());
    }
    let now = view.now();
    let earlier = hour_name(Time { sec: now.sec - HOUR, ..now });
    rules::require(at.name.as_ref() < earlier.as_bytes(), FsError::Busy)
}

/// Name of an hour directory: `YYYY-MM-DD-HH` in UTC.
pub fn hour_name(time: Time) -> String {
    time.utc("%Y-%m-%d-%H")
}

/// Name in the trash: where it was and what it was, cut to the longest name there may be.
pub(crate) fn trash_name(dir: Ino, ino: Ino, name: &Name) -> Name {
    let mut bytes = format!("{dir}-{ino}-").into_bytes();
    bytes.extend_from_slice(name);
    bytes.truncate(sluice_types::MAX_NAME);
    Name::stored(&bytes)
}

/// Where an entry of the trash was and what it was called, by its name in the trash. `None` if the
/// name does not say it.
pub fn trash_origin(name: &Name) -> Option<(Ino, &[u8])> {
    let mut parts = name.splitn(3, |byte| *byte == b'-');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (dir, _) = (number()?, number()?);
    Some((Ino(dir), parts.next()?))
}

/// Fails if a node may not lose a name.
pub fn check_link_removal(attr: &Attr) -> Result<(), Stop> {
    if attr.is_dir() {
        return Err(FsError::IsDir.into());
    }
    rules::check_removable(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_utc() {
        for (sec, name) in [
            (0, "1970-01-01-00"),
            (951_782_400, "2000-02-29-00"),
            (1_709_251_199, "2024-02-29-23"),
            (1_795_288_064, "2026-11-21-19"),
        ] {
            assert_eq!(hour_name(Time { sec, nsec: 0 }), name);
        }
    }

    #[test]
    fn trash_names_are_cut_at_255_bytes() {
        let long = Name::new(&[b'x'; 255]).expect("valid");
        let name = trash_name(Ino(7), Ino(99), &long);
        assert_eq!(name.len(), 255);
        assert!(name.starts_with(b"7-99-xxx"));
    }

    #[test]
    fn names_in_the_trash_say_where_a_file_was() {
        let origin =
            |name: &[u8]| trash_origin(&Name::stored(name)).map(|(dir, name)| (dir.0, name.to_vec()));
        assert_eq!(origin(b"1-2-a-b-c"), Some((1, b"a-b-c".to_vec())));
        assert_eq!(origin(b"12-345-\xff"), Some((12, b"\xff".to_vec())));
        assert_eq!(origin(b"1-2-"), Some((1, b"".to_vec())));
        for wrong in [&b"1-2"[..], b"x-2-a", b"1-y-a", b"a", b"1--a", b"-1-2-a"] {
            assert_eq!(origin(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
