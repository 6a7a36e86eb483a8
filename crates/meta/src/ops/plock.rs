//! POSIX record locks (`fcntl(2)`).

use sluice_types::{FsError, Ino};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Change, Key, LockOwner, PlockRange, Row},
    view::{Stop, View},
    want::Want,
};

/// Takes or releases a record lock without waiting. Two trips.
#[derive(Clone, Debug)]
pub struct SetPlock {
    /// The file.
    pub ino: Ino,
    /// Who.
    pub owner: LockOwner,
    /// Range and kind.
    pub range: PlockRange,
    /// Whether the range is released rather than taken.
    pub unlock: bool,
}

impl Op for SetPlock {
    /// Whether the owner still holds any range.
    type Out = bool;
    const NAME: &'static str = "setlk";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let list = List::Plocks(self.ino);
        let node = Want::node(self.ino, Hold::Lock);
        view.want(&[node, Want::all(list, Hold::Lock)])?;
        if !self.unlock {
            rules::existing(view, self.ino, Hold::Lock)?;
        }
        let mut mine = Vec::new();
        for row in view.all(list, Hold::Lock)? {
            let Row::Plock(_, owner, ranges) = row else { continue };
            if owner == self.owner {
                mine = ranges;
            } else if !self.unlock && ranges.iter().any(|range| conflicts(range, &self.range)) {
                return Err(FsError::Again.into());
            }
        }
        let after = replace(&mine, self.range, self.unlock);
        let holds = !after.is_empty();
        if after == mine {
            return Ok(holds);
        }
        let weaker = mine.iter().any(|range| range.write) || self.unlock;
        if after.is_empty() {
            view.delete(Key::Plock(self.ino, self.owner));
        } else {
            view.put(Row::Plock(self.ino, self.owner, after));
        }
        let kind = match (self.unlock, self.range.write) {
            (true, _) => 'U',
            (false, true) => 'W',
            (false, false) => 'R',
        };
        view.log(|| Line::Plock { ino: self.ino, owner: self.owner, kind, range: self.range });
        if weaker {
            view.write(Write::Notify(Change::Lock(self.ino)));
        }
        Ok(holds)
    }
}

/// Finds a lock that would keep `range` from being taken. One trip.
#[derive(Clone, Debug)]
pub struct GetPlock {
    /// The file.
    pub ino: Ino,
    /// Who would take it.
    pub owner: LockOwner,
    /// Range and kind.
    pub range: PlockRange,
}

impl Op for GetPlock {
    type Out = Option<(LockOwner, PlockRange)>;
    const NAME: &'static str = "getlk";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        for row in view.all(List::Plocks(self.ino), Hold::None)? {
            if let Row::Plock(_, owner, ranges) = row
                && owner != self.owner
                && let Some(range) = ranges.into_iter().find(|range| conflicts(range, &self.range))
            {
                return Ok(Some((owner, range)));
            }
        }
        Ok(None)
    }
}

/// Whether two ranges of different owners exclude each other.
fn conflicts(a: &PlockRange, b: &PlockRange) -> bool {
    (a.write || b.write) && a.start <= b.end && b.start <= a.end
}

/// The ranges of one owner after `new` replaced or released what it covers: sorted, apart,
/// neighbours of one kind and process merged.
fn replace(ranges: &[PlockRange], new: PlockRange, unlock: bool) -> Vec<PlockRange> {
    let mut out = Vec::with_capacity(ranges.len() + 2);
    for range in ranges {
        if range.end < new.start || range.start > new.end {
            out.push(*range);
            continue;
        }
        if range.start < new.start {
            out.push(PlockRange { end: new.start - 1, ..*range });
        }
        if range.end > new.end {
            out.push(PlockRange { start: new.end + 1, ..*range });
        }
    }
    if !unlock {
        out.push(new);
    }
    out.sort_unstable_by_key(|range| range.start);
    out.dedup_by(|next, last| {
        let merge =
            last.write == next.write && last.pid == next.pid && last.end.checked_add(1) == Some(next.start);
        if merge {
            last.end = next.end;
        }
        merge
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(write: bool, start: u64, end: u64) -> PlockRange {
        PlockRange { write, pid: 1, start, end }
    }

    #[test]
    fn ranges_split_and_merge() {
        let one = replace(&[], range(true, 10, 19), false);
        assert_eq!(one, [range(true, 10, 19)]);
        let hole = replace(&one, range(true, 13, 15), true);
        assert_eq!(hole, [range(true, 10, 12), range(true, 16, 19)]);
        let mixed = replace(&hole, range(false, 12, 16), false);
        assert_eq!(mixed, [range(true, 10, 11), range(false, 12, 16), range(true, 17, 19)]);
        assert_eq!(replace(&mixed, range(true, 12, 16), false), [range(true, 10, 19)]);
        assert_eq!(replace(&mixed, range(true, 0, i64::MAX as u64), true), []);
    }
}
