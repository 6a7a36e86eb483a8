//! Where each record lies in Redis and what its bytes are.
//!
//! A record is one to three cells. The first cell decides whether the record exists; what is
//! written is byte for byte what JuiceFS writes, and what others wrote is either understood
//! completely or reported as damaged.

use bytes::Bytes;
use sluice_meta::schema::{
    AclRule, Counter, DirStat, Entry, FlockKind, Key, Quota, Row, Session, decode_attr, decode_changes,
    decode_plocks, decode_replaced, decode_slices, encode_attr, encode_changes, encode_plocks,
    encode_replaced, encode_slices,
};
use sluice_types::Ino;
use smallvec::{SmallVec, smallvec};

use crate::keys::{Keys, Text, number, owner_field, pair, quota_field, signed, slice_field};

/// One place in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cell {
    /// A string.
    Str(Text),
    /// A field of a hash.
    Field(Text, Text),
    /// The score of a member of a sorted set.
    Score(Text, Text),
    /// A member of a set.
    Member(Text, Text),
    /// A whole list.
    List(Text),
}

impl Cell {
    /// The Redis key it lies in.
    pub(crate) fn container(&self) -> &Text {
        match self {
            Self::Str(key)
            | Self::List(key)
            | Self::Field(key, _)
            | Self::Score(key, _)
            | Self::Member(key, _) => key,
        }
    }
}

/// The cells of a record.
pub(crate) type Cells = SmallVec<[Cell; 3]>;

/// Why a stored record cannot be understood.
pub(crate) type Damage = &'static str;

impl Keys {
    /// Where the record of `key` lies.
    pub(crate) fn cells(&self, key: &Key) -> Cells {
        smallvec![match key {
            Key::Setting => Cell::Str(self.word("setting")),
            Key::Counter(counter) => Cell::Str(self.counter(*counter)),
            Key::Node(ino) => Cell::Str(self.node(*ino)),
            Key::Symlink(ino) => Cell::Str(self.symlink(*ino)),
            Key::Entry(dir, name) => Cell::Field(self.dir(*dir), Text::from_slice(name)),
            Key::Parents(ino, parent) => Cell::Field(self.parents(*ino), number(parent.0)),
            Key::Xattr(ino, name) => Cell::Field(self.xattrs(*ino), Text::from_slice(name)),
            Key::SliceRef(id, size) => Cell::Field(self.word("sliceRef"), slice_field(*id, *size)),
            Key::DelSlices(id, time) => Cell::Field(self.word("delSlices"), pair(*id, b'_', *time as u64)),
            Key::Acl(id) => Cell::Field(self.word("acl"), number(u64::from(*id))),
            Key::Flock(ino, owner) => Cell::Field(self.flocks(*ino), owner_field(*owner)),
            Key::Plock(ino, owner) => Cell::Field(self.plocks(*ino), owner_field(*owner)),
            Key::Writer(writer, lane) => Cell::Field(self.writers(), pair(*writer, b':', u64::from(*lane))),
            Key::Changes(writer, lane, slot) => {
                Cell::Field(self.notices(*writer), pair(u64::from(*lane), b':', u64::from(*slot)))
            }
            Key::Chunk(ino, index) => Cell::List(self.chunk(*ino, *index)),
            Key::DelFile(ino, length) => Cell::Score(self.word("delfiles"), pair(ino.0, b':', *length)),
            Key::Detached(ino) => Cell::Score(self.word("detachedNodes"), number(ino.0)),
            Key::Sustained(sid, ino) => Cell::Member(self.sustained(*sid), number(ino.0)),
            Key::DirStat(ino) => {
                return self.dir_stats().into_iter().map(|hash| Cell::Field(hash, number(ino.0))).collect();
            }
            Key::Quota(key) => {
                let field = quota_field(*key);
                return self.quota(*key).into_iter().map(|hash| Cell::Field(hash, field.clone())).collect();
            }
            Key::Session(sid) => {
                return smallvec![
                    Cell::Score(self.word("allSessions"), number(*sid)),
                    Cell::Field(self.word("sessionInfos"), number(*sid)),
                ];
            }
        }]
    }
}

/// What to add to the stored number to get the next free one: Redis holds the last one given out.
pub(crate) fn counter_shift(counter: Counter) -> i64 {
    i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk))
}

