//! Finds the server that takes the volume's writes, from sentinels or nodes of a cluster.
//!
//! What must stay true: their answers are used only until a server contradicts them. Each has a
//! deadline for its answer. A node with a wrong or no answer is asked last the next time. Of the
//! sentinels, the one that knows the latest failover decides. The others learn of it seconds later,
//! and until then report the old master, which may have come back without the newest writes, or
//! without any data.

use std::{collections::HashMap, io, thread, time::Duration};

use parking_lot::Mutex;
use redis::{Value, from_redis_value, from_redis_value_ref};
use sluice_meta::engine::EngineError;
use sluice_net::Address;

use crate::{config::Servers, dial::Dialer, error::named, pipeline::Pipeline};

/// Sentinels that do not answer are waited for only this part of the deadline, if another one
/// answers.
const SILENT: u32 = 5;

/// Finds the server.
pub(crate) struct Finder {
    /// The group of the sentinels.
    group: Option<String>,
    state: Mutex<State>,
}

struct State {
    /// The address of the server, if it is known.
    found: Option<Address>,
    /// The node that reported it, if one did.
    by: Option<Address>,
    /// The nodes to ask, the first one in front: those of the newest answer, and those of the URL.
    know: Vec<Address>,
    /// The nodes of the URL.
    seeds: Vec<Address>,
}

impl State {
    /// Moves a node to the end of the list.
    fn move_back(&mut self, address: &Address) {
        if let Some(at) = self.know.iter().position(|known| known == address) {
            self.know[at..].rotate_left(1);
        }
    }
}

impl Finder {
    /// A finder, and whether the servers are a cluster, if that is known.
    pub(crate) fn new(servers: &Servers) -> (Self, Option<bool>) {
        let (group, know, clustered) = match servers {
            Servers::One(address) => (None, vec![address.clone()], None),
            Servers::Sentinel { group, sentinels } => (Some(group.clone()), sentinels.clone(), Some(false)),
            Servers::Cluster(nodes) => (None, nodes.clone(), Some(true)),
        };
        let state = State { found: None, by: None, seeds: know.clone(), know };
        (Self { group, state: Mutex::new(state) }, clustered)
    }

    /// A server contradicted, or its connection broke: another server may have taken over, and the
    /// node that reported the address may be wrong.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        let (by, found) = (state.by.take(), state.found.take());
        for address in by.iter().chain(&found) {
            state.move_back(address);
        }
    }

    /// A node of a cluster redirected us to this address.
    pub(crate) fn found(&self, address: Address) {
        let mut state = self.state.lock();
        (state.found, state.by) = (Some(address), None);
    }

    /// The server to connect to.
    pub(crate) fn locate(&self, dialer: &Dialer) -> Result<Address, EngineError> {
        let (found, know) = {
            let state = self.state.lock();
            (state.found.clone(), state.know.clone())
        };
        // The answers of sentinels are not kept, because they may change at any time.
        if let Some(group) = &self.group {
            return ask_sentinels(dialer, &know, group);
        }
        if let Some(found) = found {
            return Ok(found);
        }
        if dialer.clustered.get() != Some(&true) {
            return know.first().cloned().ok_or_else(|| dialer.errors.refused("the URL names no server"));
        }
        let mut reasons = Vec::new();
        for who in know {
            match ask_node(dialer, &who) {
                Ok((address, nodes)) => {
                    self.learn(who, address.clone(), nodes);
                    return Ok(address);
                }
                Err(reason) => {
                    self.state.lock().move_back(&who);
                    reasons.push(format!("{who}: {reason}"));
                }
            }
        }
        Err(dialer.errors.unavailable(format!("no node knows the cluster ({})", reasons.join("; "))))
    }

    /// Records the answer of `who`. Known nodes keep their order, in which failed ones are last.
    fn learn(&self, who: Address, address: Address, nodes: Vec<Address>) {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.know);
        let mut know: Vec<Address> = Vec::with_capacity(nodes.len() + state.seeds.len());
        for node in nodes.into_iter().chain(state.seeds.iter().cloned()) {
            if !know.contains(&node) {
                know.push(node);
            }
        }
        know.sort_by_key(|node| before.iter().position(|known| known == node));
        (state.found, state.by, state.know) = (Some(address), Some(who), know);
    }
}

/// Asks all sentinels at once for the master of the group. If one answers, those that do not answer
/// delay the result only for a short time.
fn ask_sentinels(dialer: &Dialer, sentinels: &[Address], group: &str) -> Result<Address, EngineError> {
    let mut reasons = Vec::new();
    for timeout in [dialer.config.dial_timeout / SILENT, dialer.config.dial_timeout] {
        let said: Vec<_> = thread::scope(|scope| {
            let ask = |who| {
                let ask = move || ask_sentinel(dialer, who, group, timeout);
                thread::Builder::new().spawn_scoped(scope, ask)
            };
            let asked: Vec<_> = sentinels.iter().map(ask).collect();
            let answer = |asked: io::Result<thread::ScopedJoinHandle<'_, _>>| {
                let asked = asked.map_err(|error| format!("it was not asked: {error}"))?;
                asked.join().unwrap_or_else(|_| Err("it was not asked".into()))
            };
            asked.into_iter().map(answer).collect()
        });
        if let Some((_, master)) = said.iter().flatten().max_by_key(|(failovers, _)| *failovers) {
            return Ok(master.clone());
        }
        reasons = sentinels
            .iter()
            .zip(said)
            .filter_map(|(who, said)| said.err().map(|reason| format!("{who}: {reason}")))
            .collect();
    }
    Err(dialer.errors.unavailable(format!("no sentinel knows the master ({})", reasons.join("; "))))
}

