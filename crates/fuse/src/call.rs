//! A request on its way: answered exactly once, by whoever comes first.
//!
//! What must stay true: a call is in [`Calls`] from before its handler starts until it is answered, and `answered`
//! decides who writes to the kernel. So the watchdog may answer a call whose handler hangs, and the handler's late
//! answer goes nowhere.

use std::{
    fmt,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zerocopy::IntoBytes;

use crate::{
    abi::{InHeader, OutHeader, opcode},
    errno::{Errno, Result},
    interrupt::Callbacks,
    reply::Answer,
};

/// Where the answers of a transport go.
pub(crate) trait Channel: fmt::Debug + Send + Sync {
    /// Sends one reply or notification, whole.
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()>;
    /// The calls that came from there.
    fn calls(&self) -> &Calls;
}

/// A request that the kernel waits for.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) unique: u64,
    pub(crate) opcode: u32,
    channel: Arc<dyn Channel>,
    started: Instant,
    answered: AtomicBool,
    callbacks: Callbacks,
}

impl Call {
    /// Takes note of a request, before anything is done about it.
    pub(crate) fn begin(channel: Arc<dyn Channel>, header: &InHeader) -> Arc<Self> {
        let call = Arc::new(Self {
            unique: header.unique,
            opcode: header.opcode,
            channel,
            started: Instant::now(),
            answered: AtomicBool::new(false),
            callbacks: Callbacks::default(),
        });
        call.channel.calls().insert(&call);
        call
    }

    /// Answers; `false` if somebody else was first.
    pub(crate) fn answer(&self, result: Result<impl Answer>) -> bool {
        match result {
            Ok(answer) => answer.send(|body| self.finish(0, body)),
            Err(errno) => self.finish(errno.wire(), &[]),
        }
    }

    fn finish(&self, error: i32, body: &[&[u8]]) -> bool {
        if self.answered.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.channel.calls().remove(self.unique);
        self.callbacks.clear();
        if let Err(why) = send(&*self.channel, self.unique, error, body) {
            match why.raw_os_error() {
                // The kernel gave it up meanwhile, or the mount is gone.
                Some(libc::ENOENT | libc::ENODEV | libc::ECONNABORTED) => {}
                _ => tracing::error!(
                    "the kernel refused the answer to FUSE operation {}, its caller gets an error: {why}",
                    self.opcode
                ),
            }
        }
        true
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.callbacks.is_set()
    }

    pub(crate) fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// A lock may be waited for without limit.
    fn has_deadline(&self) -> bool {
        self.opcode != opcode::SETLKW
    }
}

/// Sends a message with its header in front.
pub(crate) fn send(channel: &dyn Channel, unique: u64, error: i32, body: &[&[u8]]) -> io::Result<()> {
    let len = size_of::<OutHeader>() + body.iter().map(|piece| piece.len()).sum::<usize>();
    let header = OutHeader { len: len as u32, error, unique };
    let header = IoSlice::new(header.as_bytes());
    match *body {
        [] => channel.send(&[header]),
        [one] => channel.send(&[header, IoSlice::new(one)]),
        [one, two] => channel.send(&[header, IoSlice::new(one), IoSlice::new(two)]),
        _ => {
            let pieces = body.iter().map(|piece| IoSlice::new(piece));
            channel.send(&std::iter::once(header).chain(pieces).collect::<Vec<_>>())
        }
    }
}

/// The answer to a request that may take long; given once, from any thread. Dropped without one, it is EIO.
#[derive(Debug)]
pub struct Reply(pub(crate) Arc<Call>);

impl Reply {
    /// Done.
    pub fn ok(self) {
        self.0.answer(Ok(()));
    }

    /// Failed.
    pub fn error(self, errno: Errno) {
        self.0.answer(Err::<(), _>(errno));
    }

    /// Answers with what a file-system operation returned.
    pub fn result(self, result: Result<()>) {
        self.0.answer(result);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.0.answer(Err::<(), _>(Errno::EIO));
    }
}

const SHARDS: usize = 32;

/// All calls that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    shards: [Mutex<FxHashMap<u64, Arc<Call>>>; SHARDS],
}

impl Calls {
    fn shard(&self, unique: u64) -> &Mutex<FxHashMap<u64, Arc<Call>>> {
        // The kernel counts in twos: the lowest bit marks interrupts.
        &self.shards[(unique >> 1) as usize % SHARDS]
    }

    fn insert(&self, call: &Arc<Call>) {
        self.shard(call.unique).lock().insert(call.unique, Arc::clone(call));
    }

    fn remove(&self, unique: u64) {
        // Dropped after the lock is: a call may own a callback that owns anything.
        let _call = self.shard(unique).lock().remove(&unique);
    }

    /// Marks a call as interrupted; `false` if there is no such call (yet, or any more).
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let call = self.shard(unique).lock().get(&unique).cloned();
        call.inspect(|call| call.callbacks.trigger()).is_some()
    }

    /// Marks all calls as interrupted.
    pub(crate) fn interrupt_all(&self) {
        for call in self.collect(|_| true) {
            call.callbacks.trigger();
        }
    }

    /// Answers EIO to all calls older than `deadline` and says how many handlers are thereby left to themselves.
    pub(crate) fn expire(&self, deadline: Duration) -> usize {
        let expired = self.collect(|call| call.has_deadline() && call.started.elapsed() >= deadline);
        let mut count = 0;
        for call in expired {
            if call.answer(Err::<(), _>(Errno::EIO)) {
                count += 1;
                tracing::warn!(
                    "FUSE operation {} took longer than {deadline:?}, its caller got an I/O error",
                    call.opcode
                );
            }
            call.callbacks.trigger();
        }
        count
    }

    fn collect(&self, wanted: impl Fn(&Call) -> bool) -> Vec<Arc<Call>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().values().filter(|call| wanted(call)).cloned());
        }
        found
    }
}
