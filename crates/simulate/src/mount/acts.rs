//! What programs of a mount change: names, times and lengths of files.

use sluice_meta::{
    op::At,
    ops::{rename::RenameMode, setattr::SetTime},
    schema::{Key, Row},
};
use sluice_types::{Attr, FileType, FsError, FsResult, Ino, Time};
use sluice_vfs::{Changes, Dir, Entry, NewNode};

use super::{Call, Mount, WRITTEN};
use crate::{choose::Scene, names::Asked, plan::Kind};

impl Mount {
    pub(super) fn act(&self) {
        let kind = self.world.plan.kinds.next(|bound| self.world.sched.below(bound));
        let scene = Scene::of(&self.world);
        let call = self.begin();
        match kind {
            Kind::Mkdir => self.make(&call, &scene.place(), FileType::Dir),
            Kind::Create if self.below(2) == 0 => self.make(&call, &scene.place(), FileType::File),
            Kind::Create => self.create(&call, &scene.place()),
            Kind::Rmdir => {
                let Some(dir) = scene.entry(|kind| kind == FileType::Dir) else { return };
                let done = self.vfs.rmdir(&self.caller, &call.interrupt, dir.at.dir, &dir.at.name);
                self.answered(&call, &Asked::Remove(dir.at), done.as_ref().map(|()| None));
            }
            Kind::Unlink => {
                let Some(file) = scene.entry(|kind| kind != FileType::Dir) else { return };
                let dir = self.reach(&call, file.at.dir);
                let done = self.vfs.unlink(&self.caller, &call.interrupt, dir, &file.at.name);
                self.answered(&call, &Asked::Remove(file.at), done.as_ref().map(|()| None));
            }
            Kind::Link => {
                let Some(file) = scene.file() else { return };
                let at = scene.place();
                let made = self.vfs.link(&self.caller, &call.interrupt, file.ino, at.dir, &at.name);
                self.made(&call, &at, Some(file.ino), made.as_ref());
            }
            Kind::Rename => {
                let Some(from) = scene.entry(|_| true) else { return };
                let to = if self.below(2) == 0 { scene.entry(|_| true).map(|to| to.at) } else { None };
                self.rename(&call, &from.at, &to.unwrap_or_else(|| scene.place()));
            }
            Kind::SetAttr | Kind::Truncate => {
                let Some(ino) = self.some_file() else { return };
                if kind == Kind::SetAttr { self.set_time(call, ino) } else { self.truncate(call, ino) }
            }
        }
    }

    /// A directory, sometimes by a guess that the next call has to check.
    fn reach(&self, call: &Call, dir: Ino) -> Dir {
        let by_path = || {
            let path = Scene::of(&self.world).path(dir).filter(|_| self.below(2) == 0)?;
            // It keeps what it met.
            self.vfs.walk(&self.caller, &call.interrupt, Ino::ROOT, &path).ok()?;
            self.vfs.guess(&self.caller, Ino::ROOT, &path).filter(|guess| guess.ino() == dir)
        };
        by_path().unwrap_or_else(|| dir.into())
    }

    /// Sets a time of a file that nobody else sets.
    fn set_time(&self, call: Call, ino: Ino) {
        let time = Time { sec: 1_000_000_000 + self.below(1000) as i64, nsec: self.world.number() as u32 };
        let changes = Changes { mtime: Some(SetTime::At(time)), ..Changes::default() };
        let changed = self.vfs.setattr(&self.caller, &call.interrupt, ino, changes);
        self.world.log(|| format!("mount {} sets a time of {ino}: {changed:?}", self.at));
        self.changed(call, ino, &changed, |now| now.mtime == time);
    }

    fn truncate(&self, call: Call, ino: Ino) {
        let length = u64::from(WRITTEN) * self.below(5) as u64;
        let changed = self.vfs.truncate(&self.caller, &call.interrupt, ino, (length, None), false);
        self.world.log(|| format!("mount {} truncates {ino} to {length}: {changed:?}", self.at));
        self.changed(call, ino, &changed, |now| now.length == length);
    }

    /// A change was answered, after which attributes were as `done` says: what is shown is no
    /// older.
    fn changed(&self, mut call: Call, ino: Ino, changed: &FsResult<Attr>, done: impl Fn(&Attr) -> bool) {
        let Ok(attr) = changed else { return };
        if !self.is_single() {
            return;
        }
        let values = self.world.values(&Key::Node(ino), call.since);
        let is_done = |row: &Option<Row>| matches!(row, Some(Row::Node(_, now)) if done(now));
        match values.iter().find(|(_, row)| is_done(row)) {
            Some((moment, _)) => call.since = *moment,
            None => self.fault(&format!("was told that {ino} was changed: {attr:?}")),
        }
        self.attr_shown(&call, ino, attr, true, "a change");
    }

    fn make(&self, call: &Call, at: &At, kind: FileType) {
        let dir = self.reach(call, at.dir);
        let made = self.vfs.make(&self.caller, &call.interrupt, dir, &at.name, node(kind));
        self.made(call, at, None, made.as_ref());
    }

    fn create(&self, call: &Call, at: &At) {
        let excl = if self.below(2) == 0 { libc::O_EXCL } else { 0 };
        let flags = libc::O_CREAT | libc::O_RDWR | excl;
        let dir = self.reach(call, at.dir);
        let made = self.vfs.create(&self.caller, &call.interrupt, dir, &at.name, node(FileType::File), flags);
        match made {
            Ok((entry, opened)) => {
                self.made(call, at, None, Ok(&entry));
                self.opened(call, entry.ino, opened, true);
            }
            Err(error) if excl != 0 => self.made(call, at, None, Err(&error)),
            // It may have been made and removed by others meanwhile.
            Err(_) => {}
        }
    }

    fn made(&self, call: &Call, at: &At, of: Option<Ino>, made: Result<&Entry, &FsError>) {
        self.answered(call, &Asked::Make(at.clone(), of), made.map(|entry| Some(entry.ino)));
        if let Ok(entry) = made {
            self.name_shown(call, at, Some(entry.ino), true, "a new name");
            // A link may show what was known of the file's content.
            self.attr_shown(call, entry.ino, &entry.attr, of.is_none(), "a new name");
        }
    }

    fn rename(&self, call: &Call, from: &At, to: &At) {
        let mode = match self.below(8) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let old = (self.reach(call, from.dir), &from.name[..]);
        let new = (self.reach(call, to.dir), &to.name[..]);
        let done = self.vfs.rename(&self.caller, &call.interrupt, old, new, mode);
        let asked = Asked::Rename(from.clone(), to.clone(), mode);
        self.answered(call, &asked, done.as_ref().map(|()| None));
    }
}

fn node(kind: FileType) -> NewNode {
    NewNode { kind, mode: 0o755, umask: 0, rdev: 0 }
}
