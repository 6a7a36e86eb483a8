//! One client: its threads run the operations of programs, keep files open, and check the answers.
//!
//! It opens and closes files in the order in which a mount does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sluice_meta::{
    ClientCache, Interrupt, Members, Meta, OpenError, Options,
    op::At,
    ops::{getattr::GetAttr, lookup::Lookup, removal::RemovedNode, sustained::DropSustained},
    schema::{LockOwner, Member, Row},
};
use sluice_types::{FsError, FsResult, Ino};

use crate::{
    act::{Act, Done, Marked},
    choose::Scene,
    engine::{SimEngine, TIMEOUT},
    history::Moment,
    locks::{Beliefs, LockRequest, on_record},
    names::Asked,
    plan::{Step, Theme},
    world::{Mark, World, WorldClock},
};

/// A client and what it has open.
pub(crate) struct Client {
    /// Its place in the plan.
    at: usize,
    /// Its volume.
    pub(crate) meta: Arc<Meta>,
    world: Arc<World>,
    files: Mutex<Files>,
    answers: Mutex<Vec<(Mark, Answer)>>,
    locks: Mutex<Beliefs>,
}

#[derive(Default)]
struct Files {
    /// Handles of each file, on their way to being open or open, and whether it lost its last name.
    held: BTreeMap<Ino, (u32, bool)>,
    /// Handles whose opens were answered.
    open: Vec<Ino>,
    /// The last that was closed.
    closed: Option<Ino>,
}

/// What a program was told of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It happened.
    Done,
    /// It did not.
    Failed,
}

impl Client {
    /// Opens the volume.
    pub(crate) fn open(world: &Arc<World>, at: usize) -> Result<Arc<Self>, OpenError> {
        let plan = world.plan.clients[at];
        let options = Options {
            record_cache: plan.record_cache,
            client_cache: plan.cache.then(ClientCache::default),
            clock: Arc::new(WorldClock(Arc::clone(world))),
            timeout: TIMEOUT,
            ..Options::default()
        };
        let meta = Meta::open(Arc::new(SimEngine::new(Arc::clone(world), at)), options)?;
        world.opened(at, meta.sid());
        if plan.cache {
            meta.follow(Box::new(|_| {}));
        }
        Ok(Arc::new(Self {
            at,
            meta,
            world: Arc::clone(world),
            files: Mutex::default(),
            answers: Mutex::default(),
            locks: Mutex::default(),
        }))
    }

    /// What one of its threads does in one round.
    pub(crate) fn work(&self, thread: usize) {
        for _ in 0..self.world.plan.clients[self.at].steps {
            if !self.world.lives(self.at) {
                return;
            }
            self.world.sched.take_time(Duration::from_micros(self.world.plan.clients[self.at].pause));
            let interrupt = self.world.begins(self.at);
            match self.world.plan.steps.next(|bound| self.world.sched.below(bound)) {
                Step::Act => self.act(1, &interrupt),
                Step::Several => self.act(2 + self.world.sched.below(6) as usize, &interrupt),
                Step::Open => self.open_some(&interrupt),
                Step::Close => self.close_some(),
                Step::Look => self.look_at_some(&interrupt),
                Step::Check => self.check_some(&interrupt),
                Step::Lock => self.lock_some(thread as u64, &interrupt),
                Step::Group => self.join_or_leave(&interrupt),
                // Only mounts do.
                Step::Write | Step::List => {}
            }
        }
    }

    fn act(&self, count: usize, interrupt: &Interrupt) {
        let mut marked = Vec::new();
        let crossing = self.world.plan.theme == Theme::Moves && count > 1 && self.world.sched.below(2) == 0;
        while marked.len() < count {
            let Ok(ino) = self.meta.new_ino(interrupt) else { return };
            let scene = Scene::of(&self.world);
            let crossing = if crossing && marked.is_empty() { scene.crossing(ino) } else { None };
            let acts = crossing.unwrap_or_else(|| vec![scene.act(ino)]);
            marked.extend(acts.into_iter().map(|act| Marked { act, mark: self.world.mark() }));
        }
        for Marked { act, mark } in &marked {
            self.world.is_about(*mark, act.asked().map_or_else(Vec::new, |asked| asked.places()));
        }
        self.world.log(|| format!("client {} asks {marked:?}", self.at));
        let since = self.world.moment();
        let answers = self.meta.run_all(marked.clone(), interrupt);
        self.world.log(|| format!("client {} is told {answers:?}", self.at));
        for (marked, answer) in marked.into_iter().zip(answers) {
            self.check_answer(&marked, &answer);
            self.check_names(&marked, &answer, since);
            if let Ok(Done { removed: Some((ino, RemovedNode::Sustained(_))), .. }) = answer {
                self.lost_its_name(ino);
            }
        }
    }

