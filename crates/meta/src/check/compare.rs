//! Compares the counts of a survey with the stored ones.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{FileType, FsResult, Ino};

use super::{
    finding::{Counted, Finding},
    survey::{Seen, Survey},
};
use crate::{
    batch::Interrupt,
    engine::{Found, List, Read, Scan},
    meta::Meta,
    schema::{Counter, Key, Row},
};

/// Records asked for at once.
const BATCH: usize = 512;

impl Survey {
    /// Everything that is wrong.
    pub(super) fn compare(
        &self,
        meta: &Meta,
        each_slice_stored: bool,
        interrupt: &Interrupt,
    ) -> FsResult<Vec<Finding>> {
        let mut findings = self.findings.clone();
        self.compare_nodes(&mut findings);
        self.compare_ways(&mut findings);
        self.compare_parents(meta, interrupt, &mut findings)?;
        self.compare_symlinks(meta, interrupt, &mut findings)?;
        self.compare_slices(meta, each_slice_stored, interrupt, &mut findings)?;
        self.compare_counters(meta, interrupt, &mut findings)?;
        self.compare_usage(meta, interrupt, &mut findings)?;
        Ok(findings)
    }

    fn compare_nodes(&self, findings: &mut Vec<Finding>) {
        for (ino, node) in self.nodes.iter().map(|(ino, node)| (*ino, node)) {
            // The root and the directories of the trash, whose links nobody keeps exactly.
            if ino == Ino::ROOT || ino.is_trash() {
                continue;
            }
            if node.names == 0 {
                if !self.nameless.contains(&ino) {
                    findings.push(Finding::NodeWithoutEntry { ino, kind: node.kind });
                }
                continue;
            }
            let counted = if node.kind == FileType::Dir { 2 + node.subdirs } else { node.names };
            if node.kind == FileType::Dir && node.names > 1 {
                findings.push(Finding::SeveralNames { ino, names: node.names });
            }
            if node.nlink != counted {
                let links = Counted { stored: i64::from(node.nlink), counted: i64::from(counted) };
                findings.push(Finding::Links { ino, links });
            }
            let one = node.names == 1 && (node.kind == FileType::Dir || node.parent != Ino::NONE);
            if one && node.parent != node.named_in {
                findings.push(Finding::Parent { ino, stored: node.parent, found: node.named_in });
            }
        }
        if let Some(root) = self.nodes.get(&Ino::ROOT)
            && root.nlink != 2 + root.subdirs
        {
            let links = Counted { stored: i64::from(root.nlink), counted: i64::from(2 + root.subdirs) };
            findings.push(Finding::Links { ino: Ino::ROOT, links });
        }
    }

    /// Every directory with a name must be below the root, the trash or something nameless.
    fn compare_ways(&self, findings: &mut Vec<Finding>) {
        let mut good = FxHashSet::default();
        let mut way = Vec::new();
        for ino in self.nodes.iter().filter(|(_, node)| node.kind == FileType::Dir).map(|(ino, _)| *ino) {
            let mut at = ino;
            let mut turned = FxHashSet::default();
            let ends_well = loop {
                let top = at == Ino::ROOT || at.is_trash() || good.contains(&at);
                match self.nodes.get(&at) {
                    Some(Seen { names, named_in, .. }) if !top && *names > 0 => {
                        if !turned.insert(at) {
                            break false;
                        }
                        way.push(at);
                        at = *named_in;
                    }
                    // What has no name, or does not exist, is told of elsewhere.
                    _ => break true,
                }
            };
            if ends_well {
                good.extend(way.drain(..));
            } else {
                way.clear();
                findings.push(Finding::Unreachable { ino });
            }
        }
    }

    fn compare_parents(
        &self,
        meta: &Meta,
        interrupt: &Interrupt,
        findings: &mut Vec<Finding>,
    ) -> FsResult<()> {
        let linked = |node: &Seen| node.parent == Ino::NONE && node.kind != FileType::Dir && node.names > 0;
        let files: Vec<Ino> =
            self.nodes.iter().filter(|(_, node)| linked(node)).map(|(ino, _)| *ino).collect();
        let mut stored: FxHashMap<(Ino, Ino), i64> = FxHashMap::default();
        for files in files.chunks(BATCH) {
            let reads: Vec<Read> = files.iter().map(|ino| Read::All(List::Parents(*ino))).collect();
            for found in meta.patiently(interrupt, || meta.engine.read(&reads))? {
                let Found::Rows(rows) = found else { continue };
                stored.extend(rows.iter().filter_map(|row| match row {
                    Row::Parents(ino, dir, names) if *names != 0 => Some(((*ino, *dir), *names)),
                    _ => None,
                }));
            }
        }
        let both: FxHashSet<&(Ino, Ino)> = stored.keys().chain(self.links.keys()).collect();
        for key in both {
            let count = |of: &FxHashMap<(Ino, Ino), i64>| of.get(key).copied().unwrap_or(0);
            let names = Counted { stored: count(&stored), counted: count(&self.links) };
            if names.stored != names.counted {
                findings.push(Finding::Parents { ino: key.0, dir: key.1, names });
            }
        }
        Ok(())
    }

