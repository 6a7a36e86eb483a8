//! No lane of the engine is lost, and no operation is forgotten, in whatever order threads end.

use std::{
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::{Duration, Instant},
};

use sluice_types::Ino;
use smallvec::smallvec;

use super::Sched;
use crate::{
    batch::{
        Interrupt,
        queued_op::{AnyQueuedOp, QueuedOp, Submitter},
    },
    op::{ConflictKey, ConflictKeys, Op},
    view::{Stop, View},
};

#[derive(Debug)]
struct In(Vec<u64>);

impl Op for In {
    type Out = ();
    const NAME: &'static str = "in";

    fn conflict_keys(&self) -> ConflictKeys {
        let mut keys: ConflictKeys = smallvec![];
        keys.extend(self.0.iter().map(|ino| ConflictKey::Node(Ino(*ino))));
        keys
    }

    fn run(&self, _: &mut View<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

/// The submitter of another thread, with one operation with these conflict keys.
fn caller(inodes: &[u64]) -> (Arc<Submitter>, Arc<AnyQueuedOp>) {
    let until = Instant::now() + Duration::from_mins(1);
    let submitter = thread::spawn(move || {
        Submitter::new(1, Interrupt::default(), (until, until), Arc::new(AtomicU64::new(0)))
    });
    let submitter = Arc::new(submitter.join().unwrap());
    let op = Arc::new(QueuedOp::new(In(inodes.to_vec()), submitter.clone()));
    (submitter, op)
}

/// A caller that queues its operation; the lane it gets at once, if any.
fn arrive(sched: &mut Sched, inodes: &[u64]) -> (Arc<Submitter>, Option<u16>) {
    let (submitter, op) = caller(inodes);
    let lane = sched.queue(&submitter, vec![op]);
    (submitter, lane)
}

#[test]
fn two_batches_that_end_together_do_not_wake_one_thread_twice() {
    let mut sched = Sched::new(2);
    let (a, first) = arrive(&mut sched, &[1]);
    let batch_a = sched.gather(first.unwrap(), &a, 10).unwrap();
    let (b, second) = arrive(&mut sched, &[2]);
    let batch_b = sched.gather(second.unwrap(), &b, 10).unwrap();
    let (waiting, none) = arrive(&mut sched, &[1, 2]);
    assert_eq!(none, None);
    sched.release(0, &a, &batch_a.conflict_keys, &[]);
    assert_eq!(waiting.take_lead(), None, "lane 2 is still busy");
    sched.release(1, &b, &batch_b.conflict_keys, &[]);
    let (late, lane) = arrive(&mut sched, &[3]);
    assert!(lane.is_some(), "the other lane of the engine is free");
    assert!(sched.gather(lane.unwrap(), &late, 10).is_some());
    let handed = waiting.take_lead().expect("its submitter");
    assert_ne!(handed, lane.unwrap());
    assert!(sched.gather(handed, &waiting, 10).is_none(), "the other took it along");
    assert_eq!(sched.free, [handed]);
}

#[test]
fn a_lane_handed_to_a_thread_whose_operations_others_took_comes_back() {
    let mut sched = Sched::new(1);
    let (a, lane) = arrive(&mut sched, &[1]);
    let batch = sched.gather(lane.unwrap(), &a, 10).unwrap();
    let (b, _) = arrive(&mut sched, &[1]);
    sched.release(0, &a, &batch.conflict_keys, &[]);
    assert!(sched.withdraw(&b).len() == 1, "its caller gave up");
    let lane = b.take_lead().expect("handed before");
    assert!(sched.gather(lane, &b, 10).is_none());
    assert_eq!(sched.free, [0]);
    assert!(sched.next.is_none());
    let (c, lane) = arrive(&mut sched, &[1]);
    assert!(sched.gather(lane.unwrap(), &c, 10).is_some());
}

#[test]
fn what_waits_is_not_overtaken_and_what_is_left_goes_first() {
    let mut sched = Sched::new(2);
    let (a, lane) = arrive(&mut sched, &[1]);
    let running = sched.gather(lane.unwrap(), &a, 10).unwrap();
    // The lane of the engine that is free leads nowhere for these: 2 must not overtake 1 and 2.
    let (both, lane) = arrive(&mut sched, &[1, 2]);
    assert!(sched.gather(lane.unwrap(), &both, 10).is_none());
    let (behind, lane) = arrive(&mut sched, &[2]);
    assert!(sched.gather(lane.unwrap(), &behind, 10).is_none());
    sched.release(0, &a, &running.conflict_keys, &running.queued);
    let lane = a.take_lead().expect("what was left goes first");
    let next = sched.gather(lane, &a, 10).unwrap();
    assert_eq!(next.queued.len(), 3);
    assert!(Arc::ptr_eq(&next.queued[0].submitter, &a) && Arc::ptr_eq(&next.queued[1].submitter, &both));
    assert_eq!(sched.queued(), 0);
}

#[test]
fn more_than_a_batch_wakes_another_thread_at_once() {
    let mut sched = Sched::new(3);
    let (a, lane) = arrive(&mut sched, &[1]);
    let first = sched.gather(lane.unwrap(), &a, 10).unwrap();
    let mut waiting = Vec::new();
    let mut free = Vec::new();
    for at in 0..6 {
        let (submitter, op) = caller(&[10 + at]);
        // As if no lane were free when they came.
        free.append(&mut sched.free);
        assert_eq!(sched.queue(&submitter, vec![op]), None);
        waiting.push(submitter);
    }
    sched.free = free;
    sched.release(0, &a, &first.conflict_keys, &[]);
    let lane = waiting[0].take_lead().expect("the first");
    let batch = sched.gather(lane, &waiting[0], 2).unwrap();
    assert_eq!(batch.queued.len(), 2);
    let lane = waiting[2].take_lead().expect("the first that did not fit");
    assert_eq!(sched.gather(lane, &waiting[2], 2).unwrap().queued.len(), 2);
    assert_eq!(waiting[1].take_lead(), None);
    assert!(waiting[4].take_lead().is_some());
}
