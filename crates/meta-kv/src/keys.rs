//! Names of everything a volume keeps in a key-value store.
//!
//! The one place that spells and reads a key: each begins with the volume's prefix and goes on as
//! the JuiceFS volume format has it, byte for byte. Inodes are little endian, all other numbers big
//! endian.

use std::fmt::Write;

use sluice_meta::schema::{Counter, Key, QuotaKey, WriterId};
use sluice_types::{Ino, Name};

use crate::stored::{Raw, Span};

/// Where a record lies: one key for most, two where the format or an empty value needs it.
pub(crate) struct Cells {
    /// The record exists if this does (an extended attribute also if the other does).
    pub(crate) first: Raw,
    /// Information of a session, an empty extended attribute.
    pub(crate) second: Option<Raw>,
}

impl Cells {
    /// Both keys.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Raw> {
        std::iter::once(self.first).chain(self.second)
    }
}

/// What a key that was found belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first cell of a record.
    Record(Key),
    /// An extended attribute that is empty: no store is asked to keep an empty value.
    EmptyXattr(Ino, Name),
    /// All BSD locks on a file.
    Flocks(Ino),
    /// All POSIX locks on a file.
    Plocks(Ino),
}

/// Spells keys under a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Raw);

/// Sluice's own records: under the letter that the format leaves to extensions.
const WRITERS: &[u8] = b"XSW";
/// What the last commits of each lane changed.
const NEWS: &[u8] = b"XSN";
/// Keys that change whenever somebody tells something.
const CHANGES: &[u8] = b"XSC";
/// How many of these there are, so that few tell the same one at once.
pub(crate) const BELLS: u8 = 8;

impl Keys {
    /// Keys of the volume under `prefix`, as the URL spells it.
    pub(crate) fn new(prefix: &str) -> Self {
        let mut all = prefix.as_bytes().to_vec();
        all.push(0xFD);
        Self(all)
    }

    fn of(&self, parts: &[&[u8]]) -> Raw {
        let mut key = Vec::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        key.extend_from_slice(&self.0);
        for part in parts {
            key.extend_from_slice(part);
        }
        key
    }

