//! The part of a dump before the trees: settings, counters and small collections.

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Found, List, Read, Scan},
    schema::{AclRule, Counter, Key, Row, VolumeFormat},
};
use sluice_types::Ino;

use crate::{DumpError, json::Head, source::Source};

/// Records of a collection read at once.
const PAGE: usize = 1000;

/// Reads this part of a dump.
pub(crate) fn head(source: &Source<'_>, keep_secrets: bool) -> Result<Head, DumpError> {
    let mut head = Head { setting: setting(source, keep_secrets)?, ..Head::default() };
    head.counters = counters(source)?;
    head.sustained = sustained(source)?;
    each(source, Scan::DelFiles, |row| {
        if let Row::DelFile(ino, length, expire) = row {
            head.del_files.push((ino, length, expire));
        }
    })?;
    each(source, Scan::Quotas, |row| {
        if let Row::Quota(key, quota) = row {
            head.quotas.push((key, quota));
        }
    })?;
    Ok(head)
}

/// The counters that dumps have.
pub(crate) fn counters(source: &Source<'_>) -> Result<Vec<(Counter, i64)>, DumpError> {
    let reads: Vec<Read> = crate::json::counters().map(|counter| Read::Get(Key::Counter(counter))).into();
    let found = source.read(&reads)?;
    Ok(found
        .into_iter()
        .filter_map(|found| match found {
            Found::Row(Some(Row::Counter(counter, value))) => Some((counter, value)),
            _ => None,
        })
        .collect())
}

/// Files without links, with the sessions that have them open. A scan of them would read every key
/// of a Redis database.
pub(crate) fn sustained(source: &Source<'_>) -> Result<Vec<(u64, Ino)>, DumpError> {
    let mut lists = Vec::new();
    each(source, Scan::Sessions, |row| {
        if let Row::Session(sid, ..) = row {
            lists.push(Read::All(List::Sustained(sid)));
        }
    })?;
    let mut files = Vec::new();
    for lists in lists.chunks(PAGE) {
        for found in source.read(lists)? {
            let Found::Rows(rows) = found else { continue };
            files.extend(rows.into_iter().filter_map(|row| match row {
                Row::Sustained(sid, ino) => Some((sid, ino)),
                _ => None,
            }));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The settings, without the secrets of the object store unless `keep_secrets`.
pub(crate) fn setting(source: &Source<'_>, keep_secrets: bool) -> Result<bytes::Bytes, DumpError> {
    let found = source.read(&[Read::Get(Key::Setting)])?;
    let Some(Found::Row(Some(Row::Setting(setting)))) = found.into_iter().next() else {
        return Err(DumpError::NoVolume);
    };
    let mut format = VolumeFormat::parse(&setting).map_err(|error| DumpError::Setting(error.to_string()))?;
    if keep_secrets {
        return Ok(setting);
    }
    // The key of an encrypted volume is itself encrypted, and without it no file can ever be read.
    for secret in [&mut format.secret_key, &mut format.session_token] {
        if !secret.is_empty() {
            *secret = "removed".into();
        }
    }
    Ok(format.to_json().into())
}

/// All ACL rules by their id.
pub(crate) fn acls(source: &Source<'_>) -> Result<FxHashMap<u32, AclRule>, DumpError> {
    let mut rules = FxHashMap::default();
    each(source, Scan::Acls, |row| {
        if let Row::Acl(id, rule) = row {
            rules.insert(id, rule);
        }
    })?;
    Ok(rules)
}

/// Whether any node may have extended attributes.
pub(crate) fn xattrs(source: &Source<'_>) -> Result<bool, DumpError> {
    // Where that takes a long scan, it is assumed.
    if source.is_mixed {
        return Ok(true);
    }
    let page = source.scan(Scan::Xattrs, None, 1)?;
    Ok(!page.rows.is_empty() || !page.damaged.is_empty() || page.next.is_some())
}

/// Calls `take` with every record of a collection.
pub(crate) fn each(source: &Source<'_>, scan: Scan, mut take: impl FnMut(Row)) -> Result<(), DumpError> {
    let mut from = None;
    loop {
        let page = source.scan(scan, from.as_ref(), PAGE)?.sound()?;
        page.rows.into_iter().for_each(&mut take);
        from = page.next;
        if from.is_none() {
            return Ok(());
        }
    }
}
