//! A check of one directory, or of all below it, without a look at the rest of the volume.

use sluice_types::{Attr, FsError, FsResult, Ino, Name};

use super::{
    finding::{Counted, Finding},
    report::Report,
};
use crate::{
    batch::Interrupt,
    engine::{Found, Read, Scan},
    meta::Meta,
    ops::{getattr::GetAttr, rules::entry_usage},
    schema::{DirStat, Entry, Key, Row},
    tree::Progress,
};

pub(super) fn check(
    meta: &Meta,
    dir: Ino,
    recursive: bool,
    interrupt: &Interrupt,
    progress: Progress<'_>,
) -> FsResult<Report> {
    let attr = meta.read(&GetAttr(dir), interrupt)?;
    if !attr.is_dir() {
        return Err(FsError::NotDir);
    }
    let mut report = Report::default();
    let mut left = vec![(dir, attr)];
    while let Some((dir, attr)) = left.pop() {
        let below = check_dir(meta, dir, &attr, interrupt, &mut report)?;
        progress(1);
        if recursive {
            left.extend(below);
        }
    }
    Ok(report)
}

/// Checks one directory and answers those in it.
fn check_dir(
    meta: &Meta,
    dir: Ino,
    attr: &Attr,
    interrupt: &Interrupt,
    report: &mut Report,
) -> FsResult<Vec<(Ino, Attr)>> {
    let mut dirs = Vec::new();
    let mut usage = DirStat::default();
    let findings = &mut report.findings;
    let mut missing = |entry: Option<(Entry, Name)>| {
        if let Some((Entry { kind, ino }, name)) = entry {
            findings.push(Finding::EntryWithoutNode { dir, name, ino, kind });
        }
    };
    let mut wrong = Vec::new();
    let mut inodes = 0;
    meta.each_page(Scan::Entries { dir, nodes: true }, interrupt, |rows| {
        let mut entry = None;
        for row in rows {
            match row {
                Row::Entry(_, name, to) => {
                    missing(entry.replace((to, name)));
                }
                Row::Node(ino, node) => {
                    let Some((to, name)) = entry.take() else { continue };
                    inodes += 1;
                    if to.kind != node.kind {
                        wrong.push(Finding::Kind { dir, name, ino, kind: node.kind });
                    }
                    usage = usage.plus(entry_usage(&node));
                    if node.parent != dir && (node.is_dir() || node.parent != Ino::NONE) {
                        wrong.push(Finding::Parent { ino, stored: node.parent, found: dir });
                    }
                    if node.is_dir() {
                        dirs.push((ino, node));
                    }
                }
                _ => {}
            }
        }
        missing(entry);
        Ok(())
    })?;
    report.inodes += inodes;
    report.findings.extend(wrong);
    let links = Counted { stored: i64::from(attr.nlink), counted: 2 + dirs.len() as i64 };
    if links.stored != links.counted && !dir.is_trash() {
        report.findings.push(Finding::Links { ino: dir, links });
    }
    if meta.env().format().dir_stats && dir != Ino::TRASH {
        let read = [Read::Get(Key::DirStat(dir))];
        let stored = match meta.patiently(interrupt, || meta.engine.read(&read))?.pop() {
            Some(Found::Row(Some(Row::DirStat(_, stored)))) => Some(stored),
            _ => None,
        };
        if stored != Some(usage) {
            report.findings.push(Finding::Usage { dir, stored, counted: usage });
        }
    }
    Ok(dirs)
}
