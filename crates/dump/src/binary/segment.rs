//! Segments: their content, and the conversion between records and messages.

use prost::Message;
use sluice_meta::{
    engine::LogLine,
    schema::{
        AclRule, Counter, DirStat, Entry, Key, Quota, QuotaKey, Row, decode_attr, decode_slices, encode_attr,
        encode_slices,
    },
};
use sluice_types::{FileType, Ino, Name};

use super::messages::{self as m, Batch};

/// Records in a segment. JuiceFS reads a segment whole, and so does [`super::Reader`].
pub(crate) const ROWS: usize = 10_000;

/// What a segment holds, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Format = 1,
    Counter,
    Node,
    Edge,
    Chunk,
    SliceRef,
    Symlink,
    Sustained,
    DelFile,
    Xattr,
    Acl,
    Stat,
    Quota,
    Parent,
    ChangeLog,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Format,
        Self::Counter,
        Self::Node,
        Self::Edge,
        Self::Chunk,
        Self::SliceRef,
        Self::Symlink,
        Self::Sustained,
        Self::DelFile,
        Self::Xattr,
        Self::Acl,
        Self::Stat,
        Self::Quota,
        Self::Parent,
        Self::ChangeLog,
    ];

    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Its name in the footer.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Counter => "counter",
            Self::Node => "node",
            Self::Edge => "edge",
            Self::Chunk => "chunk",
            Self::SliceRef => "sliceRef",
            Self::Symlink => "symlink",
            Self::Sustained => "sustained",
            Self::DelFile => "delFile",
            Self::Xattr => "xattr",
            Self::Acl => "acl",
            Self::Stat => "stat",
            Self::Quota => "quota",
            Self::Parent => "parent",
            Self::ChangeLog => "changeLog",
        }
    }

    /// The kind of segment that holds `row`; `None` for what belongs to running clients (sessions,
    /// locks) and for what the format has no place for.
    pub(super) const fn of(row: &Row) -> Option<Self> {
        Some(match row {
            Row::Setting(_) => Self::Format,
            Row::Counter(counter, _) if in_dumps(*counter) => Self::Counter,
            Row::Node(..) => Self::Node,
            Row::Entry(..) => Self::Edge,
            Row::Chunk(..) => Self::Chunk,
            Row::SliceRef(..) => Self::SliceRef,
            Row::Symlink(..) => Self::Symlink,
            Row::Sustained(..) => Self::Sustained,
            Row::DelFile(..) => Self::DelFile,
            Row::Xattr(..) => Self::Xattr,
            Row::Acl(..) => Self::Acl,
            Row::DirStat(..) => Self::Stat,
            Row::Quota(..) => Self::Quota,
            Row::Parents(..) => Self::Parent,
            _ => return None,
        })
    }
}

/// The counters that dumps have. The others are times of clean-ups, which may begin anew, or follow
/// from the records.
const fn in_dumps(counter: Counter) -> bool {
    matches!(
        counter,
        Counter::NextInode
            | Counter::NextChunk
            | Counter::NextSession
            | Counter::NextTrash
            | Counter::UsedSpace
            | Counter::TotalInodes
    )
}

/// A segment as the file has it.
pub(crate) struct Segment {
    pub(super) kind: Kind,
    pub(super) rows: usize,
    pub(super) bytes: Vec<u8>,
}

impl Segment {
    /// With `rows`, a segment for each kind that dumps have.
    pub(crate) fn of(rows: Vec<Row>) -> Vec<Self> {
        let mut drafts: Vec<Draft> = Vec::new();
        for row in rows {
            let Some(kind) = Kind::of(&row) else { continue };
            let at = drafts.iter().rposition(|draft| draft.kind == kind && draft.rows < ROWS);
            let at = at.unwrap_or_else(|| {
                drafts.push(Draft::new(kind));
                drafts.len() - 1
            });
            drafts[at].add(row);
        }
        drafts.into_iter().map(Draft::finish).collect()
    }

    /// With the number of the last line of the change log, if there is one, and lines.
    pub(crate) fn of_log(last: u64, lines: &[LogLine]) -> Vec<Self> {
        if last == 0 {
            return Vec::new();
        }
        let counter = m::Counter { key: "lastChangelog".into(), value: last as i64 };
        let counters = Batch { counters: vec![counter], ..Batch::default() };
        let mut segments = vec![Self::encoded(Kind::Counter, 1, &counters)];
        if !lines.is_empty() {
            let line = |LogLine { number, text }: &LogLine| m::ChangeLog {
                version: *number as i64,
                entry: text.clone(),
            };
            let batch = Batch { change_logs: lines.iter().map(line).collect(), ..Batch::default() };
            segments.push(Self::encoded(Kind::ChangeLog, lines.len(), &batch));
        }
        segments
    }

    fn encoded(kind: Kind, rows: usize, message: &impl Message) -> Self {
        let mut draft = Draft { rows, ..Draft::new(kind) };
        message.encode_raw(&mut draft.bytes);
        draft.finish()
    }
}

/// Bytes of a segment before its message.
const HEAD: usize = 12;