/// The values of a record's cells. A missing value means that the cell must not exist.
pub(crate) fn encode(row: &Row) -> SmallVec<[Option<Vec<u8>>; 3]> {
    smallvec![match row {
        Row::Setting(json) => Some(json.to_vec()),
        Row::Counter(counter, value) => Some(text(value - counter_shift(*counter))),
        Row::Node(_, attr) => Some(encode_attr(attr)),
        Row::Entry(_, _, entry) => Some(entry.encode().to_vec()),
        Row::Parents(_, _, count) => (*count > 0).then(|| text(*count)),
        Row::Symlink(_, value) | Row::Xattr(_, _, value) => Some(value.to_vec()),
        Row::Chunk(_, _, slices) => (!slices.is_empty()).then(|| encode_slices(slices)),
        Row::SliceRef(_, _, refs) => (*refs != 1).then(|| text(refs - 1)),
        Row::DelFile(_, _, time) | Row::Detached(_, time) => Some(text(*time)),
        Row::DelSlices(_, _, slices) => Some(encode_replaced(slices)),
        Row::Acl(_, rule) => Some(rule.encode()),
        Row::Sustained(..) => Some(Vec::new()),
        Row::Flock(_, _, kind) => Some(vec![kind.code()]),
        Row::Plock(_, _, ranges) => Some(encode_plocks(ranges)),
        Row::Writer(_, _, n) => Some(number(*n).to_vec()),
        Row::Changes(_, _, _, n, changes) => Some([&n.to_be_bytes()[..], &encode_changes(changes)].concat()),
        Row::DirStat(_, stat) => return [stat.space, stat.inodes, stat.length].map(|n| Some(text(n))).into(),
        Row::Quota(_, quota) => {
            let limits = [quota.max_space.to_be_bytes(), quota.max_inodes.to_be_bytes()].concat();
            return [Some(limits), Some(text(quota.used_space)), Some(text(quota.used_inodes))].into();
        }
        Row::Session(_, session) => {
            let info = session.info.as_ref().map(|info| info.to_vec());
            return smallvec![Some(text(session.expire)), info];
        }
    }]
}

fn text(value: i64) -> Vec<u8> {
    signed(value).to_vec()
}

/// The record of `key` whose cells hold `values`.
pub(crate) fn decode(key: &Key, values: &mut [Option<Vec<u8>>]) -> Result<Option<Row>, Damage> {
    let (Some(first), rest) = (match values.split_first_mut() {
        Some((first, rest)) => (first.take(), rest),
        None => (None, &mut [][..]),
    }) else {
        // A counter that was never written has handed out nothing.
        return Ok(match key {
            Key::Counter(counter) if counter_shift(*counter) != 0 => Some(Row::Counter(*counter, 1)),
            _ => None,
        });
    };
    Ok(Some(match key {
        Key::Setting => Row::Setting(Bytes::from(first)),
        Key::Counter(counter) => Row::Counter(*counter, integer(&first)? + counter_shift(*counter)),
        Key::Node(ino) => Row::Node(*ino, decode_attr(&first).ok_or("no attributes of a node")?),
        Key::Entry(dir, name) => Row::Entry(*dir, name.clone(), entry(&first)?),
        Key::Parents(ino, parent) => match integer(&first)? {
            // Counts that fell to nothing may linger.
            ..=0 => return Ok(None),
            count => Row::Parents(*ino, *parent, count),
        },
        Key::Symlink(ino) => Row::Symlink(*ino, Bytes::from(first)),
        Key::Xattr(ino, name) => Row::Xattr(*ino, name.clone(), Bytes::from(first)),
        Key::Chunk(ino, index) => {
            Row::Chunk(*ino, *index, decode_slices(&first).ok_or("no list of 24-byte slice records")?)
        }
        Key::SliceRef(id, size) => match integer(&first)? {
            // The same as no record: one reference.
            0 => return Ok(None),
            more => Row::SliceRef(*id, *size, more + 1),
        },
        Key::DelFile(ino, length) => Row::DelFile(*ino, *length, score(&first)?),
        Key::DelSlices(id, time) => {
            Row::DelSlices(*id, *time, decode_replaced(&first).ok_or("no list of 12-byte slice names")?)
        }
        Key::Acl(id) => Row::Acl(*id, AclRule::decode(&first).ok_or("no ACL rule")?),
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
        Key::Writer(writer, lane) => {
            Row::Writer(*writer, *lane, crate::keys::parse(&first).ok_or("no decimal number")?)
        }
        Key::Changes(writer, lane, slot) => {
            let (n, changes) = first.split_first_chunk().ok_or("no number of a commit")?;
            Row::Changes(*writer, *lane, *slot, u64::from_be_bytes(*n), decode_changes(changes))
        }
    }))
}

/// The value of a directory's field.
pub(crate) fn entry(bytes: &[u8]) -> Result<Entry, Damage> {
    Entry::decode(bytes).ok_or("no 9-byte directory entry")
}

/// The inode that a stored entry names, however damaged the rest.
pub(crate) fn entry_ino(bytes: &[u8]) -> Option<Ino> {
    Entry::decode(bytes).map(|entry| entry.ino)
}

fn integer(bytes: &[u8]) -> Result<i64, Damage> {
    crate::keys::parse_signed(bytes).ok_or("no decimal number")
}

/// A score, which Redis may print as a fraction or with an exponent.
pub(crate) fn score(bytes: &[u8]) -> Result<i64, Damage> {
    let text = std::str::from_utf8(bytes).map_err(|_| "no number as score")?;
    text.parse::<i64>()
        .or_else(|_| text.parse::<f64>().map(|score| score as i64))
        .map_err(|_| "no number as score")
}
