//! Unlink: removes a name of a node that is no directory.

use sluice_types::{Attr, AttrFlags, Caller, FsError, Ino};

use super::{
    removal::{Removal, RemovedNode, check_link_removal},
    rules,
};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{At, ConflictKeys, Op},
    schema::Key,
    view::{Stop, View},
    want::Want,
};

/// Removes a name. Two trips.
#[derive(Clone, Debug)]
pub struct Unlink {
    /// Where.
    pub at: At,
    /// The node that it must stand for; another one stays, as if there was none of this name.
    pub only: Option<Ino>,
    /// Whether the trash is passed by.
    pub skip_trash: bool,
    /// Who asks.
    pub caller: Caller,
}

/// What a removal left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The node that lost a name.
    pub ino: Ino,
    /// What became of it.
    pub node: RemovedNode,
    /// The directory after it.
    pub dir: Attr,
}

impl Op for Unlink {
    type Out = Removed;
    const NAME: &'static str = "unlink";

    fn conflict_keys(&self) -> ConflictKeys {
        // Removals of different names do not meet: the directory is only guarded, and what changes
        // of it adds up.
        ConflictKeys::new()
    }

    fn effect(&self, _removed: &Removed) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Remove, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Removed, Stop> {
        let At { dir, name } = &self.at;
        view.want(&[Want::node(*dir, Hold::Guard), Want::follow(*dir, name.clone(), Hold::Lock)])?;
        let mut parent = removing_dir(view, *dir, &self.caller)?;
        let found = view.follow(*dir, name, Hold::Lock)?;
        let is_another = |ino| self.only.is_some_and(|only| only != ino);
        rules::require(!found.is_some_and(|(entry, _)| is_another(entry.ino)), FsError::NotFound)?;
        if let Some((entry, None)) = found {
            return Ok(remove_dangling(view, &self.at, entry.ino, parent));
        }
        let (ino, attr) = target(view, &self.at)?;
        rules::check_sticky(&self.caller, &parent, &attr)?;
        // What a file that has other names became under these does not keep the trash from
        // expiring.
        if !(dir.is_trash_hour() && !self.caller.check && attr.nlink > 1) {
            check_link_removal(&attr)?;
        }
        let removal = Removal { dir: *dir, name: name.clone(), ino, attr, skip_trash: self.skip_trash };
        let (node, trash) = removal.apply(view)?;
        let opened = matches!(node, RemovedNode::Sustained(_));
        view.log(|| Line::Unlink { at: self.at.clone(), trash, opened, ino });
        let now = view.now();
        view.delete(Key::Entry(*dir, name.clone()));
        view.write(Write::Bump { ino: *dir, nlink: 0, time: Some(now) });
        parent.mtime = parent.mtime.max(now);
        parent.ctime = parent.ctime.max(now);
        Ok(Removed { ino, node, dir: parent })
    }
}

/// Removes an entry whose node is missing: what a client that broke off, or that others raced, may
/// have left behind.
fn remove_dangling(view: &mut View<'_>, at: &At, ino: Ino, mut parent: Attr) -> Removed {
    tracing::warn!(dir = %at.dir, name = %at.name, %ino, "removing an entry whose node is missing");
    let now = view.now();
    view.delete(Key::Entry(at.dir, at.name.clone()));
    view.log(|| Line::Unlink { at: at.clone(), trash: Ino::NONE, opened: false, ino });
    view.write(Write::Bump { ino: at.dir, nlink: 0, time: Some(now) });
    parent.mtime = parent.mtime.max(now);
    parent.ctime = parent.ctime.max(now);
    Removed { ino, node: RemovedNode::Deleted { file_length: None, attr: None }, dir: parent }
}

/// A directory that is about to lose an entry.
pub fn removing_dir(view: &mut View<'_>, dir: Ino, caller: &Caller) -> Result<Attr, Stop> {
    // Only the client itself and the superuser empty the trash.
    let empties_trash = !caller.check || caller.superuser;
    let attr = if dir.is_trash() {
        rules::require(empties_trash, FsError::Perm)?;
        rules::existing_dir(view, dir, Hold::Guard)?
    } else if empties_trash {
        rules::changing_dir_in_trash(view, dir, caller)?
    } else {
        rules::changing_dir(view, dir, caller)?
    };
    if attr.flags.has(AttrFlags::APPEND) {
        return Err(FsError::Perm.into());
    }
    Ok(attr)
}

/// The locked node that a name stands for.
pub fn target(view: &mut View<'_>, at: &At) -> Result<(Ino, Attr), Stop> {
    match view.follow(at.dir, &at.name, Hold::Lock)? {
        Some((entry, Some(attr))) => Ok((entry.ino, attr)),
        Some((entry, None)) => {
            let reason = format!(
                "{:?} in {} names node {}, which is missing; run `sluice fsck`",
                at.name, at.dir, entry.ino
            );
            Err(FsError::io(reason).into())
        }
        None => Err(FsError::NotFound.into()),
    }
}
