//! Counts unauthenticated connections for each client address.
//!
//! What must stay true: the number for one address is limited, so that one address cannot take all
//! places.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Most unauthenticated connections of one address. Clients behind a gateway have one address
/// together, and an authentication takes a few milliseconds.
const EACH: usize = 128;

/// How many unauthenticated connections each address has.
#[derive(Debug, Default)]
pub(crate) struct Unauthenticated(Mutex<FxHashMap<IpAddr, usize>>);

/// One unauthenticated connection, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct UnauthenticatedConnection {
    all: Arc<Unauthenticated>,
    from: IpAddr,
}

impl Unauthenticated {
    /// One more connection; `None` if its address has too many.
    pub(crate) fn one(self: &Arc<Self>, from: IpAddr) -> Option<UnauthenticatedConnection> {
        let from = subscriber(from);
        let mut addresses = self.0.lock();
        let count = addresses.entry(from).or_default();
        if *count >= EACH {
            return None;
        }
        *count += 1;
        Some(UnauthenticatedConnection { all: Arc::clone(self), from })
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        let mut addresses = self.all.0.lock();
        if let Some(count) = addresses.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.from);
            }
        }
    }
}

/// What is counted as one address: of IPv6, the network of 64 bits, because one subscriber has all
/// of it.
fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_what_ends_is_forgotten() {
        let all = Arc::new(Unauthenticated::default());
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut held: Vec<_> = (0..EACH).map(|_| all.one(address("10.0.0.1")).expect("room")).collect();
        assert!(all.one(address("10.0.0.1")).is_none() && all.one(address("::ffff:10.0.0.1")).is_none());
        assert!(all.one(address("10.0.0.2")).is_some());
        held.pop();
        held.push(all.one(address("10.0.0.1")).expect("one has ended"));
        let network: Vec<_> = (0..EACH).map(|host| all.one(address(&format!("fd00::{host:x}")))).collect();
        assert!(network.iter().all(Option::is_some) && all.one(address("fd00::ffff:1")).is_none());
        assert!(all.one(address("fd00:0:0:1::1")).is_some());
        drop((held, network));
        assert!(all.0.lock().is_empty());
    }
}
