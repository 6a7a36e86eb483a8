//! A TCP proxy that delays, drops, cuts and partitions, between a client and its server.
//!
//! Bytes are passed on unchanged or not at all, unless it is told to damage them. What the proxy
//! does changes at once for connections that exist.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// What happens to traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own, and they combine")]
pub struct Behaviour {
    /// Waits before each packet to the server is passed on, unless this is changed meanwhile.
    pub request_delay: Duration,
    /// Waits before each packet to the client is passed on, unless this is changed meanwhile.
    pub answer_delay: Duration,
    /// Requests arrive, answers are swallowed: a commit happens and nobody learns it.
    pub drop_answers: bool,
    /// Nothing arrives in either direction and new connections hang, until this ends; held back
    /// traffic then arrives.
    pub partition: bool,
    /// New connections are closed at once.
    pub refuse: bool,
    /// A bit of each packet to the client is flipped.
    pub damage: bool,
}

struct Shared {
    target: Mutex<SocketAddr>,
    behaviour: Mutex<Behaviour>,
    changed: Condvar,
    closed: AtomicBool,
    /// Whether the next answer is swallowed and its connection cut.
    cut_before_answer: AtomicBool,
    /// Every so many answers one is swallowed and its connection cut; 0 for none.
    cut_every: AtomicU64,
    /// Answers since that was said.
    counted: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
    requests: AtomicU64,
    answers: AtomicU64,
    swallowed: AtomicU64,
}

/// A proxy in front of a server.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free port of the loopback address and passes everything on to `target`.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, target)
    }

    /// The same on another address of this machine.
    pub fn start_at(address: Ipv4Addr, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            behaviour: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            cut_before_answer: AtomicBool::new(false),
            cut_every: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            connections: Mutex::default(),
            requests: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            swallowed: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        thread::Builder::new().name("proxy".into()).spawn(move || accept(&listener, &accepting))?;
        Ok(Self { addr, shared })
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what happens to traffic from now on.
    pub fn set(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock() = behaviour;
        self.shared.changed.notify_all();
    }

    /// Passes everything on again. A connection whose answers were dropped stays out of step: see
    /// [`Self::reset`].
    pub fn heal(&self) {
        self.set(Behaviour::default());
    }

    /// Cuts every connection.
    pub fn reset(&self) {
        for stream in self.shared.connections.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets the next request through to the server and cuts its connection instead of passing on
    /// the answer.
    pub fn cut_before_next_answer(&self) {
        self.shared.cut_before_answer.store(true, Ordering::SeqCst);
    }

    /// Does that to each answer after `passed` others, over and over; 0 ends it.
    pub fn cut_after_every(&self, passed: u64) {
        self.shared.counted.store(0, Ordering::SeqCst);
        self.shared.cut_every.store(if passed == 0 { 0 } else { passed + 1 }, Ordering::SeqCst);
    }

    /// Whether the cut that was ordered is still to come.
    pub fn is_cut_pending(&self) -> bool {
        self.shared.cut_before_answer.load(Ordering::SeqCst)
    }

    /// Sends new connections to another server.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Times that a client spoke first, or again after an answer: however many packets it took.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Times that a server spoke first, or again after a request: however many packets it took.
    pub fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::SeqCst)
    }

    /// Packets to clients that were swallowed.
    pub fn swallowed(&self) -> u64 {
        self.shared.swallowed.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        self.reset();
        // Wakes the listener.
        drop(TcpStream::connect(self.addr));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(client), behaviour) = (client, *shared.behaviour.lock()) else { continue };
        if behaviour.refuse {
            continue;
        }
        let shared = shared.clone();
        thread::spawn(move || {
            shared.wait_while_partitioned();
            let _ = connect(client, &shared);
        });
    }
}

fn connect(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let target = *shared.target.lock();
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared.connections.lock().extend([client.try_clone()?, server.try_clone()?]);
    // Whoever resets all connections now finds this one; who did so before is not to be undone.
    if shared.closed.load(Ordering::SeqCst) || shared.behaviour.lock().refuse {
        return client.shutdown(Shutdown::Both);
    }
    let turns = Arc::new(AtomicU8::new(NOBODY));
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let (down, answering) = (shared.clone(), turns.clone());
    let answers = thread::spawn(move || pump(from_server, to_client, &down, &answering, SERVER));
    pump(client, server, shared, &turns, CLIENT);
    let _ = answers.join();
    Ok(())
}

// Who spoke last on a connection.
const NOBODY: u8 = 0;
const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// Passes the bytes of one side on until either closes.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, turns: &AtomicU8, side: u8) {
    let upward = side == CLIENT;
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let behaviour = shared.wait_while_partitioned();
        let delay = if upward { behaviour.request_delay } else { behaviour.answer_delay };
        shared.hold(delay, behaviour);
        if !upward && shared.is_to_be_cut() {
            shared.swallowed.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if !upward && shared.behaviour.lock().drop_answers {
            shared.swallowed.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        // Counted before it arrives: who received an answer may look at the count.
        if turns.swap(side, Ordering::SeqCst) != side {
            let count = if upward { &shared.requests } else { &shared.answers };
            count.fetch_add(1, Ordering::SeqCst);
        }
        if !upward && behaviour.damage {
            buffer[length / 2] ^= 1;
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl Shared {
    /// Whether the answer that came is to be swallowed, and its connection cut.
    fn is_to_be_cut(&self) -> bool {
        let every = self.cut_every.load(Ordering::SeqCst);
        let due = every > 0 && (self.counted.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(every);
        self.cut_before_answer.swap(false, Ordering::SeqCst) || due
    }

    fn wait_while_partitioned(&self) -> Behaviour {
        let mut behaviour = self.behaviour.lock();
        while behaviour.partition && !self.closed.load(Ordering::SeqCst) {
            self.changed.wait(&mut behaviour);
        }
        *behaviour
    }

    /// Waits for `delay`, or until the proxy is told to behave otherwise than `before`.
    fn hold(&self, delay: Duration, before: Behaviour) {
        if delay.is_zero() {
            return;
        }
        let same = |behaviour: &mut Behaviour| *behaviour == before && !self.closed.load(Ordering::SeqCst);
        let mut behaviour = self.behaviour.lock();
        self.changed.wait_while_for(&mut behaviour, same, delay);
    }
}
