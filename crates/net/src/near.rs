//! How to wait for the answers of a server, by how long they took lately.
//!
//! To sleep until an answer comes and be woken costs more than the answer of a near server takes,
//! so that one is waited for awake. What must stay true: a server that is far costs next to nothing
//! that way, and a near one that was slow for a moment is not slept for ever after, although each
//! answer that is slept for takes as long as a far one's.

use std::time::Duration;

/// Servers that answer within this time are near; nobody stays awake for longer.
pub(crate) const NEAR: Duration = Duration::from_micros(200);

/// Of a server that seems far, one answer in so many is waited for awake, to see whether it is.
const PROBE: u32 = 32;

/// How long the answers of a server took lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearness {
    usual: Duration,
    /// Answers slept for.
    slept: u32,
}

impl Default for Nearness {
    /// A server that is taken for near.
    fn default() -> Self {
        Self { usual: NEAR / 2, slept: 0 }
    }
}

impl Nearness {
    /// Whether to stay awake for the next answer, for up to [`NEAR`].
    pub(crate) fn stays_awake(&mut self) -> bool {
        if self.usual < NEAR {
            return true;
        }
        self.slept = self.slept.wrapping_add(1);
        self.slept.is_multiple_of(PROBE)
    }

    /// Takes note of how long an answer took.
    pub(crate) fn took(&mut self, time: Duration) {
        self.usual = if self.usual >= NEAR && time < NEAR {
            time
        } else {
            // A stall of the server says nothing about the next answer.
            (self.usual * 7 + time.min(NEAR * 2)) / 8
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awake(nearness: &mut Nearness, answers: u32, time: Duration) -> u32 {
        (0..answers)
            .map(|_| {
                let awake = nearness.stays_awake();
                nearness.took(time);
                u32::from(awake)
            })
            .sum()
    }

    #[test]
    fn a_near_server_is_waited_for_awake_and_a_far_one_now_and_then() {
        let mut nearness = Nearness::default();
        assert_eq!(awake(&mut nearness, 100, NEAR / 3), 100);
        // One stall changes nothing.
        nearness.took(Duration::from_secs(5));
        assert_eq!(awake(&mut nearness, 100, NEAR / 3), 100);
        let far = awake(&mut nearness, 3200, NEAR * 5);
        assert!((100..130).contains(&far), "{far}");
        // It was near all the time, and only sleeping for it made it look far.
        let until_probed = (0..=PROBE).take_while(|_| !nearness.stays_awake()).count();
        assert!(until_probed < PROBE as usize);
        nearness.took(NEAR / 2);
        assert!(nearness.stays_awake());
    }
}
