//! The response times of the last answers of a member, in proportion to their size.
//!
//! What must stay true: one slow answer does not change the median, unless it takes seconds: then
//! it counts many times while it arrives.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Answers that are remembered.
const LAST: usize = 32;
/// Answers after which it is worth looking again.
const DUE: u32 = 8;
/// Bytes that cost as much as an answer without any.
const UNIT: u32 = 64 << 10;

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Microseconds.
    last: [AtomicU32; LAST],
    count: AtomicU32,
}

/// The time of an answer in proportion to its bytes.
pub(crate) fn cost(took: Duration, bytes: u32) -> Duration {
    took / (1 + bytes / UNIT)
}

impl Costs {
    /// One more answer. Returns whether it is time to look at the median.
    pub(crate) fn add(&self, cost: Duration) -> bool {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let micros = cost.as_micros().min(u128::from(u32::MAX)) as u32;
        self.last[number as usize % LAST].store(micros, Ordering::Relaxed);
        (number + 1).is_multiple_of(DUE)
    }

    /// What the median of the last answers cost; `None` before there were enough.
    pub(crate) fn median(&self) -> Option<Duration> {
        if (self.count.load(Ordering::Relaxed) as usize) < LAST {
            return None;
        }
        let mut last = [0; LAST];
        for (place, micros) in last.iter_mut().zip(&self.last) {
            *place = micros.load(Ordering::Relaxed);
        }
        let (_, median, _) = last.select_nth_unstable(LAST / 2);
        Some(Duration::from_micros((*median).into()))
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_last_answers_say_what_they_cost() {
        let costs = Costs::default();
        let (fast, slow) = (Duration::from_millis(1), Duration::from_secs(1));
        for number in 1..LAST as u32 {
            assert_eq!(costs.add(fast), number.is_multiple_of(DUE));
            assert_eq!(costs.median(), None);
        }
        costs.add(slow);
        assert_eq!(costs.median(), Some(fast));
        for _ in 0..LAST / 2 {
            costs.add(slow);
        }
        assert_eq!(costs.median(), Some(slow));
        costs.clear();
        assert_eq!(costs.median(), None);
        assert_eq!(cost(slow, 0), slow);
        assert_eq!(cost(slow, 4 << 20), slow / 65);
    }
}
