//! Objects as fixed-size records, sorted by the block that the name of the object contains.

use sluice_data::{BlockKey, Layout, parse_name};
use sluice_meta::sort::Fields;
use sluice_object::ObjectMeta;

/// Bytes of an object's record: slice, block, size in the name, stored bytes.
const OBJECT: usize = 24;

/// An object: the block that it is named after, and its bytes.
pub(crate) type Object = (BlockKey, u64);

/// The block that a listed object is named after. What is not named as a block of this volume is
/// nobody's business.
pub(crate) fn block_of(object: &ObjectMeta, layout: Layout) -> Option<BlockKey> {
    parse_name(&object.key).filter(|block| layout.name(*block) == object.key)
}

/// An object as a record.
pub(crate) fn object_record((block, stored): Object) -> [u8; OBJECT] {
    let mut record = [0; OBJECT];
    record[..8].copy_from_slice(&block.id.to_be_bytes());
    record[8..12].copy_from_slice(&block.index.to_be_bytes());
    record[12..16].copy_from_slice(&block.size.to_be_bytes());
    record[16..].copy_from_slice(&stored.to_be_bytes());
    record
}

/// The object of a record.
pub(crate) fn object_of(record: &[u8]) -> Object {
    let mut fields = Fields(record);
    let block = BlockKey { id: fields.u64(), index: fields.u32(), size: fields.u32() };
    (block, fields.u64())
}

/// Whether a slice of `size` bytes, which has the id of `block`, needs exactly this block.
pub(crate) fn needs(size: u32, block: BlockKey, layout: Layout) -> bool {
    block.index < size.div_ceil(layout.block_size) && layout.block(block.id, size, block.index) == block
}
