//! Rename between quotas: if a directory moves from one quota to another, the usage of its tree
//! moves, too.

use sluice_types::{FsError, FsResult, Ino};

use crate::{
    batch::Interrupt,
    meta::Meta,
    op::At,
    ops::{
        lookup::Lookup,
        rename::{Below, MoveTrees, Rename, Renamed},
    },
};

/// Tries before what was counted is taken although others change something below.
const TRIES: usize = 100;

impl Meta {
    /// Moves a name. A directory that moves between quotas takes one pass over the directories
    /// below it; what they hold is charged in the same commit, exactly, if they are not too many
    /// for one commit of the engine and all have statistics. What others change below another tree
    /// while it is counted is not.
    pub fn rename(&self, rename: &Rename, interrupt: &Interrupt) -> FsResult<Renamed> {
        let mut done = self.run(rename.clone(), interrupt);
        let mut fits = true;
        for left in (0..TRIES).rev() {
            match done {
                Err(FsError::Again) => {}
                // It is more than the engine compares in one commit.
                Err(FsError::TooBig) if fits => fits = false,
                done => return done,
            }
            let mut below = Vec::new();
            for at in [&rename.from, &rename.to] {
                below.extend(self.below(at, left == 0 || !fits, interrupt)?);
            }
            done = self.run(MoveTrees { rename: rename.clone(), below }, interrupt);
        }
        done
    }

    /// What lies below a name, if it is that of a directory.
    fn below(&self, at: &At, count: bool, interrupt: &Interrupt) -> FsResult<Option<(Ino, Below)>> {
        let ino = match self.read(&Lookup(at.clone()), interrupt) {
            Ok((ino, attr)) if attr.is_dir() => ino,
            Ok(_) | Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = match self.dirs_of(ino, interrupt, &|_| {}) {
            Ok(found) => found,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some((space, inodes)) = found.usage {
            let counted = count || found.dirs.len() > self.most_dirs();
            let below = if counted { Below::Counted(space, inodes) } else { Below::Dirs(found.dirs.into()) };
            return Ok(Some((ino, below)));
        }
        let (space, inodes) = self.walked_usage(ino, interrupt, &|_| {})?;
        Ok(Some((ino, Below::Counted(space, inodes))))
    }
}
