//! Measures the time until a member begins to answer, to distinguish a slow member from a busy one.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Four steps for each doubling, from a microsecond to an hour.
const STEPS: usize = 4 * 32;
/// Answers after which older ones count half.
const HALVING: u32 = 1024;

/// A histogram in which older answers fade.
#[derive(Debug)]
pub(crate) struct Latency {
    counts: [AtomicU32; STEPS],
    total: AtomicU32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: [const { AtomicU32::new(0) }; STEPS], total: AtomicU32::new(0) }
    }
}

fn step(time: Duration) -> usize {
    let micros = time.as_micros().clamp(1, u128::from(u32::MAX)) as u64;
    let doubling = micros.ilog2() as usize;
    // The two bits after the first.
    let part = if doubling < 2 { 0 } else { (micros >> (doubling - 2)) as usize & 3 };
    (doubling * 4 + part).min(STEPS - 1)
}

/// The longest time of a step.
fn limit(step: usize) -> Duration {
    let (doubling, part) = (step / 4, step % 4);
    Duration::from_micros(((1u64 << doubling) * (5 + part as u64)).div_ceil(4))
}

impl Latency {
    pub(crate) fn observe(&self, time: Duration) {
        self.counts[step(time)].fetch_add(1, Ordering::Relaxed);
        if self.total.fetch_add(1, Ordering::Relaxed) + 1 >= HALVING {
            let mut total = 0;
            for count in &self.counts {
                let half = count.load(Ordering::Relaxed) / 2;
                count.store(half, Ordering::Relaxed);
                total += half;
            }
            self.total.store(total, Ordering::Relaxed);
        }
    }

    /// The time within which 99 of 100 answers began; `None` before there were `enough`.
    pub(crate) fn percentile_99(&self, enough: u32) -> Option<Duration> {
        let total = self.total.load(Ordering::Relaxed);
        if total < enough {
            return None;
        }
        let mut above = total / 100;
        for (step, count) in self.counts.iter().enumerate().rev() {
            let count = count.load(Ordering::Relaxed);
            if count > above {
                return Some(limit(step));
            }
            above -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_answer_of_a_hundred_does_not_count_and_old_ones_fade() {
        let latency = Latency::default();
        assert_eq!(latency.percentile_99(1), None);
        for n in 0..500 {
            latency.observe(Duration::from_micros(if n % 200 == 0 { 900_000 } else { 700 }));
        }
        let usual = latency.percentile_99(100).expect("enough");
        assert!(usual >= Duration::from_micros(700) && usual < Duration::from_millis(1), "{usual:?}");
        for _ in 0..200 {
            latency.observe(Duration::from_millis(50));
        }
        let slower = latency.percentile_99(100).expect("enough");
        assert!(slower >= Duration::from_millis(50) && slower < Duration::from_millis(70), "{slower:?}");
        for _ in 0..20_000 {
            latency.observe(Duration::from_micros(100));
        }
        assert!(latency.percentile_99(100).expect("enough") < Duration::from_micros(150));
    }

    #[test]
    fn steps_contain_their_times() {
        for micros in (1..5000).chain([1 << 20, (1 << 20) + 1, u64::from(u32::MAX)]) {
            let time = Duration::from_micros(micros);
            let at = step(time);
            assert!(time <= limit(at) && (at == 0 || time >= limit(at - 1) * 3 / 4), "{micros}");
        }
    }
}
