//! An engine that asks the test what to do before each commit, and can claim other limits.

use std::{slice, sync::Arc};

use sluice_meta::engine::{
    ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Moment, Page, Read, Scan, Watch,
};

/// What the test says to a commit: go on, or fail like this. It may block.
type Hook = dyn Fn(&Commit) -> Result<(), EngineError> + Send + Sync;

/// What the test does before a read.
type Look = dyn Fn(&[Read]) + Send + Sync;

/// What the test says to a read outside of a batch: go on, or fail like this. It may block.
type Ask = dyn Fn(&[Read]) -> Result<(), EngineError> + Send + Sync;

/// What the test answers to a scan instead of the engine, if it does.
type Answer = dyn Fn(Scan, Option<&Cursor>) -> Option<Page> + Send + Sync;

/// An engine under the test's control. Clones share it.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn Engine>,
    limits: Limits,
    hook: Arc<Hook>,
    look: Arc<Look>,
    ask: Arc<Ask>,
    apart: bool,
    answer: Arc<Answer>,
}

impl Hooked {
    /// Lets everything through.
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        let (hook, look, ask) = (Arc::new(|_: &_| Ok(())), Arc::new(|_: &_| {}), Arc::new(|_: &_| Ok(())));
        let answer = Arc::new(|_, _: Option<&_>| None);
        Self { limits: inner.limits(), inner, hook, look, ask, apart: false, answer }
    }

    /// Claims to take so many lanes and so many operations in a commit; no more lanes than the
    /// engine has.
    #[must_use]
    pub fn limited(self, lanes: usize, batch: usize) -> Self {
        Self { limits: Limits { lanes, batch, ..self.limits }, ..self }
    }

    /// Calls `hook` before each commit.
    #[must_use]
    pub fn before_commit(
        self,
        hook: impl Fn(&Commit) -> Result<(), EngineError> + Send + Sync + 'static,
    ) -> Self {
        Self { hook: Arc::new(hook), ..self }
    }

    /// Calls `look` before each read of a batch.
    #[must_use]
    pub fn before_read(self, look: impl Fn(&[Read]) + Send + Sync + 'static) -> Self {
        Self { look: Arc::new(look), ..self }
    }

    /// Calls `ask` before each read that belongs to no batch.
    #[must_use]
    pub fn before_ask(
        self,
        ask: impl Fn(&[Read]) -> Result<(), EngineError> + Send + Sync + 'static,
    ) -> Self {
        Self { ask: Arc::new(ask), ..self }
    }

    /// Answers the questions of a read that belongs to no batch one after the other, each after a
    /// call of what [`Self::before_ask`] sets.
    #[must_use]
    pub fn asked_apart(self) -> Self {
        Self { apart: true, ..self }
    }

    /// Calls `answer` before each scan.
    #[must_use]
    pub fn before_scan(
        self,
        answer: impl Fn(Scan, Option<&Cursor>) -> Option<Page> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Arc::new(answer), ..self }
    }
}

impl Engine for Hooked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.inner.prepare()
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        if !self.apart {
            (self.ask)(reads)?;
            return self.inner.read(reads);
        }
        let mut found = Vec::with_capacity(reads.len());
        for read in reads {
            (self.ask)(slice::from_ref(read))?;
            found.extend(self.inner.read(slice::from_ref(read))?);
        }
        Ok(found)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        (self.look)(reads);
        self.inner.read_at(reads, moment)
    }

    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        (self.hook)(commit)?;
        self.inner.commit_at(commit, moment)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        match (self.answer)(scan, from) {
            Some(page) => Ok(page),
            None => self.inner.scan(scan, from.filter(|from| !from.0.is_empty()), limit),
        }
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn harden(&self) -> Result<(), EngineError> {
        self.inner.harden()
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.inner.remove_volume()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.inner.watch()
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.inner.change_log()
    }
}
