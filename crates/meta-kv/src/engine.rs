//! The engine itself: lanes, transactions, messages.
//!
//! A transaction holds nothing on the servers before it commits; what it has read at its moment is
//! kept for the commit, which then needs no second look unless others were faster.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::engine::{
    Commit, Cursor, Engine, EngineError, Found, Limits, Moment, Page, Read, Scan, Watch, Write,
};

use crate::{
    commit::{Begun, Fold, commit},
    kv::{Kv, look, run},
    read::answer,
    scan,
    values::Values,
};

/// How often what a process has not yet added to the volume's totals is folded into them.
const FOLD: Duration = Duration::from_secs(10);

/// A volume's metadata in a key-value store.
///
/// [`Engine::sync`] does nothing: what a commit has answered is in the log of a majority of the
/// servers.
pub struct KvEngine<K> {
    kv: Arc<K>,
    folded: Mutex<Instant>,
}

impl<K: Kv> KvEngine<K> {
    /// On a store.
    pub fn new(kv: Arc<K>) -> Self {
        Self { kv, folded: Mutex::new(Instant::now()) }
    }

    /// Whether it is time to fold, and nobody else does it at this moment.
    fn fold(&self) -> Fold {
        let mut folded = self.folded.lock();
        if folded.elapsed() < FOLD {
            return Fold::Later;
        }
        *folded = Instant::now();
        Fold::Now
    }
}

impl<K: Kv> Engine for KvEngine<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn limits(&self) -> Limits {
        self.kv.limits()
    }

    fn prepare(&self) -> Result<(), EngineError> {
        look(self.kv.volume(), async {
            let now = self.kv.now().await?;
            let any = self.kv.volume().keys.counter(sluice_meta::schema::Counter::NextInode);
            self.kv.get(&now, &[any]).await.map(drop)
        })
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let kv = &*self.kv;
        look(kv.volume(), async {
            let now = kv.now().await?;
            answer(kv, &now, &mut Values::default(), reads).await
        })
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        let kv = &*self.kv;
        look(kv.volume(), async {
            let mut begun: Begun<K::Moment> = match taken(moment) {
                Some(begun) => begun,
                None => Begun { at: kv.begin().await?, values: Values::default() },
            };
            let found = answer(kv, &begun.at, &mut begun.values, reads).await;
            moment.0 = Some(Box::new(begun));
            found
        })
    }

    fn commit_at(&self, what: &Commit, mut moment: Moment) -> Result<(), EngineError> {
        let kv = &self.kv;
        let fold = if what.step.is_some() { self.fold() } else { Fold::Later };
        run(commit(&**kv, taken(&mut moment), what, fold))?;
        if what.writes.iter().any(|write| matches!(write, Write::Notify(_))) {
            // The message may be lost: who waits for it asks again by itself, only later.
            kv.ring();
        }
        Ok(())
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        look(self.kv.volume(), scan::page(&*self.kv, scan, from, limit))
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// A commit is seen when most servers have it.
    fn harden(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.kv.watch()
    }
}

/// What was noted of a moment, if anything.
fn taken<T: 'static>(moment: &mut Moment) -> Option<T> {
    moment.0.take()?.downcast().ok().map(|noted| *noted)
}
