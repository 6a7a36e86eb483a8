//! The place of each record in Redis, and its bytes.
//!
//! A record is one to three cells. The first cell decides whether the record exists. Written bytes
//! are exactly those that JuiceFS writes. Bytes that other clients wrote are either decoded
//! completely or reported as damaged.

use bytes::Bytes;
use sluice_meta::schema::{
    Counter, DirStat, Entry, Extra, FlockKind, Key, Quota, QuotaKey, Row, Session, decode_plocks,
    encode_plocks,
};
use sluice_types::{Ino, Name};
use smallvec::{SmallVec, smallvec};

use crate::keys::{
    CHANGES_PREFIX, EXTRA_PREFIX, Keys, Text, WRITERS, number, owner_field, pair, parse, parse_owner,
    parse_pair, slice_field,
};

/// How a value is stored. The letter is that of the script's operations on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Shape {
    /// A string.
    Text = b's',
    /// A string that is a number; a missing one is 0.
    Counter = b'c',
    /// A whole list.
    List = b'l',
    /// A field of a hash.
    Field = b'h',
    /// A field that is a number; a missing one is 0.
    Number = b'k',
    /// A field that is a number; a missing one is 0, and a negative one counts as 0.
    Links = b'p',
    /// The score of a member of a sorted set.
    Score = b'z',
    /// A member of a set.
    Member = b't',
}

impl Shape {
    /// Whether the whole key is the value.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Text | Self::Counter | Self::List)
    }

    /// Whether it lies in a hash.
    pub(crate) fn is_field(self) -> bool {
        matches!(self, Self::Field | Self::Number | Self::Links)
    }
}

/// One place in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) shape: Shape,
    /// The Redis key.
    pub(crate) key: Text,
    /// The field or member in it; empty if the whole key is the value.
    pub(crate) field: Text,
}

const SESSION: [(Shape, &str); 2] = [(Shape::Score, "allSessions"), (Shape::Field, "sessionInfos")];
/// Used space, used inodes, data length. For JuiceFS, the first says that the record exists.
/// Without the second, it counts the directory again.
const DIR_STAT: [(Shape, &str); 3] =
    [(Shape::Field, "dirUsedSpace"), (Shape::Field, "dirUsedInodes"), (Shape::Number, "dirDataLength")];
/// The cells of a record.
pub(crate) type Cells = SmallVec<[Cell; 3]>;

/// Why a stored record cannot be decoded.
pub(crate) type Damage = &'static str;

