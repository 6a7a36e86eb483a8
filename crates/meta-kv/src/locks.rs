//! The locks of a file: one value holds those of all owners.
//!
//! Records of one owner are read and written through it; the owners keep their order, new ones come
//! last.

use sluice_meta::schema::{FlockKind, LockOwner, PlockRange, decode_plocks, encode_plocks};

use crate::stored::Damage;

/// BSD locks: session, owner, `R` or `W`, 17 bytes each.
pub(crate) fn decode_flocks(bytes: &[u8]) -> Result<Vec<(LockOwner, FlockKind)>, Damage> {
    let (records, rest) = bytes.as_chunks::<17>();
    if !rest.is_empty() {
        return Err("no list of 17-byte lock records");
    }
    let one = |record: &[u8; 17]| {
        let kind = FlockKind::from_code(record[16]).ok_or("no lock kind")?;
        Ok((owner(record), kind))
    };
    records.iter().map(one).collect()
}

pub(crate) fn encode_flocks(locks: &[(LockOwner, FlockKind)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(17 * locks.len());
    for (owner, kind) in locks {
        out.extend(owner.sid.to_be_bytes());
        out.extend(owner.owner.to_be_bytes());
        out.push(kind.code());
    }
    out
}

/// POSIX locks: session, owner, length of the records, the records.
pub(crate) fn decode_all_plocks(mut bytes: &[u8]) -> Result<Vec<(LockOwner, Vec<PlockRange>)>, Damage> {
    let mut locks = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_first_chunk::<20>().ok_or("a lock's head is cut off")?;
        let length = u32::from_be_bytes([head[16], head[17], head[18], head[19]]) as usize;
        let (ranges, rest) = rest.split_at_checked(length).ok_or("a list of locks is cut off")?;
        locks.push((owner(head), decode_plocks(ranges).ok_or("no list of 24-byte lock records")?));
        bytes = rest;
    }
    Ok(locks)
}

pub(crate) fn encode_all_plocks(locks: &[(LockOwner, Vec<PlockRange>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (owner, ranges) in locks {
        let ranges = encode_plocks(ranges);
        out.extend(owner.sid.to_be_bytes());
        out.extend(owner.owner.to_be_bytes());
        out.extend((ranges.len() as u32).to_be_bytes());
        out.extend(ranges);
    }
    out
}

fn owner<const N: usize>(record: &[u8; N]) -> LockOwner {
    let half = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&record[at..at + 8]);
        u64::from_be_bytes(word)
    };
    LockOwner { sid: half(0), owner: half(8) }
}

/// Sets what one owner has in a list, or removes it.
pub(crate) fn set<T>(locks: &mut Vec<(LockOwner, T)>, owner: LockOwner, value: Option<T>) {
    match (locks.iter().position(|(of, _)| *of == owner), value) {
        (Some(at), Some(value)) => locks[at].1 = value,
        (None, Some(value)) => locks.push((owner, value)),
        (Some(at), None) => drop(locks.remove(at)),
        (None, None) => {}
    }
}
