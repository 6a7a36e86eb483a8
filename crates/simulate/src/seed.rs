//! One seed from its beginning to its end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sluice_meta::{
    Interrupt, Meta, Options,
    schema::{Extra, Key, VolumeFormat},
    sort::SortSpace,
};
use sluice_testkit::operations::{create, state::State};
use sluice_types::{FileType, FsResult};

use crate::{
    participant::{self, Participant},
    plan::{Plan, Theme},
    sched::{Sched, Trace},
    start_error::StartError,
    world::{World, WorldClock},
};

/// How a seed went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is the same whenever it is run again.
    pub trace: Trace,
    /// What was found to be wrong.
    pub faults: Vec<String>,
    /// What happened, if that was asked for.
    pub events: Vec<String>,
}

/// Until everybody has heard of everything.
const HEARD: Duration = Duration::from_millis(2500);
/// A step of the clocks that leaves who beats alive.
const STEP: Duration = Duration::from_secs(20);
/// Steps after which the dead are cleaned up after, be it that they came back before they died:
/// more than such a session lasts.
const STEPS: usize = 20;

/// Runs a seed; with `verbose`, notes what happens.
pub fn simulate(seed: u64, verbose: bool) -> Outcome {
    let outcome = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let kept = Arc::clone(&outcome);
    let (trace, panics) = Sched::run(seed, move |sched| {
        let world = World::new(Arc::clone(sched), Plan::of(seed), verbose);
        world.log(|| format!("{:?}", world.plan));
        if let Err(why) = run(&world) {
            world.fault(why);
        }
        *kept.lock() = (world.faults(), world.events());
    });
    let (mut faults, events) = std::mem::take(&mut *outcome.lock());
    faults.extend(panics);
    Outcome { trace, faults, events }
}

/// Plays all rounds.
///
/// # Errors
/// Why a part of the simulation could not start.
fn run(world: &Arc<World>) -> Result<(), String> {
    begin(world)?;
    let mut clients: Vec<Arc<dyn Participant>> = Vec::new();
    for at in 0..world.plan.clients.len() {
        let client = loop {
            match participant::open(world, at) {
                Ok(client) => break client,
                // A broken answer is no reason not to take part.
                Err(StartError::Refused) => {}
                Err(StartError::Machine(why)) => return Err(why),
            }
        };
        clients.push(client);
    }
    for round in 0..world.plan.rounds {
        play(world, &clients);
        world.deliver(true);
        check(world, &clients, &format!("after round {round}"));
    }
    end(world, &clients);
    Ok(())
}

/// A volume with some directories and files in it.
fn begin(world: &Arc<World>) -> Result<(), String> {
    let format = VolumeFormat {
        name: "sim".into(),
        uuid: "9d6d5a4e-6a86-4d3c-8a5f-2f2b1f7c0a11".into(),
        dir_stats: true,
        trash_days: world.plan.trash_days,
        ..VolumeFormat::default()
    };
    world.sched.atomically(|| {
        let made = Meta::format(&world.mem, &format, world.time());
        assert!(made.is_ok(), "{made:?}");
        let meta = observer(world, false)?;
        let mut inos = vec![1];
        let tree = [(0, "a"), (0, "b"), (1, "c"), (2, "d"), (0, "e"), (1, "e"), (3, "d"), (4, "c")];
        // Deep trees are for those who move them.
        let nodes = if world.plan.theme == Theme::Moves { tree.len() } else { 6 };
        for &(parent, name) in &tree[..nodes] {
            let kind = if name == "e" { FileType::File } else { FileType::Dir };
            let ino = meta.new_ino(&Interrupt::never()).map_or(0, |ino| ino.0);
            let made = meta.run(create(inos[parent], name, ino, kind), &Interrupt::never());
            assert!(made.is_ok(), "{made:?}");
            inos.push(ino);
        }
        let closed = meta.close();
        assert!(closed.is_ok(), "{closed:?}");
        Ok(())
    })
}

/// A client beside the simulation.
fn observer(world: &Arc<World>, read_only: bool) -> Result<Arc<Meta>, String> {
    let clock = Arc::new(WorldClock(Arc::clone(world)));
    let options = Options { read_only, record_cache: false, clock, ..Options::default() };
    Meta::open(Arc::new(world.mem.clone()), options)
        .map_err(|error| format!("the volume cannot be opened: {error}"))
}

/// One round: all threads of all clients, their heartbeats, and what goes wrong meanwhile.
fn play(world: &Arc<World>, clients: &[Arc<dyn Participant>]) {
    // Whoever takes part in the round holds one. Followers and other work of a client go on.
    let token = Arc::new(());
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        let held = Arc::clone(&token);
        world.sched.spawn(name, move || {
            run();
            drop(held);
        });
    };
    for (at, client) in clients.iter().enumerate().filter(|(at, _)| world.lives(*at)) {
        for thread in 0..world.plan.clients[at].threads {
            let client = Arc::clone(client);
            spawn(&format!("client {at} thread {thread}"), Box::new(move || client.work(thread)));
        }
        let (client, world) = (Arc::clone(client), Arc::clone(world));
        spawn(
            &format!("client {at} heart"),
            Box::new(move || participant::beat_sometimes(&world, at, &*client)),
        );
    }
    let chaos = Arc::clone(world);
    spawn("chaos", Box::new(move || go_wrong(&chaos)));
    world.sched.wait_for(|| Arc::strong_count(&token) == 1);
}

