//! The messages of TiKV's protocol that these requests need, by the numbers of their fields
//! (kvproto: pdpb.proto, metapb.proto, kvrpcpb.proto). Errors stay encoded: only whether there is
//! one counts.

macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty [$($how:tt)*]),* })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name { $(#[prost($($how)*)] pub(crate) $field: $type),* }
    )*};
}

messages! {
    RequestHeader { cluster_id: u64 [uint64, tag = "1"] }
    ResponseHeader { cluster_id: u64 [uint64, tag = "1"] }
    GetMembersRequest {}
    Member { client_urls: Vec<String> [string, repeated, tag = "4"] }
    GetMembersResponse {
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        leader: Option<Member> [message, optional, tag = "3"]
    }
    GetRegionRequest {
        header: Option<RequestHeader> [message, optional, tag = "1"],
        region_key: Vec<u8> [bytes = "vec", tag = "2"]
    }
    GetRegionResponse {
        region: Option<Region> [message, optional, tag = "2"],
        leader: Option<Peer> [message, optional, tag = "3"]
    }
    Region {
        id: u64 [uint64, tag = "1"],
        start_key: Vec<u8> [bytes = "vec", tag = "2"],
        end_key: Vec<u8> [bytes = "vec", tag = "3"],
        epoch: Option<RegionEpoch> [message, optional, tag = "4"]
    }
    RegionEpoch { conf_ver: u64 [uint64, tag = "1"], version: u64 [uint64, tag = "2"] }
    Peer {
        id: u64 [uint64, tag = "1"],
        store_id: u64 [uint64, tag = "2"],
        role: i32 [int32, tag = "3"],
        is_witness: bool [bool, tag = "4"]
    }
    GetStoreRequest {
        header: Option<RequestHeader> [message, optional, tag = "1"],
        store_id: u64 [uint64, tag = "2"]
    }
    GetStoreResponse { store: Option<Store> [message, optional, tag = "2"] }
    Store { address: String [string, tag = "2"] }
    Context {
        region_id: u64 [uint64, tag = "1"],
        region_epoch: Option<RegionEpoch> [message, optional, tag = "2"],
        peer: Option<Peer> [message, optional, tag = "3"]
    }
    ScanRequest {
        context: Option<Context> [message, optional, tag = "1"],
        start_key: Vec<u8> [bytes = "vec", tag = "2"],
        limit: u32 [uint32, tag = "3"],
        version: u64 [uint64, tag = "4"],
        key_only: bool [bool, tag = "5"],
        end_key: Vec<u8> [bytes = "vec", tag = "7"]
    }
    KvPair {
        error: Option<Vec<u8>> [bytes = "vec", optional, tag = "1"],
        key: Vec<u8> [bytes = "vec", tag = "2"],
        value: Vec<u8> [bytes = "vec", tag = "3"]
    }
    ScanResponse {
        region_error: Option<Vec<u8>> [bytes = "vec", optional, tag = "1"],
        pairs: Vec<KvPair> [message, repeated, tag = "2"],
        error: Option<Vec<u8>> [bytes = "vec", optional, tag = "3"]
    }
    Prewrite {
        context: Option<Context> [message, optional, tag = "1"],
        primary_lock: Vec<u8> [bytes = "vec", tag = "3"],
        start_version: u64 [uint64, tag = "4"],
        lock_ttl: u64 [uint64, tag = "5"],
        txn_size: u64 [uint64, tag = "8"],
        try_one_pc: bool [bool, tag = "13"]
    }
    PrewriteResponse {
        region_error: Option<Vec<u8>> [bytes = "vec", optional, tag = "1"],
        errors: Vec<Vec<u8>> [bytes = "vec", repeated, tag = "2"],
        one_pc_commit_ts: u64 [uint64, tag = "4"]
    }
}
