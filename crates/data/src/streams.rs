//! Detects sequential reads of a file, and how far to read ahead.
//!
//! What must stay true: random reads cause no read-ahead.

use std::ops::Range;

/// Sequential streams of one open file that are distinguished.
const STREAMS: usize = 2;
/// How far a read may be from the expected offset, because the kernel's own read-ahead reorders
/// requests.
const SLACK: u64 = 1 << 20;
/// Sequential reads after which a stream counts, if it did not begin at the start of the file.
const HITS: u32 = 2;

/// The streams of one open file.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next: u64,
    window: u64,
    /// The end of the range that was requested already.
    ahead: u64,
    run: u64,
    hits: u32,
    used: u64,
}

impl Streams {
    /// Records a read. Returns the range of the file to fetch for it and ahead of it.
    pub(crate) fn observe(&mut self, offset: u64, len: u64, block: u64, most: u64) -> Option<Range<u64>> {
        self.clock += 1;
        let end = offset + len;
        let near = |stream: &&mut Stream| stream.used > 0 && offset.abs_diff(stream.next) <= SLACK;
        let Some(stream) = self.streams.iter_mut().find(near) else {
            let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used)?;
            let window = if offset == 0 { block.min(most) } else { 0 };
            *oldest = Stream { next: end, window, ahead: 0, run: len, hits: 0, used: self.clock };
            return oldest.reach(offset, end, block);
        };
        stream.used = self.clock;
        stream.hits += 1;
        stream.run += len;
        stream.next = stream.next.max(end);
        stream.window = stream.window.min(most);
        if stream.hits >= HITS && stream.run >= stream.window {
            stream.window = (stream.window * 2).max(block).min(most);
            stream.run = 0;
        }
        stream.reach(offset, end, block)
    }
}

impl Streams {
    /// How many of them read ahead.
    pub(crate) fn running(&self) -> u64 {
        self.streams.iter().filter(|stream| stream.window > 0).count() as u64
    }
}

impl Stream {
    fn reach(&mut self, offset: u64, end: u64, block: u64) -> Option<Range<u64>> {
        if self.window == 0 {
            return None;
        }
        let to = end + self.window;
        if self.ahead > end && to < self.ahead + block / 2 {
            return None;
        }
        let from = self.ahead.max(offset);
        self.ahead = to;
        Some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Rng;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn sequential_reads_are_covered_ahead_and_asked_for_once() {
        let (mut streams, mut asked) = (Streams::default(), 0..0);
        for n in 0..800 {
            if let Some(range) = streams.observe(n * 128 * KIB, 128 * KIB, 4 * MIB, 32 * MIB) {
                assert!(range.start <= asked.end, "no gap");
                assert!(range.end > asked.end, "nothing twice");
                asked = range;
            }
            assert!(asked.end >= (n + 1) * 128 * KIB);
        }
        assert!(asked.end >= 800 * 128 * KIB + 28 * MIB, "the window reached its most: {asked:?}");
    }

    #[test]
    fn two_interleaved_streams_are_both_seen() {
        let mut streams = Streams::default();
        let ahead: Vec<bool> = (0..100)
            .map(|n| {
                streams
                    .observe((n % 2) * 1000 * MIB + n / 2 * 128 * KIB, 128 * KIB, 4 * MIB, 32 * MIB)
                    .is_some()
            })
            .collect();
        assert!(ahead[10..].iter().step_by(2).any(|asked| *asked));
        assert!(ahead[11..].iter().step_by(2).any(|asked| *asked));
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let (mut streams, mut rng) = (Streams::default(), Rng::seeded(7));
        let asked = (0..1000)
            .filter(|_| {
                let at = MIB + rng.below(64 << 30);
                streams.observe(at, 4 * KIB, 4 * MIB, 32 * MIB).is_some()
            })
            .count();
        assert!(asked <= 2, "{asked}");
    }
}
