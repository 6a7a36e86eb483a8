//! What of a volume is not its tree: settings, counters and small collections.

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Found, Read, Scan},
    schema::{AclRule, Counter, Key, Row, VolumeFormat},
};

use crate::{DumpError, json::Head, source::Source};

/// Records of a collection read at once.
const PAGE: usize = 1000;

/// Reads what stands before the trees.
pub(crate) fn head(source: &Source<'_>, keep_secrets: bool) -> Result<Head, DumpError> {
    let mut head = Head { setting: setting(source, keep_secrets)?, ..Head::default() };
    head.counters = counters(source)?;
    each(source, Scan::Sustained, |row| {
        if let Row::Sustained(sid, ino) = row {
            head.sustained.push((sid, ino));
        }
    })?;
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
    head.sustained.sort_unstable();
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

/// The settings, without what opens the object store unless `keep_secrets`.
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
