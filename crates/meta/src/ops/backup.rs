//! Decides which client backs up the metadata.
//!
//! What must stay true: at most one client of a volume makes a backup in each interval.

use std::time::Duration;

use bytes::Bytes;
use sluice_types::{Ino, Name, Time};
use smallvec::smallvec;

use crate::{
    change_log::Line,
    engine::Hold,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
};

/// Takes the turn to make a backup if the last one is as old as the interval; whether it did. Two
/// trips.
///
/// The time of the last one is an attribute of the root, as RFC 3339 has it. One that cannot be
/// read, or lies in the future by more than an interval, counts as none.
#[derive(Clone, Debug)]
pub struct ClaimBackup {
    /// The attribute: `lastBackup` for backups that JuiceFS would make.
    pub stamp: Name,
    /// When it is.
    pub now: Time,
    /// Time between two backups.
    pub interval: Duration,
}

impl ClaimBackup {
    fn is_due(&self, stamp: &[u8]) -> bool {
        let last = std::str::from_utf8(stamp).ok().and_then(Time::from_rfc3339);
        last.is_none_or(|last| {
            let ahead = last.since(self.now);
            self.now.since(last) >= self.interval || ahead > self.interval
        })
    }
}

impl Op for ClaimBackup {
    type Out = bool;
    const NAME: &'static str = "claim_backup";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(Ino::ROOT)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let key = Key::Xattr(Ino::ROOT, self.stamp.clone());
        let now = Bytes::from(self.now.utc("%Y-%m-%dT%H:%M:%SZ"));
        let row = Row::Xattr(Ino::ROOT, self.stamp.clone(), now.clone());
        match view.get(&key, Hold::Lock)? {
            Some(Row::Xattr(_, _, last)) if !self.is_due(&last) => return Ok(false),
            Some(_) => view.put(row),
            None => view.insert(row),
        }
        let (ino, name) = (Ino::ROOT, self.stamp.clone());
        view.log(|| Line::SetXattr { ino, name, value: now, flags: 0 });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_due_when_the_last_one_is_old_or_unknown() {
        let now = Time::from_rfc3339("2026-03-01T12:00:00Z").unwrap();
        let hourly =
            ClaimBackup { stamp: Name::new(b"lastBackup").unwrap(), now, interval: Duration::from_hours(1) };
        for (stamp, due) in [
            ("2026-03-01T11:00:00Z", true),
            ("2026-03-01T11:00:01Z", false),
            ("2026-03-01T19:00:00+08:00", true),
            ("2026-03-01T19:30:00+08:00", false),
            ("2026-03-01T12:30:00Z", false),
            ("2026-03-02T12:00:00Z", true),
            ("yesterday", true),
            ("", true),
        ] {
            assert_eq!(hourly.is_due(stamp.as_bytes()), due, "{stamp}");
        }
    }
}
