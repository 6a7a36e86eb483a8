//! Collections read page by page.

use std::{
    panic::resume_unwind,
    thread::{self, ScopedJoinHandle},
};

use sluice_types::{FsError, FsResult, Ino};

use crate::{
    batch::Interrupt,
    engine::{Cursor, Engine, EngineError, Page, Scan},
    meta::{Meta, processed_late},
    schema::Row,
};

/// Records of a collection fetched at once.
const PAGE: usize = 4096;

impl Meta {
    /// One page of a collection, with what of it is damaged.
    pub fn scan_readable(
        &self,
        scan: Scan,
        from: Option<&Cursor>,
        limit: usize,
        interrupt: &Interrupt,
    ) -> FsResult<Page> {
        processed_late(self.retry(interrupt, || self.engine.scan(scan, from, limit)))
    }

    /// Remembers up to `most` entries of the root.
    pub(crate) fn preload(&self, most: usize) {
        let Some(record_cache) = &self.env.record_cache else { return };
        let moment = record_cache.moment();
        let scan = Scan::Entries { dir: Ino::ROOT, nodes: true };
        match self.engine.scan(scan, None, most) {
            Ok(page) => record_cache.learn_rows(page.rows, moment),
            Err(error) => tracing::warn!(%error, "the root was not read in advance"),
        }
    }

    /// Calls `each` with the records of every page of a collection. Fails if any of them cannot be
    /// read.
    pub fn each_page(
        &self,
        scan: Scan,
        interrupt: &Interrupt,
        mut each: impl FnMut(Vec<Row>) -> FsResult<()>,
    ) -> FsResult<()> {
        self.each_readable_page(scan, interrupt, |page| each(page.sound().map_err(FsError::io)?.rows))
    }

    /// Calls `each` with every page of a collection, with what of it is damaged.
    pub fn each_readable_page(
        &self,
        scan: Scan,
        interrupt: &Interrupt,
        mut each: impl FnMut(Page) -> FsResult<()>,
    ) -> FsResult<()> {
        let mut from = None;
        loop {
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            let mut page = self.scan_readable(scan, from.as_ref(), PAGE, interrupt)?;
            let next = page.next.take();
            each(page)?;
            match next {
                Some(next) => from = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// As [`Self::each_page`]; while `work` runs on one page the next is fetched and prepared, and
    /// begun before the last operations of this one have come back. A collection of a single page
    /// takes no thread.
    pub(crate) fn each_page_ahead<P: Send>(
        &self,
        scan: Scan,
        interrupt: &Interrupt,
        mut prepare: impl FnMut(Vec<Row>) -> FsResult<P>,
        work: impl Fn(P) -> FsResult<()> + Sync,
    ) -> FsResult<()> {
        let work = &work;
        thread::scope(|scope| {
            let finish = |running: ScopedJoinHandle<'_, FsResult<()>>| {
                running.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            let mut running = None;
            let mut from = None;
            loop {
                if interrupt.is_set() {
                    return Err(FsError::Interrupted);
                }
                let page = self.scan_readable(scan, from.as_ref(), PAGE, interrupt)?.sound();
                let Page { rows, next, .. } = page.map_err(FsError::io)?;
                let prepared = prepare(rows)?;
                if next.is_none() && running.is_none() {
                    return work(prepared);
                }
                if let Some(before) = running.replace(scope.spawn(move || work(prepared))) {
                    finish(before)?;
                }
                match next {
                    Some(_) => from = next,
                    None => return running.map_or(Ok(()), finish),
                }
            }
        })
    }
}

/// All records of a scan that is known to be short.
pub(crate) fn scan_all(engine: &dyn Engine, scan: Scan) -> Result<Vec<Row>, EngineError> {
    let mut rows = Vec::new();
    let mut from = None;
    loop {
        let page = engine.scan(scan, from.as_ref(), PAGE)?.sound()?;
        rows.extend(page.rows);
        match page.next {
            Some(next) => from = Some(next),
            None => return Ok(rows),
        }
    }
}
