//! Pages of large collections.
//!
//! All scans follow the order of the keys, from one key to the next. So a scan returns whatever
//! exists from the first page to the last. All records about inodes are in one range, in which the
//! kinds are mixed. This range is divided by the last byte of the inode number. Short parts of it
//! are read in parallel.

use sluice_meta::{
    engine::{Cursor, Page, Scan},
    schema::{Key, Row},
};

use crate::{
    keys::{Keys, Place, after},
    kv::Kv,
    stored::{Pair, Raw, Result, Span},
    values::{Values, Wants, rows_at},
};

/// Parts of the inodes that are read in parallel if they are short.
const GROUPS: u8 = 16;
/// Most rows that one page reads.
const MAX_ROWS: usize = 4096;

/// One page of about `limit` records.
pub(crate) async fn page<K: Kv>(
    kv: &K,
    now: &K::Moment,
    scan: Scan,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let limit = limit.clamp(1, MAX_ROWS);
    let volume = kv.volume();
    let from = from.map(|cursor| cursor.0.clone());
    let span = span(&volume.keys, scan);
    let is_mixed = span.is_none();
    let (pairs, next) = match span {
        Some(mut span) => {
            span.from = from.unwrap_or(span.from);
            first_rows(kv, now, &span, limit).await?
        }
        None => inodes(kv, now, from, limit).await?,
    };
    let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: next.map(Cursor) };
    let mut found = Vec::new();
    for (key, value) in &pairs {
        let place = volume.keys.place(key);
        let belongs = match &place {
            Some(Place::Record(key) | Place::Empty(key)) => scan.contains(key),
            Some(Place::Locks(_)) => false,
            // Among everything about inodes others may keep more.
            None => !is_mixed,
        };
        if !belongs {
            continue;
        }
        match rows_at(volume, key, place, value) {
            Ok(rows) => found.extend(rows),
            Err(damage) if matches!(scan, Scan::Entries { .. }) => return Err(damage),
            Err(damage) => page.damaged.push(damage),
        }
    }
    let mut wants = Wants::default();
    found.iter().filter_map(|row| elsewhere(scan, row)).for_each(|key| wants.record(&volume.keys, &key));
    let mut more = Values::default();
    more.fetch(kv, now, wants).await?;
    for row in found {
        let other = match elsewhere(scan, &row) {
            Some(key) => more.record(volume, &key)?,
            None => None,
        };
        // A session is all there; a node comes after its entry.
        if scan != Scan::Sessions || other.is_none() {
            page.rows.push(row);
        }
        page.rows.extend(other);
    }
    Ok(page)
}

/// The record that is wanted together with another, or of which the other is a part.
fn elsewhere(scan: Scan, row: &Row) -> Option<Key> {
    match (scan, row) {
        (Scan::Sessions, Row::Session(..)) => Some(row.key()),
        (Scan::Entries { nodes: true, .. }, Row::Entry(_, _, to)) => Some(Key::Node(to.ino)),
        _ => None,
    }
}

/// Where a scan's records lie, unless it is among everything about inodes.
fn span(keys: &Keys, scan: Scan) -> Option<Span> {
    let letters: &[u8] = match scan {
        Scan::Inodes | Scan::Nodes | Scan::AllEntries | Scan::Chunks | Scan::Symlinks | Scan::Xattrs => {
            return None;
        }
        Scan::Entries { dir, .. } => return Some(keys.entries(dir)),
        Scan::Writers => return Some(keys.writers()),
        Scan::SliceRefs => b"K",
        Scan::DelFiles => b"D",
        Scan::DelSlices => b"L",
        Scan::Sessions => b"SE",
        Scan::Sustained => b"SS",
        Scan::Detached => b"N",
        Scan::Acls => b"R",
        Scan::DirStats => b"U",
        Scan::Quotas => b"Q",
    };
    Some(keys.word(letters))
}

/// The first rows of a range, and where it goes on if there may be more.
async fn first_rows<K: Kv>(
    kv: &K,
    now: &K::Moment,
    span: &Span,
    limit: usize,
) -> Result<(Vec<Pair>, Option<Raw>)> {
    let pairs = kv.range(now, span, limit, true).await?;
    let last = pairs.last().filter(|_| pairs.len() == limit);
    let next = last.map(|(key, _)| after(key));
    Ok((pairs, next))
}

/// Rows about inodes from a key on, and where to continue. Parts are read one after the other, and
/// several in parallel after a short one.
async fn inodes<K: Kv>(
    kv: &K,
    now: &K::Moment,
    mut from: Option<Raw>,
    limit: usize,
) -> Result<(Vec<Pair>, Option<Raw>)> {
    let keys = &kv.volume().keys;
    let span = |group: u8| keys.word(&[b'A', group]);
    let mut first = from.as_deref().and_then(|key| keys.inode_group(key)).unwrap_or(0);
    let mut groups = 1;
    let mut all = Vec::new();
    loop {
        let last = first.saturating_add(groups - 1);
        let mut spans: Vec<Span> = (first..=last).map(span).collect();
        if let Some(from) = from.take().filter(|from| *from > spans[0].from) {
            spans[0].from = from;
        }
        let share = (limit - all.len()).div_ceil(usize::from(groups));
        let mut longest = 0;
        let asked = spans.iter().map(|span| first_rows(kv, now, span, share));
        for (pairs, next) in futures::future::try_join_all(asked).await? {
            longest = longest.max(pairs.len());
            all.extend(pairs);
            if next.is_some() {
                return Ok((all, next));
            }
        }
        let Some(behind) = last.checked_add(1) else { return Ok((all, None)) };
        if all.len() >= limit {
            return Ok((all, Some(span(behind).from)));
        }
        first = behind;
        groups = if longest * usize::from(GROUPS) < limit - all.len() { GROUPS } else { 1 };
    }
}
