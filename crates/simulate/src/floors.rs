//! What a client was shown, and so knows: it is not to be shown anything older.
//!
//! What must stay true: an answer raises the floor to the first moment at which it was true, no
//! further, and counts for calls that begin after it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sluice_meta::schema::{Key, Row};
use sluice_types::{Attr, Ino, Name, Time};

use crate::{history::Moment, world::World};

/// What of a record was shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// What a name stands for.
    Name(Ino, Name),
    /// Attributes of a file but for its links and its ctime.
    Content(Ino),
    /// What a file consists of.
    Slices(Ino),
}

impl Part {
    /// The record.
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Name(dir, name) => Key::Entry(*dir, name.clone()),
            Self::Content(ino) => Key::Node(*ino),
            Self::Slices(ino) => Key::Chunk(*ino, 0),
        }
    }
}

/// Moments from before which nothing is to be shown.
pub(crate) type Known = BTreeMap<Part, Moment>;

/// Those of a client.
#[derive(Default)]
pub(crate) struct Floors(Mutex<Known>);

impl Floors {
    /// What is known now.
    pub(crate) fn known(&self) -> Known {
        self.0.lock().clone()
    }

    /// Nothing from before `moment` is to be shown of a part to calls from here on.
    pub(crate) fn raise(&self, part: Part, moment: Moment) {
        let mut known = self.0.lock();
        let floor = known.entry(part).or_default();
        *floor = moment.max(*floor);
    }

    /// Part of a record was shown, as one that `fits`; whether it may have been, since `least`.
    pub(crate) fn shown(
        &self,
        world: &World,
        part: Part,
        least: Moment,
        fits: impl Fn(Option<&Row>) -> bool,
    ) -> bool {
        let values = world.values(&part.key(), least);
        let first = values.iter().find(|(_, row)| fits(row.as_ref())).map(|(moment, _)| *moment);
        first.map(|first| self.raise(part, first)).is_some()
    }
}

/// Of attributes, what a change of names leaves as it is.
pub(crate) fn content(attr: &Attr) -> Attr {
    Attr { nlink: 0, parent: Ino::NONE, ctime: Time::default(), atime: Time::default(), ..*attr }
}
