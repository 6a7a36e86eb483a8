//! Writes the effects of commits to the log for a successor.
//!
//! What must stay true: an effect is logged before its commit is sent. Before another commit gets
//! the number of a commit that did not happen, the log says that it did not happen.

use std::sync::Arc;

use super::{Batcher, failed::Failed, queued_op::AnyQueuedOp};
use crate::{effect_log::LogSpan, engine::Step};

impl Batcher {
    /// Notes which requests are done once this commit has happened.
    pub(super) fn log_effects(&self, step: Step, group: &[Arc<AnyQueuedOp>]) -> LogSpan {
        let Some(effect_log) = &self.env.effect_log else { return LogSpan::default() };
        let effects: Vec<_> = group.iter().filter_map(|op| op.effect()).collect();
        if effects.is_empty() { LogSpan::default() } else { effect_log.sending(step.lane, step.to, &effects) }
    }

    /// The commit has not happened and will not.
    pub(super) fn withdraw_effects(&self, logged: LogSpan) {
        if let Some(effect_log) = self.env.effect_log.as_ref().filter(|_| logged.count > 0) {
            effect_log.refused(logged);
        }
    }

    /// `step` is about to be taken by nothing, in stead of the commit that was lost.
    pub(super) fn note_void(&self, lost: Step, step: Step) {
        if let Some(effect_log) = &self.env.effect_log {
            effect_log.voids(lost.lane, lost.from, step.to);
        }
    }

    /// What became of a lost commit, if that is known.
    pub(super) fn log_resolved(&self, lost: Step, logged: LogSpan, resolved: &Result<(), Failed>) {
        let Some(effect_log) = &self.env.effect_log else { return };
        match resolved {
            // It says so until the lane goes on.
            Err(Failed::Unknown(_)) => return,
            Err(_) => self.withdraw_effects(logged),
            Ok(()) => {}
        }
        effect_log.resolved(lost.lane, lost.to + 1);
    }
}
