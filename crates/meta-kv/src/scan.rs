//! Pages of large collections.
//!
//! All scans follow the order of the keys, from one key to the next. So a scan returns whatever
//! exists from the first page to the last. All records about inodes are in one range, in which the
//! kinds are mixed. This range can be divided by the last byte of the inode number: the inodes with
//! the same byte are a group. The first page ends with the first group, because etcd looks at all
//! keys up to the end of the range for each page.
//!
//! A cursor is the last group of inodes that its scan reads, and the next key.

use sluice_meta::{
    engine::{Cursor, Page, Scan},
    schema::{Key, Row},
};

use crate::{
    keys::{Keys, Place, after},
    kv::{Kv, PAGE},
    stored::{Result, Span},
    values::{Values, Wants, rows_at},
};

/// Groups of inodes in one part.
const GROUPS: u8 = 16;

/// One page of about `limit` records.
pub(crate) async fn page<K: Kv>(
    kv: &K,
    now: &K::Moment,
    scan: Scan,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let limit = limit.clamp(1, PAGE);
    let volume = kv.volume();
    let (last, from) = from.and_then(|cursor| cursor.0.split_first()).unwrap_or((&u8::MAX, &[]));
    let mut span = span(&volume.keys, scan);
    let is_mixed = span == volume.keys.word(b"A");
    if is_mixed {
        span.to = volume.keys.word(&[b'A', if from.is_empty() { 0 } else { *last }]).to;
    }
    if !from.is_empty() {
        span.from = from.to_vec();
    }
    let pairs = kv.range(now, &span, limit, true).await?;
    let next = match pairs.last() {
        Some((key, _)) if pairs.len() == limit => Some(after(key)),
        _ => (is_mixed && from.is_empty()).then_some(span.to),
    };
    let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: next.map(|key| cursor(*last, &key)) };
    let mut found = Vec::with_capacity(pairs.len());
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
        match rows_at(volume, key, place, value, &mut found) {
            Err(damage) if matches!(scan, Scan::Entries { .. }) => return Err(damage),
            decoded => page.damaged.extend(decoded.err()),
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

/// The cursor of a scan that goes on at a key, up to a group of inodes.
fn cursor(last: u8, from: &[u8]) -> Cursor {
    Cursor([&[last], from].concat())
}

/// Divides a scan of [`Scan::Inodes`] into parts, and what follows them: see
/// [`Engine::divide`](sluice_meta::engine::Engine::divide).
pub(crate) fn divide(keys: &Keys, whole: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
    let Some((&last, from)) = whole.0.split_first() else { return (Vec::new(), Some(whole)) };
    let first = keys.inode_group(from).unwrap_or(0);
    let part = |part: u8| {
        let start = keys.word(&[b'A', part * GROUPS]).from;
        cursor((part * GROUPS + (GROUPS - 1)).min(last), from.max(&start))
    };
    ((first / GROUPS..=last / GROUPS).map(part).collect(), None)
}

/// Where a scan's records lie.
fn span(keys: &Keys, scan: Scan) -> Span {
    let letters: &[u8] = match scan {
        Scan::Inodes | Scan::Nodes | Scan::AllEntries | Scan::Chunks | Scan::Symlinks | Scan::Xattrs => b"A",
        Scan::Entries { dir, .. } => return keys.entries(dir),
        Scan::Writers => b"XSW",
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
    keys.word(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_inodes_follow_each_other_and_end_where_the_whole_does() {
        let keys = Keys::new("v");
        let at = [&keys.word(b"A").from[..], &[37, 1, 2]].concat();
        let (parts, rest) = divide(&keys, cursor(u8::MAX, &at));
        assert_eq!(rest, None);
        assert_eq!(parts[0].0[1..], at);
        for two in parts.windows(2) {
            let next = two[0].0[0] + 1;
            assert_eq!(two[1].0[1..], keys.word(&[b'A', next]).from);
        }
        assert_eq!(parts[parts.len() - 1].0[0], u8::MAX);
        let last = [&keys.word(b"A").from[..], &[u8::MAX, 1]].concat();
        assert_eq!(divide(&keys, cursor(u8::MAX, &last)), (vec![cursor(u8::MAX, &last)], None));
    }
}
