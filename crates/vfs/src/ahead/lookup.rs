//! A lookup that may be answered ahead.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use sluice_meta::{Interrupt, engine::Scan, schema::Row};
use sluice_types::{Ino, Name};

use super::{MOST, Page};
use crate::{entry::Entry, vfs::Vfs};

impl Vfs {
    /// The answer to a lookup from a page that was read ahead; reads one if this is the next of
    /// many lookups.
    pub(crate) fn lookup_ahead(&self, interrupt: &Interrupt, dir: Ino, name: &Name) -> Option<Entry> {
        let ttl = self.config.attr_ttl.min(self.config.entry_ttl).min(self.config.dir_entry_ttl);
        if ttl.is_zero() {
            return None;
        }
        if let Some(entry) = self.found_ahead(dir, name, ttl) {
            return Some(entry);
        }
        if !self.ahead.count(dir) {
            return None;
        }
        self.read_ahead(interrupt, dir);
        self.found_ahead(dir, name, ttl)
    }

    fn found_ahead(&self, dir: Ino, name: &Name, ttl: Duration) -> Option<Entry> {
        let good = |page: &Page| self.given.same_since(dir, page.asked);
        let (entry, [moment, asked]) = self.ahead.find(dir, name, ttl, good)?;
        let Entry { ino, attr, .. } = entry;
        // What is written to an open file need not be stored yet.
        if self.known().changed_since(ino, moment) || self.known().file(ino).is_some() {
            return None;
        }
        if attr.is_dir() {
            self.hints.put(dir, name, ino);
        }
        Some(self.given.entry(dir, name, asked, entry))
    }

    fn read_ahead(&self, interrupt: &Interrupt, dir: Ino) {
        let (moment, asked, at) = (self.known().moment(), self.given.moment(), Instant::now());
        let scan = Scan::Entries { dir, nodes: true };
        // Whoever asks for one name is told what is wrong with it.
        let Ok(page) = self.meta.scan_readable(scan, None, MOST, interrupt) else { return };
        let whole = page.next.is_none().then(|| {
            let (mut nodes, mut entry) = (FxHashMap::default(), None);
            for row in page.rows {
                match row {
                    Row::Entry(_, name, to) => entry = Some((name, to.ino)),
                    Row::Node(ino, attr) => {
                        if let Some((name, of)) = entry.take()
                            && of == ino
                        {
                            nodes.insert(name, (ino, attr));
                        }
                    }
                    _ => {}
                }
            }
            Page { nodes, at, moment, asked }
        });
        self.ahead.keep(dir, whole);
    }
}
