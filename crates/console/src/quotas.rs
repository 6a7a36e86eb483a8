//! The quotas of a volume and their usage.

use rustc_hash::FxHashMap;
use serde::Serialize;
use sluice_meta::{
    Interrupt, Meta,
    schema::{Quota, QuotaKey},
};
use sluice_types::{FsResult, Ino};

/// Most quotas that are shown.
const MOST: usize = 200;
/// Most directories whose paths are looked up in one survey: each takes some trips.
const LOOKUPS: usize = 50;

/// A limit, and its use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Limit {
    /// `directory`, `user` or `group`.
    pub(crate) kind: &'static str,
    /// The path of the directory, or the number of the user or group.
    pub(crate) of: String,
    pub(crate) used_bytes: i64,
    /// `None` for no limit.
    pub(crate) max_bytes: Option<i64>,
    pub(crate) used_inodes: i64,
    /// `None` for no limit.
    pub(crate) max_inodes: Option<i64>,
    /// The part that is used, 1 for all, of whichever limit is nearer.
    pub(crate) used: f64,
}

/// The limits of a volume, the fullest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Quotas {
    pub(crate) total: usize,
    pub(crate) shown: Vec<Limit>,
}

/// Paths of directories that were looked up.
pub(crate) type Paths = FxHashMap<Ino, String>;

/// Reads all limits. `paths` keeps what was looked up; clear it from time to time, since
/// directories move.
pub(crate) fn read(meta: &Meta, paths: &mut Paths, interrupt: &Interrupt) -> FsResult<Quotas> {
    let mut quotas = meta.quotas(interrupt)?;
    quotas.retain(|(_, quota)| quota.max_space > 0 || quota.max_inodes > 0);
    quotas.sort_by(|(_, a), (_, b)| used(b).total_cmp(&used(a)));
    let mut shown = Vec::new();
    let mut lookups = 0;
    for (key, quota) in quotas.iter().take(MOST) {
        let (kind, of) = match key {
            QuotaKey::Dir(dir) => {
                if !paths.contains_key(dir) && lookups < LOOKUPS {
                    lookups += 1;
                    if let Some(path) = meta.paths_of(*dir, Ino::ROOT, interrupt)?.into_iter().next() {
                        paths.insert(*dir, path);
                    }
                }
                ("directory", paths.get(dir).cloned().unwrap_or_else(|| format!("inode {dir}")))
            }
            QuotaKey::User(uid) => ("user", uid.to_string()),
            QuotaKey::Group(gid) => ("group", gid.to_string()),
        };
        let limit = |limit: i64| (limit > 0).then_some(limit);
        shown.push(Limit {
            kind,
            of,
            used_bytes: quota.used_space,
            max_bytes: limit(quota.max_space),
            used_inodes: quota.used_inodes,
            max_inodes: limit(quota.max_inodes),
            used: used(quota),
        });
    }
    Ok(Quotas { total: quotas.len(), shown })
}

fn used(quota: &Quota) -> f64 {
    let part = |used: i64, limit: i64| if limit > 0 { used.max(0) as f64 / limit as f64 } else { 0.0 };
    part(quota.used_space, quota.max_space).max(part(quota.used_inodes, quota.max_inodes))
}