    /// All keys that begin with these bytes.
    fn under(&self, parts: &[&[u8]]) -> Span {
        let from = self.of(parts);
        let mut to = from.clone();
        // No prefix ends in 0xFF bytes only: it holds the volume's 0xFD.
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                break;
            }
        }
        Span { from, to }
    }

    /// Everything of the volume.
    pub(crate) fn all(&self) -> Span {
        self.under(&[])
    }

    pub(crate) fn node(&self, ino: Ino) -> Raw {
        self.of(&[b"A", &le(ino), b"I"])
    }

    pub(crate) fn entry(&self, dir: Ino, name: &[u8]) -> Raw {
        self.of(&[b"A", &le(dir), b"D", name])
    }

    pub(crate) fn entries(&self, dir: Ino) -> Span {
        self.under(&[b"A", &le(dir), b"D"])
    }

    /// Extended attributes and those that are empty: the letters are neighbours.
    pub(crate) fn xattrs(&self, ino: Ino) -> Span {
        let from = self.of(&[b"A", &le(ino), b"X"]);
        Span { from, to: self.of(&[b"A", &le(ino), b"Z"]) }
    }

    pub(crate) fn parents(&self, ino: Ino) -> Span {
        self.under(&[b"A", &le(ino), b"P"])
    }

    pub(crate) fn chunks(&self, ino: Ino, from: u32, to: u32) -> Span {
        let at = |index: u32| self.of(&[b"A", &le(ino), b"C", &index.to_be_bytes()]);
        Span { from: at(from), to: at(to.max(from)) }
    }

    /// Everything about the inodes whose numbers, modulo 256, are in a range.
    pub(crate) fn inodes(&self, from: u8, to_inclusive: u8) -> Span {
        Span { from: self.of(&[b"A", &[from]]), to: self.under(&[b"A", &[to_inclusive]]).to }
    }

    /// Where in the order of [`Self::inodes`] a key stands.
    pub(crate) fn inode_group(&self, key: &[u8]) -> Option<u8> {
        key.strip_prefix(&self.0[..])?.strip_prefix(b"A")?.first().copied()
    }

    /// The key of the node that a chunk belongs to; `None` for what is no chunk.
    pub(crate) fn node_of_chunk(&self, key: &[u8]) -> Option<Raw> {
        match self.place(key) {
            Some(Place::Record(Key::Chunk(ino, _))) => Some(self.node(ino)),
            _ => None,
        }
    }

    /// What keys of one kind begin with: a letter of the format, and of those about an inode that
    /// inode and another letter.
    pub(crate) fn kind<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let letter = self.0.len();
        let end = if key.get(letter) == Some(&b'A') { letter + 10 } else { letter + 1 };
        &key[..end.min(key.len())]
    }

    pub(crate) fn flocks(&self, ino: Ino) -> Raw {
        self.of(&[b"F", &le(ino)])
    }

    pub(crate) fn plocks(&self, ino: Ino) -> Raw {
        self.of(&[b"P", &le(ino)])
    }

    pub(crate) fn sustained(&self, sid: u64) -> Span {
        self.under(&[b"SS", &sid.to_be_bytes()])
    }

    pub(crate) fn session_info(&self, sid: u64) -> Raw {
        self.of(&[b"SI", &sid.to_be_bytes()])
    }

    pub(crate) fn counter(&self, counter: Counter) -> Raw {
        self.of(&[b"C", counter.name().as_bytes()])
    }

    /// All keys that begin with a word of the format.
    pub(crate) fn word(&self, word: &[u8]) -> Span {
        self.under(&[word])
    }

    pub(crate) fn writers(&self) -> Span {
        self.under(&[WRITERS])
    }

    pub(crate) fn lanes(&self, writer: WriterId) -> Span {
        self.under(&[WRITERS, &writer.to_be_bytes()])
    }

    pub(crate) fn changes(&self, writer: WriterId) -> Span {
        self.under(&[NEWS, &writer.to_be_bytes()])
    }

    /// The key in which a lane tells what it committed, where the store has messages.
    pub(crate) fn message(&self, writer: WriterId, lane: u16) -> Raw {
        self.of(&[NEWS, &writer.to_be_bytes(), &lane.to_be_bytes()])
    }

    /// All of these.
    pub(crate) fn messages(&self) -> Span {
        self.under(&[NEWS])
    }

    /// The key that somebody changes who tells something.
    pub(crate) fn bell(&self, at: u8) -> Raw {
        self.of(&[CHANGES, &[at % BELLS]])
    }

    /// Where the record of `key` lies.
    pub(crate) fn cells(&self, key: &Key) -> Cells {
        let mut second = None;
        let first = match key {
            Key::Setting => self.of(&[b"setting"]),
            Key::Counter(counter) => self.counter(*counter),
            Key::Node(ino) => self.node(*ino),
            Key::Entry(dir, name) => self.entry(*dir, name),
            Key::Parents(ino, parent) => self.of(&[b"A", &le(*ino), b"P", &le(*parent)]),
            Key::Symlink(ino) => self.of(&[b"A", &le(*ino), b"S"]),
            Key::Xattr(ino, name) => {
                second = Some(self.of(&[b"A", &le(*ino), b"Y", name]));
                self.of(&[b"A", &le(*ino), b"X", name])
            }
            Key::Chunk(ino, index) => self.of(&[b"A", &le(*ino), b"C", &index.to_be_bytes()]),
            Key::SliceRef(id, size) => self.of(&[b"K", &id.to_be_bytes(), &size.to_be_bytes()]),
            Key::DelFile(ino, length) => self.of(&[b"D", &le(*ino), &length.to_be_bytes()]),
            Key::DelSlices(id, time) => self.of(&[b"L", &time.to_be_bytes(), &id.to_be_bytes()]),
            Key::Acl(id) => self.of(&[b"R", &id.to_be_bytes()]),
            Key::DirStat(ino) => self.of(&[b"U", &le(*ino)]),
            Key::Quota(QuotaKey::Dir(ino)) => self.of(&[b"QD", &le(*ino)]),
            Key::Quota(QuotaKey::User(id)) => self.of(&[b"QU", &u64::from(*id).to_be_bytes()]),
            Key::Quota(QuotaKey::Group(id)) => self.of(&[b"QG", &u64::from(*id).to_be_bytes()]),
            Key::Session(sid) => {
                second = Some(self.session_info(*sid));
                self.of(&[b"SE", &sid.to_be_bytes()])
            }
            Key::Sustained(sid, ino) => self.of(&[b"SS", &sid.to_be_bytes(), &le(*ino)]),
            Key::Flock(ino, _) => self.flocks(*ino),
            Key::Plock(ino, _) => self.plocks(*ino),
            Key::Detached(ino) => self.of(&[b"N", &le(*ino)]),
            Key::Writer(writer, lane) => self.of(&[WRITERS, &writer.to_be_bytes(), &lane.to_be_bytes()]),
            Key::Changes(writer, lane, slot) => {
                self.of(&[NEWS, &writer.to_be_bytes(), &lane.to_be_bytes(), &slot.to_be_bytes()])
            }
        };
        Cells { first, second }
    }

    /// What a stored key belongs to; `None` if it is none of ours or of the format.
    pub(crate) fn place(&self, raw: &[u8]) -> Option<Place> {
        let key = raw.strip_prefix(&self.0[..])?;
        if key == b"setting" {
            return Some(Place::Record(Key::Setting));
        }
        if let Some(rest) = key.strip_prefix(WRITERS) {
            let (writer, lane) = rest.split_first_chunk::<8>()?;
            let lane = u16::from_be_bytes(lane.try_into().ok()?);
            return Some(Place::Record(Key::Writer(u64::from_be_bytes(*writer), lane)));
        }
        if let Some(rest) = key.strip_prefix(NEWS) {
            let (writer, rest) = rest.split_first_chunk::<8>()?;
            let (lane, slot) = rest.split_first_chunk::<2>()?;
            let (lane, slot) = (u16::from_be_bytes(*lane), u16::from_be_bytes(slot.try_into().ok()?));
            return Some(Place::Record(Key::Changes(u64::from_be_bytes(*writer), lane, slot)));
        }
        let (letter, rest) = key.split_first()?;
        Some(Place::Record(match letter {
            b'A' => {
                let (ino, rest) = rest.split_first_chunk::<8>()?;
                return inode_place(Ino(u64::from_le_bytes(*ino)), rest);
            }
            b'C' => {
                let known = Counter::ALL.into_iter().find(|counter| counter.name().as_bytes() == rest);
                Key::Counter(known?)
            }
            b'D' => {
                let (ino, length) = rest.split_first_chunk::<8>()?;
                Key::DelFile(Ino(u64::from_le_bytes(*ino)), be(length)?)
            }
            b'F' => return Some(Place::Flocks(ino(rest)?)),
            b'P' => return Some(Place::Plocks(ino(rest)?)),
            b'K' => {
                let (id, size) = rest.split_first_chunk::<8>()?;
                Key::SliceRef(u64::from_be_bytes(*id), u32::from_be_bytes(size.try_into().ok()?))
            }
            b'L' => {
                let (time, id) = rest.split_first_chunk::<8>()?;
                Key::DelSlices(be(id)?, i64::from_be_bytes(*time))
            }
            b'N' => Key::Detached(ino(rest)?),
            b'R' => Key::Acl(u32::from_be_bytes(rest.try_into().ok()?)),
            b'U' => Key::DirStat(ino(rest)?),
            b'Q' => Key::Quota(match rest.split_first()? {
                (b'D', rest) => QuotaKey::Dir(ino(rest)?),
                (b'U', rest) => QuotaKey::User(be(rest)?.try_into().ok()?),
                (b'G', rest) => QuotaKey::Group(be(rest)?.try_into().ok()?),
                _ => return None,
            }),
            b'S' => match rest.split_first()? {
                (b'E', rest) => Key::Session(be(rest)?),
                (b'S', rest) => {
                    let (sid, rest) = rest.split_first_chunk::<8>()?;
                    Key::Sustained(u64::from_be_bytes(*sid), ino(rest)?)
                }
                _ => return None,
            },
            _ => return None,
        }))
    }

    /// A key for messages: the letters as they are, the rest as hex.
    pub(crate) fn shown(&self, raw: &[u8]) -> String {
        let key = raw.strip_prefix(&self.0[..]).unwrap_or(raw);
        let mut text = String::new();
        for byte in key {
            if byte.is_ascii_graphic() {
                text.push(char::from(*byte));
            } else {
                // Writing to a string never fails.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        text
    }
}

fn inode_place(at: Ino, rest: &[u8]) -> Option<Place> {
    let (letter, rest) = rest.split_first()?;
    Some(Place::Record(match (letter, rest) {
        (b'I', []) => Key::Node(at),
        (b'S', []) => Key::Symlink(at),
        (b'D', name) => Key::Entry(at, Name::stored(name)),
        (b'X', name) => Key::Xattr(at, Name::stored(name)),
        (b'Y', name) => return Some(Place::EmptyXattr(at, Name::stored(name))),
        (b'P', parent) => Key::Parents(at, ino(parent)?),
        (b'C', index) => Key::Chunk(at, u32::from_be_bytes(index.try_into().ok()?)),
        _ => return None,
    }))
}

fn le(ino: Ino) -> [u8; 8] {
    ino.0.to_le_bytes()
}

fn ino(bytes: &[u8]) -> Option<Ino> {
    Some(Ino(u64::from_le_bytes(bytes.try_into().ok()?)))
}

fn be(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The smallest key after this one.
pub(crate) fn after(key: &[u8]) -> Raw {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::LockOwner;

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
        ];
        for key in all {
            assert_eq!(keys.place(&keys.cells(&key).first), Some(Place::Record(key)));
        }
        let owner = LockOwner { sid: 1, owner: 2 };
        assert_eq!(keys.place(&keys.cells(&Key::Flock(Ino(5), owner)).first), Some(Place::Flocks(Ino(5))));
        assert_eq!(keys.place(&keys.cells(&Key::Plock(Ino(5), owner)).first), Some(Place::Plocks(Ino(5))));
        assert_eq!(keys.node(Ino(0x0102)), b"jfs/tk1\xfdA\x02\x01\0\0\0\0\0\0I");
        assert_eq!(keys.place(b"elsewhere"), None);
    }
}
