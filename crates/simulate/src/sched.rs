//! The scheduler: runs threads one at a time, in virtual time, in an order that one seed decides.
//!
//! Each waiting thread states when its wait ends. The thread whose time comes first runs next. A
//! thread that waits for the network or yields waits for as long as the seed says: mostly for a
//! short time, sometimes for long. What must stay true: a thread reads and writes shared data only
//! while it is the one that runs.

use std::{
    collections::HashMap,
    hash::Hasher as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Once, Weak},
    thread::{self, JoinHandle, Thread, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHasher;
use sluice_types::{
    Rng,
    wait::{self, Scheduler},
};

/// Nobody waits that long.
const NEVER: u64 = u64::MAX;
/// Limit of switches between threads. A seed that exceeds it has threads that wait for each other
/// in an endless loop.
const MOST: u64 = 3_000_000;

/// The scheduler of one simulation.
pub(crate) struct Sched {
    own: Weak<Self>,
    base: Instant,
    state: Mutex<State>,
    seed: u64,
}

struct State {
    rng: Rng,
    /// Nanoseconds since the beginning.
    now: u64,
    threads: Vec<Slot>,
    ids: HashMap<ThreadId, usize>,
    /// The thread that runs.
    running: usize,
    /// Threads that have not ended.
    alive: usize,
    /// Whether the running thread must not be interrupted.
    atomic: bool,
    switches: u64,
    trace: FxHasher,
    /// What threads said when they panicked.
    panics: Vec<String>,
}

struct Slot {
    name: String,
    /// When it goes on.
    wakes: u64,
    /// Whether it was unparked since it last parked.
    token: bool,
    /// Whether an unpark lets it go on.
    parked: bool,
    done: bool,
    turn: Arc<Condvar>,
}

/// The course of a simulation as a number: the same for each run of the same seed on the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Which thread ran when, all of it.
    pub hash: u64,
    /// How often another thread's turn came.
    pub switches: u64,
    /// Virtual time that passed, nanoseconds.
    pub took: u64,
}

thread_local! {
    static CURRENT: std::cell::RefCell<Weak<Sched>> = const { std::cell::RefCell::new(Weak::new()) };
}

/// Notes the panics of scheduled threads, whoever catches them.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match CURRENT.with_borrow(Weak::upgrade) {
            Some(sched) => {
                if let Some(mut state) = sched.state.try_lock() {
                    let name = state.threads[state.running].name.clone();
                    state.panics.push(format!("{name}: {panic}"));
                }
            }
            None => before(panic),
        }));
    });
}

impl Sched {
    /// Runs `root` and all threads that it starts until all have ended; how that went, and what
    /// panicked.
    pub(crate) fn run(seed: u64, root: impl FnOnce(&Arc<Self>) + Send + 'static) -> (Trace, Vec<String>) {
        watch_panics();
        let sched = Arc::new_cyclic(|own| Self {
            own: own.clone(),
            base: Instant::now(),
            state: Mutex::new(State {
                rng: Rng::seeded(seed),
                now: 0,
                threads: Vec::new(),
                ids: HashMap::new(),
                running: 0,
                alive: 0,
                atomic: false,
                switches: 0,
                trace: FxHasher::default(),
                panics: Vec::new(),
            }),
            seed,
        });
        let inner = Arc::clone(&sched);
        let run = sched.adopt("root", Box::new(move || root(&inner)));
        let thread = thread::Builder::new().name("root".into()).spawn(run);
        let ended = thread.map(std::thread::JoinHandle::join);
        assert!(matches!(ended, Ok(Ok(()))), "the simulation has no thread");
        let mut state = sched.state.lock();
        while state.alive > 0 {
            state.threads[0].turn.clone().wait(&mut state);
        }
        let trace = Trace { hash: state.trace.finish(), switches: state.switches, took: state.now };
        (trace, std::mem::take(&mut state.panics))
    }

    /// Nanoseconds since the beginning.
    pub(crate) fn elapsed(&self) -> u64 {
        self.state.lock().now
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.state.lock().rng.below(bound)
    }

    /// Whether something of that chance in a thousand happens.
    pub(crate) fn falls(&self, chance: u64) -> bool {
        chance > 0 && self.below(1000) < chance
    }

