//! Orders the work of a commit by its locks.
//!
//! # Why Sluice clients never deadlock
//! All commits lock rows in one order: by table, as [`plan`] takes them, then by unique key. What
//! must stay true:
//!
//! * Only the first work on a row can wait for another client. That work follows the lock order,
//!   also within one piece. Neighbouring rows with the same work share one piece.
//! * A row is locked at once with the strongest lock that the commit needs on it. Later work on the
//!   row already has this lock.
//! * A row that may be absent cannot be locked before it is written, because a client that waits
//!   for us may insert it in between. So it is written at its lock order position. Only rows that
//!   must exist (or the commit fails) are locked and compared first, and written together at the
//!   end of their table.
//! * On some databases a key can be locked by itself ([`Locking::keys`]). There, a node that is
//!   bumped has two lock order positions. At the first, its key is locked with a shared lock. Any
//!   number of commits may hold it, and it keeps out commits that remove or replace the node. At
//!   the second, near the end, the node is written. A commit that waits at the second position has
//!   the key, so it waits only for another commit at its second position.
//! * On other databases, directories come after everything that belongs to them, because many
//!   commits add to them. A directory whose file locks are compared is an exception: it stays among
//!   the other nodes. Deadlocks are possible there, but such locks are so rare that the server may
//!   resolve them.
//! * No table has a second unique key whose values clients choose.
//!
//! PostgreSQL makes a rare exception. `heap_lock_tuple` looks at the locks of a row, releases its
//! page for a moment, and then does not see all that changed meanwhile (seen in 15.18). So it may
//! give a commit the key of a node although another commit has just locked the whole row. Or a
//! commit that has the key, alone, queues behind one that waits for it. The server ends one of
//! these commits after `deadlock_timeout`. If a commit has a key that it should not have, then what
//! it adds to the node fails if the node was removed.
//!
//! MariaDB makes another one, in tables with a unique key beside the primary key. An insert looks
//! for its key in the index. If the index has that key, also of a removed row, then the insert
//! locks the row behind it, too, and the gap between them. If another commit inserts the key of the
//! row behind, its request waits for this lock, and covers the same gap. So the first commit, which
//! then inserts into the gap, waits for the second. The server ends one of them immediately.
//!
//! So a client that waits for the lock of one position holds only locks of earlier positions. The
//! client that holds this lock can wait only for a later position. So the positions ascend along
//! each chain of waits, and there is no cycle. Rows to which many commits add come last.

use std::{collections::BTreeMap, mem::take};

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Write},
    schema::{Counter, Key, Row},
};
use sluice_types::{FileType, Ino};

use super::{
    prepared::Prepared,
    rows::{Action, Change, Held, Lock, RowPlan, Rows, Span, TablePlan},
    span::around,
};
use crate::{codec::Record, values::Value};

/// Usage of directories and owners, which every change below a directory updates.
const USAGE: [Record; 3] = [Record::DirStat, Record::DirQuota, Record::Quota];

