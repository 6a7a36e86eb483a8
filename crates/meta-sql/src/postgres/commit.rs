//! A commit as one flight: each piece of work of `plan` is one or two statements.
//!
//! What must stay true: rows are locked in the order of the plan. A statement for many rows
//! processes them in the given order, or uses a sub-select that sorts and locks them. Listeners are
//! notified after the commit, in a separate transaction.

mod work;

use sluice_meta::{
    engine::{Commit, EngineError},
    schema::Row,
};

use super::{
    Store,
    conn::Failure,
    error::ServerError,
    flight::{Arg, Flight},
    read::columns,
    statement::{MARK, Template, placeholder},
    watch::notify,
};
use crate::{
    codec::{Damage, Record},
    expected::existing,
    log::appended,
    plan::{Action, Locking, Work, plan},
    values::{Value, by_record},
};

use work::{Diagnosis, Draft};

/// How the server locks.
const LOCKING: Locking = Locking {
    keys: true,
    // Counters and usage of owners are added to without an expectation, although they may be
    // absent.
    inserts_first: |record| matches!(record, Record::Entry),
    placeholder: Some(placeholder),
    notices: None,
};

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
        let lines: Vec<Value<'_>> = appended(commit).map(|line| Value::Text(line.into())).collect();
        if !lines.is_empty() {
            draft.add(Template::LogAppend, Record::Line, vec![Arg::Many(lines)], Diagnosis::None);
        }
        if let Some(notice) = commit.notice() {
            draft.flight.notify(notify(&self.channel, &notice, &self.pool.options.volume));
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

    /// Stores new rows. One trip, and one transaction. The next commit waits
    /// until it is on the disk.
    pub(super) fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        let mut flight = Flight::default();
        flight.add(self.catalog.get(Template::Softly, Record::Setting), Vec::new());
        for (record, rows) in by_record(rows) {
            flight.add(self.catalog.get(Template::InsertMany, record), columns(rows.into_iter()));
            if record == Record::Acl {
                flight.add(self.catalog.get(Template::Renumber, record), Vec::new());
            }
        }
        match self.pool.commit(&flight) {
            Ok(_) => Ok(()),
            Err(Failure::Server(_, error)) if error.is_duplicate() => Err(EngineError::Conflict(Vec::new())),
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
                self.pool.options.volume.damaged(Damage {
                    record: format!("chunk {}", broken.collect::<Vec<_>>().join(", ")),
                    reason: "slices are not of 24 bytes each".into(),
                })
            }
            (Some(Diagnosis::Existing(keys)), _) if error.is_duplicate() => {
                EngineError::Conflict(existing(keys.clone(), |reads| self.answers(reads)))
            }
            _ => self.pool.options.classify(error),
        }
    }
}
