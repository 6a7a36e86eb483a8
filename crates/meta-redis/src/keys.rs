//! Names of everything a volume keeps in Redis.
//!
//! The one place that spells a key: each starts with the volume's prefix (empty on a single server)
//! and reads as the JuiceFS volume format has it. Numbers are decimal text, exact over all 64 bits.

use sluice_meta::schema::{Change, Counter, LockOwner, QuotaKey};
use sluice_types::Ino;
use smallvec::SmallVec;

/// A key, field or member.
pub(crate) type Text = SmallVec<[u8; 40]>;

/// Hash of Sluice's own writer records. JuiceFS neither scans nor touches it.
const WRITERS: &str = "sluice:writers";
/// What the last commits of a process changed, under its session id.
const NEWS: &str = "sluice:news:";

/// Spells keys under a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Box<[u8]>,
    db: u32,
}

impl Keys {
    /// Keys of the volume in database `db`.
    pub(crate) fn new(prefix: &[u8], db: u32) -> Self {
        Self { prefix: prefix.into(), db }
    }

    /// Number of the database, for what Redis does not keep apart by database.
    pub(crate) fn db(&self) -> u32 {
        self.db
    }

    /// A key that is a fixed word.
    pub(crate) fn word(&self, word: &str) -> Text {
        let mut key = Text::from_slice(&self.prefix);
        key.extend_from_slice(word.as_bytes());
        key
    }

    fn numbered(&self, word: &str, number: u64) -> Text {
        let mut key = self.word(word);
        push_number(&mut key, number);
        key
    }

    pub(crate) fn node(&self, ino: Ino) -> Text {
        self.numbered("i", ino.0)
    }

    pub(crate) fn dir(&self, ino: Ino) -> Text {
        self.numbered("d", ino.0)
    }

    /// What the keys of nodes and of directories begin with; other keys do, too.
    pub(crate) fn watched(&self) -> [Text; 2] {
        [self.word("i"), self.word("d")]
    }

    /// What a change of a key means for those who remember nodes and entries.
    pub(crate) fn change(&self, key: &[u8]) -> Option<Change> {
        let (kind, number) = key.strip_prefix(&*self.prefix)?.split_first()?;
        let digits = number.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(number).ok());
        let ino = Ino(digits??.parse().ok()?);
        match kind {
            b'i' => Some(Change::Node(ino)),
            b'd' => Some(Change::Names(ino)),
            _ => None,
        }
    }

    pub(crate) fn parents(&self, ino: Ino) -> Text {
        self.numbered("p", ino.0)
    }

    pub(crate) fn symlink(&self, ino: Ino) -> Text {
        self.numbered("s", ino.0)
    }

    pub(crate) fn xattrs(&self, ino: Ino) -> Text {
        self.numbered("x", ino.0)
    }

    /// What all chunk keys of a file begin with.
    pub(crate) fn chunks(&self, ino: Ino) -> Text {
        let mut key = self.numbered("c", ino.0);
        key.push(b'_');
        key
    }

    pub(crate) fn chunk(&self, ino: Ino, index: u32) -> Text {
        let mut key = self.chunks(ino);
        push_number(&mut key, u64::from(index));
        key
    }

    pub(crate) fn flocks(&self, ino: Ino) -> Text {
        self.numbered("lockf", ino.0)
    }

    pub(crate) fn plocks(&self, ino: Ino) -> Text {
        self.numbered("lockp", ino.0)
    }

    /// The set of lock keys that a session has locks in.
    pub(crate) fn locked(&self, sid: u64) -> Text {
        self.numbered("locked", sid)
    }

    pub(crate) fn sustained(&self, sid: u64) -> Text {
        self.numbered("session", sid)
    }

    pub(crate) fn notices(&self, writer: u64) -> Text {
        self.numbered(NEWS, writer)
    }

    pub(crate) fn writers(&self) -> Text {
        self.word(WRITERS)
    }

    pub(crate) fn counter(&self, counter: Counter) -> Text {
        match counter {
            Counter::NextInode => self.word("nextinode"),
            Counter::NextChunk => self.word("nextchunk"),
            Counter::NextSession => self.word("nextsession"),
            other => self.word(other.name()),
        }
    }

    /// Hashes with the limits, the used space and the used inodes of one kind of quota.
    pub(crate) fn quota(&self, key: QuotaKey) -> [Text; 3] {
        let kind = match key {
            QuotaKey::Dir(_) => ["dirQuota", "dirQuotaUsedSpace", "dirQuotaUsedInodes"],
            QuotaKey::User(_) => ["userQuota", "userQuotaUsedSpace", "userQuotaUsedInodes"],
            QuotaKey::Group(_) => ["groupQuota", "groupQuotaUsedSpace", "groupQuotaUsedInodes"],
        };
        kind.map(|word| self.word(word))
    }

    /// Hashes with the used space, the used inodes and the data length of directories. JuiceFS
    /// takes the first for the sign that there is a record.
    pub(crate) fn dir_stats(&self) -> [Text; 3] {
        ["dirUsedSpace", "dirUsedInodes", "dirDataLength"].map(|word| self.word(word))
    }

    /// Removes the prefix from a key that a scan found.
    pub(crate) fn strip<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.strip_prefix(&*self.prefix)
    }
}

/// Decimal text of a number.
pub(crate) fn number(value: u64) -> Text {
    let mut text = Text::new();
    push_number(&mut text, value);
    text
}

/// Decimal text of a signed number.
pub(crate) fn signed(value: i64) -> Text {
    Text::from_slice(itoa::Buffer::new().format(value).as_bytes())
}

fn push_number(text: &mut Text, value: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Field of a quota in its hashes.
pub(crate) fn quota_field(key: QuotaKey) -> Text {
    number(match key {
        QuotaKey::Dir(ino) => ino.0,
        QuotaKey::User(id) | QuotaKey::Group(id) => u64::from(id),
    })
}

/// Field of a lock owner.
pub(crate) fn owner_field(owner: LockOwner) -> Text {
    let mut field = number(owner.sid);
    field.push(b'_');
    field.extend_from_slice(format!("{:016X}", owner.owner).as_bytes());
    field
}

/// Field of a slice in `sliceRef`.
pub(crate) fn slice_field(id: u64, size: u32) -> Text {
    let mut field = Text::from_slice(b"k");
    push_pair(&mut field, id, b'_', u64::from(size));
    field
}

/// Two numbers with a sign between them.
pub(crate) fn pair(first: u64, between: u8, second: u64) -> Text {
    let mut text = Text::new();
    push_pair(&mut text, first, between, second);
    text
}

fn push_pair(text: &mut Text, first: u64, between: u8, second: u64) {
    push_number(text, first);
    text.push(between);
    push_number(text, second);
}

/// Reads a decimal number; `None` unless it is all digits and fits.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a signed decimal number.
pub(crate) fn parse_signed(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads two numbers with a sign between them.
pub(crate) fn parse_pair(text: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|byte| *byte == between)?;
    Some((parse(&text[..at])?, parse(&text[at + 1..])?))
}

/// Reads the field of a lock owner.
pub(crate) fn parse_owner(field: &[u8]) -> Option<LockOwner> {
    let at = field.iter().position(|byte| *byte == b'_')?;
    let owner = u64::from_str_radix(std::str::from_utf8(&field[at + 1..]).ok()?, 16).ok()?;
    Some(LockOwner { sid: parse(&field[..at])?, owner })
}
