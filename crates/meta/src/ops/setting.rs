//! Setting: changes the settings of the volume.

use sluice_types::{FsError, Ino};
use smallvec::smallvec;

use super::{removal::make_trash, rules};
use crate::{
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row, VolumeFormat},
    view::{Stop, View},
    want::Want,
};

/// Replaces the settings, if they are still those that the new ones were made from. A volume that
/// gets a trash gets the trash's root, too. Other clients learn of it with their next heartbeat.
/// Two trips.
#[derive(Clone, Debug)]
pub struct ChangeSetting {
    /// The settings as they were read.
    pub old: VolumeFormat,
    /// The settings as they shall be.
    pub new: VolumeFormat,
}

impl Op for ChangeSetting {
    type Out = ();
    const NAME: &'static str = "change_setting";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("setting")]
    }

    /// # Errors
    /// [`FsError::Again`] if somebody else changed the settings meanwhile.
    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let trash = Key::Node(Ino::TRASH);
        view.want(&[Want::get(Key::Setting, Hold::Lock), Want::get(trash, Hold::None)])?;
        let current = view.get(&Key::Setting, Hold::Lock)?;
        let current =
            if let Some(Row::Setting(json)) = &current { VolumeFormat::parse(json).ok() } else { None };
        rules::require(current.as_ref() == Some(&self.old), FsError::Again)?;
        view.put(Row::setting(&self.new));
        if self.new.trash_days > 0 {
            make_trash(view)?;
        }
        Ok(())
    }
}

/// Forgets how much directories hold, for a volume that begins to count: what was counted before is
/// out of date. One trip.
#[derive(Clone, Debug)]
pub struct DropDirStats(pub Vec<Ino>);

impl Op for DropDirStats {
    type Out = ();
    const NAME: &'static str = "drop_dir_stats";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("setting")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        self.0.iter().for_each(|dir| view.write(Write::Discard(Key::DirStat(*dir))));
        Ok(())
    }
}
