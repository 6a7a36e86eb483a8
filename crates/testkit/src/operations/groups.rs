//! Cache groups: members that join and leave at the same time, and the removal of members whose
//! clients died.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sluice_meta::{
    Interrupt, LONGEST_REPORT, Members, Meta, Options,
    engine::{Commit, Engine, Found, Read, Write},
    schema::{Extra, Key, Member, Row, Secret},
};
use sluice_types::{FsError, ManualClock};

use super::{
    Factory, SharedStore,
    clients::{NOW, options, seeds},
    play::duel,
};
use crate::wrap::{Chances, Faulty};

/// How often two clients meet where no record is yet.
const FIRST: u64 = 10;
/// How often they meet where there is one.
const ROUNDS: u64 = 30;

fn member(group: &str, address: &str) -> Member {
    Member { group: group.into(), address: address.into(), weight: 100, ..Member::default() }
}

fn join(meta: &Meta, group: &str) -> Members {
    let address = format!("host{}:9568", meta.sid());
    meta.join_group(member(group, &address), &Interrupt::never()).expect("join")
}

fn members(meta: &Meta, group: &str) -> Members {
    meta.members(group, &Interrupt::never()).expect("members")
}

fn sids(members: &Members) -> Vec<u64> {
    members.members.iter().map(|member| member.sid).collect()
}

fn get(engine: &dyn Engine, key: Key) -> Option<Row> {
    match engine.read(&[Read::Get(key)]).expect("read").pop() {
        Some(Found::Row(row)) => row,
        found => panic!("a record was answered by {found:?}"),
    }
}

fn discard(engine: &dyn Engine, keys: impl IntoIterator<Item = Key>) {
    let writes = keys.into_iter().map(Write::Discard).collect();
    engine.commit(&Commit { writes, ..Commit::default() }).expect("discard");
}

/// Both get in, and the version counts both, whether there were members before or not.
pub fn clients_that_join_at_once_are_all_counted(factory: &Factory<'_>) {
    let store = factory();
    let (one, two, engine) = (store.format(0), store.client(), store.open());
    for round in 0..FIRST {
        duel(1, |_| join(&one, "g"), |_| join(&two, "g"));
        let both = members(&one, "g");
        assert_eq!((both.version, sids(&both)), (2, vec![one.sid(), two.sid()]), "round {round}");
        let joined = [one.sid(), two.sid()].map(|sid| Key::Extra(Extra::Member, sid));
        discard(engine.as_ref(), joined.into_iter().chain([Key::Extra(Extra::GroupVersion, 0)]));
    }
    let rounds = duel(ROUNDS, |_| join(&one, "g"), |_| join(&two, "g"));
    for (own, other) in rounds {
        assert!(sids(&own).contains(&one.sid()), "{own:?}");
        assert!(sids(&other).contains(&two.sid()), "{other:?}");
    }
    let both = members(&two, "g");
    assert_eq!((both.version, sids(&both)), (2 * ROUNDS, vec![one.sid(), two.sid()]));
    let wanted = |meta: &Meta| Member {
        sid: meta.sid(),
        epoch: ROUNDS,
        joined: NOW.sec,
        ..member("g", &format!("host{}:9568", meta.sid()))
    };
    assert_eq!(both.members, [wanted(&one), wanted(&two)]);
}

/// Clients of one clock.
struct Hosts<'s> {
    store: &'s SharedStore,
    clock: ManualClock,
}

impl Hosts<'_> {
    fn open(&self, read_only: bool) -> Arc<Meta> {
        let options = Options { clock: Arc::new(self.clock.clone()), read_only, ..options() };
        Meta::open(self.store.open(), options).expect("open")
    }

    /// As many heartbeats of one client as another one may miss, and more.
    fn beats(&self, meta: &Meta) {
        for _ in 0..8 {
            self.clock.advance(Duration::from_secs(12));
            meta.beat().expect("a heartbeat").expect("the volume");
        }
    }
}

/// A member goes with its session, however that ends, and comes back with it.
pub fn a_member_lives_as_long_as_its_session(factory: &Factory<'_>) {
    let store = factory();
    store.format(0).close().expect("close");
    let hosts = Hosts { store: &store, clock: ManualClock::new(NOW) };
    let [one, two, three] = [(); 3].map(|()| hosts.open(false));
    let (engine, never) = (store.open(), Interrupt::never());
    let record = |sid| get(engine.as_ref(), Key::Extra(Extra::Member, sid));
    for (meta, group) in [(&one, "g"), (&two, "g"), (&three, "other")] {
        join(meta, group);
    }
    let both = members(&three, "g");
    assert_eq!((both.version, sids(&both)), (3, vec![one.sid(), two.sid()]));
    assert_eq!(sids(&members(&one, "other")), [three.sid()]);

    two.close().expect("close");
    assert_eq!(record(two.sid()), None);
    let left = members(&three, "g");
    assert_eq!((left.version, sids(&left)), (4, vec![one.sid()]));

    // The first is silent. It is left out before anybody cleans up after it.
    hosts.clock.advance(Duration::from_secs(61));
    let left = members(&three, "g");
    assert_eq!((left.version, sids(&left)), (4, vec![]));
    hosts.beats(&three);
    assert_eq!(record(one.sid()), None);
    assert_eq!(members(&three, "g").version, 5);
    one.beat().expect("a heartbeat").expect("the volume");
    assert_eq!(one.env().fences(), 1);
    let back = members(&three, "g");
    assert_eq!((back.version, sids(&back)), (6, vec![one.sid()]));

    // Another program of the format removes a session, and nothing else. A member without any
    // other record is removed, too.
    discard(engine.as_ref(), [Key::Session(three.sid())]);
    let lost = Row::Extra(Extra::Member, 999, member("g", "host:1").to_json().into());
    engine.commit(&Commit { writes: vec![Write::Insert(lost)], ..Commit::default() }).expect("insert");
    assert!(sids(&members(&one, "other")).is_empty());
    assert_eq!(sids(&members(&one, "g")), [one.sid()]);
    hosts.beats(&one);
    assert_eq!([three.sid(), 999].map(record), [None, None]);
    assert_eq!(members(&one, "g").version, 8);

    assert_eq!(one.leave_group(one.sid(), &never), Ok(true));
    assert_eq!(one.leave_group(one.sid(), &never), Ok(false));
    let none = Members { version: 9, members: Vec::new() };
    assert_eq!(members(&one, "g"), none);
    let reader = hosts.open(true);
    assert_eq!(members(&reader, "g"), none);
    assert_eq!(reader.join_group(member("g", "host:1"), &never), Err(FsError::ReadOnly));
    for (group, address) in [("", "host:1"), ("g", "")] {
        assert_eq!(one.join_group(member(group, address), &never), Err(FsError::Invalid));
    }
}

