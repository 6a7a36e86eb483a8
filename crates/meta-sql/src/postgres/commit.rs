//! A commit as one flight: what must hold is locked and checked, then everything is written.
//!
//! # Why clients of ours never wait for each other in a circle
//! All flights touch rows in one order: by table, as [`ORDER`] has them, then by unique key. What
//! must stay true:
//!
//! * Only the statement that touches a row first can wait for somebody, and these stand in that
//!   order, also within themselves: what takes many rows takes them as they are given, or as a
//!   sub-select sorts and locks them. Neighbours with which the same is done share a statement.
//! * A row is locked by the first statement as firmly as the flight will ever need it, and whatever
//!   is done with it later meets that lock.
//! * A row that need not be there cannot be locked before it is written, for it may be made in
//!   between by somebody who waits for us. So it is written at its place in the order: insert,
//!   upsert, discard and what adds to rows. Only rows that must be there (or the flight fails) are
//!   locked and checked first, and written together at the end of their table. What must not be
//!   there is made at its place, and removed there.
//! * Nodes that are bumped have two places. At the first their key is locked, which any number of
//!   flights may do at once and which keeps those out that remove or replace them; at the second,
//!   near the end, they are written. So clients that create in one directory meet there for the
//!   last moments of their commits only. Whoever waits at the second place has the key, and so
//!   waits for one at that place as well.
//! * No table has a second unique key whose values clients choose (numbers of rows come from
//!   sequences).
//! * A listener is told after the commit, in a transaction that holds nothing else.
//!
//! So whoever waits at a place in the order holds only what lies before it, and waits for one who
//! holds that place and waits, if at all, further on: the places ascend along any chain of waiting,
//! and it ends.
//!
//! What many commits add to comes last: statistics and quotas, bumped nodes, and the volume's
//! totals.

mod draft;
mod work;

use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, List, Read, Write},
    schema::{Key, Row, encode_plocks},
};

use super::{
    Store,
    error::ServerError,
    flight::{Arg, Flight},
    pool::Failed,
    statement::{MARK, Template},
    watch::notify,
};
use crate::{
    codec::{Damage, Record},
    plan::Prepared,
    values::Value,
};

use draft::{Diagnosis, Draft};

/// The order in which tables are written. The number of the commit comes first, for nothing else
/// matters if it is wrong, and then nodes: what belongs to a node is mostly written by who holds
/// it.
const ORDER: [Record; 21] = [
    Record::Writer,
    Record::Node,
    Record::Entry,
    Record::Symlink,
    Record::Xattr,
    Record::Chunk,
    Record::SliceRef,
    Record::DelFile,
    Record::DelSlices,
    Record::Acl,
    Record::Sustained,
    Record::Flock,
    Record::Plock,
    Record::Detached,
    Record::Session,
    Record::Changes,
    Record::Setting,
    Record::DirStat,
    Record::DirQuota,
    Record::Quota,
    Record::Counter,
];

/// Tables with rows that most commits add to. With bumped nodes they are why a commit should not
/// hold its locks while it waits for the disk; one that touches none of them meets hardly anybody,
/// and does without the second transaction.
const SHARED: [Record; 4] = [Record::DirStat, Record::DirQuota, Record::Quota, Record::Counter];

