//! The engine itself: lanes, transactions, messages.
//!
//! A transaction holds nothing on the servers before it commits; what it has read at its moment is kept for the commit,
//! which then needs no second look unless others were faster.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::engine::{
    Commit, Cursor, Engine, EngineError, Found, Limits, News, Page, Read, Scan, Txn, Watch, Write,
};

use crate::{
    commit::{Begun, Fold, commit},
    config::Config,
    read::answer,
    scan,
    store::Store,
    values::Values,
    watch::{Listener, ring},
};

/// Operations in one commit: some thousand keys, a few requests to each region.
const BATCH: usize = 256;

/// How often what a process has not yet added to the volume's totals is folded into them.
const FOLD: Duration = Duration::from_secs(10);

/// A volume's metadata in a TiKV cluster.
///
/// [`Engine::sync`] does nothing: what a commit has answered is in the raft log of a majority.
pub struct TikvEngine {
    store: Arc<Store>,
    folded: Mutex<Instant>,
}

impl TikvEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        Ok(Self::with_config(Config::parse(url)?))
    }

    /// As [`Self::open`], for a configuration read before.
    pub fn with_config(config: Config) -> Self {
        let store = Arc::new(Store::new(config));
        if store.collects_garbage() {
            Store::spawn(Store::collect_garbage(Arc::downgrade(&store)));
        }
        Self { store, folded: Mutex::new(Instant::now()) }
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

impl Engine for TikvEngine {
    fn name(&self) -> &'static str {
        "tikv"
    }

    fn limits(&self) -> Limits {
        Limits { lanes: self.store.lanes(), batch: BATCH, news: News::Silence }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.store.look(async { self.store.now().await.map(drop) })
    }

    fn begin(&self, _lane: u16) -> Result<Box<dyn Txn + '_>, EngineError> {
        Ok(Box::new(TikvTxn { engine: self, begun: None }))
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let store = &self.store;
        store.look(async {
            let now = store.now().await?;
            answer(store, &now, &mut Values::default(), reads).await
        })
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.store.look(scan::page(&self.store, scan, from, limit))
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// A commit is seen when most stores have it.
    fn harden(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(Listener::new(self.store.clone())?))
    }
}

struct TikvTxn<'e> {
    engine: &'e TikvEngine,
    begun: Option<Begun>,
}

impl Txn for TikvTxn<'_> {
    fn read(&mut self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let store = &self.engine.store;
        let begun = &mut self.begun;
        store.look(async {
            let begun = match begun {
                Some(begun) => begun,
                None => begun.insert(Begun { txn: store.begin().await?, values: Values::default() }),
            };
            let at = begun.txn.start_timestamp();
            answer(store, &at, &mut begun.values, reads).await
        })
    }

    fn commit(self: Box<Self>, what: &Commit) -> Result<(), EngineError> {
        let store = &self.engine.store;
        let fold = if what.step.is_some() { self.engine.fold() } else { Fold::Later };
        Store::run(commit(store, self.begun, what, fold))?;
        if what.writes.iter().any(|write| matches!(write, Write::Tell(_))) {
            // The message may be lost: who waits for it asks again by itself, only later.
            Store::spawn(ring(store.clone()));
        }
        Ok(())
    }
}
