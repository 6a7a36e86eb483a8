//! Waits until other clients know of a quota.
//!
//! What must stay true: a client counts as informed only if it has loaded all quotas since the wait
//! began. A client loads them right after it renews its session. So after its second renewal it has
//! loaded them.

use std::time::Duration;

use sluice_types::{FsResult, wait};

use crate::{batch::Interrupt, engine::Scan, meta::Meta, schema::Row};

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// Longest wait: five heartbeats, after which our own clients count as dead.
const LONGEST: Duration = Duration::from_mins(1);

/// A client that has the volume open.
pub(super) struct Other {
    sid: u64,
    expire: i64,
    renewed: u32,
}

impl Meta {
    /// Clients beside this one that have the volume open to write.
    pub(super) fn others(&self, interrupt: &Interrupt) -> FsResult<Vec<Other>> {
        let now = self.env.clock.now().sec;
        let mut others = Vec::new();
        self.each_page(Scan::Sessions, interrupt, |rows| {
            others.extend(rows.into_iter().filter_map(|row| match row {
                Row::Session(sid, session) if sid != self.sid() && session.expire >= now => {
                    Some(Other { sid, expire: session.expire, renewed: 0 })
                }
                _ => None,
            }));
            Ok(())
        })?;
        Ok(others)
    }

    /// Waits until all of them have loaded the quotas, or are gone. Returns whether they have.
    pub(super) fn await_others(&self, mut others: Vec<Other>, interrupt: &Interrupt) -> FsResult<bool> {
        let until = wait::now() + LONGEST;
        while !others.is_empty() {
            if interrupt.is_set() {
                return Err(sluice_types::FsError::Interrupted);
            }
            if wait::now() >= until {
                return Ok(false);
            }
            interrupt.sleep(CHECK_INTERVAL);
            let there = self.others(interrupt)?;
            others.retain_mut(|other| {
                let Some(now) = there.iter().find(|now| now.sid == other.sid) else { return false };
                if now.expire != other.expire {
                    (other.expire, other.renewed) = (now.expire, other.renewed + 1);
                }
                other.renewed < 2
            });
        }
        Ok(true)
    }
}
