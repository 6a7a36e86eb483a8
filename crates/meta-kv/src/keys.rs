//! The names of all keys of a volume in a key-value store.
//!
//! Only this file builds and parses keys. Each begins with the volume's prefix, and continues
//! exactly as in the JuiceFS volume format. Inodes are little endian, all other numbers big endian.

use sluice_meta::{
    engine::List,
    schema::{Key, QuotaKey, WriterId},
};
use sluice_types::Ino;

use crate::{
    parts::Part,
    stored::{Raw, Span},
};

/// The record or collection of a stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first key of a record.
    Record(Key),
    /// The other key of an extended attribute, which has it where it is empty: stores need not
    /// support empty values.
    Empty(Key),
    /// All locks of one kind on a file.
    Locks(List),
}

/// Builds keys with a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Raw);

/// The number of notification keys, of which a commit with a notice changes one. There are several,
/// so that few commits write the same one at once.
pub(crate) const NOTIFY_KEYS: u8 = 8;

/// A part of a key: fixed letters, or a named value.
macro_rules! part {
    (write $raw:ident $letters:literal) => {
        $raw.extend_from_slice($letters)
    };
    (write $raw:ident $part:ident) => {
        $part.write(&mut $raw)
    };
    (read $raw:ident $letters:literal) => {
        $raw = $raw.strip_prefix($letters)?;
    };
    (read $raw:ident $part:ident) => {
        let $part = Part::read(&mut $raw)?;
    };
}

/// Builds a key of these parts.
macro_rules! spell {
    ($keys:expr, $($part:tt)+) => {{
        let mut raw = Vec::with_capacity($keys.0.len() + 32);
        raw.extend_from_slice(&$keys.0);
        $(part!(write raw $part);)+
        raw
    }};
}

/// Parses a key that has exactly these parts.
macro_rules! read {
    ($key:expr, [$($part:tt)+] $($made:tt)+) => {{
        let read = |mut raw: &[u8]| {
            $(part!(read raw $part);)+
            raw.is_empty().then_some($($made)+)
        };
        read($key)
    }};
}

/// Generates a function that builds the keys of records, and one that parses them.
macro_rules! keys {
    ($([$($record:tt)+] [$($part:tt)+];)+) => {
        /// The key of a record. If it has two, the one that decides whether it exists (an extended
        /// attribute also exists if the other key does).
        pub(crate) fn raw(&self, key: &Key) -> Raw {
            match key {
                $($($record)+ => spell!(self, $($part)+),)+
                Key::Flock(ino, _) => spell!(self, b"F" ino),
                Key::Plock(ino, _) => spell!(self, b"P" ino),
            }
        }

        fn record(raw: &[u8]) -> Option<Key> {
            None$(.or_else(|| read!(raw, [$($part)+] $($record)+)))+
        }
    };
}

impl Keys {
    keys! {
        [Key::Setting] [b"setting"];
        [Key::Counter(counter)] [b"C" counter];
        [Key::Node(ino)] [b"A" ino b"I"];
        [Key::Entry(dir, name)] [b"A" dir b"D" name];
        [Key::Parents(ino, parent)] [b"A" ino b"P" parent];
        [Key::Symlink(ino)] [b"A" ino b"S"];
        [Key::Xattr(ino, name)] [b"A" ino b"X" name];
        [Key::Chunk(ino, index)] [b"A" ino b"C" index];
        [Key::SliceRef(id, size)] [b"K" id size];
        [Key::DelFile(ino, length)] [b"D" ino length];
        [Key::DelSlices(id, time)] [b"L" time id];
        [Key::Acl(id)] [b"R" id];
        [Key::DirStat(ino)] [b"U" ino];
        [Key::Quota(QuotaKey::Dir(ino))] [b"QD" ino];
        // Eight bytes, too, as in the format.
        [Key::Quota(QuotaKey::User(id))] [b"QU\0\0\0\0" id];
        [Key::Quota(QuotaKey::Group(id))] [b"QG\0\0\0\0" id];
        [Key::Session(sid)] [b"SE" sid];
        [Key::Sustained(sid, ino)] [b"SS" sid ino];
        [Key::Detached(ino)] [b"N" ino];
        // Sluice's own keys: under the letter that the format reserves for extensions.
        [Key::Writer(writer, lane)] [b"XSW" writer lane];
        [Key::Changes(writer, lane, slot)] [b"XSN" writer lane slot];
        [Key::Extra(kind, number)] [b"XSE" kind number];
    }

