//! The locks of a file: one value holds those of all owners.
//!
//! Each record of one owner is a part of the value. The order of the owners does not change; a new
//! owner is appended.

use sluice_meta::{
    engine::List,
    schema::{FlockKind, Key, LockOwner, Row, decode_plocks, encode_plocks},
};

use crate::{
    parts::Part,
    stored::{Damage, Raw},
};

/// The collection that holds a lock; `None` for all other records.
pub(crate) fn collection(key: &Key) -> Option<List> {
    match key {
        Key::Flock(ino, _) => Some(List::Flocks(*ino)),
        Key::Plock(ino, _) => Some(List::Plocks(*ino)),
        _ => None,
    }
}

/// BSD locks: session, owner, `R` or `W`. POSIX locks: session, owner, length of the records, the
/// records.
pub(crate) fn decode(list: List, mut value: &[u8]) -> Result<Vec<Row>, Damage> {
    let mut locks = Vec::new();
    while !value.is_empty() {
        locks.push(one(list, &mut value).ok_or("no list of locks")?);
    }
    Ok(locks)
}

fn one(list: List, value: &mut &[u8]) -> Option<Row> {
    let owner = LockOwner { sid: u64::read(value)?, owner: u64::read(value)? };
    match list {
        List::Flocks(ino) => Some(Row::Flock(ino, owner, FlockKind::from_code(u8::read(value)?)?)),
        List::Plocks(ino) => {
            let length = u32::read(value)? as usize;
            Some(Row::Plock(ino, owner, decode_plocks(value.split_off(..length)?)?))
        }
        _ => None,
    }
}

/// The value that holds these locks.
pub(crate) fn encode(locks: &[Row]) -> Raw {
    let mut value = Vec::new();
    for lock in locks {
        let (Row::Flock(_, owner, _) | Row::Plock(_, owner, _)) = lock else { continue };
        owner.sid.write(&mut value);
        owner.owner.write(&mut value);
        match lock {
            Row::Plock(_, _, ranges) => {
                let ranges = encode_plocks(ranges);
                (ranges.len() as u32).write(&mut value);
                value.extend(ranges);
            }
            Row::Flock(_, _, kind) => kind.code().write(&mut value),
            _ => {}
        }
    }
    value
}
