//! Link: adds a name to a node.

use sluice_types::{Caller, FsError, Ino};
use smallvec::smallvec;

use super::{create::Made, rules};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{At, ConflictKey, ConflictKeys, Op},
    schema::{Entry, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Gives a node one more name. Two trips.
#[derive(Clone, Debug)]
pub struct Link {
    /// The node.
    pub ino: Ino,
    /// The new name.
    pub at: At,
    /// Who asks.
    pub caller: Caller,
}

impl Op for Link {
    type Out = Made;
    const NAME: &'static str = "link";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Dir(self.at.dir), ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _made: &Made) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Link, value: self.ino.0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Made, Stop> {
        let At { dir, name } = &self.at;
        view.want(&[
            Want::node(*dir, Hold::Guard),
            Want::node(self.ino, Hold::Lock),
            Want::get(Key::Entry(*dir, name.clone()), Hold::None),
        ])?;
        let mut parent = rules::changing_dir(view, *dir, &self.caller)?;
        let mut attr = rules::existing(view, self.ino, Hold::Lock)?;
        if attr.is_dir() {
            return Err(FsError::Perm.into());
        }
        // Deleted but open, or in the trash: no way back by link.
        rules::require(attr.nlink > 0 && !attr.parent.is_trash_hour(), FsError::NotFound)?;
        rules::check_removable(&attr)?;
        rules::require(attr.nlink < rules::MAX_LINKS, FsError::TooManyLinks)?;
        rules::require(view.entry(*dir, name, Hold::None)?.is_none(), FsError::Exists)?;
        rules::admit_tree(view, *dir, attr.space(), 1)?;

        let now = view.now();
        if attr.parent != Ino::NONE {
            view.write(Write::Link(self.ino, attr.parent, 1));
            attr.parent = Ino::NONE;
        }
        view.write(Write::Link(self.ino, *dir, 1));
        attr.nlink += 1;
        rules::advance_ctime(&mut attr, now);
        view.put(Row::Node(self.ino, attr));
        view.insert(Row::Entry(*dir, name.clone(), Entry { kind: attr.kind, ino: self.ino }));
        view.write(Write::Bump { ino: *dir, nlink: 0, time: Some(now) });
        rules::use_dir(view, *dir, rules::entry_usage(&attr));
        rules::charge_tree(view, *dir, attr.space(), 1)?;
        view.log(|| Line::Link { ino: self.ino, at: self.at.clone(), links: attr.nlink });
        parent.mtime = parent.mtime.max(now);
        parent.ctime = parent.ctime.max(now);
        Ok(Made { attr, dir: parent })
    }
}
