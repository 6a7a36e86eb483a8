//! Checks of answers that depend on several records: the content of a file, a listing, and all
//! caches when no client changes anything.

use sluice_data::ChunkIndex as _;
use sluice_meta::{
    Interrupt,
    op::At,
    schema::{Key, Row},
};
use sluice_types::{FsError, Ino, Name};
use sluice_vfs::DirItem;

use super::{Mount, OpenHandle};
use crate::{choose::Scene, lower_bounds::Part, names::Asked};

impl Mount {
    /// Asks what an open file consists of.
    pub(super) fn read_some(&self) {
        if let Some(handle) = self.some_open(|_| true) {
            self.read(handle.ino);
        }
    }

    fn read(&self, ino: Ino) {
        let call = self.begin();
        let found = self.index.slices(ino, 0, false, &call.interrupt);
        self.world.log(|| format!("mount {} reads {ino}: {found:?}", self.at));
        let Ok(found) = found else { return };
        let same = |row: Option<&Row>| match row {
            Some(Row::Chunk(.., slices)) => slices[..] == found[..],
            _ => found.is_empty(),
        };
        // Two reads may be answered in any order: only an open and a write say what is old.
        let known = call.known.get(&Part::Slices(ino)).copied().unwrap_or(0);
        let values = self.world.values(&Key::Chunk(ino, 0), known);
        if self.is_single() && !values.iter().any(|(_, row)| same(row.as_ref())) {
            self.fault(&format!("was shown old slices of {ino}: {found:?}"));
        }
    }

    /// Lists a directory: what is there all the time is listed, and nothing that never was, or
    /// twice.
    pub(super) fn list_some(&self) {
        let dir = Scene::of(&self.world).dir();
        let call = self.begin();
        let Ok(fh) = self.vfs.opendir(dir) else { return };
        let mut listed: Vec<(Name, Ino)> = Vec::new();
        let plus = self.below(2) == 0;
        let mut offset = 0;
        // What was given before an error is good; the next call meets the error again.
        let done = loop {
            let (before, from) = (listed.len(), offset);
            let mut add = |item: DirItem<'_>| {
                listed.push((Name::stored(item.name), item.ino));
                offset = item.cookie;
                true
            };
            let done = self.vfs.readdir(&call.interrupt, fh, (from, plus), &mut add);
            if done.is_err() || listed.len() == before {
                break done;
            }
        };
        let lasting = self.world.lasting_names(dir, call.since);
        self.vfs.releasedir(fh);
        self.world.log(|| format!("mount {} lists {dir}: {done:?} {listed:?}", self.at));
        listed.retain(|(name, _)| !name.starts_with(b"."));
        if done.is_err() || !self.is_single() {
            return;
        }
        for (name, ino) in &listed {
            let at = At::new(dir, name.clone());
            let lookup = Asked::Lookup(at.clone());
            if listed.iter().filter(|(other, _)| other == name).count() > 1 {
                self.fault(&format!("listed {at:?} twice"));
            }
            if !lookup.may_be(&self.world, call.since, Ok(Some(*ino))) {
                self.fault(&format!("listed {at:?} as {ino}"));
            }
        }
        if let Some(missing) = lasting.iter().find(|lasting| !listed.contains(lasting)) {
            self.fault(&format!("did not list {missing:?} of {dir}"));
        }
    }

    /// Whether what it shows is true. Nobody changes anything meanwhile, it has heard of
    /// everything, and nothing that was to be kept for some time is kept any more.
    pub(crate) fn check_memory(&self) {
        let never = Interrupt::never();
        for row in self.world.mem.records().into_values() {
            match row {
                // Of the root it may show what it knew, if the engine is slow.
                Row::Node(ino, attr) if !ino.is_trash() && ino != Ino::ROOT => {
                    let shown = self.vfs.getattr(&never, ino);
                    if let Ok((shown, _)) = &shown
                        && *shown != attr
                    {
                        self.fault(&format!("shows {ino} as {shown:?}, not {attr:?}"));
                    }
                }
                Row::Entry(dir, name, to) if !dir.is_trash() => {
                    let found = self.vfs.lookup(&self.caller, &never, dir, &name).map(|entry| entry.ino);
                    if !matches!(found, Err(FsError::Io(_) | FsError::Interrupted)) && found != Ok(to.ino) {
                        self.fault(&format!("shows {dir}/{name:?} as {found:?}, not {}", to.ino));
                    }
                }
                _ => {}
            }
        }
        let open = self.state.lock().open.clone();
        // Of a file that others ended it may show what it knew.
        let is_there = |handle: &OpenHandle| self.world.record(Key::Node(handle.ino)).is_some();
        for OpenHandle { ino, .. } in open.into_iter().filter(is_there) {
            self.bounds.raise(Part::Slices(ino), self.world.moment());
            self.read(ino);
        }
    }
}
