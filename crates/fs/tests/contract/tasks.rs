//! Calls of tasks: a call that waits takes no thread.

use std::{fs, iter, panic, sync::Arc, time::Duration};

use futures::{executor::block_on, future::join_all};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sluice_faults::store::{FaultyStore, Outage};
use sluice_fs::{Fs, OpenOptions, RenameMode, User, Volume};
use sluice_object::{ObjectStore, RetryPolicy, layers::Retry};
use sluice_tasks::{Call, Tasks};
use sluice_testkit::wait;

use crate::rig::{Rig, get, put};

/// Runs a test in a task.
pub(crate) fn run(test: impl FnOnce() + Send + 'static) {
    let tasks = Tasks::new(1, 1).unwrap();
    block_on(tasks.run(test)).unwrap_or_else(|reason| panic::resume_unwind(reason));
}

fn all<T>(calls: Vec<Call<T>>) -> Vec<T> {
    let results = block_on(join_all(calls)).into_iter();
    results.map(|result| result.unwrap_or_else(|reason| panic::resume_unwind(reason))).collect()
}

pub(crate) fn thousands_of_calls_wait_on_two_threads(rig: &Rig) {
    const CALLS: usize = 2_000;
    let tasks = Tasks::new(2, CALLS).unwrap();
    let fs = rig.root();
    fs.mkdir("/d", 0o755).unwrap();
    let before = threads();
    let commits = || rig.volume.vfs().meta().stats().commits.count();
    let committed = commits();
    let call = |number: usize| {
        let fs = fs.clone();
        tasks.run(move || {
            let (first, last) = (format!("/d/first{number}"), format!("/d/last{number}"));
            put(&fs, &first, first.as_bytes());
            fs.rename(&first, &last, RenameMode::NoReplace).unwrap();
            assert_eq!(get(&fs, &last), first.as_bytes());
            fs.stat(&last).unwrap().ino
        })
    };
    let calls: Vec<_> = (0..CALLS).map(call).collect();
    let most = threads();
    let mut inos = all(calls);
    inos.sort_unstable();
    inos.dedup();
    assert_eq!((inos.len(), fs.list_all("/d").unwrap().len()), (CALLS, CALLS));
    // Those of the runtime of the object store, and of background commits.
    assert!(most < before + 100, "{before} threads became {most}");
    // Each call has three changes, which wait for those of others.
    let committed = commits() - committed;
    assert!(committed < 3 * CALLS as u64 / 4, "{committed} commits");
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

pub(crate) fn a_store_that_fails_keeps_no_thread(rig: &Rig) {
    const FILES: usize = 300;
    let content = |number: usize| format!("content of {number}").into_bytes();
    let store = FaultyStore::default();
    let policy = RetryPolicy {
        first_pause: Duration::from_millis(10),
        max_pause: Duration::from_millis(500),
        ..RetryPolicy::default()
    };
    let retry: Arc<dyn ObjectStore> = Arc::new(Retry::new(Arc::new(store.clone()), policy));
    let open = || Volume::new(rig.open_on(Arc::clone(&retry))).fs(&User::root());
    let (writer, fs) = (open(), open());
    (0..FILES).for_each(|number| put(&writer, &format!("/f{number}"), &content(number)));
    let tasks = Tasks::new(1, 2 * FILES).unwrap();
    store.set(Outage::Errors);
    let reads = (0..FILES).map(|number| {
        let fs = fs.clone();
        tasks.run(move || get(&fs, &format!("/f{number}")))
    });
    let reads: Vec<_> = reads.collect();
    wait::until("reads to fail", Duration::from_mins(1), || store.failed() > 0).unwrap();
    let links = (0..FILES).map(|number| {
        let fs = fs.clone();
        tasks.run(move || fs.link(format!("/f{number}"), format!("/g{number}")).unwrap())
    });
    assert_eq!(all(links.collect()).len(), FILES);
    store.set(Outage::None);
    assert!(all(reads).into_iter().eq((0..FILES).map(content)));
}

/// What one of them holds while it waits must not stop the thread that all share.
pub(crate) fn tasks_that_change_one_file_do_not_stop_each_other(rig: &Rig) {
    let fs = rig.root();
    put(&fs, "/f", b"begin");
    put(&fs, "/other", &[b'o'; 10_000]);
    let tasks = Tasks::new(1, 100).unwrap();
    let seed = 7;
    let call = |number: u64| {
        let fs = fs.clone();
        tasks.run(move || {
            let mut rng = StdRng::seed_from_u64(seed + number);
            let (file, other) = (fs.open_with("/f", options()).unwrap(), fs.open("/other").unwrap());
            for _ in 0..20 {
                match rng.random_range(0..7) {
                    0 => drop(file.append(&[b'a'; 3_000]).unwrap()),
                    1 => file.write_at(&[b'w'; 100], rng.random_range(0..100_000)).unwrap(),
                    2 => file.set_len(rng.random_range(0..100_000)).unwrap(),
                    3 => drop(file.copy_from(rng.random_range(0..9_000), &other, 0, 5_000).unwrap()),
                    4 => file.flush().unwrap(),
                    5 => drop(file.read_pieces(0, 100_000).unwrap()),
                    _ => fs.set_len("/f", 50_000).unwrap(),
                }
            }
            file.close().unwrap();
        })
    };
    all((0..50).map(call).collect());
    let length = fs.stat("/f").unwrap().attr.length;
    assert_eq!(get(&fs, "/f").len() as u64, length.min(1 << 20));
    let appended = iter::repeat_with(|| tasks.run(append(&fs))).take(100).collect();
    let mut ends: Vec<u64> = all(appended);
    ends.sort_unstable();
    assert!(ends.iter().copied().eq((1..=100).map(|count| length + count * 10)), "{length}: {ends:?}");
}

/// Appends ten bytes; returns where they end.
fn append(fs: &Fs) -> impl FnOnce() -> u64 + Send + 'static {
    let fs = fs.clone();
    move || {
        let file = fs.open_with("/f", options()).unwrap();
        let at = file.append(b"0123456789").unwrap();
        file.close().unwrap();
        at + 10
    }
}

fn options() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}
