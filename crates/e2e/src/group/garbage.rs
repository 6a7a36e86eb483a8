//! A server that answers garbage to whatever it is told.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// The server; it ends with this.
pub(super) struct Garbage {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Garbage {
    /// Begins to listen.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if until.load(Ordering::SeqCst) {
                    return;
                }
                thread::spawn(move || answer(stream));
            }
        });
        Ok(Self { address, ended })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
    }
}

/// A lot of it at once, and then some for each thing that is said.
fn answer(mut stream: TcpStream) {
    let garbage: Vec<u8> = (0..5000u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
    let mut said = [0; 4096];
    while stream.write_all(&garbage).is_ok() && stream.read(&mut said).is_ok_and(|bytes| bytes > 0) {}
}