/// Asks a sentinel for the master of its group. Returns the number of the latest failover that the
/// sentinel knows (`config-epoch`, 0 if it is missing), and the address.
fn ask_sentinel(
    dialer: &Dialer,
    sentinel: &Address,
    group: &str,
    timeout: Duration,
) -> Result<(u64, Address), String> {
    let mut pipeline = Pipeline::default();
    if let Some(password) = &dialer.config.sentinel_password {
        pipeline.command("AUTH").push(password.as_bytes());
    }
    pipeline.command("SENTINEL").extend([&b"get-master-addr-by-name"[..], group.as_bytes()]);
    pipeline.command("SENTINEL").extend([&b"master"[..], group.as_bytes()]);
    let mut answers = dialer.talk(sentinel, &pipeline, timeout)?;
    let said: Option<HashMap<String, String>> = answers.pop().and_then(|said| from_redis_value(said).ok());
    let epoch = said.as_ref().and_then(|said| said.get("config-epoch")?.parse().ok());
    match answers.pop().unwrap_or(Value::Nil) {
        Value::ServerError(error) if matches!(error.code(), "NOAUTH" | "WRONGPASS") => {
            Err("it wants a password, or another one: set SENTINEL_PASSWORD".into())
        }
        Value::ServerError(error) => Err(format!("{} (is it a sentinel?)", error.code())),
        master => match from_redis_value(master) {
            Ok(Some((host, port))) => Ok((epoch.unwrap_or(0), Address::Tcp(host, port))),
            Ok(None) => Err(format!("it watches no master called {group}")),
            Err(_) => Err("its answer is of an unknown form".into()),
        },
    }
}

/// Asks a node of a cluster for the owner of the volume's slot, and for the other nodes.
fn ask_node(dialer: &Dialer, node: &Address) -> Result<(Address, Vec<Address>), String> {
    let mut pipeline = Pipeline::default();
    dialer.authenticate(&mut pipeline);
    pipeline.command("CLUSTER").extend([&b"KEYSLOT"[..], &dialer.slot_key()]);
    pipeline.command("CLUSTER").push(b"SLOTS");
    let mut answers = dialer.talk(node, &pipeline, dialer.config.dial_timeout)?;
    let (Some(slots), Some(slot)) = (answers.pop(), answers.pop()) else {
        return Err("it did not answer".into());
    };
    match (slot, slots) {
        (Value::Int(slot), Value::Array(ranges)) => {
            let (mut owner, mut nodes) = (None, Vec::new());
            for range in ranges {
                let Value::Array(range) = range else { continue };
                let [Value::Int(first), Value::Int(last), servers @ ..] = &range[..] else { continue };
                let here = nodes.len();
                nodes.extend(servers.iter().filter_map(|server| address(server, node)));
                if (first..=last).contains(&&slot) {
                    owner = nodes.get(here).cloned();
                }
            }
            owner.map(|owner| (owner, nodes)).ok_or_else(|| format!("no node has slot {slot}"))
        }
        (Value::ServerError(error), _) => Err(match error.code() {
            "NOAUTH" | "WRONGPASS" => "it refuses the user name or password".into(),
            "ERR" => "it belongs to no cluster".into(),
            code => code.into(),
        }),
        _ => Err("its answer is of an unknown form".into()),
    }
}

/// The address of a server in a list of slots that `by` returned.
fn address(server: &Value, by: &Address) -> Option<Address> {
    let Value::Array(parts) = server else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let host: Option<String> = from_redis_value_ref(host).ok()?;
    Some(named(host.filter(|host| host != "?"), u16::try_from(*port).ok()?, by))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::Tcp("h".into(), port)
    }

    fn all<const N: usize>(ports: [u16; N]) -> Vec<Address> {
        ports.map(at).to_vec()
    }

    fn known(finder: &Finder) -> Vec<u16> {
        let port = |address: &Address| if let Address::Tcp(_, port) = address { *port } else { 0 };
        finder.state.lock().know.iter().map(port).collect()
    }

    #[test]
    fn the_nodes_to_ask_are_those_of_the_newest_answer_and_the_last_are_those_that_failed() {
        let (finder, _) = Finder::new(&Servers::Cluster(all([1, 2])));
        finder.learn(at(1), at(3), all([3, 4, 1]));
        assert_eq!(known(&finder), [3, 4, 1, 2], "who is in the cluster, then who was once");
        finder.forget();
        assert_eq!(known(&finder), [4, 2, 1, 3], "who was wrong, then who did not do what was asked");
        finder.forget();
        assert_eq!(known(&finder), [4, 2, 1, 3], "nobody was asked since");
        finder.found(at(1));
        finder.forget();
        assert_eq!(known(&finder), [4, 2, 3, 1], "a node sent us there");
        finder.learn(at(4), at(4), all([1, 3, 4]));
        assert_eq!(known(&finder), [4, 2, 3, 1], "an answer does not bring those to the front that failed");
    }

    #[test]
    fn nodes_that_left_are_forgotten_however_many_there_were() {
        let (finder, _) = Finder::new(&Servers::Cluster(all([1])));
        for port in 2..200 {
            finder.learn(at(port), at(port), all([port, port + 1]));
            finder.forget();
            assert_eq!(known(&finder).len(), 3);
            assert!(known(&finder).contains(&(port + 1)), "a node that came is known");
        }
    }
}
