//! A commit as one flight: each piece of work of `plan` is one or two statements.
//!
//! What must stay true: what takes many rows takes them as they are given, or as a sub-select sorts
//! and locks them, so that rows are locked in the order of the plan; and listeners are notified
//! after the commit, in a transaction of its own.

mod work;

use sluice_meta::{
    engine::{Commit, EngineError, Found, Read},
    schema::Key,
};

use super::{
    Store,
    conn::Failure,
    error::ServerError,
    flight::Flight,
    statement::{MARK, Template, placeholder},
    watch::notify,
};
use crate::{
    codec::{Damage, Record},
    log::appended,
    plan::{Action, Locking, Work, plan},
};

use work::{Diagnosis, Draft};

/// How the server locks.
const LOCKING: Locking =
    Locking { keys: true, inserts_first: false, placeholder: Some(placeholder), notices: None };

/// Tables with rows that most commits add to. With bumped nodes they are why a commit should not
/// hold its locks while it waits for the disk; one that touches none of them meets hardly anybody,
/// and does without the second transaction.
const SHARED: [Record; 4] = [Record::DirStat, Record::DirQuota, Record::Quota, Record::Counter];

impl Store {
    /// Commits.
    pub(super) fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        let works = plan(commit, &LOCKING)?;
        let shared = works.iter().any(|work| match work {
            Work::Write(Record::Node, action, _) => *action == Action::Add,
            Work::Hold(of, _) | Work::Change(of, ..) | Work::Write(of, ..) => SHARED.contains(of),
            _ => false,
        });
        let mut draft = Draft { store: self, flight: Flight::default(), diagnoses: Vec::new() };
        for work in works {
            draft.work(work);
        }
        draft.lines(appended(commit).collect());
        if let Some(notice) = commit.notice() {
            draft.flight.notify(notify(&self.channel, &notice, &self.pool.options.naming));
        }
        if draft.flight.is_empty() {
            return Ok(());
        }
        if shared && self.pool.flushes() {
            draft.flight.flush_after(self.catalog.get(Template::Softly, Record::Setting));
            draft.diagnoses.insert(0, Diagnosis::None);
        }
        match self.pool.commit(&draft.flight) {
            Ok(_) => Ok(()),
            Err(Failure::Server(at, error)) => Err(self.diagnose(draft.diagnoses.get(at), &error)),
            Err(failure) => Err(failure.plain(&self.pool.options)),
        }
    }

    /// Commits something and waits for the disk, and so for all earlier commits.
    pub(super) fn harden(&self) -> Result<(), EngineError> {
        self.one(Template::Harden, Record::Setting, []).map(drop)
    }

    /// The error for a failed statement.
    fn diagnose(&self, diagnosis: Option<&Diagnosis>, error: &ServerError) -> EngineError {
        let places = error.message.split_once(MARK).map(|(_, rest)| rest.trim_end_matches('"'));
        let at =
            |places: &str| -> Vec<usize> { places.split(',').filter_map(|at| at.parse().ok()).collect() };
        match (diagnosis, places) {
            (Some(Diagnosis::Named(keys)), Some(places)) => {
                EngineError::Conflict(at(places).into_iter().filter_map(|at| keys.get(at).cloned()).collect())
            }
            (Some(Diagnosis::Spared(keys)), Some(places)) => {
                let spared = at(places);
                let broken = keys.iter().enumerate().filter(|(at, _)| !spared.contains(at));
                EngineError::Conflict(broken.map(|(_, key)| key.clone()).collect())
            }
            (Some(Diagnosis::Chunks(chunks)), Some(places)) => {
                let sound: Vec<&str> = places.split(',').collect();
                let broken = chunks.iter().map(|(ino, index)| format!("{ino} {index}"));
                let broken = broken.filter(|chunk| !sound.contains(&chunk.as_str()));
                self.pool.options.damaged(Damage {
                    record: format!("chunk {}", broken.collect::<Vec<_>>().join(", ")),
                    reason: "slices are not of 24 bytes each".into(),
                })
            }
            (Some(Diagnosis::Existing(keys)), _) if error.is_duplicate() => {
                EngineError::Conflict(self.existing(keys))
            }
            _ => self.pool.options.classify(error),
        }
    }

    /// Which of the records exist; all of them if none is found, for the unique key of some tables
    /// is narrower than ours.
    fn existing(&self, keys: &[Key]) -> Vec<Key> {
        let reads: Vec<Read> = keys.iter().map(|key| Read::Get(key.clone())).collect();
        let Ok(found) = self.answers(&reads) else { return keys.to_vec() };
        let there = keys.iter().zip(found).filter(|(_, found)| matches!(found, Found::Row(Some(_))));
        let there: Vec<Key> = there.map(|(key, _)| key.clone()).collect();
        if there.is_empty() { keys.to_vec() } else { there }
    }
}