/// A segment that is being filled.
struct Draft {
    kind: Kind,
    rows: usize,
    /// The head, and the messages of the most frequent kinds.
    bytes: Vec<u8>,
    /// The messages of all other kinds.
    batch: Batch,
}

impl Draft {
    fn new(kind: Kind) -> Self {
        Self { kind, rows: 0, bytes: vec![0; HEAD], batch: Batch::default() }
    }

    /// Adds `row`, which is of this kind.
    fn add(&mut self, row: Row) {
        self.rows += 1;
        let mut fields = Fields(&mut self.bytes);
        match row {
            Row::Setting(data) => m::Format { data }.encode_raw(&mut self.bytes),
            Row::Node(ino, attr) => fields.message(1, |node| {
                node.number(1, ino.0);
                node.bytes(2, &encode_attr(&attr));
            }),
            Row::Entry(dir, name, entry) => fields.message(2, |edge| {
                edge.number(1, dir.0);
                edge.number(2, entry.ino.0);
                edge.bytes(3, &name);
                edge.number(4, entry.kind as u64);
            }),
            Row::Chunk(ino, index, slices) => fields.message(3, |chunk| {
                chunk.number(1, ino.0);
                chunk.number(2, index.into());
                chunk.bytes(3, &encode_slices(&slices));
            }),
            row => add(&mut self.batch, row),
        }
    }

    fn finish(self) -> Segment {
        let Self { kind, rows, mut bytes, batch } = self;
        batch.encode_raw(&mut bytes);
        let length = (bytes.len() - HEAD) as u64;
        bytes[..4].copy_from_slice(&(kind as u32).to_be_bytes());
        bytes[4..HEAD].copy_from_slice(&length.to_be_bytes());
        Segment { kind, rows, bytes }
    }
}

/// Writes fields of a message, as the generated code does, without a copy of their values.
struct Fields<'b>(&'b mut Vec<u8>);

