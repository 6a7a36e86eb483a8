//! Runs a script, one line after another: reads hold nothing, so no step waits for another.

use std::{collections::BTreeMap, sync::Arc};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Moment, Read, Write},
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use super::script::{Condition, End, Script, Step, Verdict};

/// What a transaction did.
struct Report {
    end: End,
    saw: BTreeMap<Key, Option<Row>>,
}

pub(super) fn run(name: &str, script: &Script, engine: &Arc<dyn Engine>, weak: bool) {
    engine.prepare().expect("prepare");
    let writes = script.given.iter().cloned().map(Write::Insert).collect();
    engine.commit(&Commit { writes, ..Commit::default() }).expect("given");
    let reports = play(script, engine.as_ref());
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

fn play(script: &Script, engine: &dyn Engine) -> BTreeMap<usize, Report> {
    let mut actors: BTreeMap<usize, Actor<'_>> = BTreeMap::new();
    for (who, step) in &script.steps {
        actors.entry(*who).or_insert_with(|| Actor::new(engine)).perform(step.clone());
    }
    let report = |actor: Actor<'_>| Report { end: actor.end.unwrap_or(End::GaveUp), saw: actor.saw };
    actors.into_iter().map(|(who, actor)| (who, report(actor))).collect()
}

fn holds(condition: &Condition, reports: &BTreeMap<usize, Report>, engine: &dyn Engine) -> bool {
    match condition {
        Condition::Ended(who, end) => reports.get(who).is_some_and(|report| report.end == *end),
        Condition::Saw(who, claim) => {
            let seen = reports.get(who).and_then(|report| report.saw.get(&claim.key()));
            seen.is_some_and(|row| claim.holds(row.as_ref()))
        }
        Condition::Stored(claim) => {
            let found = engine.read(&[Read::Get(claim.key())]).expect("read").remove(0);
            let Found::Row(row) = found else { panic!("a Get was answered by {found:?}") };
            claim.holds(row.as_ref())
        }
    }
}

struct Actor<'e> {
    engine: &'e dyn Engine,
    moment: Moment,
    commit: Commit,
    /// What was read last, by key.
    saw: BTreeMap<Key, Option<Row>>,
    end: Option<End>,
}

impl<'e> Actor<'e> {
    fn new(engine: &'e dyn Engine) -> Self {
        let moment = Moment::default();
        Self { engine, moment, commit: Commit::default(), saw: BTreeMap::new(), end: None }
    }

    fn perform(&mut self, step: Step) {
        if self.end.is_some() {
            return;
        }
        self.end = match self.step(step) {
            Ok(end) => end,
            Err(EngineError::Conflict(_)) => Some(End::Conflict),
            Err(error) => panic!("{error}"),
        };
    }

    fn step(&mut self, step: Step) -> Result<Option<End>, EngineError> {
        match step {
            Step::Read(key, hold) => self.read(key, hold)?,
            Step::Follow(dir, name, hold) => self.follow(dir, name, hold)?,
            Step::Empty(dir) => {
                let found = self.ask(Read::Names { dir, limit: 1 })?;
                if found != Found::Names(Vec::new()) {
                    return Ok(Some(End::GaveUp));
                }
                self.commit.expects.push(Expect::Empty(dir));
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
                self.engine.commit_at(&self.commit, std::mem::take(&mut self.moment))?;
                return Ok(Some(End::Ok));
            }
            Step::Abort => return Ok(Some(End::GaveUp)),
        }
        Ok(None)
    }

    fn ask(&mut self, read: Read) -> Result<Found, EngineError> {
        Ok(self.engine.read_at(&[read], &mut self.moment)?.remove(0))
    }

    fn read(&mut self, key: Key, hold: Hold) -> Result<(), EngineError> {
        let found = self.ask(Read::Get(key.clone()))?;
        let Found::Row(row) = found else { panic!("a Get was answered by {found:?}") };
        self.note(key, row, hold);
        Ok(())
    }

    fn follow(&mut self, dir: Ino, name: Name, hold: Hold) -> Result<(), EngineError> {
        let found = self.ask(Read::Follow(dir, name.clone()))?;
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
