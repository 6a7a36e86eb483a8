//! A change notification to other clients, and its encoding.
//!
//! Only Sluice uses this encoding. Other programs of the volume format ignore it. What must stay
//! true: if a notification cannot be decoded (from a newer client), the receiver assumes that
//! anything may have changed.

use bytes::Bytes;
use sluice_types::{Ino, Name};

use super::writer::WriterId;

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A lock on this file was released or weakened: waiters should try again.
    Lock(Ino),
    /// Attributes of this inode, or it is gone.
    Node(Ino),
    /// What this name in this directory stands for.
    Entry(Ino, Name),
    /// Any name in this directory.
    Names(Ino),
    /// Anything may have changed.
    Any,
}

/// What a commit changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Who committed, 0 if nobody says.
    pub writer: WriterId,
    /// In which lane.
    pub lane: u16,
    /// Number of the commit in that lane. Numbers follow each other, so that a listener knows what
    /// it missed.
    pub n: u64,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// Longest list of changes in bytes; beyond it names are told by their directories, then nothing
/// but that something changed. Twice as many characters fit into a message of every engine.
const LONGEST: usize = 3072;

impl Notice {
    /// Told by nobody in particular.
    pub fn anonymous(changes: Vec<Change>) -> Self {
        Self { writer: 0, lane: 0, n: 0, changes }
    }

    /// Something happened, and nobody knows what.
    pub fn anything() -> Self {
        Self::anonymous(vec![Change::Any])
    }

    /// The bytes of a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        put(&mut out, self.writer);
        put(&mut out, self.lane.into());
        put(&mut out, self.n);
        out.extend(encode_changes(&self.changes));
        out
    }

    /// What the bytes of a message say.
    pub fn decode(bytes: &[u8]) -> Self {
        let rest = &mut &*bytes;
        let head = (|| Some((take(rest)?, u16::try_from(take(rest)?).ok()?, take(rest)?)))();
        let Some((writer, lane, n)) = head else { return Self::anything() };
        Self { writer, lane, n, changes: decode_changes(rest) }
    }
}

/// The bytes of a list of changes, at most 3 KiB of them: what is told of a long list is coarser.
pub fn encode_changes(changes: &[Change]) -> Vec<u8> {
    let out = encode_all(changes);
    if out.len() <= LONGEST {
        return out;
    }
    let mut coarse: Vec<Change> = changes.iter().map(coarser).collect();
    coarse.sort_unstable_by_key(|change| match change {
        Change::Names(ino) => (0, ino.0),
        Change::Node(ino) => (1, ino.0),
        Change::Lock(ino) => (2, ino.0),
        Change::Entry(..) | Change::Any => (3, 0),
    });
    coarse.dedup();
    let out = encode_all(&coarse);
    if out.len() <= LONGEST { out } else { encode_all(&[Change::Any]) }
}

fn coarser(change: &Change) -> Change {
    if let Change::Entry(dir, _) = change { Change::Names(*dir) } else { change.clone() }
}

fn encode_all(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 * changes.len());
    for change in changes {
        let (tag, ino) = match change {
            Change::Lock(ino) => (b'l', ino.0),
            Change::Node(ino) => (b'n', ino.0),
            Change::Entry(dir, _) => (b'e', dir.0),
            Change::Names(dir) => (b'd', dir.0),
            Change::Any => (b'*', 0),
        };
        out.push(tag);
        put(&mut out, ino);
        if let Change::Entry(_, name) = change {
            put(&mut out, name.len() as u64);
            out.extend_from_slice(name);
        }
    }
    out
}

/// The changes that `bytes` list. What cannot be understood may be anything.
pub fn decode_changes(bytes: &[u8]) -> Vec<Change> {
    let rest = &mut &*bytes;
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let Some(change) = decode_one(rest) else { return vec![Change::Any] };
        changes.push(change);
    }
    changes
}

fn decode_one(rest: &mut &[u8]) -> Option<Change> {
    let (tag, after) = rest.split_first()?;
    *rest = after;
    let ino = Ino(take(rest)?);
    Some(match tag {
        b'l' => Change::Lock(ino),
        b'n' => Change::Node(ino),
        b'd' => Change::Names(ino),
        b'*' => Change::Any,
        b'e' => {
            let length = usize::try_from(take(rest)?).ok()?;
            let (name, after) = rest.split_at_checked(length)?;
            *rest = after;
            Change::Entry(ino, Name::stored(&Bytes::copy_from_slice(name)))
        }
        _ => return None,
    })
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dir: u64, name: &str) -> Change {
        Change::Entry(Ino(dir), Name::new(name.as_bytes()).expect("a name"))
    }

    #[test]
    fn what_is_told_comes_back() {
        let changes = vec![
            Change::Lock(Ino(0)),
            Change::Node(Ino(u64::MAX)),
            entry(128, &"é".repeat(100)),
            entry(1, "x"),
            Change::Names(Ino(300)),
            Change::Any,
        ];
        let notice = Notice { writer: 1 << 40, lane: u16::MAX, n: u64::MAX, changes };
        assert_eq!(Notice::decode(&notice.encode()), notice);
        let nothing = Notice { changes: Vec::new(), ..notice };
        assert_eq!(Notice::decode(&nothing.encode()), nothing);
    }

    #[test]
    fn a_long_list_is_told_by_directory() {
        let long = |dirs: u64| -> Vec<Change> {
            (0..5000)
                .flat_map(|at| [entry(at % dirs, &format!("n{at}")), Change::Node(Ino(at % dirs))])
                .collect()
        };
        let notice = decode_changes(&encode_changes(&long(2)));
        assert_eq!(
            notice,
            [0, 1]
                .map(Ino)
                .map(Change::Names)
                .into_iter()
                .chain([0, 1].map(Ino).map(Change::Node))
                .collect::<Vec<_>>()
        );
        assert_eq!(decode_changes(&encode_changes(&long(2500))), [Change::Any]);
    }

    #[test]
    fn what_is_not_understood_may_be_anything() {
        let mut bytes = encode_changes(&[entry(7, "name"), Change::Node(Ino(300))]);
        for length in 0..bytes.len() {
            let heard = decode_changes(&bytes[..length]);
            assert!([0, 7].contains(&length) || heard == [Change::Any], "{length}: {heard:?}");
        }
        bytes[0] = b'?';
        assert_eq!(decode_changes(&bytes), [Change::Any]);
        assert_eq!(Notice::decode(&[0x80; 30]), Notice::anything());
    }
}