/// Whoever asks first makes the key. All others get that one, and each change is counted.
pub fn one_client_makes_the_first_key(factory: &Factory<'_>) {
    let store = factory();
    let (one, two, engine) = (store.format(0), store.client(), store.open());
    let (never, record) = (Interrupt::never(), Key::Extra(Extra::GroupKeys, 0));
    let reader = Meta::open(store.open(), Options { read_only: true, ..options() }).expect("open");
    assert_eq!(reader.group_keys(&never), Err(FsError::ReadOnly));
    let mut seen: Vec<Secret> = Vec::new();
    for round in 0..FIRST {
        let keys = |meta: &Meta| meta.group_keys(&Interrupt::never()).expect("keys");
        let (own, other) = duel(1, |_| keys(&one), |_| keys(&two)).remove(0);
        assert!(own == other, "round {round}: two keys");
        assert_eq!((own.newest.number, own.newest.created, &own.before), (1, NOW.sec, &None));
        assert!(!seen.contains(&own.newest.secret), "round {round}: a secret comes again");
        seen.push(own.newest.secret);
        assert!(reader.group_keys(&never).expect("keys").newest.secret == seen[round as usize]);
        if round + 1 < FIRST {
            discard(engine.as_ref(), [record.clone()]);
        }
    }
    let first = one.group_keys(&never).expect("keys").newest;
    let change = |meta: &Meta| meta.change_group_key(&Interrupt::never()).expect("change");
    let second = change(&one);
    assert_eq!((second.newest.number, second.before), (2, Some(first)));
    duel(ROUNDS, |_| change(&one), |_| change(&two));
    let last = two.group_keys(&never).expect("keys");
    assert_eq!(last.newest.number, 2 + 2 * ROUNDS);
    assert_eq!(last.before.as_ref().map(|key| key.number), Some(last.newest.number - 1));
    let broken = Row::Extra(Extra::GroupKeys, 0, b"{\"newest\":\"hidden\"}".to_vec().into());
    engine.commit(&Commit { writes: vec![Write::Put(broken)], ..Commit::default() }).expect("put");
    let error = one.group_keys(&never).expect_err("damaged");
    assert!(matches!(error, FsError::Io(_)) && !error.to_string().contains("hidden"), "{error}");
    assert_eq!(change(&two).newest.number, 1);
}

/// Whatever becomes of the answers, each change of the members counts once.
pub fn a_lost_answer_raises_nothing_twice(factory: &Factory<'_>) {
    for seed in seeds(3) {
        let store = factory();
        let never = Interrupt::never();
        let quiet = store.format(0);
        let faulty = Faulty::new(store.open(), seed, Chances::default());
        let meta = Meta::open(Arc::new(faulty.clone()), options()).expect("open");
        faulty.set(Chances::ALL);
        let mut keys = 1;
        meta.group_keys(&never).expect("keys");
        for round in 1..=20 {
            join(&meta, "g");
            if round % 5 == 0 {
                assert_eq!(meta.leave_group(meta.sid(), &never), Ok(true), "seed {seed}");
                keys = meta.change_group_key(&never).expect("change").newest.number;
            }
        }
        faulty.set(Chances::default());
        let context = format!("seed {seed}, {:?}", faulty.injected());
        join(&meta, "g");
        let left = members(&quiet, "g");
        assert_eq!((left.version, left.members[0].epoch, keys), (25, 1, 5), "{context}");
    }
}

/// A report is what was put last, for everybody, and no longer than every engine holds.
pub fn a_report_is_kept(factory: &Factory<'_>) {
    let store = factory();
    let (one, two, never) = (store.format(0), store.client(), Interrupt::never());
    let put = |number, report: &[u8]| one.put_report(number, Bytes::copy_from_slice(report), &never);
    assert_eq!(two.report(1, &never), Ok(None));
    let longest: Vec<u8> = (0..LONGEST_REPORT).map(|at| (at * 7 + at / 256) as u8).collect();
    for report in [b"first".as_slice(), &longest, b"\0"] {
        assert_eq!(put(1, report), Ok(()));
        assert_eq!(put(u64::MAX, b"another"), Ok(()));
        assert_eq!(two.report(1, &never), Ok(Some(Bytes::copy_from_slice(report))));
    }
    assert_eq!(put(1, b""), Err(FsError::Invalid));
    assert_eq!(put(1, &[&longest[..], b"x"].concat()), Err(FsError::TooBig));
    assert_eq!(two.report(1, &never), Ok(Some(Bytes::from_static(b"\0"))));
}
