//! How to wait for the answers of a server: by polling or by sleeping, depending on recent round
//! trips.
//!
//! For a near server (one with a short round trip), sleeping and waking up takes longer than the
//! answer. So the answer of such a server is polled. What must stay true: polling costs almost
//! nothing for a far server. A near server that was slow for a short time is polled again later.
//! The code must poll to find this out: if the thread sleeps, answers of a near server take as long
//! as those of a far server.
//!
//! While the processors are busy, no answer is polled (`processors.rs`): polling would take the
//! time that the server needs for its answer, and the times say nothing.

use std::time::Duration;

/// Servers that answer within this time are near. No thread polls for longer.
pub(crate) const NEAR: Duration = Duration::from_micros(200);

/// For a server that seems far, one answer in this many is polled, to measure it again.
const PROBE: u32 = 32;

/// How long recent answers of a server took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nearness {
    usual: Duration,
    /// Answers since the last polled one.
    slept: u32,
}

impl Default for Nearness {
    /// A server that is assumed to be near.
    fn default() -> Self {
        Self { usual: NEAR / 2, slept: 0 }
    }
}

impl Nearness {
    /// Whether to poll for the next answer, for up to [`NEAR`].
    pub(crate) fn should_poll(&mut self) -> bool {
        if self.usual < NEAR {
            return true;
        }
        self.slept = self.slept.wrapping_add(1);
        self.slept.is_multiple_of(PROBE)
    }

    /// Records how long an answer took.
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
                let awake = nearness.should_poll();
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
        // It was near all the time, and only the sleep made it look far.
        let until_probed = (0..=PROBE).take_while(|_| !nearness.should_poll()).count();
        assert!(until_probed < PROBE as usize);
        nearness.took(NEAR / 2);
        assert!(nearness.should_poll());
    }
}