    /// Keys of the volume with this prefix of the URL.
    pub(crate) fn new(prefix: &str) -> Self {
        let mut all = prefix.as_bytes().to_vec();
        all.push(0xFD);
        Self(all)
    }

    /// The other key of a record that has two: information of a session, an empty extended
    /// attribute.
    pub(crate) fn second(&self, key: &Key) -> Option<Raw> {
        match key {
            Key::Session(sid) => Some(spell!(self, b"SI" sid)),
            Key::Xattr(ino, name) => Some(spell!(self, b"A" ino b"Y" name)),
            _ => None,
        }
    }

    /// All keys of a record.
    pub(crate) fn of(&self, key: &Key) -> impl Iterator<Item = Raw> {
        std::iter::once(self.raw(key)).chain(self.second(key))
    }

    /// The record or collection of a stored key; `None` if the key is not known.
    pub(crate) fn place(&self, raw: &[u8]) -> Option<Place> {
        let raw = raw.strip_prefix(&self.0[..])?;
        Self::record(raw)
            .map(Place::Record)
            .or_else(|| read!(raw, [b"F" ino] Place::Locks(List::Flocks(ino))))
            .or_else(|| read!(raw, [b"P" ino] Place::Locks(List::Plocks(ino))))
            .or_else(|| read!(raw, [b"A" ino b"Y" name] Place::Empty(Key::Xattr(ino, name))))
    }

    /// The range of keys that begin with these letters of the format.
    pub(crate) fn word(&self, letters: &[u8]) -> Span {
        under([&self.0[..], letters].concat())
    }

    pub(crate) fn entries(&self, dir: Ino) -> Span {
        under(spell!(self, b"A" dir b"D"))
    }

    pub(crate) fn writers(&self) -> Span {
        self.word(b"XSW")
    }

    pub(crate) fn lanes(&self, writer: WriterId) -> Span {
        under(spell!(self, b"XSW" writer))
    }

    /// The key that holds a whole collection, if it is that of a file's locks.
    pub(crate) fn locks(&self, list: List) -> Option<Raw> {
        match list {
            List::Flocks(ino) => Some(spell!(self, b"F" ino)),
            List::Plocks(ino) => Some(spell!(self, b"P" ino)),
            _ => None,
        }
    }

    /// The ranges of a collection that is not one value.
    pub(crate) fn spans(&self, list: List) -> Vec<Span> {
        vec![match list {
            // These and the empty ones, because their letters are neighbours.
            List::Xattrs(ino) => Span { from: spell!(self, b"A" ino b"X"), to: spell!(self, b"A" ino b"Z") },
            List::Parents(ino) => under(spell!(self, b"A" ino b"P")),
            List::Chunks(ino, from, to) => {
                let to = to.max(from);
                Span { from: spell!(self, b"A" ino b"C" from), to: spell!(self, b"A" ino b"C" to) }
            }
            List::Sustained(sid) => under(spell!(self, b"SS" sid)),
            List::Lanes(writer) => self.lanes(writer),
            List::Changes(writer) => under(spell!(self, b"XSN" writer)),
            List::Extras(kind) => under(spell!(self, b"XSE" kind)),
            // No key lists the locks of a session. The locks of all files are scanned, as in
            // JuiceFS.
            List::LocksOf(_) => return vec![self.word(b"F"), self.word(b"P")],
            List::Flocks(_) | List::Plocks(_) => return Vec::new(),
        }]
    }

    /// The key with the last notice of a lane, if the store has messages.
    pub(crate) fn message(&self, writer: WriterId, lane: u16) -> Raw {
        spell!(self, b"XSN" writer lane)
    }

    /// The range of all these keys.
    pub(crate) fn messages(&self) -> Span {
        self.word(b"XSN")
    }

