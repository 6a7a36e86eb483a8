//! Rmdir: removes an empty directory.

use sluice_types::{Caller, FsError, Ino};
use smallvec::smallvec;

use super::{
    removal::{Removal, check_hour},
    rules,
    unlink::{Removed, removing_dir, target},
};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{At, ConflictKey, ConflictKeys, Op},
    schema::Key,
    view::{Stop, View},
    want::Want,
};

/// Removes an empty directory. Two trips if the caller knows its inode, three otherwise.
#[derive(Clone, Debug)]
pub struct Rmdir {
    /// Where.
    pub at: At,
    /// What the name stood for when it was last looked up; only saves a trip.
    pub hint: Option<Ino>,
    /// Whether the trash is passed by.
    pub skip_trash: bool,
    /// Who asks.
    pub caller: Caller,
}

impl Op for Rmdir {
    type Out = Removed;
    const NAME: &'static str = "rmdir";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Dir(self.at.dir)]
    }

    fn effect(&self, _removed: &Removed) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Remove, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Removed, Stop> {
        let At { dir, name } = &self.at;
        let mut first = vec![Want::node(*dir, Hold::Guard), Want::follow(*dir, name.clone(), Hold::Lock)];
        if let Some(hint) = self.hint {
            first.push(Want::node(hint, Hold::Lock));
            first.push(Want::names(hint, 1));
        }
        view.want(&first)?;
        let mut parent = removing_dir(view, *dir, &self.caller)?;
        check_hour(view, &self.at, &self.caller)?;
        let (ino, attr) = target(view, &self.at)?;
        rules::check_removable(&attr)?;
        rules::check_sticky(&self.caller, &parent, &attr)?;
        rules::require(attr.is_dir(), FsError::NotDir)?;
        if !view.is_empty(ino)? {
            return Err(FsError::NotEmpty.into());
        }
        let removal = Removal { dir: *dir, name: name.clone(), ino, attr, skip_trash: self.skip_trash };
        let (node, trash) = removal.apply(view)?;
        view.log(|| Line::Rmdir { at: self.at.clone(), trash, ino });
        let now = view.now();
        view.delete(Key::Entry(*dir, name.clone()));
        // The trash root and its hours stay at two links.
        let nlink = if dir.is_trash() { 0 } else { -1 };
        view.write(Write::Bump { ino: *dir, nlink, time: Some(now) });
        parent.nlink = parent.nlink.saturating_add_signed(nlink);
        parent.mtime = parent.mtime.max(now);
        parent.ctime = parent.ctime.max(now);
        Ok(Removed { ino, node, dir: parent })
    }
}
