//! The engine: lanes, commits and messages.
//!
//! Nothing is locked on the servers before the commit. Reads for a commit are made at one
//! timestamp, and their values are kept for the commit. The commit reads them again only if other
//! commits changed the keys first.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, Found, Limits, Moment, Page, Read, Scan, Snapshot, Watch, Write,
    },
    schema::{Counter, Key, Row},
};

use crate::{
    codec::encode,
    commit::commit,
    keys::after,
    kv::{Kv, look, remove_some, run},
    read::answer,
    scan,
    snapshot::snapshot,
    stored::{Result, Span},
    values::Begun,
};

/// How often a process adds its own counts to the volume's totals.
const FOLD_INTERVAL: Duration = Duration::from_secs(10);
/// Records that are sorted before they are loaded. With so many, most neighbours are in one part of
/// the store.
const SORTED: usize = 20_000;
/// Keys removed at once.
const REMOVED: usize = 100;

/// A volume's metadata in a key-value store.
///
/// [`Engine::sync`] and [`Engine::harden`] do nothing: a commit that is visible or answered is in
/// the log of a majority of the servers.
pub struct KvEngine<K> {
    kv: Arc<K>,
    folded: Mutex<Instant>,
}

impl<K: Kv> KvEngine<K> {
    /// On a store.
    pub fn new(kv: Arc<K>) -> Self {
        Self { kv, folded: Mutex::new(Instant::now()) }
    }

    /// Whether it is time to fold, and no other thread does it now.
    fn is_fold_due(&self) -> bool {
        let mut folded = self.folded.lock();
        let is_due = folded.elapsed() >= FOLD_INTERVAL;
        if is_due {
            *folded = Instant::now();
        }
        is_due
    }
}

impl<K: Kv> Engine for KvEngine<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn limits(&self) -> Limits {
        self.kv.limits()
    }

    fn prepare(&self) -> Result<()> {
        self.read(&[Read::Get(Key::Counter(Counter::NextInode))]).map(drop)
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>> {
        self.read_at(reads, &mut Moment::default())
    }

    fn commit(&self, commit: &Commit) -> Result<()> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>> {
        let kv = &*self.kv;
        look(kv.volume(), async {
            let mut begun: Begun<K::Moment> = Begun::or_begin(taken(moment), kv).await?;
            let found = answer(kv, &begun.at, &mut begun.values, reads).await;
            moment.0 = Some(Box::new(begun));
            found
        })
    }

    fn commit_at(&self, what: &Commit, mut moment: Moment) -> Result<()> {
        let kv = &self.kv;
        let fold = what.step.is_some() && self.is_fold_due();
        run(commit(&**kv, taken(&mut moment), what, fold))?;
        if what.writes.iter().any(|write| matches!(write, Write::Notify(_))) {
            // The message may be lost. A client that waits for it also polls, only later.
            kv.notify();
        }
        Ok(())
    }

    /// Neighbouring keys are stored together: each part of the store that has some of them takes
    /// part in the transaction. Nothing is there, so absent values are not deleted.
    fn load(&self, rows: &[Row]) -> Result<()> {
        let keys = &self.kv.volume().keys;
        let mut pairs = Vec::with_capacity(rows.len());
        for row in rows {
            let (key, (first, second)) = (row.key(), encode(row));
            pairs.extend(first.map(|value| (keys.raw(&key), value)));
            pairs.extend(second.and_then(|value| Some((keys.second(&key)?, value))));
        }
        if let Some((key, _)) = pairs.iter().find(|(_, value)| value.is_empty()) {
            return Err(self.kv.volume().refused(format!("{} would be empty", keys.shown(key))));
        }
        // Most are in order.
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        pairs.dedup_by(|one, other| one.0 == other.0);
        run(self.kv.load(pairs))
    }

    fn load_size(&self) -> usize {
        SORTED
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page> {
        let kv = &*self.kv;
        look(kv.volume(), async { scan::page(kv, &kv.begin().await?, scan, from, limit).await })
    }

    fn snapshot(&self, _: usize) -> Result<Option<Arc<dyn Snapshot>>> {
        snapshot(&self.kv).map(Some)
    }

    fn is_mixed(&self) -> bool {
        true
    }

    fn check_vacant(&self) -> Result<()> {
        let kv = &*self.kv;
        let volume = kv.volume();
        let found =
            look(volume, async { kv.range(&kv.begin().await?, &volume.keys.word(b""), 1, false).await })?;
        let Some((key, _)) = found.first() else { return Ok(()) };
        Err(volume.refused(format!(
            "there is no volume below the prefix of the URL, but other keys, such as `{}`. A volume needs a prefix \
             of its own: use another one, or delete these keys if nothing needs them",
            volume.keys.shown(key)
        )))
    }

    fn remove_volume(&self) -> Result<()> {
        let kv = &*self.kv;
        let keys = &kv.volume().keys;
        let (all, setting) = (keys.word(b""), keys.raw(&Key::Setting));
        let before = Span { from: all.from, to: setting.clone() };
        let behind = Span { from: after(&setting), to: all.to };
        let last = Span { from: setting.clone(), to: after(&setting) };
        for mut span in [before, behind, last] {
            while let Some(done) = run(remove_some(kv, &mut span, REMOVED))? {
                if !done {
                    return Err(kv
                        .volume()
                        .refused("somebody uses the volume; unmount it everywhere and begin again"));
                }
            }
        }
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        self.kv.watch()
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.kv.change_log()
    }
}

/// The value of that type in `moment`, if there is one.
fn taken<T: 'static>(moment: &mut Moment) -> Option<T> {
    moment.0.take()?.downcast().ok().map(|noted| *noted)
}
