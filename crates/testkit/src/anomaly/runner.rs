//! Runs a script: one thread for each transaction, one line after another.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Txn, Write},
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use super::script::{Condition, End, Script, Step, Verdict};

/// A step that takes longer is held up by another transaction.
const SOON: Duration = Duration::from_millis(300);
/// The same on an engine with one lane, where whoever comes second is held up for certain.
const AT_ONCE: Duration = Duration::from_millis(10);
/// By then every transaction must have ended.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a transaction did.
struct Report {
    end: End,
    saw: BTreeMap<Key, Option<Row>>,
}

pub(super) fn run(name: &str, script: &Script, engine: &Arc<dyn Engine>, weak: bool) {
    engine.prepare().expect("prepare");
    let writes = script.given.iter().cloned().map(Write::Insert).collect();
    engine.begin(0).and_then(|txn| txn.commit(&Commit { writes, ..Commit::default() })).expect("given");
    let reports = play(name, script, engine);
    for (verdict, conditions, line) in &script.verdicts {
        let all = conditions.iter().all(|condition| holds(condition, &reports, engine.as_ref()));
        let fine = match verdict {
            Verdict::Never => !all,
            Verdict::Always => all,
            Verdict::Weak => all || !weak,
        };
        let ends: Vec<_> = reports.iter().map(|(who, report)| format!("t{who} {:?}", report.end)).collect();
        assert!(fine, "{name} on {}: {line:?} does not hold: {}", engine.name(), ends.join(", "));
    }
}

fn play(name: &str, script: &Script, engine: &Arc<dyn Engine>) -> BTreeMap<usize, Report> {
    let mut players: BTreeMap<usize, Player> = BTreeMap::new();
    let one_lane = engine.limits().lanes == 1;
    let mut holder = None;
    for (who, step) in &script.steps {
        let player = players.entry(*who).or_insert_with(|| Player::start(*who, engine.clone()));
        let patience = if one_lane && *holder.get_or_insert(*who) != *who { AT_ONCE } else { SOON };
        player.send(step.clone(), patience);
        if holder == Some(*who) && matches!(step, Step::Commit | Step::Abort) {
            holder = None;
        }
    }
    players
        .into_iter()
        .map(|(who, player)| {
            let report = player.finish().unwrap_or_else(|| panic!("{name}: t{who} hangs"));
            (who, report)
        })
        .collect()
}

fn holds(condition: &Condition, reports: &BTreeMap<usize, Report>, engine: &dyn Engine) -> bool {
    match condition {
        Condition::Ended(who, end) => reports.get(who).is_some_and(|report| report.end == *end),
        Condition::Saw(who, claim) => {
            let seen = reports.get(who).and_then(|report| report.saw.get(&claim.key()));
            seen.is_some_and(|row| claim.holds(row.as_ref()))
        }
        Condition::Stored(claim) => {
            let found = engine.read(&[Read::Get(claim.key(), Hold::None)]).expect("read").remove(0);
            let Found::Row(row) = found else { panic!("a Get was answered by {found:?}") };
            claim.holds(row.as_ref())
        }
    }
}

/// A transaction on a thread of its own.
struct Player {
    steps: mpsc::Sender<Step>,
    done: mpsc::Receiver<()>,
    report: mpsc::Receiver<Report>,
    held_up: usize,
}

impl Player {
    fn start(who: usize, engine: Arc<dyn Engine>) -> Self {
        let (steps, inbox) = mpsc::channel();
        let (outbox, done) = mpsc::channel();
        let (last, report) = mpsc::channel();
        thread::spawn(move || {
            let lane = (who % engine.limits().lanes.max(1)) as u16;
            let _ = last.send(perform(engine.as_ref(), lane, &inbox, &outbox));
        });
        Self { steps, done, report, held_up: 0 }
    }

    /// Hands over a step and waits a moment for it and for those that were held up before.
    fn send(&mut self, step: Step, patience: Duration) {
        if self.steps.send(step).is_err() {
            return;
        }
        self.held_up += 1;
        while self.held_up > 0 {
            match self.done.recv_timeout(patience) {
                Ok(()) => self.held_up -= 1,
                Err(_) => return,
            }
        }
    }

    fn finish(self) -> Option<Report> {
        drop(self.steps);
        self.report.recv_timeout(PATIENCE).ok()
    }
}

