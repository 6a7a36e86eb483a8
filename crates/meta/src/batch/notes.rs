//! What the ledger is told of commits, for a successor.
//!
//! What must stay true: it is told before the commit is sent, and of a commit that did not happen
//! before another gets its number.

use std::sync::Arc;

use super::{Batcher, failed::Failed, ticket::AnyTicket};
use crate::{engine::Step, ledger::Noted};

impl Batcher {
    /// Notes which requests are done once this commit has happened.
    pub(super) fn note(&self, step: Step, group: &[Arc<AnyTicket>]) -> Noted {
        let Some(ledger) = &self.env.ledger else { return Noted::default() };
        let effects: Vec<_> = group.iter().filter_map(|ticket| ticket.effect()).collect();
        if effects.is_empty() { Noted::default() } else { ledger.sending(step.lane, step.to, &effects) }
    }

    /// The commit has not happened and will not.
    pub(super) fn withdraw_note(&self, noted: Noted) {
        if let Some(ledger) = self.env.ledger.as_ref().filter(|_| noted.count > 0) {
            ledger.refused(noted);
        }
    }

    /// `step` is about to be taken by nothing, in stead of the commit that was lost.
    pub(super) fn note_void(&self, lost: Step, step: Step) {
        if let Some(ledger) = &self.env.ledger {
            ledger.voids(lost.lane, lost.from, step.to);
        }
    }

    /// What became of a lost commit, if that is known.
    pub(super) fn note_resolved(&self, lost: Step, noted: Noted, resolved: &Result<(), Failed>) {
        let Some(ledger) = &self.env.ledger else { return };
        match resolved {
            // It says so until the lane goes on.
            Err(Failed::Unknown(_)) => return,
            Err(_) => self.withdraw_note(noted),
            Ok(()) => {}
        }
        ledger.resolved(lost.lane, lost.to + 1);
    }
}