impl Fields<'_> {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7F {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, tag: u64, number: u64) {
        if number != 0 {
            self.varint(tag << 3);
            self.varint(number);
        }
    }

    fn bytes(&mut self, tag: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.varint((tag << 3) | 2);
            self.varint(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    fn message(&mut self, tag: u64, write: impl FnOnce(&mut Fields<'_>)) {
        self.varint((tag << 3) | 2);
        let begin = self.0.len();
        // Most lengths take one byte.
        self.0.push(0);
        write(self);
        let length = self.0.len() - begin - 1;
        if length <= 0x7F {
            self.0[begin] = length as u8;
        } else {
            let message = self.0.split_off(begin + 1);
            self.0.pop();
            self.varint(length as u64);
            self.0.extend(message);
        }
    }
}

const DIR: u32 = 0;
const USER: u32 = 1;
const GROUP: u32 = 2;

/// Adds `row`, which is of a kind of [`Kind::of`] and has no message in [`Draft::add`], to a batch.
fn add(batch: &mut Batch, row: Row) {
    match row {
        Row::Counter(counter, value) => batch.counters.push(m::Counter { key: counter.name().into(), value }),
        Row::SliceRef(id, size, refs) => batch.slice_refs.push(m::SliceRef { id, size, refs }),
        Row::Symlink(ino, target) => batch.symlinks.push(m::Symlink { inode: ino.0, target }),
        Row::Sustained(sid, ino) => match batch.sustained.last_mut() {
            Some(last) if last.sid == sid => last.inodes.push(ino.0),
            _ => batch.sustained.push(m::Sustained { sid, inodes: vec![ino.0] }),
        },
        Row::DelFile(ino, length, expire) => {
            batch.del_files.push(m::DelFile { inode: ino.0, length, expire });
        }
        Row::Xattr(ino, name, value) => {
            batch.xattrs.push(m::Xattr { inode: ino.0, name: name.to_vec().into(), value });
        }
        Row::Acl(id, rule) => batch.acls.push(m::Acl { id, data: rule.encode().into() }),
        Row::DirStat(ino, DirStat { length, space, inodes }) => {
            batch.stats.push(m::Stat { inode: ino.0, length, space, inodes });
        }
        Row::Quota(key, quota) => add_quota(batch, key, quota),
        Row::Parents(ino, parent, count) => {
            batch.parents.push(m::Parent { inode: ino.0, parent: parent.0, count });
        }
        _ => {}
    }
}

fn add_quota(batch: &mut Batch, key: QuotaKey, quota: Quota) {
    let (quotas, key, kind) = match key {
        QuotaKey::Dir(ino) => (&mut batch.dir_quotas, ino.0, DIR),
        QuotaKey::User(uid) => (&mut batch.user_quotas, u64::from(uid), USER),
        QuotaKey::Group(gid) => (&mut batch.group_quotas, u64::from(gid), GROUP),
    };
    let Quota { max_space, max_inodes, used_space, used_inodes } = quota;
    quotas.push(m::Quota { key, max_space, max_inodes, used_space, used_inodes, kind });
}

/// The records of a batch, in the order of the fields.
///
/// # Errors
/// The key of a record that breaks a rule of the format.
pub(super) fn rows(batch: Batch) -> Result<Vec<Row>, Key> {
    let mut rows = Vec::new();
    for counter in batch.counters {
        if let Some(known) = Counter::ALL.into_iter().find(|known| known.name() == counter.key)
            && in_dumps(known)
        {
            rows.push(Row::Counter(known, counter.value));
        }
    }
    for node in batch.nodes {
        let ino = Ino(node.inode);
        rows.push(Row::Node(ino, decode_attr(&node.data).ok_or(Key::Node(ino))?));
    }
    for edge in batch.edges {
        let (dir, name) = (Ino(edge.parent), Name::stored(&edge.name));
        let kind = u8::try_from(edge.kind).ok().and_then(FileType::from_code);
        let Some(kind) = kind else { return Err(Key::Entry(dir, name)) };
        rows.push(Row::Entry(dir, name, Entry { kind, ino: Ino(edge.inode) }));
    }
    for chunk in batch.chunks {
        let ino = Ino(chunk.inode);
        let slices = decode_slices(&chunk.slices).ok_or(Key::Chunk(ino, chunk.index))?;
        rows.push(Row::Chunk(ino, chunk.index, slices));
    }
    for acl in batch.acls {
        rows.push(Row::Acl(acl.id, AclRule::decode(&acl.data).ok_or(Key::Acl(acl.id))?));
    }
    for sustained in batch.sustained {
        rows.extend(sustained.inodes.into_iter().map(|ino| Row::Sustained(sustained.sid, Ino(ino))));
    }
    rows.extend(batch.slice_refs.into_iter().map(|slice| Row::SliceRef(slice.id, slice.size, slice.refs)));
    rows.extend(batch.symlinks.into_iter().map(|link| Row::Symlink(Ino(link.inode), link.target)));
    rows.extend(
        batch.del_files.into_iter().map(|file| Row::DelFile(Ino(file.inode), file.length, file.expire)),
    );
    rows.extend(
        batch
            .xattrs
            .into_iter()
            .map(|xattr| Row::Xattr(Ino(xattr.inode), Name::stored(&xattr.name), xattr.value)),
    );
    rows.extend(batch.stats.into_iter().map(|stat| {
        let m::Stat { inode, length, space, inodes } = stat;
        Row::DirStat(Ino(inode), DirStat { length, space, inodes })
    }));
    rows.extend(
        batch.parents.into_iter().map(|link| Row::Parents(Ino(link.inode), Ino(link.parent), link.count)),
    );
    let quotas = batch.dir_quotas.into_iter().chain(batch.user_quotas).chain(batch.group_quotas);
    rows.extend(quotas.map(|quota| {
        let m::Quota { key, max_space, max_inodes, used_space, used_inodes, kind } = quota;
        let key = match kind {
            USER => QuotaKey::User(key as u32),
            GROUP => QuotaKey::Group(key as u32),
            _ => QuotaKey::Dir(Ino(key)),
        };
        Row::Quota(key, Quota { max_space, max_inodes, used_space, used_inodes })
    }));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use sluice_types::{Attr, Slice, Time};

    use super::*;

    #[test]
    fn frequent_kinds_are_encoded_as_the_generated_code_does() {
        let slices = |count: u32| (0..count).map(|n| Slice::whole(n, u64::MAX, 9)).collect();
        let entry = |ino| Entry { kind: FileType::File, ino: Ino(ino) };
        let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time::default());
        let all = [
            vec![Row::Node(Ino(0), attr), Row::Node(Ino(u64::MAX), attr)],
            vec![
                Row::Entry(Ino(1), Name::stored(b"a"), entry(127)),
                Row::Entry(Ino(128), Name::stored(&[b'x'; 255]), entry(0)),
                Row::Entry(Ino(300), Name::stored(b""), entry(u64::MAX)),
            ],
            [0, 1, 5, 6, 1000].map(|count| Row::Chunk(Ino(7), count * 128, slices(count))).into(),
        ];
        for rows_of_kind in &all {
            let segments = Segment::of(rows_of_kind.clone());
            let [Segment { rows: count, bytes, .. }] = &segments[..] else { panic!("one segment") };
            assert_eq!(*count, rows_of_kind.len());
            let (head, message) = bytes.split_at(HEAD);
            assert_eq!(head[4..], (message.len() as u64).to_be_bytes());
            let batch = Batch::decode(message).expect("a message");
            assert!(batch.encode_to_vec() == message, "{rows_of_kind:?}");
            assert_eq!(rows(batch), Ok(rows_of_kind.clone()));
        }
        let mixed: Vec<Row> =
            (0..5).flat_map(|n| all.iter().filter_map(move |rows| rows.get(n))).cloned().collect();
        let segments = Segment::of(mixed);
        let kinds: Vec<(Kind, usize)> = segments.iter().map(|segment| (segment.kind, segment.rows)).collect();
        assert_eq!(kinds, [(Kind::Node, 2), (Kind::Edge, 3), (Kind::Chunk, 5)]);
    }
}
