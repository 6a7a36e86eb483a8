//! The messages of etcd's protocol that a volume needs, by the numbers of their fields
//! (etcdserverpb/rpc.proto). A `oneof` of the protocol has a field for each of its cases here.

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty [$($how:tt)*]),* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct $name { $(#[prost($($how)*)] pub(super) $field: $type),* }
    )*};
}

messages! {
    Header { revision: i64 [int64, tag = "3"] }
    KeyValue {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        mod_revision: i64 [int64, tag = "3"],
        value: Vec<u8> [bytes = "vec", tag = "5"]
    }
    RangeRequest {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        limit: i64 [int64, tag = "3"],
        revision: i64 [int64, tag = "4"],
        serializable: bool [bool, tag = "7"],
        keys_only: bool [bool, tag = "8"]
    }
    RangeResponse { kvs: Vec<KeyValue> [message, repeated, tag = "2"] }
    PutRequest { key: Vec<u8> [bytes = "vec", tag = "1"], value: Vec<u8> [bytes = "vec", tag = "2"] }
    DeleteRequest { key: Vec<u8> [bytes = "vec", tag = "1"], range_end: Vec<u8> [bytes = "vec", tag = "2"] }
    RequestOp {
        range: Option<RangeRequest> [message, optional, tag = "1"],
        put: Option<PutRequest> [message, optional, tag = "2"],
        delete: Option<DeleteRequest> [message, optional, tag = "3"],
        txn: Option<TxnRequest> [message, optional, tag = "4"]
    }
    #[doc = "Of what other operations than reads answer nothing is looked at."]
    ResponseOp { range: Option<RangeResponse> [message, optional, tag = "1"] }
    #[doc = "The revision is one of a choice: one of 0 is sent, too."]
    Compare {
        result: i32 [int32, tag = "1"],
        target: i32 [int32, tag = "2"],
        key: Vec<u8> [bytes = "vec", tag = "3"],
        mod_revision: Option<i64> [int64, optional, tag = "6"],
        range_end: Vec<u8> [bytes = "vec", tag = "64"]
    }
    TxnRequest {
        compare: Vec<Compare> [message, repeated, tag = "1"],
        success: Vec<RequestOp> [message, repeated, tag = "2"]
    }
    TxnResponse {
        header: Option<Header> [message, optional, tag = "1"],
        succeeded: bool [bool, tag = "2"],
        responses: Vec<ResponseOp> [message, repeated, tag = "3"]
    }
    AuthRequest { name: String [string, tag = "1"], password: String [string, tag = "2"] }
    AuthResponse { token: String [string, tag = "2"] }
    #[doc = "A range: all keys from one revision on."]
    WatchCreate {
        key: Vec<u8> [bytes = "vec", tag = "1"],
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        start_revision: i64 [int64, tag = "3"]
    }
    WatchRequest { create: Option<WatchCreate> [message, optional, tag = "1"] }
    #[doc = "Of kind 0 for a new value, 1 for none."]
    Event { kind: i32 [int32, tag = "1"], kv: Option<KeyValue> [message, optional, tag = "2"] }
    #[doc = "With a revision of compaction: what is older cannot be heard any more."]
    WatchResponse {
        canceled: bool [bool, tag = "4"],
        compact_revision: i64 [int64, tag = "5"],
        events: Vec<Event> [message, repeated, tag = "11"]
    }
}