    /// Runs `work` while no other thread runs.
    pub(crate) fn atomically<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut self.state.lock().atomic, true);
        let done = work();
        self.state.lock().atomic = before;
        done
    }

    /// Waits as long as something takes that usually takes `usual`: seldom much longer.
    pub(crate) fn take_time(&self, usual: Duration) {
        let usual = (usual.as_nanos() as u64).max(1);
        let mut state = self.state.lock();
        let slow = match state.rng.below(64) {
            0 => 100,
            1..=5 => 10,
            _ => 1,
        };
        let pause = state.rng.below(2 * usual * slow) + 1;
        let wakes = state.now + pause;
        self.wait_until(state, wakes, false);
    }

    /// Starts a thread.
    pub(crate) fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) {
        let run = self.adopt(name, Box::new(run));
        let begun = thread::Builder::new().name(name.into()).spawn(run);
        assert!(begun.is_ok(), "no thread to be had");
    }

    /// Lets `time` pass for the calling thread.
    pub(crate) fn pass(&self, time: Duration) {
        // Virtual: the deadline comes as soon as nobody else has anything to do before it.
        let state = self.state.lock();
        let wakes = state.now + time.as_nanos() as u64;
        self.wait_until(state, wakes, false);
    }

    /// Waits until `done`, which other threads cause.
    pub(crate) fn wait_for(&self, done: impl Fn() -> bool) {
        while !done() {
            self.pass(Duration::from_millis(1));
        }
    }

    /// Lets others run until `wakes`, or until the calling thread is unparked if it is `parked`.
    fn wait_until(&self, mut state: MutexGuard<'_, State>, wakes: u64, parked: bool) {
        if state.atomic {
            if wakes != NEVER {
                state.now = state.now.max(wakes);
            }
            return;
        }
        let own = state.running;
        state.threads[own].wakes = wakes;
        state.threads[own].parked = parked;
        self.hand_over(&mut state);
        Self::await_turn(&mut state, own);
        state.threads[own].parked = false;
    }

    /// Chooses who runs next.
    fn hand_over(&self, state: &mut State) {
        let next = (0..state.threads.len())
            .filter(|&at| !state.threads[at].done)
            .min_by_key(|&at| (state.threads[at].wakes, at));
        let Some(next) = next else { return };
        let wakes = state.threads[next].wakes;
        state.switches += 1;
        if wakes == NEVER || state.switches > MOST {
            let waiting = state.threads.iter().filter(|slot| !slot.done).map(|slot| slot.name.as_str());
            let waiting: Vec<&str> = waiting.collect();
            let what = if wakes == NEVER { "all wait for each other" } else { "there is no end" };
            eprintln!("seed {}: {what}: {waiting:?}", self.seed);
            eprintln!("{}", state.panics.join("\n"));
            std::process::abort();
        }
        state.now = state.now.max(wakes);
        state.running = next;
        state.trace.write_u64(state.now);
        state.trace.write_usize(next);
        state.threads[next].turn.notify_one();
    }

    fn await_turn(state: &mut MutexGuard<'_, State>, own: usize) {
        let turn = Arc::clone(&state.threads[own].turn);
        while state.running != own {
            turn.wait(state);
        }
    }

    fn enter(&self, own: usize) {
        CURRENT.set(self.own.clone());
        let mut state = self.state.lock();
        state.ids.insert(thread::current().id(), own);
        Self::await_turn(&mut state, own);
    }

    fn leave(&self, own: usize) {
        CURRENT.set(Weak::new());
        let mut state = self.state.lock();
        state.atomic = false;
        state.threads[own].done = true;
        state.alive -= 1;
        self.hand_over(&mut state);
        state.threads[0].turn.notify_all();
    }
}

impl Scheduler for Sched {
    fn now(&self) -> Instant {
        let mut state = self.state.lock();
        // No two readings are equal.
        state.now += 1;
        self.base + Duration::from_nanos(state.now)
    }

    fn park(&self, timeout: Option<Duration>) {
        let mut state = self.state.lock();
        let own = state.running;
        if std::mem::take(&mut state.threads[own].token) {
            return;
        }
        let wakes = timeout.map_or(NEVER, |timeout| state.now + timeout.as_nanos() as u64);
        self.wait_until(state, wakes, true);
        self.state.lock().threads[own].token = false;
    }

    fn unpark(&self, thread: &Thread) {
        let mut state = self.state.lock();
        let Some(&at) = state.ids.get(&thread.id()) else { return };
        let soon = state.now + state.rng.below(20_000) + 1;
        let slot = &mut state.threads[at];
        slot.token = true;
        if slot.parked {
            slot.wakes = slot.wakes.min(soon);
        }
    }

    fn yield_now(&self) {
        self.take_time(Duration::from_micros(2));
    }

    fn has_ended(&self, thread: &JoinHandle<()>) -> bool {
        let state = self.state.lock();
        state.ids.get(&thread.thread().id()).is_some_and(|&at| state.threads[at].done)
    }

    fn adopt(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        let mut state = self.state.lock();
        let own = state.threads.len();
        let wakes = state.now + state.rng.below(20_000) + 1;
        state.threads.push(Slot {
            name: name.into(),
            wakes,
            token: false,
            parked: false,
            done: false,
            turn: Arc::default(),
        });
        state.alive += 1;
        let own_sched = self.own.clone();
        Box::new(move || {
            let Some(sched) = own_sched.upgrade() else { return };
            sched.enter(own);
            wait::obey(Arc::clone(&sched) as _);
            // The hook has noted it.
            drop(catch_unwind(AssertUnwindSafe(run)));
            sched.leave(own);
        })
    }
}