impl Keys {
    /// The cells of the record of `key`.
    pub(crate) fn cells(&self, key: &Key) -> Cells {
        let name = |name: &Name| Text::from_slice(name);
        // One field or member in several places.
        let joined = |places: &[(Shape, &str)], field: u64| {
            let cell = |(shape, word): &(Shape, &str)| (*shape, self.word(word), number(field));
            places.iter().map(cell).map(|(shape, key, field)| Cell { shape, key, field }).collect()
        };
        // Limits, used space, used inodes.
        let quota = |kind, id| {
            let cell = |(shape, what): (_, &str)| {
                let mut key = self.word(kind);
                key.extend_from_slice(what.as_bytes());
                Cell { shape, key, field: number(id) }
            };
            [(Shape::Field, ""), (Shape::Number, "UsedSpace"), (Shape::Number, "UsedInodes")].map(cell).into()
        };
        let (shape, key, field) = match key {
            Key::Setting => (Shape::Text, self.word("setting"), Text::new()),
            Key::Counter(counter) => (Shape::Counter, self.word(counter_word(*counter)), Text::new()),
            Key::Node(ino) => (Shape::Text, self.node(*ino), Text::new()),
            Key::Symlink(ino) => (Shape::Text, self.of("s", ino.0), Text::new()),
            Key::Chunk(ino, index) => {
                let mut key = self.chunks(*ino);
                key.extend_from_slice(&number(*index));
                (Shape::List, key, Text::new())
            }
            Key::Entry(dir, entry) => (Shape::Field, self.dir(*dir), name(entry)),
            Key::Parents(ino, parent) => (Shape::Links, self.of("p", ino.0), number(parent.0)),
            Key::Xattr(ino, xattr) => (Shape::Field, self.of("x", ino.0), name(xattr)),
            Key::SliceRef(id, size) => (Shape::Number, self.word("sliceRef"), slice_field(*id, *size)),
            Key::DelSlices(id, time) => (Shape::Field, self.word("delSlices"), pair(*id, b'_', *time as u64)),
            Key::Acl(id) => (Shape::Field, self.word("acl"), number(*id)),
            Key::Flock(ino, owner) => (Shape::Field, self.of("lockf", ino.0), owner_field(*owner)),
            Key::Plock(ino, owner) => (Shape::Field, self.of("lockp", ino.0), owner_field(*owner)),
            Key::Writer(writer, lane) => (Shape::Field, self.word(WRITERS), pair(*writer, b':', *lane)),
            Key::Changes(writer, lane, slot) => {
                (Shape::Field, self.of(CHANGES_PREFIX, *writer), pair(u64::from(*lane), b':', *slot))
            }
            Key::Extra(kind, n) => (Shape::Field, self.extras(*kind), number(*n)),
            Key::DelFile(ino, length) => (Shape::Score, self.word("delfiles"), pair(ino.0, b':', *length)),
            Key::Detached(ino) => (Shape::Score, self.word("detachedNodes"), number(ino.0)),
            Key::Sustained(sid, ino) => (Shape::Member, self.of("session", *sid), number(ino.0)),
            Key::Session(sid) => return joined(&SESSION, *sid),
            Key::DirStat(ino) => return joined(&DIR_STAT, ino.0),
            Key::Quota(QuotaKey::Dir(ino)) => return quota("dirQuota", ino.0),
            Key::Quota(QuotaKey::User(id)) => return quota("userQuota", u64::from(*id)),
            Key::Quota(QuotaKey::Group(id)) => return quota("groupQuota", u64::from(*id)),
        };
        smallvec![Cell { shape, key, field }]
    }
}

impl Keys {
    /// The record that lies at a Redis key and, unless the whole key is its value, at a field or
    /// member; `None` if the volume format has none there.
    pub(crate) fn record(&self, key: &[u8], field: &[u8]) -> Option<Key> {
        let key = key.strip_prefix(&*self.prefix)?;
        let digits = key.iter().position(u8::is_ascii_digit).unwrap_or(key.len());
        let (word, digits) = key.split_at(digits);
        let ino = || parse(digits).map(Ino);
        Some(match word {
            b"i" => Key::Node(ino()?),
            b"d" => Key::Entry(ino()?, Name::stored(field)),
            b"p" => Key::Parents(ino()?, Ino(parse(field)?)),
            b"s" => Key::Symlink(ino()?),
            b"x" => Key::Xattr(ino()?, Name::stored(field)),
            b"c" => parse_pair(digits, b'_').map(|(ino, index)| Key::Chunk(Ino(ino), index))?,
            b"lockf" => Key::Flock(ino()?, parse_owner(field)?),
            b"lockp" => Key::Plock(ino()?, parse_owner(field)?),
            b"session" => Key::Sustained(parse(digits)?, Ino(parse(field)?)),
            b"sliceRef" => {
                parse_pair(field.strip_prefix(b"k")?, b'_').map(|(id, size)| Key::SliceRef(id, size))?
            }
            b"delSlices" => {
                parse_pair(field, b'_').map(|(id, time): (_, u64)| Key::DelSlices(id, time as i64))?
            }
            b"delfiles" => parse_pair(field, b':').map(|(ino, length)| Key::DelFile(Ino(ino), length))?,
            b"detachedNodes" => Key::Detached(Ino(parse(field)?)),
            b"allSessions" => Key::Session(parse(field)?),
            b"acl" => Key::Acl(parse(field)?),
            b"dirUsedSpace" => Key::DirStat(Ino(parse(field)?)),
            b"dirQuota" => Key::Quota(QuotaKey::Dir(Ino(parse(field)?))),
            b"userQuota" => Key::Quota(QuotaKey::User(parse(field)?)),
            b"groupQuota" => Key::Quota(QuotaKey::Group(parse(field)?)),
            _ if word == WRITERS.as_bytes() => {
                parse_pair(field, b':').map(|(writer, lane)| Key::Writer(writer, lane))?
            }
            _ if word == CHANGES_PREFIX.as_bytes() => {
                let (lane, slot) = parse_pair(field, b':')?;
                Key::Changes(parse(digits)?, lane, slot)
            }
            _ => Key::Extra(Extra::from_word(word.strip_prefix(EXTRA_PREFIX.as_bytes())?)?, parse(field)?),
        })
    }
}

