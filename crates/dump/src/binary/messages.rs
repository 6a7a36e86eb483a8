//! The messages of a binary dump, by the numbers of their fields.

#![allow(clippy::struct_field_names, reason = "the names are the format's")]

macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty [$($how:tt)*]),* })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct $name { $(#[prost($($how)*)] pub(super) $field: $type),* }
    )*};
}

messages! {
    Format { data: Bytes [bytes = "bytes", tag = "1"] }
    Counter { key: String [string, tag = "1"], value: i64 [int64, tag = "2"] }
    Sustained { sid: u64 [uint64, tag = "1"], inodes: Vec<u64> [uint64, repeated, tag = "2"] }
    DelFile {
        inode: u64 [uint64, tag = "1"],
        length: u64 [uint64, tag = "2"],
        expire: i64 [int64, tag = "3"]
    }
    SliceRef { id: u64 [uint64, tag = "1"], size: u32 [uint32, tag = "2"], refs: i64 [int64, tag = "3"] }
    Acl { id: u32 [uint32, tag = "1"], data: Bytes [bytes = "bytes", tag = "2"] }
    Xattr {
        inode: u64 [uint64, tag = "1"],
        name: Bytes [bytes = "bytes", tag = "2"],
        value: Bytes [bytes = "bytes", tag = "3"]
    }
    Quota {
        key: u64 [uint64, tag = "1"],
        max_space: i64 [int64, tag = "2"],
        max_inodes: i64 [int64, tag = "3"],
        used_space: i64 [int64, tag = "4"],
        used_inodes: i64 [int64, tag = "5"],
        kind: u32 [uint32, tag = "6"]
    }
    Stat {
        inode: u64 [uint64, tag = "1"],
        length: i64 [int64, tag = "2"],
        space: i64 [int64, tag = "3"],
        inodes: i64 [int64, tag = "4"]
    }
    Node { inode: u64 [uint64, tag = "1"], data: Bytes [bytes = "bytes", tag = "2"] }
    Edge {
        parent: u64 [uint64, tag = "1"],
        inode: u64 [uint64, tag = "2"],
        name: Bytes [bytes = "bytes", tag = "3"],
        kind: u32 [uint32, tag = "4"]
    }
    Parent {
        inode: u64 [uint64, tag = "1"],
        parent: u64 [uint64, tag = "2"],
        count: i64 [int64, tag = "3"]
    }
    Chunk {
        inode: u64 [uint64, tag = "1"],
        index: u32 [uint32, tag = "2"],
        slices: Bytes [bytes = "bytes", tag = "3"]
    }
    Symlink { inode: u64 [uint64, tag = "1"], target: Bytes [bytes = "bytes", tag = "2"] }
    ChangeLog { version: i64 [int64, tag = "1"], entry: Bytes [bytes = "bytes", tag = "2"] }
    Batch {
        nodes: Vec<Node> [message, repeated, tag = "1"],
        edges: Vec<Edge> [message, repeated, tag = "2"],
        chunks: Vec<Chunk> [message, repeated, tag = "3"],
        slice_refs: Vec<SliceRef> [message, repeated, tag = "4"],
        xattrs: Vec<Xattr> [message, repeated, tag = "5"],
        parents: Vec<Parent> [message, repeated, tag = "6"],
        symlinks: Vec<Symlink> [message, repeated, tag = "7"],
        sustained: Vec<Sustained> [message, repeated, tag = "8"],
        del_files: Vec<DelFile> [message, repeated, tag = "9"],
        stats: Vec<Stat> [message, repeated, tag = "10"],
        dir_quotas: Vec<Quota> [message, repeated, tag = "11"],
        acls: Vec<Acl> [message, repeated, tag = "12"],
        counters: Vec<Counter> [message, repeated, tag = "13"],
        change_logs: Vec<ChangeLog> [message, repeated, tag = "14"],
        user_quotas: Vec<Quota> [message, repeated, tag = "15"],
        group_quotas: Vec<Quota> [message, repeated, tag = "16"]
    }
    Segments { offsets: Vec<u64> [uint64, repeated, tag = "1"], count: u64 [uint64, tag = "2"] }
    Footer {
        magic: u32 [uint32, tag = "1"],
        version: u32 [uint32, tag = "2"],
        kinds: BTreeMap<String, Segments> [btree_map = "string, message", tag = "3"]
    }
}

use std::collections::BTreeMap;

use bytes::Bytes;
