//! The names of all keys of a volume in Redis.
//!
//! Only this file builds keys. Each starts with the volume's prefix (empty on a single server), and
//! continues as in the JuiceFS volume format. Numbers are decimal text, exact over all 64 bits.

use std::str::FromStr;

use itoa::Integer;
use sluice_meta::{
    engine::List,
    schema::{Extra, LockOwner},
};
use sluice_types::Ino;
use smallvec::SmallVec;

/// A key, field or member.
pub(crate) type Text = SmallVec<[u8; 40]>;

/// Hash of Sluice's own writer records. JuiceFS neither reads nor writes it.
pub(crate) const WRITERS: &str = "sluice:writers";
/// Prefix of the hash with the last changes of a client, by its session id.
pub(crate) const CHANGES_PREFIX: &str = "sluice:news:";
/// Prefix of the hash of another kind of Sluice's own records, by its word.
pub(crate) const EXTRA_PREFIX: &str = "sluice:";

/// Builds keys with a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) prefix: Box<[u8]>,
    db: u32,
}

impl Keys {
    /// Keys of the volume in database `db`.
    pub(crate) fn new(prefix: &[u8], db: u32) -> Self {
        Self { prefix: prefix.into(), db }
    }

    /// Number of the database, for names that Redis shares between databases.
    pub(crate) fn db(&self) -> u32 {
        self.db
    }

    /// A key that is a fixed word.
    pub(crate) fn word(&self, word: &str) -> Text {
        let mut key = Text::from_slice(&self.prefix);
        key.extend_from_slice(word.as_bytes());
        key
    }

    /// A key that never exists, in the slot of all others.
    pub(crate) fn missing_key(&self) -> Text {
        self.word("sluice:nothing")
    }

    /// A key that is a word and a number.
    pub(crate) fn of(&self, word: &str, number: u64) -> Text {
        let mut key = self.word(word);
        key.extend_from_slice(&self::number(number));
        key
    }

    pub(crate) fn node(&self, ino: Ino) -> Text {
        self.of("i", ino.0)
    }

    pub(crate) fn dir(&self, ino: Ino) -> Text {
        self.of("d", ino.0)
    }

    /// The prefix of all chunk keys of a file.
    pub(crate) fn chunks(&self, ino: Ino) -> Text {
        let mut key = self.of("c", ino.0);
        key.push(b'_');
        key
    }

    /// The set of lock keys that a session has locks in.
    pub(crate) fn locked(&self, sid: u64) -> Text {
        self.of("locked", sid)
    }

    /// The hash of Sluice's own records of one kind.
    pub(crate) fn extras(&self, kind: Extra) -> Text {
        let mut key = self.word(EXTRA_PREFIX);
        key.extend_from_slice(kind.word().as_bytes());
        key
    }

    /// The key that holds a whole collection, if there is one.
    pub(crate) fn list(&self, list: List) -> Option<Text> {
        Some(match list {
            List::Xattrs(ino) => self.of("x", ino.0),
            List::Parents(ino) => self.of("p", ino.0),
            List::Flocks(ino) => self.of("lockf", ino.0),
            List::Plocks(ino) => self.of("lockp", ino.0),
            List::Sustained(sid) => self.of("session", sid),
            List::Lanes(_) => self.word(WRITERS),
            List::Changes(writer) => self.of(CHANGES_PREFIX, writer),
            List::Extras(kind) => self.extras(kind),
            List::Chunks(..) | List::LocksOf(_) => return None,
        })
    }
}

/// Decimal text of a number.
pub(crate) fn number(value: impl Integer) -> Text {
    Text::from_slice(itoa::Buffer::new().format(value).as_bytes())
}

/// A number and a separator, with which fields begin.
pub(crate) fn begin(number: u64, sign: u8) -> Text {
    let mut text = self::number(number);
    text.push(sign);
    text
}

/// Two numbers with a separator.
pub(crate) fn pair(first: u64, between: u8, second: impl Integer) -> Text {
    let mut text = begin(first, between);
    text.extend_from_slice(&number(second));
    text
}

/// Field of a lock owner.
pub(crate) fn owner_field(owner: LockOwner) -> Text {
    let mut field = begin(owner.sid, b'_');
    field.extend_from_slice(format!("{:016X}", owner.owner).as_bytes());
    field
}

/// Field of a slice in `sliceRef`.
pub(crate) fn slice_field(id: u64, size: u32) -> Text {
    let mut field = Text::from_slice(b"k");
    field.extend_from_slice(&pair(id, b'_', size));
    field
}

/// Parses a decimal number; `None` unless it has only digits and is in range.
pub(crate) fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses two numbers with a separator.
pub(crate) fn parse_pair<A: FromStr, B: FromStr>(text: &[u8], between: u8) -> Option<(A, B)> {
    let at = text.iter().position(|byte| *byte == between)?;
    Some((parse(&text[..at])?, parse(&text[at + 1..])?))
}

/// Parses the field of a lock owner.
pub(crate) fn parse_owner(field: &[u8]) -> Option<LockOwner> {
    let at = field.iter().position(|byte| *byte == b'_')?;
    let owner = u64::from_str_radix(std::str::from_utf8(&field[at + 1..]).ok()?, 16).ok()?;
    Some(LockOwner { sid: parse(&field[..at])?, owner })
}
