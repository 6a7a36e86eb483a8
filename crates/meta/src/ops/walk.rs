//! Walk: follows the names of a path, and checks on each directory whether the caller may pass.
//!
//! What must stay true: a guess only saves trips. Each step is what the engine says of the name.

use sluice_types::{Access, Attr, Caller, FileType, FsError, Ino, Name};

use super::rules;
use crate::{
    engine::Hold,
    op::{ConflictKeys, Op},
    view::{Stop, View},
    want::Want,
};

/// Follows names from a directory, for a caller whom no kernel has checked. One trip if the guesses
/// are right, else one more for each wrong one. It follows no symbolic link.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Where it begins.
    pub dir: Ino,
    /// The names, one below the other. Without any, only the attributes of `dir` are read.
    pub names: Vec<Name>,
    /// What the names but for the last probably stand for, as far as that is known.
    pub guesses: Vec<Ino>,
    /// Who walks.
    pub caller: Caller,
}

/// How far a walk came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Attributes of the directory where it began.
    pub start: Attr,
    /// What the names stand for, in their order. It ends before a name that does not exist, and
    /// with a symbolic link.
    pub found: Vec<(Ino, Attr)>,
}

impl Op for Walk {
    type Out = Walked;
    const NAME: &'static str = "walk";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    /// # Errors
    /// [`FsError::NotDir`] if a name before the last is neither a directory nor a symbolic link,
    /// [`FsError::Access`] if the caller may not search one of the directories,
    /// [`FsError::NotFound`] if there is no `dir`.
    fn run(&self, view: &mut View<'_>) -> Result<Walked, Stop> {
        match self.follow(view) {
            Err(Stop::More(_)) => {
                view.want(&self.wants())?;
                self.follow(view)
            }
            walked => walked,
        }
    }
}

impl Walk {
    /// All that is read if the guesses are right.
    fn wants(&self) -> Vec<Want> {
        let dirs = [self.dir].into_iter().chain(self.guesses.iter().copied());
        let guessed = dirs.zip(&self.names).map(|(dir, name)| Want::follow(dir, name.clone(), Hold::None));
        [Want::node(self.dir, Hold::None)].into_iter().chain(guessed).collect()
    }

    fn follow(&self, view: &mut View<'_>) -> Result<Walked, Stop> {
        let start = rules::existing(view, self.dir, Hold::None)?;
        let mut found = Vec::with_capacity(self.names.len());
        let (mut ino, mut attr) = (self.dir, start);
        for name in &self.names {
            match attr.kind {
                FileType::Dir => {}
                FileType::Symlink => break,
                _ => return Err(FsError::NotDir.into()),
            }
            rules::check(view, &self.caller, &attr, Access::EXEC)?;
            match view.follow(ino, name, Hold::None)? {
                Some((entry, Some(node))) => (ino, attr) = (entry.ino, node),
                Some((entry, None)) => {
                    tracing::error!(dir = %ino, %name, ino = %entry.ino, "an entry names a node that is missing; run `sluice fsck`");
                    break;
                }
                None => break,
            }
            found.push((ino, attr));
        }
        Ok(Walked { start, found })
    }
}
