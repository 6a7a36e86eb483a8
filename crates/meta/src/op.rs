//! The trait of operations: a value that decides, from the records that it sees, what changes.

use std::fmt;

use sluice_types::{Attr, Ino};
use smallvec::SmallVec;

pub use crate::at::At;
use crate::{
    effect_log::Effect,
    engine::Hold,
    view::{Stop, View},
};

/// The conflict scope of an operation. Two operations that share a key never run in two batches at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConflictKey {
    /// Entries of a directory.
    Dir(Ino),
    /// Attributes or content of an inode.
    Node(Ino),
    /// Something there is one of in the volume.
    Volume(&'static str),
}

/// The conflict keys of one operation.
pub type ConflictKeys = SmallVec<[ConflictKey; 2]>;

/// A metadata operation.
///
/// `run` is a pure function of its view: it may be called any number of times and only the last
/// call counts.
pub trait Op: fmt::Debug + Send + 'static {
    /// The type of its result.
    type Out: Send + 'static;

    /// Name for logs and statistics.
    const NAME: &'static str;

    /// The directories and nodes that it works on.
    fn conflict_keys(&self) -> ConflictKeys;

    /// The fence count ([`Env::fences`](crate::Env::fences), how often this client was taken for
    /// dead) that the operation relies on. If it has risen since, the operation fails with `EIO`.
    /// `None` if the operation does not depend on it.
    fn fences(&self) -> Option<i64> {
        None
    }

    /// Decides.
    ///
    /// # Errors
    /// [`Stop::More`] if it needs to see more, [`Stop::Fail`] if it fails.
    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop>;

    /// The effect of the request when the operation is committed; `None` if the request may run
    /// twice.
    fn effect(&self, _out: &Self::Out) -> Option<Effect> {
        None
    }
}

/// An operation of a caller that may hold locks. It fails if they were lost.
#[derive(Clone, Debug)]
pub struct UnderLocks<O> {
    /// The operation.
    pub op: O,
    /// The fence count at which the oldest of the locks was acquired; `None` without locks.
    pub fences: Option<i64>,
}

impl<O: Op> Op for UnderLocks<O> {
    type Out = O::Out;
    const NAME: &'static str = O::NAME;

    fn conflict_keys(&self) -> ConflictKeys {
        self.op.conflict_keys()
    }

    fn fences(&self) -> Option<i64> {
        self.fences
    }

    fn run(&self, view: &mut View<'_>) -> Result<O::Out, Stop> {
        self.op.run(view)
    }

    fn effect(&self, out: &O::Out) -> Option<Effect> {
        self.op.effect(out)
    }
}

/// An operation that holds a node with [`Hold::Lock`], as all do that change its attributes. Also
/// returns the attributes that it found: whoever knows them knows that nobody else changed the node
/// in between.
#[derive(Clone, Debug)]
pub struct WithBefore<O> {
    /// The operation.
    pub op: O,
    /// The node.
    pub ino: Ino,
}

impl<O: Op> Op for WithBefore<O> {
    type Out = (O::Out, Option<Attr>);
    const NAME: &'static str = O::NAME;

    fn conflict_keys(&self) -> ConflictKeys {
        self.op.conflict_keys()
    }

    fn fences(&self) -> Option<i64> {
        self.op.fences()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        // A view does not show what the operation itself writes.
        let out = self.op.run(view)?;
        Ok((out, view.node(self.ino, Hold::Lock)?))
    }

    fn effect(&self, (out, _): &Self::Out) -> Option<Effect> {
        self.op.effect(out)
    }
}
