//! Reach: whether a caller can reach a node by a path.

use sluice_types::{Access, Caller, FsError, Ino};

use super::rules;
use crate::{
    engine::{Hold, List},
    op::{ConflictKeys, Op},
    schema::Row,
    view::{Stop, View},
};

/// Asks whether a name of a node lies below `root`, in directories all of which the caller may
/// search: who names a node by its number has not been asked that by anybody. A trip for each
/// level, as far as the directories are not known.
///
/// # Errors
/// [`FsError::Access`] if no name does.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The node.
    pub ino: Ino,
    /// Where the caller's paths begin.
    pub root: Ino,
    /// Who asks.
    pub caller: Caller,
}

impl Op for Reach {
    type Out = ();
    const NAME: &'static str = "reach";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        if self.ino == self.root {
            return Ok(());
        }
        let attr = rules::existing(view, self.ino, Hold::None)?;
        if attr.parent != Ino::NONE {
            return self.search(view, attr.parent);
        }
        for row in view.all(List::Parents(self.ino), Hold::None)? {
            let Row::Parents(_, dir, names) = row else { continue };
            match self.search(view, dir) {
                Err(Stop::Fail(_)) => {}
                reached if names > 0 => return reached,
                _ => {}
            }
        }
        Err(FsError::Access.into())
    }
}

impl Reach {
    fn search(&self, view: &mut View<'_>, dir: Ino) -> Result<(), Stop> {
        let above = rules::ancestors(view, dir, Hold::None)?;
        // The trash is below the root of the volume.
        let ends = |dir: &Ino| *dir == self.root || (self.root == Ino::ROOT && dir.is_trash());
        let Some(end) = above.iter().position(ends) else {
            return Err(FsError::Access.into());
        };
        for dir in &above[..=end] {
            let attr = rules::existing_dir(view, *dir, Hold::None)?;
            rules::check(view, &self.caller, &attr, Access::EXEC)?;
        }
        Ok(())
    }
}