fn perform(engine: &dyn Engine, lane: u16, steps: &mpsc::Receiver<Step>, done: &mpsc::Sender<()>) -> Report {
    let mut actor = Actor { txn: None, commit: Commit::default(), saw: BTreeMap::new() };
    let mut end = None;
    for step in steps {
        if end.is_none() {
            end = match actor.step(engine, lane, step) {
                Ok(end) => end,
                Err(EngineError::Conflict(_)) => Some(End::Conflict),
                Err(error) => panic!("{error}"),
            };
            if end.is_some() {
                actor.txn = None;
            }
        }
        let _ = done.send(());
    }
    Report { end: end.unwrap_or(End::GaveUp), saw: actor.saw }
}

struct Actor<'e> {
    txn: Option<Box<dyn Txn + 'e>>,
    commit: Commit,
    /// What was read last, by key.
    saw: BTreeMap<Key, Option<Row>>,
}

impl<'e> Actor<'e> {
    fn step(&mut self, engine: &'e dyn Engine, lane: u16, step: Step) -> Result<Option<End>, EngineError> {
        if self.txn.is_none() {
            self.txn = Some(engine.begin(lane)?);
        }
        match step {
            Step::Read(key, hold) => self.read(key, hold)?,
            Step::Follow(dir, name, hold) => self.follow(dir, name, hold)?,
            Step::Empty(dir) => {
                let found = self.ask(Read::Names { dir, limit: 1 })?;
                if found != Found::Names(Vec::new()) {
                    return Ok(Some(End::GaveUp));
                }
                self.commit.expects.push(Expect::Vacant(dir));
            }
            Step::If(claim) => {
                if !self.saw.get(&claim.key()).is_some_and(|row| claim.holds(row.as_ref())) {
                    return Ok(Some(End::GaveUp));
                }
            }
            Step::Put(ino, fields) => {
                let Some(Some(Row::Node(_, mut attr))) = self.saw.get(&Key::Node(ino)).cloned() else {
                    return Ok(Some(End::GaveUp));
                };
                for (field, value) in fields {
                    field.set(&mut attr, value);
                }
                self.commit.writes.push(Write::Put(Row::Node(ino, attr)));
            }
            Step::Add(ino, field, by) => {
                let Some(Some(Row::Node(_, mut attr))) = self.saw.get(&Key::Node(ino)).cloned() else {
                    return Ok(Some(End::GaveUp));
                };
                let sum = field.get(&attr) + by;
                field.set(&mut attr, sum);
                self.commit.writes.push(Write::Put(Row::Node(ino, attr)));
            }
            Step::Insert(row) => self.commit.writes.push(Write::Insert(row)),
            Step::Delete(key) => self.commit.writes.push(Write::Delete(key)),
            Step::Bump(ino, nlink) => self.commit.writes.push(Write::Bump { ino, nlink, time: None }),
            Step::Commit => {
                if let Some(txn) = self.txn.take() {
                    txn.commit(&self.commit)?;
                }
                return Ok(Some(End::Ok));
            }
            Step::Abort => return Ok(Some(End::GaveUp)),
        }
        Ok(None)
    }

    fn ask(&mut self, read: Read) -> Result<Found, EngineError> {
        let txn = self.txn.as_mut().expect("begun");
        Ok(txn.read(&[read])?.remove(0))
    }

    fn read(&mut self, key: Key, hold: Hold) -> Result<(), EngineError> {
        let found = self.ask(Read::Get(key.clone(), hold))?;
        let Found::Row(row) = found else { panic!("a Get was answered by {found:?}") };
        self.note(key, row, hold);
        Ok(())
    }

    fn follow(&mut self, dir: Ino, name: Name, hold: Hold) -> Result<(), EngineError> {
        let found = self.ask(Read::Follow(dir, name.clone(), hold))?;
        let Found::Rows(rows) = found else { panic!("a Follow was answered by {found:?}") };
        self.note(Key::Entry(dir, name), rows.first().cloned(), hold);
        if let Some(node) = rows.get(1) {
            self.note(node.key(), Some(node.clone()), hold);
        }
        Ok(())
    }

    fn note(&mut self, key: Key, row: Option<Row>, hold: Hold) {
        if hold > Hold::None {
            self.commit.expects.push(match row.clone() {
                Some(row) => Expect::Row(row, hold),
                None => Expect::Absent(key.clone()),
            });
        }
        self.saw.insert(key, row);
    }
}
