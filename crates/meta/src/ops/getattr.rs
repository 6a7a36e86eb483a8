//! Getattr: the attributes of an inode.

use sluice_types::{Attr, Ino};

use super::rules;
use crate::{
    engine::Hold,
    op::{ConflictKeys, Op},
    view::{Stop, View},
    want::Want,
};

/// Reads the attributes of an inode. One trip. Opening a file asks the same.
#[derive(Clone, Debug)]
pub struct GetAttr(pub Ino);

impl Op for GetAttr {
    type Out = Attr;
    const NAME: &'static str = "getattr";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        rules::existing(view, self.0, Hold::None)
    }
}

/// Reads the attributes of inodes, as far as they exist. One trip.
#[derive(Clone, Debug)]
pub struct GetAttrs(pub Vec<Ino>);

impl Op for GetAttrs {
    type Out = Vec<Option<Attr>>;
    const NAME: &'static str = "getattrs";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let wants: Vec<Want> = self.0.iter().map(|ino| Want::node(*ino, Hold::None)).collect();
        view.want(&wants)?;
        self.0.iter().map(|ino| view.node(*ino, Hold::None)).collect()
    }
}
