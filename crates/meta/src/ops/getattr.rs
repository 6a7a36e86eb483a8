//! Getattr: the attributes of an inode.

use sluice_types::{Attr, Ino};

use super::rules;
use crate::{
    engine::Hold,
    op::{ConflictKeys, Op},
    view::{Stop, View},
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
