//! Lookups that are answered from a prefetched page of their directory.
//!
//! What must stay true: if the read of a page fails, the name is looked up by itself.

use rustc_hash::FxHashMap;
use sluice_meta::{Interrupt, engine::Scan, schema::Row};
use sluice_types::{Ino, Name, wait};

use crate::{
    entry::Entry,
    meta_cache::{MAX_PREFETCHED, Page},
    vfs::Vfs,
};

impl Vfs {
    /// The answer to a lookup from a page of the directory; reads one if this is the next of many
    /// lookups.
    pub(crate) fn lookup_prefetched(&self, interrupt: &Interrupt, dir: Ino, name: &Name) -> Option<Entry> {
        let ttl = self.config.attr_ttl.min(self.config.entry_ttl).min(self.config.dir_entry_ttl);
        if ttl.is_zero() {
            return None;
        }
        if let Some(entry) = self.cache().prefetched(dir, name, ttl) {
            return Some(entry);
        }
        if !self.cache().count_lookup(dir) {
            return None;
        }
        self.prefetch(interrupt, dir);
        self.cache().prefetched(dir, name, ttl)
    }

    fn prefetch(&self, interrupt: &Interrupt, dir: Ino) {
        let (moment, at) = (self.cache().moment(), wait::now());
        let scan = Scan::Entries { dir, nodes: true };
        // The lookup of the single name returns the error.
        let Ok(page) = self.meta.scan_readable(scan, None, MAX_PREFETCHED, interrupt) else { return };
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
            Page { nodes, at, moment }
        });
        self.cache().keep_prefetched(dir, whole);
    }
}
