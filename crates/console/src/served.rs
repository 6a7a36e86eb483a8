//! Reads what the members of cache groups served, from their metrics.

use std::collections::BTreeMap;

use sluice_meta::{Interrupt, Meta};
use sluice_types::{Clock as _, FsResult, SystemClock};
use tokio::{runtime::Builder, task::JoinSet};

use crate::{
    clients,
    exposition::{Counts, Number},
    group, scrape,
};

/// Members that are asked at the same time.
const AT_ONCE: usize = 64;

/// What one member counted since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Bytes in its cache now.
    pub cache_bytes: u64,
    /// Bytes that it gave to other clients.
    pub served_bytes: u64,
    /// Requests of other clients that its cache answered.
    pub cached: u64,
    /// Requests of other clients for which it read the object store.
    pub read: u64,
}

impl Served {
    /// Share of the requests that the cache answered; `None` before the first request.
    pub fn hit_rate(&self) -> Option<f64> {
        let all = self.cached + self.read;
        (all > 0).then(|| self.cached as f64 / all as f64)
    }
}

impl From<&Counts> for Served {
    fn from(counts: &Counts) -> Self {
        let of = |number| counts.get(number) as u64;
        Self {
            cache_bytes: of(Number::CacheBytes),
            served_bytes: of(Number::ServedBytes),
            cached: of(Number::ServedCached),
            read: of(Number::ServedRead),
        }
    }
}

/// Asks all members of the cache groups of a volume for their metrics, by session. A member whose
/// metrics cannot be had comes with the reason. `here` is the name of this machine. Blocks, for
/// some seconds if members do not answer.
///
/// # Errors
/// Those of the metadata engine.
///
/// # Panics
/// In a thread of a tokio runtime.
pub fn served(
    meta: &Meta,
    here: &str,
    interrupt: &Interrupt,
) -> FsResult<BTreeMap<u64, Result<Served, String>>> {
    let members = group::read(meta, interrupt)?.members;
    let clients = clients::read(meta, usize::MAX, SystemClock.now().sec, interrupt)?.known;
    let mut found = BTreeMap::new();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let reason = format!("nobody could be asked: {error}");
            return Ok(members.iter().map(|member| (member.session, Err(reason.clone()))).collect());
        }
    };
    let volume = meta.env().format().name.clone();
    runtime.block_on(async {
        let mut asked = JoinSet::new();
        for client in clients {
            if !members.iter().any(|member| member.session == client.session) {
                continue;
            }
            if asked.len() >= AT_ONCE {
                found.extend(asked.join_next().await.into_iter().flatten());
            }
            let (volume, here) = (volume.clone(), here.to_owned());
            asked.spawn(async move {
                let counts = scrape::ask(&client, &volume, &here).await;
                (client.session, counts.map(|counts| Served::from(&counts)))
            });
        }
        found.extend(asked.join_all().await);
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_hit_rate_is_that_of_the_requests_of_others() {
        let text = "juicefs_blockcache_bytes{vol_name=\"v\",mp=\"/m\"} 4096\n\
                    juicefs_blockcache_hits{vol_name=\"v\",mp=\"/m\"} 1000\n\
                    sluice_group_served_cached_total{vol_name=\"v\",mp=\"/m\"} 30\n\
                    sluice_group_served_read_total{vol_name=\"v\",mp=\"/m\"} 10\n\
                    sluice_group_served_bytes_total{vol_name=\"v\",mp=\"/m\"} 70000\n";
        let served = Served::from(&Counts::parse(text, Instant::now()));
        assert_eq!(served, Served { cache_bytes: 4096, served_bytes: 70_000, cached: 30, read: 10 });
        assert_eq!(served.hit_rate(), Some(0.75));
        assert_eq!(Served::default().hit_rate(), None);
    }
}
