//! One operation of a program, with a mark that identifies its commit.
//!
//! What must stay true: if an operation changes anything, its commit contains its mark.

use sluice_meta::{
    Stop, View,
    engine::Hold,
    op::{ConflictKeys, Op},
    ops::{
        create::Create,
        link::Link,
        removal::RemovedNode,
        rename::Rename,
        rmdir::Rmdir,
        setattr::SetAttr,
        truncate::Truncate,
        unlink::{Removed, Unlink},
    },
};
use sluice_types::Ino;

use crate::{locks::LockRequest, names::Asked, world::Mark};

/// What a program asks for.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A new node.
    Create(Create),
    /// A name less.
    Unlink(Unlink),
    /// A directory less.
    Rmdir(Rmdir),
    /// Another place.
    Rename(Rename),
    /// A name more.
    Link(Link),
    /// Other attributes.
    SetAttr(SetAttr),
    /// Another length.
    Truncate(Truncate),
    /// A lock more or less.
    Lock(LockRequest),
}

impl Act {
    /// What it asks of names, if it does.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match self {
            Self::Create(op) => Some(Asked::Make(op.at.clone(), None)),
            Self::Link(op) => Some(Asked::Make(op.at.clone(), Some(op.ino))),
            Self::Unlink(op) => Some(Asked::Remove(op.at.clone())),
            Self::Rmdir(op) => Some(Asked::Remove(op.at.clone())),
            Self::Rename(op) => Some(op.into()),
            Self::SetAttr(_) | Self::Truncate(_) | Self::Lock(_) => None,
        }
    }

    /// What the name stands for that it makes.
    pub(crate) fn made(&self) -> Option<Ino> {
        match self {
            Self::Create(op) => Some(op.ino),
            Self::Link(op) => Some(op.ino),
            _ => None,
        }
    }
}

/// What has become of a node that lost a name, if one did, and whether anything was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// The node whose name was removed, and what became of it.
    pub(crate) removed: Option<(Ino, RemovedNode)>,
    /// Whether the commit carries the mark.
    pub(crate) marked: bool,
}

/// An operation with its mark.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    /// The operation.
    pub(crate) act: Act,
    /// Its mark.
    pub(crate) mark: Mark,
}

impl Op for Marked {
    type Out = Done;
    const NAME: &'static str = "act";

    fn conflict_keys(&self) -> ConflictKeys {
        match &self.act {
            Act::Create(op) => op.conflict_keys(),
            Act::Unlink(op) => op.conflict_keys(),
            Act::Rmdir(op) => op.conflict_keys(),
            Act::Rename(op) => op.conflict_keys(),
            Act::Link(op) => op.conflict_keys(),
            Act::SetAttr(op) => op.conflict_keys(),
            Act::Truncate(op) => op.conflict_keys(),
            Act::Lock(request) => request.conflict_keys(),
        }
    }

    fn run(&self, view: &mut View<'_>) -> Result<Done, Stop> {
        let mut marked = true;
        let mut removed = None;
        let remove = |out: Removed| Some((out.ino, out.node));
        match &self.act {
            Act::Create(op) => drop(op.run(view)?),
            Act::Unlink(op) => removed = remove(op.run(view)?),
            Act::Rmdir(op) => removed = remove(op.run(view)?),
            Act::Rename(op) => {
                let out = op.run(view)?;
                // Two names of one file: nothing is to be done, and nothing is committed. Anything
                // else moves the ctime on. What this operation writes is not seen here yet.
                let before = view.node(out.ino, Hold::None)?;
                marked = before.is_none_or(|before| before.ctime != out.attr.ctime);
                removed = out.replaced;
            }
            Act::Link(op) => drop(op.run(view)?),
            Act::SetAttr(op) => drop(op.run(view)?),
            Act::Truncate(op) => drop(op.run(view)?),
            // What is held, or not, as it was requested before: nothing would keep it from
            // happening twice.
            Act::Lock(request) => marked = request.run(view)?,
        }
        if marked {
            view.write(self.mark.write());
        }
        Ok(Done { removed, marked })
    }
}
