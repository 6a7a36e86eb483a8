//! The state that all clients of a simulation share: the records, the clocks, the faults that are
//! injected, and the errors that were found.
//!
//! What must stay true: its lock is never held while another thread may run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sluice_meta::{
    Interrupt,
    engine::{Commit, Engine as _, EngineError, Found, List, Read, Write},
    mem::MemEngine,
    schema::{Key, Row},
};
use sluice_types::{Clock, Ino, Name, Time};

use crate::{
    history::{History, Moment},
    locks,
    plan::Plan,
    sched::Sched,
};

/// When it all begins, Unix seconds.
const START: i64 = 1_700_000_000;
/// From this inode on numbers stand for operations.
const MARKS: u64 = 1 << 60;

/// The world of one seed.
pub(crate) struct World {
    /// Who runs when.
    pub(crate) sched: Arc<Sched>,
    /// The records.
    pub(crate) mem: MemEngine,
    /// What the seed decided.
    pub(crate) plan: Plan,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when the engine answers nobody.
    outage: u64,
    /// By how much all clocks jumped so far, nanoseconds.
    jumped: u64,
    /// Clients that died.
    dead: Vec<bool>,
    /// Who commits as which session.
    sessions: BTreeMap<u64, usize>,
    /// Commits on their way: the client and the lane.
    late: Vec<(usize, u16, Commit)>,
    /// Interrupts of operations under way, with their clients.
    running: Vec<(usize, Interrupt)>,
    /// How often each operation happened.
    happened: BTreeMap<u64, u64>,
    /// What records were.
    history: History,
    /// Names that operations are about.
    places: BTreeMap<u64, Vec<Key>>,
    /// Names that may have stood for something else within a commit, and when that was.
    unclear: BTreeMap<Key, Moment>,
    /// Who destroyed a node.
    destroyed: BTreeMap<Ino, usize>,
    /// How often others took each session's right to commit.
    fences: BTreeMap<u64, u64>,
    marks: u64,
    faults: Vec<String>,
    log: Option<Vec<String>>,
}

/// A mark by which a commit tells which operations it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// What the operation writes besides.
    pub(crate) fn write(self) -> Write {
        Write::Link(Ino(MARKS + self.0), Ino::ROOT, 1)
    }

    /// Whether the operation may happen again.
    pub(crate) fn recurs(self) -> bool {
        self.0 % 2 == 1
    }

    fn of(write: &Write) -> Option<u64> {
        match write {
            Write::Link(Ino(ino), Ino::ROOT, _) if *ino >= MARKS => Some(ino - MARKS),
            _ => None,
        }
    }
}

/// The clocks of all clients.
pub(crate) struct WorldClock(pub(crate) Arc<World>);

impl Clock for WorldClock {
    fn now(&self) -> Time {
        self.0.time()
    }
}

impl World {
    /// A world in which nothing happened yet.
    pub(crate) fn new(sched: Arc<Sched>, plan: Plan, logs: bool) -> Arc<Self> {
        let state =
            State { dead: vec![false; plan.clients.len()], log: logs.then(Vec::new), ..State::default() };
        let draw = Arc::clone(&sched);
        let mem = MemEngine::drawn(move |bound| draw.below(bound as u64) as usize);
        Arc::new(Self { sched, mem, plan, state: Mutex::new(state) })
    }

    /// The time of day.
    pub(crate) fn time(&self) -> Time {
        let jumped = self.state.lock().jumped;
        let nanos = self.sched.elapsed() + jumped;
        Time::from_nanos(START * 1_000_000_000 + nanos as i64)
    }

    /// All clocks jump ahead.
    pub(crate) fn jump(&self, by: Duration) {
        self.log(|| format!("clocks jump by {by:?}"));
        self.state.lock().jumped += by.as_nanos() as u64;
    }

    /// The engine answers nobody for a while.
    pub(crate) fn outage(&self, lasts: Duration) {
        self.log(|| format!("an outage of {lasts:?}"));
        let until = self.sched.elapsed() + lasts.as_nanos() as u64;
        self.state.lock().outage = until;
    }