    /// Whether an answer is true.
    fn check_answer(&self, marked: &Marked, answer: &FsResult<Done>) {
        let (mark, times) = (marked.mark, self.world.happened(marked.mark));
        let notice = match answer {
            // Nothing to do, or nobody knows.
            Ok(Done { marked: false, .. }) | Err(FsError::Io(_) | FsError::Interrupted) => return,
            Ok(_) => Answer::Done,
            Err(_) => Answer::Failed,
        };
        self.compare(mark, notice, times, &format!("{marked:?}: {answer:?}"));
        self.answers.lock().push((mark, notice));
    }

    /// Whether an answer was true of names at some moment since it was asked for.
    fn check_names(&self, marked: &Marked, answer: &FsResult<Done>, since: Moment) {
        let Some(asked) = marked.act.asked() else { return };
        let answered = match answer {
            Ok(Done { marked: false, .. }) => return,
            Ok(_) => Ok(marked.act.made()),
            Err(error) => Err(error),
        };
        if !asked.may_be(&self.world, since, answered) {
            self.world.fault(format!("client {} was told {answer:?} of {marked:?}", self.at));
        }
    }

    fn compare(&self, mark: Mark, notice: Answer, times: u64, what: &str) {
        let wanted = u64::from(notice == Answer::Done);
        if times != wanted && !(mark.recurs() && times > wanted && wanted > 0) {
            self.world.fault(format!("client {} {mark:?} happened {times} times: {what}", self.at));
        }
    }

    /// Whether what programs were told is still true.
    pub(crate) fn check_answers(&self) {
        for (mark, notice) in self.answers.lock().iter() {
            self.compare(*mark, *notice, self.world.happened(*mark), &format!("it was told: {notice:?}"));
        }
    }

    /// Takes or releases a lock. Each thread is an owner.
    fn lock_some(&self, owner: u64, interrupt: &Interrupt) {
        let Some(file) = Scene::of(&self.world).file() else { return };
        let owner = LockOwner { sid: self.meta.sid(), owner };
        let request = LockRequest::drawn(file.ino, owner, |bound| self.world.sched.below(bound));
        let fences = self.world.fences(owner.sid);
        let marked = Marked { act: Act::Lock(request.clone()), mark: self.world.lock_mark() };
        let answer = self.meta.run(marked.clone(), interrupt);
        self.world.log(|| format!("client {} is told {answer:?} of {marked:?}", self.at));
        self.check_answer(&marked, &answer);
        self.locks.lock().heard(&request, &answer, fences);
    }

    /// Joins a cache group, or leaves it.
    fn join_or_leave(&self, interrupt: &Interrupt) {
        let sid = self.meta.sid();
        if self.world.sched.below(3) == 0 {
            let left = self.meta.leave_group(sid, interrupt);
            self.world.log(|| format!("client {} leaves its group: {left:?}", self.at));
            return;
        }
        let member = Member { group: "g".into(), address: "host:1".into(), ..Member::default() };
        let joined = self.meta.join_group(member, interrupt);
        self.world.log(|| format!("client {} joins a group: {joined:?}", self.at));
        let Ok(Members { version, members }) = joined else { return };
        if version == 0 || !members.is_sorted_by_key(|member| member.sid) {
            self.world.fault(format!("client {} is told version {version} of {members:?}", self.at));
        }
    }

    /// Whether its locks are on record as its threads were told.
    pub(crate) fn check_locks(&self) {
        let record = on_record(self.world.mem.records().values());
        for wrong in self.locks.lock().wrong(&record, self.world.fences(self.meta.sid())) {
            self.world.fault(format!("client {} believes lock {wrong}", self.at));
        }
    }

    fn open_some(&self, interrupt: &Interrupt) {
        let Some(ino) = self.some_file() else { return };
        self.files.lock().held.entry(ino).or_default().0 += 1;
        self.meta.register_open(ino);
        let node = self.meta.await_removal(ino, interrupt);
        let opened = node.and_then(|()| self.meta.read(&GetAttr(ino), interrupt));
        self.world.log(|| format!("client {} opens {ino}: {opened:?}", self.at));
        match opened {
            Ok(_) => self.files.lock().open.push(ino),
            Err(_) => self.leave(ino),
        }
    }

    /// A file to open: one that has a name, or the last that was closed, as a kernel that found it
    /// before it lost its name.
    fn some_file(&self) -> Option<Ino> {
        let closed = self.files.lock().closed;
        match closed {
            Some(ino) if self.world.plan.theme != Theme::Moves && self.world.sched.below(2) == 0 => Some(ino),
            _ => Scene::of(&self.world).file().map(|file| file.ino),
        }
    }

