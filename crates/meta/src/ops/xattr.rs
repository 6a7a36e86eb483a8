//! Extended attributes, except ACLs.

use bytes::Bytes;
use sluice_types::{Access, Caller, FsError, Ino, Name};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, List},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Longest value in bytes.
pub const MAX_XATTR: usize = 65_536;

/// What `setxattr(2)` does with an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Makes or replaces it.
    Any,
    /// Fails if it exists.
    Create,
    /// Fails if it does not exist.
    Replace,
}

/// Reads an attribute. One trip.
#[derive(Clone, Debug)]
pub struct GetXattr {
    /// The inode.
    pub ino: Ino,
    /// The attribute.
    pub name: Name,
}

impl Op for GetXattr {
    type Out = Bytes;
    const NAME: &'static str = "getxattr";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Bytes, Stop> {
        match view.get(&Key::Xattr(self.ino, self.name.clone()), Hold::None)? {
            Some(Row::Xattr(_, _, value)) => Ok(value),
            _ => Err(FsError::NoData.into()),
        }
    }
}

/// Lists the names of all attributes. One trip.
#[derive(Clone, Debug)]
pub struct ListXattr(pub Ino);

impl Op for ListXattr {
    type Out = Vec<Name>;
    const NAME: &'static str = "listxattr";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Vec<Name>, Stop> {
        let rows = view.all(List::Xattrs(self.0), Hold::None)?;
        let names = rows.into_iter().filter_map(|row| match row {
            Row::Xattr(_, name, _) => Some(name),
            _ => None,
        });
        Ok(names.collect())
    }
}

/// Sets an attribute. Two trips.
#[derive(Clone, Debug)]
pub struct SetXattr {
    /// The inode.
    pub ino: Ino,
    /// The attribute.
    pub name: Name,
    /// Its value, up to 64 KiB.
    pub value: Bytes,
    /// What to do if it exists.
    pub mode: XattrMode,
    /// Who asks.
    pub caller: Caller,
}

impl Op for SetXattr {
    type Out = ();
    const NAME: &'static str = "setxattr";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _done: &()) -> Option<Effect> {
        Some(Effect { kind: EffectKind::SetXattr, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        rules::require(self.value.len() <= MAX_XATTR, FsError::Range)?;
        let key = Key::Xattr(self.ino, self.name.clone());
        view.want(&[Want::node(self.ino, Hold::Lock), Want::get(key.clone(), Hold::Lock)])?;
        changing(view, self.ino, &self.name, &self.caller)?;
        let row = Row::Xattr(self.ino, self.name.clone(), self.value.clone());
        view.log(|| Line::SetXattr {
            ino: self.ino,
            name: self.name.clone(),
            value: self.value.clone(),
            flags: self.mode as u32,
        });
        match (view.get(&key, Hold::Lock)?.is_some(), self.mode) {
            (true, XattrMode::Create) => Err(FsError::Exists.into()),
            (false, XattrMode::Replace) => Err(FsError::NoData.into()),
            (true, _) => {
                view.put(row);
                Ok(())
            }
            (false, _) => {
                view.insert(row);
                Ok(())
            }
        }
    }
}

/// Removes an attribute. Two trips.
#[derive(Clone, Debug)]
pub struct RemoveXattr {
    /// The inode.
    pub ino: Ino,
    /// The attribute.
    pub name: Name,
    /// Who asks.
    pub caller: Caller,
}

impl Op for RemoveXattr {
    type Out = ();
    const NAME: &'static str = "removexattr";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _done: &()) -> Option<Effect> {
        Some(Effect { kind: EffectKind::RemoveXattr, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let key = Key::Xattr(self.ino, self.name.clone());
        view.want(&[Want::node(self.ino, Hold::Lock), Want::get(key.clone(), Hold::Lock)])?;
        changing(view, self.ino, &self.name, &self.caller)?;
        rules::require(view.get(&key, Hold::Lock)?.is_some(), FsError::NoData)?;
        view.delete(key);
        view.log(|| Line::RemoveXattr { ino: self.ino, name: self.name.clone() });
        Ok(())
    }
}

/// Checks that the caller may change an attribute of that name, and notes the change of the node.
fn changing(view: &mut View<'_>, ino: Ino, name: &Name, caller: &Caller) -> Result<(), Stop> {
    let mut attr = rules::existing(view, ino, Hold::Lock)?;
    rules::check_removable(&attr)?;
    if name.starts_with(b"user.") {
        rules::check(view, caller, &attr, Access::WRITE)?;
    } else {
        rules::require(!caller.check || caller.superuser || caller.uid == attr.uid, FsError::Perm)?;
    }
    rules::advance_ctime(&mut attr, view.now());
    view.put(Row::Node(ino, attr));
    Ok(())
}
