//! The newest state that each client has seen. A client must not see an older state after it.
//!
//! What must stay true: if an answer was true at several moments, it raises the lower bound only to
//! the earliest of them. The bound applies to calls that begin after the answer.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sluice_meta::schema::{Key, Row};
use sluice_types::{Attr, Ino, Name, Time};

use crate::{history::Moment, world::World};

/// The part of a record that was shown.
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

/// For each part, the moment before which nothing may be shown.
pub(crate) type Known = BTreeMap<Part, Moment>;

/// Those of one client.
#[derive(Default)]
pub(crate) struct LowerBounds(Mutex<Known>);

impl LowerBounds {
    /// What is known now.
    pub(crate) fn known(&self) -> Known {
        self.0.lock().clone()
    }

    /// Calls from here on may not be shown a part from before `moment`.
    pub(crate) fn raise(&self, part: Part, moment: Moment) {
        let mut known = self.0.lock();
        let bound = known.entry(part).or_default();
        *bound = moment.max(*bound);
    }

    /// A client was shown a part of a record that `fits`. Returns whether that was allowed, since
    /// `least`.
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
