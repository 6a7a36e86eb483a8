//! The keys and values of a volume as they are stored, by a client that knows no volume.

use std::collections::BTreeMap;

use tikv_client::TransactionClient;
use tokio::runtime::Runtime;

/// A client of the cluster.
pub(crate) struct Raw {
    runtime: Runtime,
    client: TransactionClient,
    /// What all keys of the volume begin with.
    prefix: Vec<u8>,
}

impl Raw {
    /// For the volume that `url` names.
    pub(crate) fn new(url: &str) -> Self {
        let (host, prefix) = url.trim_start_matches("tikv://").split_once('/').expect("a prefix");
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(TransactionClient::new(vec![host])).expect("the servers are up");
        Self { runtime, client, prefix: [prefix.as_bytes(), &[0xFD]].concat() }
    }

    /// Writes pairs, keys without the prefix.
    pub(crate) fn put(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        self.runtime.block_on(async {
            let mut txn = self.client.begin_optimistic().await.expect("begin");
            for (key, value) in pairs {
                txn.put([&self.prefix[..], key].concat(), value.clone()).await.expect("put");
            }
            txn.commit().await.expect("commit");
        });
    }

    /// All pairs, keys without the prefix.
    pub(crate) fn all(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.runtime.block_on(async {
            let mut txn = self.client.begin_optimistic().await.expect("begin");
            let end = [&self.prefix[..self.prefix.len() - 1], &[0xFE]].concat();
            let pairs = txn.scan(self.prefix.clone()..end, 100_000).await.expect("scan");
            let strip = |key: tikv_client::Key| Vec::from(key)[self.prefix.len()..].to_vec();
            let all = pairs.map(|pair| (strip(pair.0), pair.1)).collect();
            txn.rollback().await.expect("nothing was written");
            all
        })
    }
}