    /// Whether a client reaches the engine.
    pub(crate) fn reaches(&self, client: usize) -> bool {
        let now = self.sched.elapsed();
        let state = self.state.lock();
        !state.dead[client] && now >= state.outage
    }

    /// Whether a client lives.
    pub(crate) fn lives(&self, client: usize) -> bool {
        !self.state.lock().dead[client]
    }

    /// A client dies.
    pub(crate) fn kill(&self, client: usize) {
        self.log(|| format!("client {client} dies"));
        let mut state = self.state.lock();
        state.dead[client] = true;
        let running = state.running.iter().filter(|(of, _)| *of == client);
        let interrupts: Vec<Interrupt> = running.map(|(_, interrupt)| interrupt.clone()).collect();
        drop(state);
        interrupts.iter().for_each(Interrupt::set);
    }

    /// A client has that session.
    pub(crate) fn opened(&self, client: usize, sid: u64) {
        self.state.lock().sessions.insert(sid, client);
    }

    /// The interrupt of an operation that begins.
    pub(crate) fn begins(&self, client: usize) -> Interrupt {
        let interrupt = Interrupt::default();
        let mut state = self.state.lock();
        state.running.push((client, interrupt.clone()));
        if state.dead[client] {
            interrupt.set();
        }
        interrupt
    }

    /// Some operation under way is interrupted.
    pub(crate) fn signal(&self) {
        let count = self.state.lock().running.len() as u64;
        // Of the last that began: those before have ended.
        let chosen = count.saturating_sub(1 + self.sched.below(8)) as usize;
        let interrupt = self.state.lock().running.get(chosen).map(|(_, interrupt)| interrupt.clone());
        if let Some(interrupt) = interrupt {
            interrupt.set();
        }
    }

    /// A mark for one operation.
    pub(crate) fn mark(&self) -> Mark {
        Mark(2 * self.number())
    }

