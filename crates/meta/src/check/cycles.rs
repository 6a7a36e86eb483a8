//! Finds directory cycles: directories that are below themselves.
//!
//! What must stay true: the number of rounds is the logarithm of the depth of the tree. Only the
//! sorts use memory.

use sluice_types::{FsResult, Ino};

use super::{finding::Finding, report::Candidates};
use crate::sort::{Fields, Records, SortError, SortSpace, Sorter};

/// The parents of all directories that have a name.
pub(super) struct CycleFinder {
    /// Each directory, and one of its ancestors. An ancestor that is no first item here ends a
    /// path: the root, the trash, or a directory that another finding reports.
    by_dir: Sorter,
    /// The same, sorted by the ancestor.
    by_above: Sorter,
    count: u64,
    /// Whether a directory is in one with a higher number. Each cycle has such a place.
    rising: bool,
}

impl CycleFinder {
    pub(super) fn new(space: &SortSpace) -> Self {
        Self { by_dir: Sorter::new(space), by_above: Sorter::new(space), count: 0, rising: false }
    }

    /// `dir` has a name in `above`.
    pub(super) fn add(&mut self, dir: Ino, above: Ino) -> Result<(), SortError> {
        self.count += 1;
        self.rising |= above >= dir;
        self.by_dir.add(&pair(dir.0, above.0))?;
        self.by_above.add(&pair(above.0, dir.0))
    }

    /// Finds the directories whose paths to the root never end.
    pub(super) fn compare(mut self, space: &SortSpace, candidates: &mut Candidates) -> FsResult<()> {
        if !self.rising {
            return Ok(());
        }
        let mut steps: u64 = 1;
        // No path has more steps than there are directories.
        let most = self.count;
        while self.count > 0 && steps <= most {
            self = self.twice_as_far(space)?;
            steps *= 2;
        }
        let left = self.by_dir.sorted()?;
        let mut left = left.records()?;
        while let Some((record, _)) = left.next()? {
            candidates.add(&Finding::Unreachable { ino: Ino(Fields(record).u64()) })?;
        }
        Ok(())
    }

    /// Each directory with an ancestor twice as far above it. Directories whose paths end are left
    /// out.
    fn twice_as_far(self, space: &SortSpace) -> FsResult<Self> {
        let mut farther = Self::new(space);
        let (by_dir, by_above) = (self.by_dir.sorted()?, self.by_above.sorted()?);
        let (mut table, mut ancestors) = (by_dir.records()?, by_above.records()?);
        let mut at = next(&mut table)?;
        while let Some((above, dir)) = next(&mut ancestors)? {
            while at.is_some_and(|(dir, _)| dir < above) {
                at = next(&mut table)?;
            }
            if let Some((_, top)) = at.filter(|(dir, _)| *dir == above) {
                farther.add(Ino(dir), Ino(top))?;
            }
        }
        Ok(farther)
    }
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

fn next(pairs: &mut Records<'_>) -> Result<Option<(u64, u64)>, SortError> {
    Ok(pairs.next()?.map(|(record, _)| {
        let mut fields = Fields(record);
        (fields.u64(), fields.u64())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(places: &[(u64, u64)], bytes: usize) -> Vec<u64> {
        let space = SortSpace { bytes, ..SortSpace::default() };
        let (mut cycles, mut candidates) = (CycleFinder::new(&space), Candidates::new(&space));
        for (dir, above) in places {
            cycles.add(Ino(*dir), Ino(*above)).expect("added");
        }
        cycles.compare(&space, &mut candidates).expect("compared");
        let found = candidates.findings(&space).expect("sorted");
        let number = |finding| match finding {
            Ok(Finding::Unreachable { ino }) => ino.0,
            other => panic!("{other:?}"),
        };
        found.all().expect("read").map(number).collect()
    }

    #[test]
    fn circles_and_what_hangs_below_them_are_found() {
        for bytes in [100, 1 << 20] {
            // A deep path, in an order that rises and falls.
            let deep: Vec<(u64, u64)> = (2..1000)
                .map(|dir| (dir * 7919 % 1009, if dir == 2 { 10_000 } else { (dir - 1) * 7919 % 1009 }))
                .collect();
            assert_eq!(unreachable(&deep, bytes), Vec::<u64>::new());
            let circle = [(2000, 2002), (2001, 2000), (2002, 2001), (3000, 2001), (3001, 3000), (4000, 4000)];
            let all = [&deep[..], &circle, &[(5000, 6000), (6001, 5000)]].concat();
            assert_eq!(unreachable(&all, bytes), [2000, 2001, 2002, 3000, 3001, 4000]);
        }
    }
}
