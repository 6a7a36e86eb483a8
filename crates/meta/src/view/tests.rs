//! What a batch makes of answers that do not belong to one state.

use std::sync::Arc;

use sluice_types::{FileType, Ino, Name, SystemClock};

use super::Batch;
use crate::{
    engine::{Found, Hold, Read},
    env::Env,
    schema::{Entry, Key, Row, VolumeFormat},
};

const FILE: Ino = Ino(7);

/// The reads of one trip: of a name whose node is missing, and of the node, in this order or in the
/// other one.
fn trip(node_first: bool) -> (Vec<Read>, Vec<Found>, Row) {
    let name = Name::stored(b"name");
    let entry = Row::Entry(Ino(2), name.clone(), Entry { kind: FileType::File, ino: FILE });
    let follow = (Read::Follow(Ino(2), name), Found::Rows(vec![entry.clone()]));
    let get = (Read::Get(Key::Node(FILE)), Found::Row(None));
    let both = if node_first { [get, follow] } else { [follow, get] };
    let (reads, found) = both.into_iter().unzip();
    (reads, found, entry)
}

#[test]
fn a_missing_node_is_looked_for_again_whoever_else_missed_it() {
    let env = Env::new(1, Arc::new(SystemClock), VolumeFormat::default());
    for node_first in [false, true] {
        for hold in [Hold::None, Hold::Lock] {
            let (reads, found, entry) = trip(node_first);
            let mut batch = Batch::new(&env);
            batch.learn((reads, vec![hold; 2]), found);
            assert_eq!(batch.dangling(), [Read::Get(entry.key())]);
            // Somebody removed the name and then the node.
            assert_eq!(batch.recheck_dangling(&[Found::Row(None)]), [entry.key()]);
        }
    }
}