    fn some_open(&self) -> Option<usize> {
        let count = self.files.lock().open.len();
        (count > 0).then(|| self.world.sched.below(count as u64) as usize)
    }

    fn close_some(&self) {
        let Some(at) = self.some_open() else { return };
        let ino = {
            let mut files = self.files.lock();
            let ino = files.open.swap_remove(at);
            files.closed = Some(ino);
            ino
        };
        self.world.log(|| format!("client {} closes {ino}", self.at));
        self.leave(ino);
    }

    /// Closes all that is open.
    pub(crate) fn close_all(&self) {
        let open = std::mem::take(&mut self.files.lock().open);
        for ino in open {
            self.leave(ino);
        }
    }

    /// One handle less of a file.
    fn leave(&self, ino: Ino) {
        self.meta.unregister_open(ino);
        let gone = {
            let mut files = self.files.lock();
            let Some((handles, unlinked)) = files.held.get_mut(&ino) else { return };
            *handles -= 1;
            let gone = (*handles == 0).then_some(*unlinked);
            if gone.is_some() {
                files.held.remove(&ino);
            }
            gone
        };
        if gone == Some(true) {
            self.let_go(ino);
        }
    }

    fn lost_its_name(&self, ino: Ino) {
        let open = match self.files.lock().held.get_mut(&ino) {
            Some((_, unlinked)) => {
                *unlinked = true;
                true
            }
            None => false,
        };
        // The last handle may have been closed while the commit was under way.
        if !open {
            self.let_go(ino);
        }
    }

    fn let_go(&self, ino: Ino) {
        let interrupt = self.world.begins(self.at);
        let drop = DropSustained { sid: self.meta.sid(), ino, dead_before: None };
        let answer = self.meta.run(drop, &interrupt);
        self.world.log(|| format!("client {} lets go of {ino}: {answer:?}", self.at));
    }

    fn check_some(&self, interrupt: &Interrupt) {
        if let Some(at) = self.some_open() {
            let ino = self.files.lock().open[at];
            self.check(ino, interrupt);
        }
    }

    /// Whether a file that is open here is there, unless others took it away.
    fn check(&self, ino: Ino, interrupt: &Interrupt) {
        let answer = self.meta.read(&GetAttr(ino), interrupt);
        let gone = answer == Err(FsError::NotFound);
        let open = self.files.lock().open.contains(&ino);
        if gone && open && self.world.destroyer(ino) == Some(self.at) {
            self.world.fault(format!("client {} destroyed {ino}, which it has open", self.at));
        }
    }

    /// The same of all that is open.
    pub(crate) fn check_open(&self) {
        let open = self.files.lock().open.clone();
        let never = Interrupt::never();
        for ino in open {
            self.check(ino, &never);
        }
    }

    fn look_at_some(&self, interrupt: &Interrupt) {
        let scene = Scene::of(&self.world);
        let place = scene.place();
        drop(self.meta.read_cached(&GetAttr(place.dir), interrupt));
        drop(self.meta.read_cached(&Lookup(place.clone()), interrupt));
        let since = self.world.moment();
        let found = self.meta.read(&Lookup(place.clone()), interrupt);
        let answered = found.as_ref().map(|(ino, _)| Some(*ino));
        if !Asked::Lookup(place.clone()).may_be(&self.world, since, answered) {
            self.world.fault(format!("client {} found {found:?} as {place:?}", self.at));
        }
    }

    /// Whether what it remembers is true. Nobody changes anything meanwhile, and it has heard of
    /// everything.
    pub(crate) fn check_memory(&self) {
        let never = Interrupt::never();
        for row in self.world.mem.records().into_values() {
            match row {
                Row::Node(ino, attr) => {
                    let believed = self.meta.read_cached(&GetAttr(ino), &never);
                    if believed.as_ref().is_ok_and(|believed| *believed != attr) {
                        self.world
                            .fault(format!("client {} believes {ino} {believed:?}, not {attr:?}", self.at));
                    }
                }
                Row::Entry(dir, name, to) => {
                    let believed = self.meta.read_cached(&Lookup(At::new(dir, name.clone())), &never);
                    let found = believed.as_ref().map(|(ino, _)| *ino);
                    if found != Ok(to.ino) && !matches!(found, Err(FsError::Io(_) | FsError::Interrupted)) {
                        let what = format!("{dir}/{name:?} {found:?}, not {}", to.ino);
                        self.world.fault(format!("client {} believes {what}", self.at));
                    }
                }
                _ => {}
            }
        }
    }

    /// Shows that it lives, and cleans up after others.
    pub(crate) fn beat(&self) {
        let answer = self.meta.beat();
        self.world.log(|| format!("client {} beats: {answer:?}", self.at));
    }
}
