//! Expectations as checks of the script.
//!
//! A check must hold exactly when the record equals the expected one, in all its possible
//! encodings.

use sluice_meta::{
    engine::{Hold, List},
    schema::{Key, Row, encode_attr},
};
use smallvec::SmallVec;

use super::arguments::{Action, Builder, Mark, Phase};
use crate::{
    codec::{Shape, encode},
    keys::{Text, number},
};

impl Builder<'_> {
    /// The collection has the same records.
    pub(super) fn same(&mut self, list: List, rows: &[Row], mark: Mark) {
        let Some(hash) = self.keys.list(list) else { return };
        self.has_fields(&hash, rows.len(), mark);
        for row in rows {
            self.expect_row(row, Hold::Lock, mark);
        }
    }

    /// The hash has exactly this many fields.
    pub(super) fn has_fields(&mut self, hash: &Text, count: usize, mark: Mark) {
        self.checked.insert(hash.clone());
        self.item(Phase::Check, *b"ve", &[hash], &[&number(count)], mark);
    }

    /// The quota, if there is one, admits so many more bytes and inodes.
    pub(super) fn room(&mut self, key: &Key, [space, inodes]: [i64; 2], mark: Mark) {
        let cells = self.keys.cells(key);
        let head: SmallVec<[&[u8]; 3]> = cells.iter().map(|cell| &cell.key[..]).collect();
        let args: [&[u8]; 3] = [&cells[0].field, &number(space), &number(inodes)];
        self.item(Phase::Check, *b"qe", &head, &args, mark);
    }

    pub(super) fn expect_row(&mut self, row: &Row, hold: Hold, mark: Mark) {
        if let Row::Node(ino, attr) = row {
            let op = if hold == Hold::Guard { *b"ng" } else { *b"nl" };
            let node = self.keys.node(*ino);
            return self.item(Phase::Check, op, &[], &[&node, &encode_attr(attr)], mark);
        }
        for (at, (cell, value)) in self.keys.cells(&row.key()).iter().zip(encode(row)).enumerate() {
            // A number after the first may be missing if it is 0.
            let optional = at > 0 && cell.shape == Shape::Number;
            match value.filter(|value| !(optional && value == b"0")) {
                Some(value) => self.cell(Action::Equal, cell, Some(&value), mark),
                None => self.cell(Action::Absent, cell, None, mark),
            }
        }
    }
}
