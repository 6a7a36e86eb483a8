//! Expectations as checks of the script.
//!
//! A check must hold exactly when the record reads as it was expected, however its absence or its
//! text may be spelled.

use sluice_meta::{
    engine::{Hold, List},
    schema::{Key, Row, encode_attr},
};

use super::arguments::{Builder, Mark, Phase};
use crate::{
    codec::{Cell, encode},
    keys::number,
};

impl Builder<'_> {
    /// As many records as there were, and each as it was.
    pub(super) fn same(&mut self, list: List, rows: &[Row], mark: Mark) {
        let hash = match list {
            List::Flocks(ino) => self.keys.flocks(ino),
            List::Plocks(ino) => self.keys.plocks(ino),
            List::Xattrs(ino) => self.keys.xattrs(ino),
            // The contract knows no other.
            _ => return,
        };
        self.checked.insert(hash.clone());
        self.item(Phase::Check, "ve", Some(&hash), &[&number(rows.len() as u64)], mark);
        for row in rows {
            self.expect_row(row, Hold::Lock, mark);
        }
    }

    pub(super) fn expect_row(&mut self, row: &Row, hold: Hold, mark: Mark) {
        let key = row.key();
        if let Row::Node(ino, attr) = row {
            let op = if hold == Hold::Guard { "ng" } else { "nl" };
            let node = self.keys.node(*ino);
            return self.item(Phase::Check, op, None, &[&node, &encode_attr(attr)], mark);
        }
        let values = encode(row);
        for (at, (cell, value)) in self.keys.cells(&key).iter().zip(values).enumerate() {
            // A number beside the first may be missing where it would be 0.
            let optional = match key {
                Key::Quota(_) => at > 0,
                Key::DirStat(_) => at == 2,
                _ => false,
            };
            match value {
                Some(value) if optional && value == b"0" => self.absent_field(cell, "ka", mark),
                Some(value) => self.equal(cell, &key, &value, mark),
                None if at == 0 => self.absent(&key, mark),
                None => self.absent_field(cell, "ha", mark),
            }
        }
    }

    pub(super) fn equal(&mut self, cell: &Cell, key: &Key, value: &[u8], mark: Mark) {
        self.checked.insert(cell.container().clone());
        let check = Phase::Check;
        match cell {
            Cell::Str(name) if matches!(key, Key::Counter(_)) => {
                self.item(check, "ce", None, &[name, value], mark);
            }
            Cell::Str(name) => self.item(check, "se", None, &[name, value], mark),
            Cell::Field(hash, field) => self.item(check, "he", Some(hash), &[field, value], mark),
            Cell::Score(set, member) => self.item(check, "ze", Some(set), &[value, member], mark),
            Cell::Member(set, member) => self.item(check, "te", Some(set), &[member], mark),
            Cell::List(name) => self.item(check, "le", None, &[name, value], mark),
        }
    }

    pub(super) fn absent(&mut self, key: &Key, mark: Mark) {
        let cells = self.keys.cells(key);
        match &cells[0] {
            Cell::Str(name) | Cell::List(name) => self.item(Phase::Check, "sa", None, &[name], mark),
            Cell::Score(set, member) => {
                self.checked.insert(set.clone());
                self.item(Phase::Check, "za", Some(set), &[member], mark);
            }
            Cell::Member(set, member) => {
                self.checked.insert(set.clone());
                self.item(Phase::Check, "ta", Some(set), &[member], mark);
            }
            cell @ Cell::Field(..) => self.absent_field(cell, lenient(key, ["ha", "ka", "pa"]), mark),
        }
    }

    pub(super) fn absent_field(&mut self, cell: &Cell, op: &'static str, mark: Mark) {
        if let Cell::Field(hash, field) = cell {
            self.checked.insert(hash.clone());
            self.item(Phase::Check, op, Some(hash), &[field], mark);
        }
    }
}

/// Which of three operations: the strict one, the one for which a stored 0 is as good as nothing,
/// or the one for which all below is too.
pub(super) fn lenient(key: &Key, ops: [&'static str; 3]) -> &'static str {
    match key {
        Key::SliceRef(..) => ops[1],
        Key::Parents(..) => ops[2],
        _ => ops[0],
    }
}
