//! Pages of large collections.
//!
//! All of them go through the keys in their order, from one key to the next: what is there from the
//! first page to the last is returned. Everything about inodes lies in one range, in which the
//! kinds are mixed; it is gone through by the last byte of the inode's number, several at once
//! while they are short, so that no page asks all servers for much.

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::{Key, Row},
};
use sluice_types::Ino;

use crate::{
    codec::decode,
    keys::{Place, after},
    kv::{Kv, Volume},
    stored::{Pair, Raw, Span},
    values::rows_at,
};

/// Groups of inodes that are looked at together at first.
const GROUPS: u8 = 16;
/// Most rows that one page looks at.
const MOST: usize = 4096;

/// One page of about `limit` records.
pub(crate) async fn page<K: Kv>(
    kv: &K,
    scan: Scan,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page, EngineError> {
    let limit = limit.clamp(1, MOST);
    let volume = kv.volume();
    let now = kv.now().await?;
    let from = from.map(|cursor| cursor.0.clone());
    let (pairs, next) = match span(volume, scan) {
        Some(mut span) => {
            span.from = from.unwrap_or(span.from);
            let pairs = kv.range(&now, &span, limit, true).await?;
            let next = (pairs.len() == limit).then(|| pairs.last().map(|(key, _)| after(key))).flatten();
            (pairs, next)
        }
        None => inodes(kv, &now, from, limit).await?,
    };
    let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: next.map(Cursor) };
    let more = joined(kv, &now, scan, &pairs).await?;
    for (key, value) in &pairs {
        match rows(volume, scan, key, value, &more) {
            Ok(rows) => page.rows.extend(rows),
            Err(damage) if matches!(scan, Scan::Entries { .. }) => return Err(damage),
            Err(damage) => page.damaged.push(damage),
        }
    }
    Ok(page)
}

/// Where a scan's records lie, unless it is among everything about inodes.
fn span(volume: &Volume, scan: Scan) -> Option<Span> {
    let keys = &volume.keys;
    Some(match scan {
        Scan::Nodes | Scan::AllEntries | Scan::Chunks => return None,
        Scan::Entries { dir, .. } => keys.entries(dir),
        Scan::SliceRefs => keys.word(b"K"),
        Scan::DelFiles => keys.word(b"D"),
        Scan::DelSlices => keys.word(b"L"),
        Scan::Sessions => keys.word(b"SE"),
        Scan::Sustained => keys.word(b"SS"),
        Scan::Detached => keys.word(b"N"),
        Scan::Acls => keys.word(b"R"),
        Scan::DirStats => keys.word(b"U"),
        Scan::Quotas => keys.word(b"Q"),
        Scan::Writers => keys.writers(),
    })
}

/// Rows about inodes from a key on, and where to go on.
async fn inodes<K: Kv>(
    kv: &K,
    now: &K::Moment,
    from: Option<Raw>,
    limit: usize,
) -> Result<(Vec<Pair>, Option<Raw>), EngineError> {
    let keys = &kv.volume().keys;
    let first = from.as_deref().and_then(|key| keys.inode_group(key)).unwrap_or(0);
    let within = from.filter(|key| *key > keys.inodes(first, first).from);
    if let Some(from) = within {
        let span = Span { from, ..keys.inodes(first, first) };
        let pairs = kv.range(now, &span, limit, true).await?;
        let next = match pairs.last() {
            Some((last, _)) if pairs.len() == limit => Some(after(last)),
            _ => first.checked_add(1).map(|group| keys.inodes(group, group).from),
        };
        return Ok((pairs, next));
    }
    let last = first.saturating_add(GROUPS - 1);
    let share = limit.div_ceil(usize::from(GROUPS));
    let spans: Vec<Span> = (first..=last).map(|group| keys.inodes(group, group)).collect();
    let asked = spans.iter().map(|span| kv.range(now, span, share, true));
    let mut all = Vec::new();
    for pairs in futures::future::try_join_all(asked).await? {
        let next = (pairs.len() == share).then(|| pairs.last().map(|(key, _)| after(key))).flatten();
        all.extend(pairs);
        if next.is_some() {
            return Ok((all, next));
        }
    }
    Ok((all, last.checked_add(1).map(|group| keys.inodes(group, group).from)))
}

/// The second half of records that lie in two places, or go in pairs.
async fn joined<K: Kv>(
    kv: &K,
    now: &K::Moment,
    scan: Scan,
    pairs: &[Pair],
) -> Result<FxHashMap<Raw, Vec<u8>>, EngineError> {
    let volume = kv.volume();
    let second = |(key, value): &Pair| match (scan, volume.keys.place(key)) {
        (Scan::Sessions, Some(Place::Record(Key::Session(sid)))) => Some(volume.keys.session_info(sid)),
        (Scan::Entries { nodes: true, .. }, _) => node_key(volume, key, value),
        _ => None,
    };
    let mut keys: Vec<Raw> = pairs.iter().filter_map(second).collect();
    keys.sort_unstable();
    keys.dedup();
    Ok(kv.get(now, &keys).await?.into_iter().collect())
}

fn node_key(volume: &Volume, key: &[u8], value: &[u8]) -> Option<Raw> {
    Some(volume.keys.node(entry_ino(volume, key, value)?))
}

fn entry_ino(volume: &Volume, key: &[u8], value: &[u8]) -> Option<Ino> {
    match rows_at(volume, key, value).ok()?.first()? {
        Row::Entry(_, _, to) => Some(to.ino),
        _ => None,
    }
}

/// The records of a scan that a pair stands for.
fn rows(
    volume: &Volume,
    scan: Scan,
    key: &[u8],
    value: &[u8],
    more: &FxHashMap<Raw, Vec<u8>>,
) -> Result<Vec<Row>, EngineError> {
    let place = volume.keys.place(key);
    let wanted = match (scan, &place) {
        (Scan::Nodes, Some(Place::Record(Key::Node(_))))
        | (Scan::AllEntries, Some(Place::Record(Key::Entry(..))))
        | (Scan::Chunks, Some(Place::Record(Key::Chunk(..)))) => true,
        // What else there is about inodes is no concern of these.
        (Scan::Nodes | Scan::AllEntries | Scan::Chunks, _) => false,
        _ => true,
    };
    if !wanted {
        return Ok(Vec::new());
    }
    let damaged = |damage| volume.corrupt(key, damage);
    if let (Scan::Sessions, Some(Place::Record(key @ Key::Session(sid)))) = (scan, &place) {
        let info = more.get(&volume.keys.session_info(*sid));
        let row = decode(key, Some(value), info.map(Vec::as_slice)).map_err(damaged)?;
        return Ok(row.into_iter().collect());
    }
    let mut rows = rows_at(volume, key, value).map_err(damaged)?;
    if let Scan::Entries { nodes: true, .. } = scan
        && let Some(ino) = entry_ino(volume, key, value)
    {
        let raw = volume.keys.node(ino);
        let attr = more.get(&raw).map(Vec::as_slice);
        let node = decode(&Key::Node(ino), attr, None).map_err(|damage| volume.corrupt(&raw, damage))?;
        rows.extend(node);
    }
    Ok(rows)
}
