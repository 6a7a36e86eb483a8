//! Looks whether other clients changed files that are open here, for mounts that are not told of
//! such changes.
//!
//! What must stay true: each second there is at most one round trip, and none if no file is open.

use std::time::Duration;

use sluice_meta::{Interrupt, ops::getattr::GetAttrs};
use sluice_types::{Attr, Ino};

use crate::index::MetaIndex;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Files of one look.
const FILES: usize = 64;

/// Looks at the open files in turns, until `stop`.
pub(crate) fn watch_open_files(index: &MetaIndex, stop: &Interrupt) {
    let mut last = Ino(0);
    loop {
        stop.sleep(INTERVAL);
        if stop.is_set() {
            return;
        }
        let files = index.cache.some_open_files(last, FILES);
        last = files.last().copied().unwrap_or(Ino(0));
        if !files.is_empty() {
            look(index, files, stop);
        }
    }
}

fn look(index: &MetaIndex, files: Vec<Ino>, stop: &Interrupt) {
    let asked = index.cache.moment();
    let attrs = match index.meta.read(&GetAttrs(files.clone()), stop) {
        Ok(attrs) => attrs,
        Err(error) => {
            tracing::debug!(%error, "open files could not be looked at; the next look is in a second");
            return;
        }
    };
    for (ino, attr) in files.into_iter().zip(attrs) {
        if let Some(attr) = attr.filter(Attr::is_file) {
            index.cache.learn(ino, attr, asked);
            index.cache.pages_seen(ino, &attr, asked);
        }
    }
}