    fn compare_symlinks(
        &self,
        meta: &Meta,
        interrupt: &Interrupt,
        findings: &mut Vec<Finding>,
    ) -> FsResult<()> {
        let links: Vec<Ino> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.kind == FileType::Symlink)
            .map(|(ino, _)| *ino)
            .collect();
        for links in links.chunks(BATCH) {
            let reads: Vec<Read> = links.iter().map(|ino| Read::Get(Key::Symlink(*ino))).collect();
            let found = meta.patiently(interrupt, || meta.engine.read(&reads))?;
            for (ino, _) in links.iter().zip(found).filter(|(_, found)| matches!(found, Found::Row(None))) {
                findings.push(Finding::SymlinkWithoutTarget { ino: *ino });
            }
        }
        Ok(())
    }

    fn compare_slices(
        &self,
        meta: &Meta,
        each_slice_stored: bool,
        interrupt: &Interrupt,
        findings: &mut Vec<Finding>,
    ) -> FsResult<()> {
        let mut seen = FxHashSet::default();
        let mut compare = |id, size, stored, counted| {
            // Without users it waits to be deleted, whatever the number.
            if stored != counted && !(counted == 0 && stored <= 0) {
                findings.push(Finding::References { id, size, references: Counted { stored, counted } });
            }
        };
        let mut damaged = Vec::new();
        meta.each_readable_page(Scan::SliceRefs, interrupt, |page| {
            damaged.extend(page.damaged);
            for row in page.rows {
                if let Row::SliceRef(id, size, stored) = row {
                    let counted = self.slices.get(&(id, size)).copied().unwrap_or(0);
                    compare(id, size, stored, i64::from(counted));
                    if counted > 0 {
                        seen.insert((id, size));
                    }
                }
            }
            Ok(())
        })?;
        for ((id, size), counted) in self.slices.iter().filter(|(slice, _)| !seen.contains(*slice)) {
            let stored = if each_slice_stored { -1 } else { 1 };
            compare(*id, *size, stored, i64::from(*counted));
        }
        findings.extend(damaged.into_iter().map(Finding::unreadable));
        Ok(())
    }

    fn compare_counters(
        &self,
        meta: &Meta,
        interrupt: &Interrupt,
        findings: &mut Vec<Finding>,
    ) -> FsResult<()> {
        let counters = [Counter::UsedSpace, Counter::TotalInodes, Counter::NextInode, Counter::NextChunk];
        let reads = counters.map(|counter| Read::Get(Key::Counter(counter)));
        let found = meta.patiently(interrupt, || meta.engine.read(&reads))?;
        let accounted = self
            .nodes
            .iter()
            .filter(|(ino, _)| !matches!(**ino, Ino::ROOT | Ino::TRASH))
            .map(|(_, node)| node);
        let (space, inodes) =
            accounted.fold((0, 0), |(space, inodes), node| (space + node.space, inodes + 1));
        let plain = self.nodes.keys().filter(|ino| !ino.is_trash());
        let last_ino = plain.map(|ino| ino.0).max().unwrap_or(0);
        let last_slice = self.slices.keys().map(|(id, _)| *id).max().unwrap_or(0);
        let counted = [space, inodes, last_ino as i64 + 1, last_slice as i64 + 1];
        for ((counter, counted), found) in counters.into_iter().zip(counted).zip(found) {
            let stored = if let Found::Row(Some(Row::Counter(_, stored))) = found { stored } else { 0 };
            let both = Counted { stored, counted };
            match counter {
                Counter::UsedSpace | Counter::TotalInodes if stored != counted => {
                    findings.push(Finding::Total { counter, total: both });
                }
                Counter::NextInode | Counter::NextChunk if stored < counted => {
                    findings.push(Finding::NextNumber { counter, next: both });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn compare_usage(&self, meta: &Meta, interrupt: &Interrupt, findings: &mut Vec<Finding>) -> FsResult<()> {
        if !meta.env().format().dir_stats {
            return Ok(());
        }
        let mut seen = FxHashSet::default();
        meta.each_readable_page(Scan::DirStats, interrupt, |page| {
            findings.extend(page.damaged.into_iter().map(Finding::unreadable));
            for row in page.rows {
                let Row::DirStat(dir, stored) = row else { continue };
                // A record of a directory that is gone does no harm.
                if dir == Ino::TRASH || !self.nodes.contains_key(&dir) {
                    continue;
                }
                let counted = self.usage.get(&dir).copied().unwrap_or_default();
                if stored != counted {
                    findings.push(Finding::Usage { dir, stored: Some(stored), counted });
                }
                seen.insert(dir);
            }
            Ok(())
        })?;
        // A directory in the trash has none: it is removed with its name.
        let counts = |node: &Seen| node.kind == FileType::Dir && !node.named_in.is_trash_hour();
        let dirs = self.nodes.iter().filter(|(_, node)| counts(node)).map(|(ino, _)| *ino);
        for dir in dirs.filter(|dir| *dir != Ino::TRASH && !seen.contains(dir)) {
            let counted = self.usage.get(&dir).copied().unwrap_or_default();
            findings.push(Finding::Usage { dir, stored: None, counted });
        }
        Ok(())
    }
}