/// The key of a counter, as JuiceFS spells it.
fn counter_word(counter: Counter) -> &'static str {
    match counter {
        Counter::NextInode => "nextinode",
        Counter::NextChunk => "nextchunk",
        Counter::NextSession => "nextsession",
        other => other.name(),
    }
}

/// What to add to the stored number to get the next free one: Redis holds the last one that was
/// allocated.
pub(crate) fn counter_shift(counter: Counter) -> i64 {
    i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk))
}

/// The values of a record's cells. A missing value means that the cell must not exist.
pub(crate) fn encode(row: &Row) -> SmallVec<[Option<Vec<u8>>; 3]> {
    smallvec![match row {
        Row::Counter(counter, value) => Some(text(value - counter_shift(*counter))),
        Row::Parents(_, _, count) => (*count > 0).then(|| text(*count)),
        Row::SliceRef(_, _, refs) => (*refs != 1).then(|| text(refs - 1)),
        Row::DelFile(_, _, time) | Row::Detached(_, time) => Some(text(*time)),
        Row::Sustained(..) => Some(Vec::new()),
        Row::Flock(_, _, kind) => Some(vec![kind.code()]),
        Row::Plock(_, _, ranges) => Some(encode_plocks(ranges)),
        Row::Writer(_, _, n) => Some(number(*n).to_vec()),
        Row::DirStat(_, stat) => return [stat.space, stat.inodes, stat.length].map(|n| Some(text(n))).into(),
        Row::Quota(_, quota) => {
            let limits = [quota.max_space.to_be_bytes(), quota.max_inodes.to_be_bytes()].concat();
            return [Some(limits), Some(text(quota.used_space)), Some(text(quota.used_inodes))].into();
        }
        Row::Session(_, session) => {
            let info = session.info.as_ref().map(|info| info.to_vec());
            return smallvec![Some(text(session.expire)), info];
        }
        _ => row.plain(),
    }]
}

fn text(value: i64) -> Vec<u8> {
    number(value).to_vec()
}

/// The record of `key` whose cells hold `values`.
pub(crate) fn decode(key: &Key, values: &mut [Option<Vec<u8>>]) -> Result<Option<Row>, Damage> {
    let (Some(first), rest) = (match values.split_first_mut() {
        Some((first, rest)) => (first.take(), rest),
        None => (None, &mut [][..]),
    }) else {
        // A counter that was never written has allocated nothing.
        return Ok(match key {
            Key::Counter(counter) if counter_shift(*counter) != 0 => Some(Row::Counter(*counter, 1)),
            _ => None,
        });
    };
    Ok(Some(match key {
        Key::Counter(counter) => Row::Counter(*counter, integer(&first)? + counter_shift(*counter)),
        Key::Parents(ino, parent) => match integer(&first)? {
            // Counts that fell to 0 may remain stored.
            ..=0 => return Ok(None),
            count => Row::Parents(*ino, *parent, count),
        },
        Key::SliceRef(id, size) => match integer(&first)? {
            // The same as no record: one reference.
            0 => return Ok(None),
            more => Row::SliceRef(*id, *size, more + 1),
        },
        Key::DelFile(ino, length) => Row::DelFile(*ino, *length, score(&first)?),
        Key::DirStat(ino) => {
            let [inodes, length] = rest else { return Err("incomplete answer") };
            // Without the number of inodes JuiceFS counts the directory again.
            let Some(inodes) = inodes else { return Ok(None) };
            let length = length.as_deref().map_or(Ok(0), integer)?;
            Row::DirStat(*ino, DirStat { length, space: integer(&first)?, inodes: integer(inodes)? })
        }
        Key::Quota(key) => {
            let (limits, []) = first.as_chunks::<8>() else { return Err("limits of a quota are 16 bytes") };
            let [space, inodes] = limits else { return Err("limits of a quota are 16 bytes") };
            let used = |value: Option<&Option<Vec<u8>>>| match value {
                Some(Some(value)) => integer(value),
                _ => Ok(0),
            };
            let quota = Quota {
                max_space: i64::from_be_bytes(*space),
                max_inodes: i64::from_be_bytes(*inodes),
                used_space: used(rest.first())?,
                used_inodes: used(rest.get(1))?,
            };
            Row::Quota(*key, quota)
        }
        Key::Session(sid) => {
            let info = rest.first().and_then(|info| info.clone().map(Bytes::from));
            Row::Session(*sid, Session { expire: score(&first)?, info })
        }
        Key::Sustained(sid, ino) => Row::Sustained(*sid, *ino),
        Key::Flock(ino, owner) => match first.as_slice() {
            [code] => Row::Flock(*ino, *owner, FlockKind::from_code(*code).ok_or("no lock kind")?),
            _ => return Err("no lock kind"),
        },
        Key::Plock(ino, owner) => {
            Row::Plock(*ino, *owner, decode_plocks(&first).ok_or("no list of 24-byte lock records")?)
        }
        Key::Detached(ino) => Row::Detached(*ino, score(&first)?),
        Key::Writer(writer, lane) => Row::Writer(*writer, *lane, parse(&first).ok_or("no decimal number")?),
        _ => return Row::read_plain(key, first.into()),
    }))
}

