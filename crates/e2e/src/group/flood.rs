//! Very many connections from one address that never prove anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Connections to each member.
const CONNECTIONS: usize = 2500;
/// Pause between two looks at them.
const PAUSE: Duration = Duration::from_millis(20);
/// The beginning of a greeting of TLS: a record of 512 bytes, most of which never come.
const HELLO: [u8; 9] = [22, 3, 1, 2, 0, 1, 0, 1, 252];

/// The flood; it ends with this.
pub(super) struct Flood {
    /// Its end ends the threads.
    going: Option<Arc<()>>,
    threads: Vec<JoinHandle<()>>,
    opened: Arc<AtomicU64>,
}

impl Flood {
    /// Begins to connect to each address, again and again. Every other connection says nothing, the
    /// others send part of a greeting.
    pub(super) fn start(addresses: &[SocketAddr]) -> std::io::Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
        let (going, opened) = (Arc::new(()), Arc::new(AtomicU64::new(0)));
        let threads = addresses.iter().map(|address| {
            let (address, going, opened) = (*address, Arc::downgrade(&going), Arc::clone(&opened));
            thread::spawn(move || connect(address, &going, &opened))
        });
        let threads = threads.collect();
        Ok(Self { going: Some(going), threads, opened })
    }

    /// Connections that were made.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::SeqCst)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.going.take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn connect(address: SocketAddr, going: &Weak<()>, opened: &AtomicU64) {
    let mut open: Vec<TcpStream> = Vec::new();
    while going.strong_count() > 0 {
        open.retain_mut(is_open);
        // So many at once that the other tests have a processor, too.
        for _ in 0..100.min(CONNECTIONS - open.len()) {
            let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { break };
            let number = opened.fetch_add(1, Ordering::SeqCst);
            let hello = if number.is_multiple_of(2) { &HELLO[..] } else { &[] };
            if stream.write_all(hello).is_ok() && stream.set_nonblocking(true).is_ok() {
                open.push(stream);
            }
        }
        thread::park_timeout(PAUSE);
    }
}

/// Whether the other side has not ended it.
fn is_open(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 128];
    match stream.read(&mut bytes) {
        Ok(length) => length > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