    /// The key of a line of the change log.
    pub(crate) fn log_line(&self, shard: u8, number: u64) -> Raw {
        spell!(self, b"XLOG" shard number)
    }

    /// The number of the line at a key of the change log.
    pub(crate) fn log_number(&self, key: &[u8]) -> Option<u64> {
        let mut raw = key.strip_prefix(&self.0[..])?.strip_prefix(b"XLOG")?;
        let (_shard, number) = (u8::read(&mut raw)?, u64::read(&mut raw)?);
        raw.is_empty().then_some(number)
    }

    /// A notification key, which a commit with a notice changes.
    pub(crate) fn notify_key(&self, at: u8) -> Raw {
        let at = at % NOTIFY_KEYS;
        spell!(self, b"XSC" at)
    }

    /// The last byte of the inode in a key.
    pub(crate) fn inode_group(&self, key: &[u8]) -> Option<u8> {
        key.strip_prefix(&self.0[..])?.strip_prefix(b"A")?.first().copied()
    }

    /// The prefix of keys of one kind: a letter of the format. For keys of an inode, also the inode
    /// and another letter.
    pub(crate) fn kind<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let letter = self.0.len();
        let end = if key.get(letter) == Some(&b'A') { letter + 10 } else { letter + 1 };
        &key[..end.min(key.len())]
    }

    /// A key as text for messages: letters as they are, the rest as hex.
    pub(crate) fn shown(&self, raw: &[u8]) -> String {
        let key = raw.strip_prefix(&self.0[..]).unwrap_or(raw);
        let shown = |byte: &u8| match byte {
            b'!'..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        key.iter().map(shown).collect()
    }
}

/// The range of all keys with this prefix.
fn under(from: Raw) -> Span {
    let mut to = from.clone();
    // No prefix has only 0xFF bytes, because it contains the volume's 0xFD.
    while let Some(last) = to.pop() {
        if last < u8::MAX {
            to.push(last + 1);
            break;
        }
    }
    Span { from, to }
}

/// The smallest key after this one.
pub(crate) fn after(key: &[u8]) -> Raw {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::{Counter, Extra, LockOwner};
    use sluice_types::Name;

    use super::*;

    #[test]
    fn keys_read_as_they_are_spelled() {
        let keys = Keys::new("jfs/tk1");
        let name = Name::stored(b"n\xff");
        let all = [
            Key::Setting,
            Key::Counter(Counter::NextCleanupSlices),
            Key::Node(Ino(0x0102)),
            Key::Entry(Ino(1), name.clone()),
            Key::Parents(Ino(1), Ino(2)),
            Key::Symlink(Ino(3)),
            Key::Xattr(Ino(3), name),
            Key::Chunk(Ino(4), 5),
            Key::SliceRef(6, 7),
            Key::DelFile(Ino(8), 9),
            Key::DelSlices(10, 11),
            Key::Acl(12),
            Key::DirStat(Ino(13)),
            Key::Quota(QuotaKey::Dir(Ino(14))),
            Key::Quota(QuotaKey::User(u32::MAX)),
            Key::Quota(QuotaKey::Group(0)),
            Key::Session(15),
            Key::Sustained(16, Ino(17)),
            Key::Detached(Ino(18)),
            Key::Writer(19, 20),
            Key::Changes(19, 20, 21),
            Key::Extra(Extra::Report, 22),
        ];
        for key in all {
            assert_eq!(keys.place(&keys.raw(&key)), Some(Place::Record(key)));
        }
        let owner = LockOwner { sid: 1, owner: 2 };
        assert_eq!(
            keys.place(&keys.raw(&Key::Flock(Ino(5), owner))),
            Some(Place::Locks(List::Flocks(Ino(5))))
        );
        assert_eq!(
            keys.place(&keys.raw(&Key::Plock(Ino(5), owner))),
            Some(Place::Locks(List::Plocks(Ino(5))))
        );
        assert_eq!(keys.raw(&Key::Node(Ino(0x0102))), b"jfs/tk1\xfdA\x02\x01\0\0\0\0\0\0I");
        assert_eq!(keys.place(b"elsewhere"), None);
    }
}