/// The inode that a stored entry names, however damaged the rest.
pub(crate) fn entry_ino(bytes: &[u8]) -> Option<Ino> {
    Entry::decode(bytes).map(|entry| entry.ino)
}

fn integer(bytes: &[u8]) -> Result<i64, Damage> {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or("no decimal number")
}

/// A score, which Redis may print as a fraction or with an exponent.
pub(crate) fn score(bytes: &[u8]) -> Result<i64, Damage> {
    let text = std::str::from_utf8(bytes).map_err(|_| "no number as score")?;
    text.parse::<i64>()
        .or_else(|_| text.parse::<f64>().map(|score| score as i64))
        .map_err(|_| "no number as score")
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::LockOwner;

    use super::*;

    #[test]
    fn a_record_is_found_by_its_place() {
        let owner = LockOwner { sid: 9, owner: 0xABCD };
        let last = Ino(u64::MAX);
        for prefix in ["", "{3}"] {
            let keys = Keys::new(prefix.as_bytes(), 3);
            for key in [
                Key::Node(last),
                Key::Entry(Ino(1), Name::stored(b"d_5:\xff")),
                Key::Parents(Ino(7), last),
                Key::Xattr(last, Name::stored(b"user.a")),
                Key::Chunk(last, u32::MAX),
                Key::SliceRef(u64::MAX, u32::MAX),
                Key::DelFile(Ino(8), u64::MAX),
                Key::DelSlices(35, 1_795_288_072),
                Key::Acl(u32::MAX),
                Key::DirStat(Ino(2)),
                Key::Quota(QuotaKey::Dir(Ino(30))),
                Key::Quota(QuotaKey::User(u32::MAX)),
                Key::Quota(QuotaKey::Group(0)),
                Key::Session(u64::MAX),
                Key::Sustained(9, last),
                Key::Flock(last, owner),
                Key::Plock(last, owner),
                Key::Detached(last),
                Key::Writer(u64::MAX, u16::MAX),
                Key::Changes(u64::MAX, u16::MAX, u16::MAX),
                Key::Extra(Extra::GroupKeys, u64::MAX),
            ] {
                let cell = &keys.cells(&key)[0];
                assert_eq!(keys.record(&cell.key, &cell.field), Some(key));
            }
            let place = |word: &str, field: &str| keys.record(&keys.word(word), field.as_bytes());
            for (word, field) in [
                ("i", ""),
                ("i1x", ""),
                ("i18446744073709551616", ""),
                ("c5", ""),
                ("c5_4294967296", ""),
                ("sliceRef", "7_100"),
                ("acl", "4294967296"),
                ("lockf5", "9_x"),
                ("sluice:writers", "7:65536"),
                ("sluice:members", "x"),
                ("sluice:other", "1"),
                ("setting", ""),
                ("other", "1"),
            ] {
                assert_eq!(place(word, field), None, "{word} {field}");
            }
        }
        assert_eq!(Keys::new(b"{3}", 3).record(b"{1}i1", b""), None, "another volume's");
    }
}