impl Store {
    /// Commits.
    pub(super) fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        let mut draft =
            Draft { store: self, flight: Flight::default(), diagnoses: Vec::new(), bumps: Vec::new() };
        let mut tables = Prepared::new(commit)?.tables;
        let shared = commit.writes.iter().any(|write| matches!(write, Write::Bump { .. }))
            || SHARED.iter().any(|record| tables.contains_key(record));
        for record in ORDER {
            if record == Record::Counter && !draft.bumps.is_empty() {
                let bumps = std::mem::take(&mut draft.bumps);
                draft.write(Record::Node, Template::Add, bumps);
            }
            if let Some(table) = tables.remove(&record) {
                draft.table(record, table);
            }
            match record {
                Record::Node => {
                    self.check_counted(commit, &mut draft)?;
                    let parents = tables.remove(&Record::Parents).unwrap_or_default();
                    draft.absent(Record::Parents, parents.absent);
                }
                Record::Entry => draft.vacant(commit),
                _ => {}
            }
        }
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
            Err(Failed::Engine(error)) => Err(error),
            Err(Failed::Statement(at, error)) => Err(self.diagnose(draft.diagnoses.get(at), &error)),
        }
    }

    /// Commits something that waits for the disk, and with it for all that was committed before.
    pub(super) fn harden(&self) -> Result<(), EngineError> {
        let mut flight = Flight::default();
        flight.add(self.catalog.get(Template::Harden, Record::Setting), Vec::new());
        self.pool.ask(&flight).map(drop).map_err(|error| error.plain(&self.pool.options))
    }

    /// Checks of what is counted from other rows, and of lists of locks.
    fn check_counted<'c>(&self, commit: &'c Commit, draft: &mut Draft<'c>) -> Result<(), EngineError> {
        for expect in &commit.expects {
            let (template, record, mut args) = match expect {
                Expect::Row(Row::Counter(sluice_meta::schema::Counter::AclMaxId, last), hold)
                    if *hold > Hold::None =>
                {
                    (Template::Counted, Record::Acl, vec![Arg::int(*last)])
                }
                Expect::Absent(Key::Counter(sluice_meta::schema::Counter::AclMaxId)) => {
                    (Template::Counted, Record::Acl, vec![Arg::One(Value::Null)])
                }
                Expect::Row(Row::Parents(ino, parent, count), hold) if *hold > Hold::None => {
                    let args = [*count, ino.0 as i64, parent.0 as i64].map(Arg::int).into();
                    (Template::Counted, Record::Parents, args)
                }
                Expect::Same(List::Flocks(ino), rows) => {
                    (Template::SameLocks, Record::Flock, vec![Arg::int(ino.0 as i64), Arg::One(locks(rows))])
                }
                Expect::Same(List::Plocks(ino), rows) => {
                    (Template::SameLocks, Record::Plock, vec![Arg::int(ino.0 as i64), Arg::One(locks(rows))])
                }
                Expect::Same(list, _) => {
                    return Err(self.pool.options.refused(format!("{list:?} cannot be held")));
                }
                _ => continue,
            };
            args.insert(0, Arg::int(0));
            draft.add(template, record, args, Diagnosis::Named(vec![expect.key()]));
        }
        Ok(())
    }

    /// What a failed statement means.
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
            _ => self.pool.options.judge(error),
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

/// The locks on a file as the server lists them.
fn locks<'v>(rows: &[Row]) -> Value<'v> {
    let mut listed: Vec<(i64, i64, String)> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Flock(_, owner, kind) => {
                Some((owner.sid as i64, owner.owner as i64, kind.code().to_string()))
            }
            Row::Plock(_, owner, ranges) => {
                let hex = encode_plocks(ranges)
                    .iter()
                    .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
                Some((owner.sid as i64, owner.owner as i64, hex))
            }
            _ => None,
        })
        .collect();
    listed.sort();
    let listed: Vec<String> =
        listed.into_iter().map(|(sid, owner, value)| format!("{sid},{owner},{value}")).collect();
    Value::Text(listed.join(";").into_bytes().into())
}

impl<'c> Draft<'c> {
    /// After the entries that this commit deletes are gone, these directories are empty.
    fn vacant(&mut self, commit: &'c Commit) {
        let dirs = commit.expects.iter().filter_map(|expect| match expect {
            Expect::Vacant(dir) => Some(*dir),
            _ => None,
        });
        let dirs: Vec<_> = dirs.collect();
        if !dirs.is_empty() {
            let args = vec![
                Arg::places(dirs.len()),
                Arg::Many(dirs.iter().map(|dir| Value::Int(dir.0 as i64)).collect()),
            ];
            let keys = dirs.into_iter().map(Key::Node).collect();
            self.add(Template::Vacant, Record::Entry, args, Diagnosis::Named(keys));
        }
    }
}
