//! Runs two clients that start each round at the same time.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use sluice_types::Rng;

/// Runs `left` and `right` for each round, each on a thread of its own, one of them a little later,
/// by chance. Answers what both said, round by round.
pub(super) fn duel<L: Send, R>(
    rounds: u64,
    left: impl Fn(u64) -> L + Send,
    right: impl Fn(u64) -> R,
) -> Vec<(L, R)> {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let start = &start;
        let other = scope.spawn(move || play(rounds, 1, start, left));
        let mine = play(rounds, 2, start, right);
        other.join().expect("the other client").into_iter().zip(mine).collect()
    })
}

fn play<T>(rounds: u64, seed: u64, start: &Barrier, act: impl Fn(u64) -> T) -> Vec<T> {
    let mut rng = Rng::seeded(seed);
    let mut answers = Vec::with_capacity(rounds as usize);
    let mut usual = Duration::ZERO;
    for round in 0..rounds {
        // Up to twice as long as the operation takes: each comes first in some rounds, in others
        // both meet.
        let behind = usual.mul_f64(rng.below(200) as f64 / 100.0);
        start.wait();
        let since = Instant::now();
        while since.elapsed() < behind {
            thread::yield_now();
        }
        let acting = Instant::now();
        answers.push(act(round));
        usual = (usual * 7 + acting.elapsed().min(Duration::from_millis(2))) / 8;
    }
    answers
}
