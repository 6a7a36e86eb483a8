//! Answers of Redis that do not arrive: each operation is applied once.

use std::time::Duration;

use sluice_faults::{
    check, load,
    volume::{Mount, Volume},
};
use sluice_testkit::server::{Behaviour, Proxy, redis};
use sluice_types::Rng;

use crate::{ROOT, no_redis};

/// A volume whose clients are behind a proxy that can break things, and the URL by which they reach
/// it.
pub(crate) struct Behind {
    pub(crate) volume: Volume,
    pub(crate) proxy: Proxy,
    pub(crate) url: String,
    _redis: sluice_testkit::server::Redis,
}

pub(crate) fn behind() -> Behind {
    let redis = redis().unwrap();
    let proxy = Proxy::start(redis.addr()).unwrap();
    let url = format!("redis://{}/0?read-timeout=200ms&dial-timeout=300ms", proxy.addr());
    Behind { volume: Volume::format(redis.url(0)), proxy, url, _redis: redis }
}

/// Has one answer after each `period` others lost while `work` goes on. Answers how many were lost.
fn losing<T>(proxy: &Proxy, period: u64, work: impl FnOnce() -> T) -> (T, u64) {
    let before = proxy.swallowed();
    proxy.cut_after_every(period);
    let done = work();
    proxy.cut_after_every(0);
    (done, proxy.swallowed() - before)
}

#[test]
fn each_operation_is_applied_once_whichever_answer_is_lost() {
    if no_redis() {
        return;
    }
    let Behind { volume, proxy, url, .. } = &behind();
    let client = volume.mount_with(url, &Mount::default());
    let dir = client.mkdir(ROOT, "dir").unwrap();
    for period in 2..7_u64 {
        let name = format!("file{period}");
        let work = || {
            let (ino, opened) = client.create(dir, &name).unwrap();
            client.write(opened.fh, 0, name.as_bytes()).unwrap();
            client.vfs.fsync(&client.never, opened.fh).unwrap();
            client.close(opened.fh).unwrap();
            client.link(ino, dir, &format!("link{period}")).unwrap();
            client.rename((dir, &name), (ROOT, &name)).unwrap();
            client.unlink(ROOT, &name).unwrap();
            client.mkdir(dir, &format!("sub{period}")).unwrap();
            client.mkdir(dir, "short").unwrap();
            client.rmdir(dir, "short").unwrap();
        };
        let ((), lost) = losing(proxy, period, work);
        assert!(lost >= 1, "period {period}: {lost} answers were lost");
    }
    assert_eq!(client.list(dir, true).unwrap().len(), 10);
    client.vfs.close(None).unwrap();
    check::assert_sound(volume, &volume.url, client.vfs.data().layout(), "one thread");
}

#[test]
fn each_operation_of_many_threads_is_applied_once() {
    if no_redis() {
        return;
    }
    for seed in 10..12 {
        let Behind { volume, proxy, url, .. } = &behind();
        let (one, two) =
            (volume.mount_with(url, &Mount::default()), volume.mount_with(url, &Mount::default()));
        let mut rng = Rng::seeded(seed);
        let outcome = load::run(&[&one, &two], 3, seed, |progress| {
            for _ in 0..15 {
                progress.wait_for(rng.below(8));
                match rng.below(6) {
                    0 => proxy.reset(),
                    1 => {
                        // Requests arrive, their answers do not, and nobody is told until the
                        // deadline.
                        proxy.set(Behaviour { drop_answers: true, ..Behaviour::default() });
                        let before = proxy.swallowed();
                        sluice_faults::eventually("answers are swallowed", || proxy.swallowed() > before);
                        proxy.heal();
                        proxy.reset();
                    }
                    2 => {
                        let (request, answer) = (rng.below(5), rng.below(5));
                        proxy.set(Behaviour {
                            request_delay: Duration::from_millis(request),
                            answer_delay: Duration::from_millis(answer),
                            ..Behaviour::default()
                        });
                    }
                    3 => proxy.heal(),
                    _ => {
                        proxy.cut_before_next_answer();
                        sluice_faults::eventually("an answer is cut", || !proxy.is_cut_pending());
                    }
                }
            }
            proxy.heal();
            proxy.reset();
            progress.wait_for(20);
        });
        one.vfs.close(None).unwrap();
        two.vfs.close(None).unwrap();
        let later = volume.mount();
        outcome.assert_seen_by(&later);
        check::assert_sound(volume, &volume.url, later.vfs.data().layout(), &format!("seed {seed}"));
    }
}