    /// A number that is given only once.
    pub(crate) fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.marks += 1;
        state.marks
    }

    /// A mark for a lock. It may be granted once more after whoever took its owner for dead
    /// released it.
    pub(crate) fn lock_mark(&self) -> Mark {
        Mark(self.mark().0 + 1)
    }

    /// How often an operation happened.
    pub(crate) fn happened(&self, mark: Mark) -> u64 {
        self.state.lock().happened.get(&mark.0).copied().unwrap_or(0)
    }

    /// Who destroyed a node.
    pub(crate) fn destroyer(&self, ino: Ino) -> Option<usize> {
        self.state.lock().destroyed.get(&ino).copied()
    }

    /// Something is wrong.
    pub(crate) fn fault(&self, what: String) {
        self.log(|| format!("FAULT {what}"));
        self.state.lock().faults.push(what);
    }

    /// What was wrong.
    pub(crate) fn faults(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().faults)
    }

    /// Notes what happens, if somebody wants to read it.
    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.state.lock().log.is_some() {
            let line = format!("{:>12} {}", self.sched.elapsed(), line());
            if let Some(log) = &mut self.state.lock().log {
                log.push(line);
            }
        }
    }

    /// What happened.
    pub(crate) fn events(&self) -> Vec<String> {
        self.state.lock().log.take().unwrap_or_default()
    }

    /// A commit arrives later.
    pub(crate) fn delay(&self, client: usize, lane: u16, commit: &Commit) {
        self.state.lock().late.push((client, lane, commit.clone()));
    }

    /// Delivers a commit that was on its way, or all.
    pub(crate) fn deliver(&self, all: bool) {
        loop {
            let count = self.state.lock().late.len();
            if count == 0 {
                return;
            }
            let chosen = self.sched.below(count as u64) as usize;
            let (client, lane, commit) = self.state.lock().late.swap_remove(chosen);
            let answer = self.commit(client, lane, &commit);
            self.log(|| format!("client {client}: a commit arrives late: {answer:?}"));
            if !all {
                return;
            }
        }
    }

    /// A commit reaches the engine.
    pub(crate) fn commit(&self, client: usize, lane: u16, commit: &Commit) -> Result<(), EngineError> {
        self.sched.atomically(|| {
            let marks: Vec<u64> = commit.writes.iter().filter_map(Mark::of).collect();
            let mut plain = commit.clone();
            plain.writes.retain(|write| Mark::of(write).is_none());
            let robbed = self.robbed(client, &plain);
            let touched = self.before(&plain);
            let done = self.mem.commit(&plain);
            self.log(|| format!("client {client} lane {lane}: {:?} {marks:?} {done:?}", plain.step));
            self.log(|| format!("  expects {:?}", plain.expects));
            self.log(|| format!("  writes {:?}", plain.writes));
            if done.is_ok() {
                self.after(touched, &marks);
                self.look_at(client, &plain, &marks);
                self.look_at_locks(client, &plain, robbed);
            }
            done
        })
    }

    /// The records that a commit may change, whose history is known from here on.
    fn before(&self, commit: &Commit) -> Vec<Key> {
        let touched = self.state.lock().history.touched(commit);
        for key in &touched {
            self.note_if_unknown(key);
        }
        touched
    }

    fn note_if_unknown(&self, key: &Key) {
        if !self.state.lock().history.knows(key) {
            let row = self.record(key.clone());
            self.state.lock().history.note(key.clone(), row);
        }
    }

    /// Takes note of what a commit changed.
    fn after(&self, touched: Vec<Key>, marks: &[u64]) {
        self.state.lock().history.committed();
        for key in touched {
            let row = self.record(key.clone());
            self.state.lock().history.note(key, row);
        }
        if marks.len() > 1 {
            let mut state = self.state.lock();
            let now = state.history.now();
            let places = marks.iter().filter_map(|mark| state.places.get(mark)).flatten();
            let places: Vec<Key> = places.cloned().collect();
            state.unclear.extend(places.into_iter().map(|place| (place, now)));
        }
    }

    /// How many commits there were.
    pub(crate) fn moment(&self) -> Moment {
        self.state.lock().history.now()
    }

    /// What a record was from `since` on, each time with the moment from which.
    pub(crate) fn values(&self, key: &Key, since: Moment) -> Vec<(Moment, Option<Row>)> {
        self.note_if_unknown(key);
        self.state.lock().history.values(key, since)
    }

    /// Names of a directory that stood for the same since then, and for what.
    pub(crate) fn lasting_names(&self, dir: Ino, since: Moment) -> Vec<(Name, Ino)> {
        let keys = self.mem.records().into_keys();
        let keys: Vec<Key> = keys.filter(|key| matches!(key, Key::Entry(of, _) if *of == dir)).collect();
        for key in &keys {
            self.note_if_unknown(key);
        }
        let state = self.state.lock();
        let lasting = keys.iter().filter_map(|key| state.history.unchanged(key, since));
        lasting
            .filter_map(
                |row| if let Row::Entry(_, name, to) = row { Some((name.clone(), to.ino)) } else { None },
            )
            .collect()
    }

    /// Whether there was a name in a directory since then, or may have been within a commit.
    pub(crate) fn had_names(&self, dir: Ino, since: Moment) -> bool {
        let stored = self.mem.records();
        let state = self.state.lock();
        let mut unclear = state.unclear.iter().filter(|(_, at)| **at > since);
        if unclear.any(|(key, _)| matches!(key, Key::Entry(of, _) if *of == dir)) {
            return true;
        }
        let names = stored.keys().chain(state.history.keys());
        let names: Vec<&Key> = names.filter(|key| matches!(key, Key::Entry(of, _) if *of == dir)).collect();
        names.into_iter().any(|key| {
            let values = state.history.values(key, since);
            values.is_empty() || values.iter().any(|(_, row)| row.is_some())
        })
    }

    /// Whether a name may have stood for something else within a commit since then.
    pub(crate) fn is_unclear(&self, place: &Key, since: Moment) -> bool {
        self.state.lock().unclear.get(place).is_some_and(|at| *at > since)
    }

    /// Names that an operation is about.
    pub(crate) fn is_about(&self, mark: Mark, places: Vec<Key>) {
        self.state.lock().places.insert(mark.0, places);
    }

    /// Whether that commit may have happened.
    fn look_at(&self, client: usize, commit: &Commit, marks: &[u64]) {
        for mark in marks {
            let times = {
                let mut state = self.state.lock();
                let times = state.happened.entry(*mark).or_default();
                *times += 1;
                *times
            };
            if times > 1 && !Mark(*mark).recurs() {
                self.fault(format!("operation {mark} of client {client} happened {times} times"));
            }
        }
        let named = commit.writes.iter().filter_map(|write| match write {
            Write::Insert(Row::Entry(dir, ..)) | Write::Put(Row::Entry(dir, ..)) => Some(*dir),
            _ => None,
        });
        for dir in named.filter(|dir| !dir.is_trash()) {
            if matches!(self.record(Key::Node(dir)), Some(Row::Node(_, attr)) if attr.parent.is_trash_hour())
            {
                self.fault(format!("client {client} made a name in {dir}, which is in the trash"));
            }
        }
        let now = self.time().sec;
        for write in &commit.writes {
            let Write::Delete(Key::Node(ino)) = write else { continue };
            let keeper = commit.writes.iter().find_map(|write| match write {
                Write::Delete(Key::Sustained(sid, kept)) if kept == ino => Some(*sid),
                _ => None,
            });
            let holder = keeper.and_then(|sid| self.state.lock().sessions.get(&sid).copied());
            // A file without a name is kept for the client that took the name, whoever else has it
            // open.
            if keeper.is_none() || holder == Some(client) {
                self.state.lock().destroyed.insert(*ino, client);
            } else if let Some(sid) = keeper.filter(|sid| self.is_alive(*sid, now)) {
                self.fault(format!("client {client} destroyed {ino}, which living session {sid} keeps"));
            }
        }
    }

    /// A living session of another client of which that commit would take a lock.
    fn robbed(&self, client: usize, commit: &Commit) -> Option<u64> {
        let now = self.time().sec;
        let taken = commit.writes.iter().filter_map(|write| match write {
            Write::Delete(key) | Write::Discard(key) => locks::owner(key),
            _ => None,
        });
        let others = |sid: &u64| self.state.lock().sessions.get(sid) != Some(&client);
        taken.map(|owner| owner.sid).filter(others).find(|sid| self.is_alive(*sid, now))
    }

    /// Whether locks still exclude each other after that commit, and whom it took for dead.
    fn look_at_locks(&self, client: usize, commit: &Commit, robbed: Option<u64>) {
        if let Some(sid) = robbed {
            self.fault(format!("client {client} took locks of living session {sid}"));
        }
        let mut locked = false;
        for write in &commit.writes {
            match write {
                Write::Clear(List::Lanes(sid)) => {
                    *self.state.lock().fences.entry(*sid).or_default() += 1;
                }
                Write::Insert(Row::Flock(..) | Row::Plock(..))
                | Write::Put(Row::Flock(..) | Row::Plock(..)) => {
                    locked = true;
                }
                _ => {}
            }
        }
        let clash = locked.then(|| locks::clash(&locks::on_record(self.mem.records().values()))).flatten();
        if let Some((one, other)) = clash {
            self.fault(format!("{one:?} and {other:?} exclude each other"));
        }
    }

    /// How often others took the right to commit from a session.
    pub(crate) fn fences(&self, sid: u64) -> u64 {
        self.state.lock().fences.get(&sid).copied().unwrap_or(0)
    }

    /// Whether a session is on record as alive.
    fn is_alive(&self, sid: u64, now: i64) -> bool {
        let found = self.mem.read(&[Read::Get(Key::Session(sid))]);
        match found.as_deref() {
            Ok([Found::Row(Some(Row::Session(_, session)))]) => session.expire >= now,
            _ => false,
        }
    }

    /// Sessions on record.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = u64> {
        let sid = |key| if let Key::Session(sid) = key { Some(sid) } else { None };
        self.mem.records().into_keys().filter_map(sid)
    }

    /// A record as it is now.
    pub(crate) fn record(&self, key: Key) -> Option<Row> {
        self.sched.atomically(|| match self.mem.read(&[Read::Get(key)]).ok()?.pop() {
            Some(Found::Row(row)) => row,
            _ => None,
        })
    }
}