/// What happens to everybody.
fn go_wrong(world: &World) {
    let plan = &world.plan;
    let mut events = vec![0; plan.outages as usize];
    events.extend(vec![1; plan.jumps as usize]);
    events.extend(vec![2; plan.signals as usize]);
    events.extend(vec![3; 3 * usize::from(plan.chances.late > 0)]);
    events.extend((0..plan.clients.len()).filter(|at| plan.clients[*at].dies).map(|at| 4 + at));
    while !events.is_empty() {
        world.sched.take_time(Duration::from_micros(plan.pace));
        let event = events.swap_remove(world.sched.below(events.len() as u64) as usize);
        match event {
            0 => world.outage(Duration::from_micros(500 + world.sched.below(20_000))),
            1 => world.jump(Duration::from_secs(plan.jump / 2 + world.sched.below(plan.jump))),
            2 => world.signal(),
            3 => world.deliver(false),
            client => world.kill(client - 4),
        }
    }
}

/// Whether all is as it should be, while nothing happens.
fn check(world: &Arc<World>, clients: &[Arc<dyn Participant>], when: &str) {
    let living = || clients.iter().enumerate().filter(|(at, _)| world.lives(*at));
    for (_, client) in living() {
        client.check_open();
        client.check_locks();
    }
    for client in clients {
        client.check_answers();
    }
    if world.plan.theme == Theme::Mounts || living().any(|(at, _)| world.plan.clients[at].cache) {
        world.sched.pass(HEARD);
        for (_, client) in living() {
            client.check_memory();
        }
    }
    world.sched.atomically(|| {
        let sessions: Vec<u64> = world.sessions().collect();
        for key in world.mem.records().into_keys() {
            if matches!(key, Key::Extra(Extra::Member, sid) if !sessions.contains(&sid)) {
                world.fault(format!("{when}: {key:?} outlived its session"));
            }
        }
        let meta = match observer(world, true) {
            Ok(meta) => meta,
            Err(why) => return world.fault(format!("{when}: {why}")),
        };
        let checked = meta
            .check(false, &SortSpace::default(), &Interrupt::never(), &|_| {})
            .and_then(|report| report.findings.all()?.collect::<FsResult<Vec<_>>>());
        match checked {
            Ok(found) => found.iter().for_each(|found| world.fault(format!("{when}: {found}"))),
            Err(error) => world.fault(format!("{when}: the check failed: {error}")),
        }
    });
}

/// The dead are cleaned up after, the living close all and leave: an orderly tree remains.
fn end(world: &Arc<World>, clients: &[Arc<dyn Participant>]) {
    let living = clients.iter().enumerate().filter(|(at, _)| world.lives(*at));
    let living: Vec<(usize, Arc<dyn Participant>)> =
        living.map(|(at, client)| (at, Arc::clone(client))).collect();
    for (_, client) in &living {
        client.close_all();
    }
    // A session whose making was not answered has nobody who ends it, either.
    let sids: Vec<u64> = living.iter().map(|(_, client)| client.sid()).collect();
    if !living.is_empty() {
        for _ in 0..STEPS {
            if world.sessions().all(|sid| sids.contains(&sid)) {
                break;
            }
            world.jump(STEP);
            for (_, client) in &living {
                client.beat();
            }
        }
        for (at, client) in clients.iter().enumerate().filter(|(at, _)| !world.lives(*at)) {
            if world.record(Key::Session(client.sid())).is_some() {
                world.fault(format!("nobody cleaned up after client {at}"));
            }
        }
    }
    world.deliver(true);
    for (at, client) in &living {
        client.beat();
        if let Err(error) = client.leave() {
            world.fault(format!("client {at} cannot leave: {error}"));
        }
    }
    world.deliver(true);
    for client in clients {
        client.check_answers();
    }
    if !living.is_empty() {
        world.sched.atomically(|| {
            let state = State::of(&world.mem);
            // What it asserts is noted as a panic.
            drop(catch_unwind(AssertUnwindSafe(|| state.assert_tree("at the end"))));
            drop(catch_unwind(AssertUnwindSafe(|| state.assert_slices("at the end"))));
            for key in world.mem.records().into_keys() {
                let ends = matches!(key, Key::Session(_) | Key::Extra(Extra::Member, _));
                if ends || matches!(key, Key::Sustained(..) | Key::Flock(..) | Key::Plock(..)) {
                    world.fault(format!("at the end there is {key:?}"));
                }
            }
        });
    }
}
