//! The request to store rows: it encodes them where they are, without copies of them.

use std::{ops::Range, sync::Arc};

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType, bytes, encode_key, encode_varint, encoded_len_varint, skip_field},
};

use crate::wire::Prewrite;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The field of the rows in the request, and those of a row. Its first field is absent: the row is
/// put.
const MUTATIONS: u32 = 2;
const KEY: u32 = 2;
const VALUE: u32 = 3;

/// The first phase of a transaction, which puts rows.
#[derive(Debug)]
pub(crate) struct PrewriteRows {
    /// All but the rows.
    pub(crate) head: Prewrite,
    pub(crate) pairs: Arc<Vec<Pair>>,
    /// Which of the pairs.
    pub(crate) range: Range<usize>,
}

impl PrewriteRows {
    fn rows(&self) -> &[Pair] {
        &self.pairs[self.range.clone()]
    }
}

/// Length of an encoded row.
fn length((key, value): &Pair) -> usize {
    bytes::encoded_len(KEY, key) + bytes::encoded_len(VALUE, value)
}

impl Message for PrewriteRows {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.head.encode_raw(buf);
        for pair in self.rows() {
            encode_key(MUTATIONS, WireType::LengthDelimited, buf);
            encode_varint(length(pair) as u64, buf);
            bytes::encode(KEY, &pair.0, buf);
            bytes::encode(VALUE, &pair.1, buf);
        }
    }

    fn encoded_len(&self) -> usize {
        let row = |pair: &Pair| {
            let length = length(pair);
            // The number of the field is one byte.
            1 + encoded_len_varint(length as u64) + length
        };
        self.head.encoded_len() + self.rows().iter().map(row).sum::<usize>()
    }

    /// Nobody decodes it.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        self.range = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Mutation {
        #[prost(int32, tag = "1")]
        op: i32,
        #[prost(bytes = "vec", tag = "2")]
        key: Vec<u8>,
        #[prost(bytes = "vec", tag = "3")]
        value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Request {
        #[prost(message, repeated, tag = "2")]
        mutations: Vec<Mutation>,
        #[prost(bytes = "vec", tag = "3")]
        primary_lock: Vec<u8>,
        #[prost(uint64, tag = "4")]
        start_version: u64,
        #[prost(bool, tag = "13")]
        try_one_pc: bool,
    }

    #[test]
    fn rows_are_encoded_as_the_protocol_has_them() {
        let pair = |n: u8| (vec![b'k', n], vec![n; usize::from(n) * 50]);
        let pairs: Vec<Pair> = (0..9).map(pair).collect();
        let head = Prewrite {
            primary_lock: b"k\x02".to_vec(),
            start_version: 7,
            try_one_pc: true,
            ..Prewrite::default()
        };
        let sent = PrewriteRows { head, pairs: Arc::new(pairs.clone()), range: 2..8 };
        let encoded = sent.encode_to_vec();
        assert_eq!(encoded.len(), sent.encoded_len());
        let mutation = |(key, value): Pair| Mutation { op: 0, key, value };
        let wanted = Request {
            mutations: pairs[2..8].iter().cloned().map(mutation).collect(),
            primary_lock: b"k\x02".to_vec(),
            start_version: 7,
            try_one_pc: true,
        };
        assert_eq!(Request::decode(&encoded[..]), Ok(wanted));
    }
}
