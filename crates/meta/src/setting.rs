//! Reads, writes and replaces the settings of a volume before it is opened.

use sluice_types::{Attr, FileType, Ino, Time};

use crate::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Write},
    meta::Meta,
    options::OpenError,
    schema::{Counter, DirStat, Key, Row, VolumeFormat},
};

impl Meta {
    /// The settings of the volume in `engine`, if there is one.
    pub fn load_format(engine: &dyn Engine) -> Result<Option<VolumeFormat>, EngineError> {
        Ok(Self::load_setting(engine)?.map(|(_, format)| format))
    }

    /// The record of the settings, and what it says.
    fn load_setting(engine: &dyn Engine) -> Result<Option<(Row, VolumeFormat)>, EngineError> {
        match engine.read(&[Read::Get(Key::Setting)]) {
            Ok(mut found) => Self::parse_setting(engine, found.pop()),
            // Nothing can open the volume to check it.
            Err(EngineError::Corrupt { engine, record, reason }) => Err(damaged(engine, &record, &reason)),
            Err(error) => Err(error),
        }
    }

    /// What a record of the settings says, if it was found.
    pub(crate) fn parse_setting(
        engine: &dyn Engine,
        found: Option<Found>,
    ) -> Result<Option<(Row, VolumeFormat)>, EngineError> {
        let Some(Found::Row(Some(Row::Setting(json)))) = found else { return Ok(None) };
        match VolumeFormat::parse(&json) {
            Ok(format) => Ok(Some((Row::Setting(json), format))),
            Err(error) => Err(damaged(engine.name().into(), "setting", &error.to_string())),
        }
    }

    /// Makes an empty volume.
    ///
    /// # Errors
    /// [`OpenError::Occupied`] if there is one. [`EngineError::Refused`] if the database holds
    /// something else ([`Engine::check_vacant`]).
    pub fn format(engine: &dyn Engine, format: &VolumeFormat, now: Time) -> Result<(), OpenError> {
        if Self::load_setting(engine)?.is_none() {
            engine.check_vacant()?;
        }
        Self::write_setting(engine, None, format, now)
    }

    /// Gives a volume other settings, made from those that it had.
    ///
    /// # Errors
    /// [`OpenError::Changed`] if it has others by now.
    pub fn reformat(
        engine: &dyn Engine,
        from: &VolumeFormat,
        to: &VolumeFormat,
        now: Time,
    ) -> Result<(), OpenError> {
        if from.name != to.name {
            return Err(OpenError::Occupied(from.name.clone()));
        }
        // Settings of a newer version would be cut to what is known here.
        from.check()?;
        Self::write_setting(engine, Some(from), to, now)
    }

    fn write_setting(
        engine: &dyn Engine,
        from: Option<&VolumeFormat>,
        format: &VolumeFormat,
        now: Time,
    ) -> Result<(), OpenError> {
        engine.prepare()?;
        let mut commit = Commit::default();
        if let Some(from) = from {
            match Self::load_setting(engine)? {
                Some((row, stored)) if stored == *from => commit.expects.push(Expect::Row(row, Hold::Lock)),
                _ => return Err(OpenError::Changed(from.name.clone())),
            }
            commit.writes.push(Write::Put(Row::setting(format)));
        } else {
            let root = Attr::new(FileType::Dir, 0o777, 0, 0, Ino::ROOT, now);
            commit.writes.push(Write::Insert(Row::setting(format)));
            commit.writes.push(Write::Insert(Row::Node(Ino::ROOT, root)));
            if format.dir_stats {
                commit.writes.push(Write::Put(Row::DirStat(Ino::ROOT, DirStat::default())));
            }
            let counters = [
                (Counter::NextInode, 2),
                (Counter::NextChunk, 1),
                (Counter::NextSession, 0),
                (Counter::UsedSpace, 0),
                (Counter::TotalInodes, 0),
                (Counter::NextCleanupSlices, 0),
            ];
            commit.writes.extend(counters.map(|(counter, value)| Write::Put(Row::Counter(counter, value))));
        }
        if format.trash_days > 0 {
            let trash = engine.read(&[Read::Get(Key::Node(Ino::TRASH))])?;
            if matches!(trash.as_slice(), [Found::Row(None)]) {
                let attr = Attr::new(FileType::Dir, 0o555, 0, 0, Ino::ROOT, now);
                commit.writes.push(Write::Insert(Row::Node(Ino::TRASH, attr)));
            }
        }
        match engine.commit(&commit) {
            Err(EngineError::Conflict(keys)) if keys.contains(&Key::Setting) => Err(match from {
                Some(from) => OpenError::Changed(from.name.clone()),
                None => Self::load_format(engine)?.map_or_else(
                    || OpenError::Changed(format.name.clone()),
                    |there| OpenError::Occupied(there.name),
                ),
            }),
            done => Ok(done?),
        }
    }
}

fn damaged(engine: String, record: &str, reason: &str) -> EngineError {
    let reason = format!(
        "the volume's settings are damaged ({record}: {reason}); put this record back from a backup of the \
         database, nothing else is lost"
    );
    EngineError::Refused { engine, reason }
}