/// Makes an empty row with a unique key.
pub(crate) type Placeholder = fn(Record, Vec<Value<'_>>) -> Vec<Value<'_>>;

/// The properties of a database's locks on which the order depends.
pub(crate) struct Locking {
    /// Whether the key of a row can be locked by itself, so that others may add to the row.
    pub(crate) keys: bool,
    /// Whether inserts come before the other rows of that table, which saves statements: no client
    /// holds a row that can be inserted, so it needs no position among the locked rows. No
    /// operation replaces, without an expectation, what others insert there.
    pub(crate) inserts_first: fn(Record) -> bool,
    /// Makes a row from a unique key, where a query does not wait for uncommitted rows of others. A
    /// row that must be absent is inserted at its position and removed again. So a client that
    /// wants to insert it waits.
    pub(crate) placeholder: Option<Placeholder>,
    /// The counter of messages, where the database has no messages.
    pub(crate) notices: Option<&'static str>,
}

/// A piece of the work of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Work<'c> {
    /// Locks rows and compares them.
    Hold(Record, Vec<Held<'c>>),
    /// As [`Work::Hold`] and then [`Work::Write`]: these rows are changed in the same way, and no
    /// others at this place, except those that are inserted before.
    Change(Record, Action, Vec<(Held<'c>, Change<'c>)>),
    /// Does the same with many rows.
    Write(Record, Action, Vec<Change<'c>>),
    /// Removes the rows of these owners in that part of the table.
    Clear(Record, Vec<Value<'c>>, Span<'c>),
    /// Checks that rows are absent; each with its key columns.
    Absent(Record, Vec<(Key, Vec<Value<'c>>)>),
    /// Checks that quotas, which are charged and locked by now, allow so many more bytes and
    /// inodes: key columns, bytes, inodes, the latter null if nothing is requested.
    QuotaAllows(Record, Vec<(Key, Vec<Value<'c>>)>),
    /// Checks how often inodes are in directories: inode, directory and count of each.
    Parents(Vec<[i64; 3]>),
    /// Checks the number of the last ACL rule; `None` if there is none.
    LastAcl(Option<i64>),
    /// Checks that a file has these locks and no others.
    FileLocks(Record, Ino, &'c [Row]),
    /// Checks that directories are empty without the entries that this commit deletes.
    Empty(Vec<Ino>),
}

/// The work of a commit.
///
/// # Errors
/// [`EngineError::Conflict`] if two rows are expected that cannot both be there.
pub(crate) fn plan<'c>(commit: &'c Commit, locking: &Locking) -> Result<Vec<Work<'c>>, EngineError> {
    let mut tables = Prepared::new(commit)?.tables;
    let notices = commit.writes.iter().filter(|write| matches!(write, Write::Notify(_))).count();
    if let Some(name) = locking.notices.filter(|_| notices > 0) {
        let name = Value::Text(name.as_bytes().into());
        let change =
            Change { action: Action::Add, key: None, values: vec![name.clone(), Value::Int(notices as i64)] };
        let rows = &mut tables.entry(Record::Counter).or_default().rows;
        rows.entry(vec![name]).or_default().changes.push(change);
    }
    let nodes = tables.get_mut(&Record::Node).filter(|_| !locking.keys);
    let directories = nodes.map(|nodes| directories(commit, &mut nodes.rows)).unwrap_or_default();
    let mut plan = Plan { locking, work: Vec::new(), bumps: Vec::new() };
    // First the number of the commit, because nothing else matters if it is wrong. Then nodes: what
    // belongs to a node is mostly written by a commit that holds the node.
    for record in [Record::Writer, Record::Node] {
        plan.table(record, tables.remove(&record).unwrap_or_default());
    }
    plan.counted(commit)?;
    let usage = USAGE.map(|record| (record, tables.remove(&record).unwrap_or_default()));
    let counters = tables.remove(&Record::Counter).unwrap_or_default();
    for (record, table) in tables.into_iter().chain([(Record::Node, directories)]) {
        plan.table(record, table);
    }
    plan.empty_dirs(commit);
    for (record, table) in usage {
        plan.table(record, table);
    }
    let bumps = take(&mut plan.bumps);
    plan.write(Record::Node, Action::Add, bumps);
    plan.table(Record::Counter, counters);
    Ok(plan.work)
}

/// Removes the directories from the nodes, except new ones, which no other client locks, and those
/// whose locks on files are compared.
fn directories<'c>(commit: &Commit, nodes: &mut Rows<'c>) -> TablePlan<'c> {
    let listed = commit.expects.iter().filter_map(|expect| match expect {
        Expect::Same(List::Flocks(ino) | List::Plocks(ino), _) => Some(*ino),
        _ => None,
    });
    let listed: FxHashSet<Ino> = listed.collect();
    let is_directory = |values: &[Value<'_>]| values.get(1) == Some(&Value::Int(FileType::Dir as i64));
    let stands_apart = |unique: &Vec<Value<'c>>, row: &mut RowPlan<'c>| {
        let [Value::Int(ino)] = unique[..] else { return false };
        let ino = Ino(ino as u64);
        let replaced = |change: &Change<'_>| change.action == Action::Put && is_directory(&change.values);
        let expected = row.expected.as_ref().is_some_and(|held| ino.is_trash() || is_directory(&held.row));
        !listed.contains(&ino) && (expected || row.changes.iter().any(replaced))
    };
    TablePlan { rows: nodes.extract_if(.., stands_apart).collect(), ..TablePlan::default() }
}

/// Work that is being put together.
struct Plan<'p, 'c> {
    locking: &'p Locking,
    work: Vec<Work<'c>>,
    /// What is added to nodes later.
    bumps: Vec<Change<'c>>,
}

impl<'c> Plan<'_, 'c> {
    /// The work on the rows of one table.
    fn table(&mut self, record: Record, mut table: TablePlan<'c>) {
        let mut late: BTreeMap<Action, Vec<Change<'c>>> = BTreeMap::new();
        late.insert(Action::Discard, self.placeholders(record, &mut table));
        // Cleared rows would be absent in any case. Other absent rows are checked when all rows are
        // locked.
        let clears = !table.clears.is_empty();
        if clears {
            self.absent(record, take(&mut table.absent));
        }
        let mut spans = around(take(&mut table.clears), &mut table.rows).into_iter().peekable();
        if (self.locking.inserts_first)(record) {
            let is_insert = |change: &Change<'_>| change.action == Action::Insert;
            let inserted = table
                .rows
                .extract_if(.., |_, row| row.changes.iter().all(is_insert) && row.expected.is_none());
            self.write(record, Action::Insert, inserted.flat_map(|(_, row)| row.changes));
        }
        if let Some(action) = self.alike(record, &table.rows).filter(|_| !clears) {
            let rows = take(&mut table.rows)
                .into_values()
                .filter_map(|mut row| Some((self.locking.held(row.expected?, true), row.changes.pop()?)));
            self.work.push(Work::Change(record, action, rows.collect()));
        }
        for (unique, mut row) in table.rows {
            while let Some(span) = spans.next_if(|span| span.is_before(&unique)) {
                self.clear(record, span);
            }
            row.changes.sort_by_key(|change| change.action);
            match row.expected {
                // A row that need not exist is first touched by its change: it could be made
                // meanwhile.
                None => {
                    row.changes.into_iter().for_each(|change| self.write(record, change.action, [change]));
                }
                Some(expected) => {
                    self.hold(record, self.locking.held(expected, !row.changes.is_empty()));
                    for change in row.changes {
                        late.entry(change.action).or_default().push(change);
                    }
                }
            }
        }
        spans.for_each(|span| self.clear(record, span));
        if record == Record::Node && self.locking.keys {
            self.bumps.extend(late.remove(&Action::Add).unwrap_or_default());
        }
        for (action, changes) in late {
            self.write(record, action, changes);
        }
        self.absent(record, table.absent);
        if !table.rooms.is_empty() {
            self.work.push(Work::QuotaAllows(record, table.rooms));
        }
    }

    /// The change that all rows of a table get, if all of them must exist.
    fn alike(&self, record: Record, rows: &Rows<'c>) -> Option<Action> {
        let mut actions = rows.values().map(|row| match (&row.expected, &row.changes[..]) {
            (Some(_), [change]) => Some(change.action),
            _ => None,
        });
        let first = actions.next()??;
        let later = record == Record::Node && first == Action::Add && self.locking.keys;
        (!later && actions.all(|action| action == Some(first))).then_some(first)
    }

    /// Makes rows at the positions of rows that must be absent. Returns what removes them. Where
    /// rows are cleared, or keys have more than the unique columns, a query is used instead.
    fn placeholders(&self, record: Record, table: &mut TablePlan<'c>) -> Vec<Change<'c>> {
        let shape = record.shape();
        let known = shape.unique == shape.named && record != Record::Acl && table.clears.is_empty();
        let Some(placeholder) = self.locking.placeholder.filter(|_| known) else { return Vec::new() };
        let mut removed = Vec::new();
        for (key, unique) in take(&mut table.absent) {
            if table.rows.contains_key(&unique) {
                table.absent.push((key, unique));
                continue;
            }
            removed.push(Change { action: Action::Discard, key: None, values: unique.clone() });
            let values = placeholder(record, unique.clone());
            let change = Change { action: Action::Insert, key: Some(key), values };
            table.rows.entry(unique).or_default().changes.push(change);
        }
        removed
    }

    fn hold(&mut self, record: Record, held: Held<'c>) {
        match self.work.last_mut() {
            Some(Work::Hold(of, rows)) if *of == record => rows.push(held),
            _ => self.work.push(Work::Hold(record, vec![held])),
        }
    }

    fn write(&mut self, record: Record, action: Action, changes: impl IntoIterator<Item = Change<'c>>) {
        let mut changes = changes.into_iter().peekable();
        match self.work.last_mut() {
            _ if changes.peek().is_none() => {}
            Some(Work::Write(of, same, rows)) if (*of, *same) == (record, action) => rows.extend(changes),
            _ => self.work.push(Work::Write(record, action, changes.collect())),
        }
    }

    fn clear(&mut self, record: Record, span: Span<'c>) {
        match self.work.last_mut() {
            Some(Work::Clear(of, ids, last)) if *of == record && last.is_like(&span) => {
                ids.push(Value::Int(span.id));
            }
            _ => self.work.push(Work::Clear(record, vec![Value::Int(span.id)], span)),
        }
    }

    fn absent(&mut self, record: Record, absent: Vec<(Key, Vec<Value<'c>>)>) {
        if !absent.is_empty() {
            self.work.push(Work::Absent(record, absent));
        }
    }

    /// Checks of what is counted from other rows, and of lists of locks.
    fn counted(&mut self, commit: &'c Commit) -> Result<(), EngineError> {
        let mut parents = Vec::new();
        for expect in &commit.expects {
            match expect {
                Expect::Row(_, Hold::None) => {}
                Expect::Row(Row::Counter(Counter::AclMaxId, last), _) => {
                    self.work.push(Work::LastAcl(Some(*last)));
                }
                Expect::Absent(Key::Counter(Counter::AclMaxId)) => self.work.push(Work::LastAcl(None)),
                Expect::Row(Row::Parents(ino, of, count), _) => {
                    parents.push([ino.0 as i64, of.0 as i64, *count]);
                }
                Expect::Absent(Key::Parents(ino, of)) => parents.push([ino.0 as i64, of.0 as i64, 0]),
                Expect::Same(List::Flocks(ino), rows) => {
                    self.work.push(Work::FileLocks(Record::Flock, *ino, rows));
                }
                Expect::Same(List::Plocks(ino), rows) => {
                    self.work.push(Work::FileLocks(Record::Plock, *ino, rows));
                }
                // Other lists are not locked by the node.
                Expect::Same(..) => return Err(EngineError::Conflict(vec![expect.key()])),
                _ => {}
            }
        }
        if !parents.is_empty() {
            self.work.push(Work::Parents(parents));
        }
        Ok(())
    }

    fn empty_dirs(&mut self, commit: &Commit) {
        let dirs = commit.expects.iter().filter_map(|expect| match expect {
            Expect::Empty(dir) => Some(*dir),
            _ => None,
        });
        let dirs: Vec<Ino> = dirs.collect();
        if !dirs.is_empty() {
            self.work.push(Work::Empty(dirs));
        }
    }
}

impl Locking {
    /// How a row is locked that is changed later, or not.
    fn held<'c>(&self, held: Held<'c>, changed: bool) -> Held<'c> {
        let lock = match held.lock {
            Lock::Key if !self.keys && changed => Lock::Update,
            Lock::Key if !self.keys => Lock::Share,
            lock => lock,
        };
        Held { lock, ..held }
    }
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::QuotaKey;
    use sluice_types::{Attr, Name, Slice, Time};

    use super::*;

    const KEYS: Locking = Locking {
        keys: true,
        inserts_first: |record| record == Record::Entry,
        placeholder: Some(filled),
        notices: None,
    };
    const ROWS: Locking =
        Locking { keys: false, inserts_first: |_| true, placeholder: None, notices: Some("told") };

    fn filled(_: Record, unique: Vec<Value<'_>>) -> Vec<Value<'_>> {
        unique.into_iter().chain([Value::Null]).collect()
    }

    fn node(ino: u64, kind: FileType) -> Row {
        Row::Node(Ino(ino), Attr::new(kind, 0o644, 0, 0, Ino(1), Time { sec: 1, nsec: 0 }))
    }

    fn xattr(ino: u64, name: &str) -> Row {
        Row::Xattr(Ino(ino), Name::stored(name.as_bytes()), "v".into())
    }

    /// What is done, with the second number of each row, or the first where that is all there is.
    fn worded(expects: Vec<Expect>, writes: Vec<Write>, locking: &Locking) -> Vec<String> {
        let commit = Commit { step: None, expects, writes };
        let rows = |rows: Vec<&Vec<Value<'_>>>, at: usize| {
            let each = rows.into_iter().map(|row| match &row[at] {
                Value::Int(number) => number.to_string(),
                Value::Text(text) | Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
                Value::Null => "-".into(),
            });
            each.collect::<Vec<_>>().join(" ")
        };
        let at = |record: Record| record.shape().unique.min(2) - 1;
        let work = plan(&commit, locking).expect("it can be");
        let worded = work.iter().map(|work| match work {
            Work::Hold(of, held) => {
                let all = rows(held.iter().map(|held| &held.row).collect(), at(*of));
                format!("{of:?} hold {:?} {all}", held[0].lock)
            }
            Work::Change(of, action, all) => {
                let (held, changes): (Vec<_>, Vec<_>) =
                    all.iter().map(|(held, change)| (held, &change.values)).unzip();
                format!("{of:?} change {:?} {action:?} {}", held[0].lock, rows(changes, at(*of)))
            }
            Work::Write(of, action, changes) => {
                let all = rows(changes.iter().map(|change| &change.values).collect(), at(*of));
                format!("{of:?} {action:?} {all}")
            }
            Work::Clear(of, ids, span) => {
                let [after, before] = [&span.after, &span.before].map(|bound| bound.iter().collect());
                let ids = (0..ids.len()).map(|at| rows(vec![ids], at)).collect::<Vec<_>>().join(" ");
                format!("{of:?} clear {ids} {}..{}", rows(after, 0), rows(before, 0))
            }
            Work::QuotaAllows(of, all) => {
                format!("{of:?} room {}", rows(all.iter().map(|(_, row)| row).collect(), at(*of)))
            }
            Work::Absent(of, all) => {
                format!("{of:?} absent {}", rows(all.iter().map(|(_, row)| row).collect(), at(*of)))
            }
            other => format!("{other:?}"),
        });
        worded.collect()
    }

    #[test]
    fn directories_are_written_behind_all_that_belongs_to_them() {
        let commit = || {
            let (dir, file) = (node(2, FileType::Dir), node(9, FileType::File));
            let bump = Write::Bump { ino: Ino(2), nlink: 0, time: Some(Time { sec: 3, nsec: 0 }) };
            let expects = vec![Expect::Row(dir, Hold::Guard), Expect::Row(file.clone(), Hold::Lock)];
            let notify = || Write::Notify(sluice_meta::schema::Change::Any);
            let count = Write::Count(Counter::TotalInodes, 1);
            (
                expects,
                vec![
                    bump,
                    count,
                    Write::Put(file),
                    Write::Insert(node(5, FileType::Dir)),
                    notify(),
                    notify(),
                ],
            )
        };
        let (expects, writes) = commit();
        assert_eq!(
            worded(expects, writes, &KEYS),
            [
                "Node hold Key 2",
                "Node Insert 5",
                "Node hold Update 9",
                "Node Put 9",
                "Node Add 2",
                "Counter Add totalInodes"
            ],
            "its key is locked first"
        );
        let (expects, writes) = commit();
        assert_eq!(
            worded(expects, writes, &ROWS),
            [
                "Node Insert 5",
                "Node change Update Put 9",
                "Node change Update Add 2",
                "Counter Add told totalInodes"
            ]
        );
    }

    #[test]
    fn rows_that_need_not_be_there_are_written_at_their_place() {
        let commit = || {
            let held = Expect::Row(xattr(5, "b"), Hold::Lock);
            let absent = Expect::Absent(xattr(5, "d").key());
            let writes =
                [Write::Delete(xattr(5, "b").key()), Write::Put(xattr(5, "a")), Write::Put(xattr(5, "c"))];
            (vec![held, absent], writes.to_vec())
        };
        let (expects, writes) = commit();
        let first = ["Xattr Put a", "Xattr hold Update b", "Xattr Put c"];
        assert_eq!(
            worded(expects, writes, &ROWS),
            [&first[..], &["Xattr Delete b", "Xattr absent d"]].concat()
        );
        let (expects, writes) = commit();
        let placed = ["Xattr Insert d", "Xattr Delete b", "Xattr Discard d"];
        assert_eq!(worded(expects, writes, &KEYS), [&first[..], &placed].concat(), "and removed again");
    }

    #[test]
    fn renames_take_as_many_statements_as_one() {
        let entry = |dir, name: &str| {
            let entry = sluice_meta::schema::Entry { kind: FileType::File, ino: Ino(9) };
            Row::Entry(Ino(dir), Name::stored(name.as_bytes()), entry)
        };
        let expects = [1, 2].map(|dir| Expect::Row(entry(dir, "a"), Hold::Lock)).to_vec();
        let each = |dir| [Write::Delete(entry(dir, "a").key()), Write::Insert(entry(dir, "b"))];
        for locking in [KEYS, ROWS] {
            assert_eq!(
                worded(expects.clone(), [1, 2].into_iter().flat_map(each).collect(), &locking),
                ["Entry Insert b b", "Entry change Update Delete a a"]
            );
        }
    }

    #[test]
    fn room_is_looked_for_when_the_quotas_are_charged() {
        let key = |ino| QuotaKey::Dir(Ino(ino));
        let expects = || {
            vec![
                Expect::QuotaAllows(key(7), 0, 3),
                Expect::QuotaAllows(key(5), 8, 2),
                Expect::QuotaAllows(key(9), 1, 1),
            ]
        };
        let writes = || vec![Write::Charge(key(7), 4096, 1), Write::Charge(key(5), 4, 1)];
        for locking in [KEYS, ROWS] {
            // What is not charged is not locked, and so not compared.
            assert_eq!(worded(expects(), writes(), &locking), ["DirQuota Add 5 7", "DirQuota room 7 5"]);
        }
        let commit = Commit { step: None, expects: expects(), writes: writes() };
        let work = plan(&commit, &KEYS).expect("it can be");
        let [_, Work::QuotaAllows(_, rooms)] = &work[..] else { panic!("{work:?}") };
        let values: Vec<_> = rooms.iter().map(|(_, values)| &values[1..]).collect();
        assert_eq!(values, [[Value::Null, Value::Int(2)], [Value::Int(4), Value::Int(1)]]);
    }

    #[test]
    fn what_is_cleared_goes_around_what_is_written_again() {
        let clear = |ino| Write::Clear(List::Chunks(Ino(ino), 2, 9));
        let append = |ino, index| Write::Append(Ino(ino), index, vec![Slice::hole(0, 1)]);
        let writes = || vec![clear(7), clear(5), clear(6), append(7, 4), append(7, 1)];
        for locking in [KEYS, ROWS] {
            assert_eq!(
                worded(Vec::new(), writes(), &locking),
                [
                    "Chunk clear 5 6 1..9",
                    "Chunk Add 1",
                    "Chunk clear 7 1..4",
                    "Chunk Discard 4",
                    "Chunk Add 4",
                    "Chunk clear 7 4..9"
                ]
            );
        }
    }

    #[test]
    fn a_directory_whose_locks_are_compared_stands_among_the_other_nodes() {
        let (dir, file) = (node(2, FileType::Dir), node(9, FileType::File));
        let holds = [&dir, &file].map(|row| Expect::Row(row.clone(), Hold::Lock));
        let same = Expect::Same(List::Flocks(Ino(2)), Vec::new());
        let worded = worded(holds.into_iter().chain([same]).collect(), Vec::new(), &ROWS);
        assert_eq!(worded, ["Node hold Update 2 9", "FileLocks(Flock, #2, [])"]);
    }

    #[test]
    fn rows_that_cannot_both_be_there_conflict() {
        let [one, other] = [4, 5].map(|length| Row::DelFile(Ino(5), length, 0));
        let expects = vec![Expect::Row(one, Hold::Lock)];
        let commit = Commit { step: None, expects, writes: vec![Write::Delete(other.key())] };
        assert_eq!(plan(&commit, &KEYS), Err(EngineError::Conflict(vec![other.key()])));
    }
}
