//! The server side of a member.
//!
//! What must stay true: an unauthenticated client uses little memory, for at most
//! [`HANDSHAKE`](crate::auth::HANDSHAKE). Clients of one address cannot block clients of another
//! address. If a client does not receive its answers, no more requests are read from it. The memory
//! of all waiting answers is limited.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    auth::{HANDSHAKE, admit},
    blocks::Blocks,
    group::Group,
    served_connection::ServedConnection,
    serving::Serving,
    tls::{self, Identity},
    unauthenticated::{Unauthenticated, UnauthenticatedConnection},
};

/// Most authentication handshakes at the same time.
const HANDSHAKES: usize = 1024;
/// Pause after a connection could not be accepted, as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Limits of a member.
#[derive(Clone, Copy, Debug)]
pub struct ServeConfig {
    /// Most connections of other clients.
    pub connections: usize,
    /// Most bytes of blocks that are being read or sent.
    pub memory: usize,
    /// Whether connections are not encrypted (`--group-plaintext`).
    pub plaintext: bool,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self { connections: 10_000, memory: 256 << 20, plaintext: false }
    }
}

/// What all connections are let in by.
struct Entrance {
    serving: Arc<Serving>,
    identity: Option<Identity>,
    connections: AtomicUsize,
    handshakes: Semaphore,
    unauthenticated: Arc<Unauthenticated>,
    limit: usize,
}

/// A member that serves. It stops when this is dropped.
pub struct Server {
    entrance: Arc<Entrance>,
    accepting: AbortHandle,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Listens at an address. Connections are served on `runtime`.
    ///
    /// # Errors
    /// Those of the socket, and of the cryptographic library.
    pub fn start(
        group: Arc<Group>,
        blocks: impl Blocks,
        listen: std::net::SocketAddr,
        config: ServeConfig,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let identity = if config.plaintext { None } else { Some(Identity::new()?) };
        let socket = std::net::TcpListener::bind(listen)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let entrance = Arc::new(Entrance {
            serving: Serving::new(group, blocks, config.memory),
            identity,
            connections: AtomicUsize::new(0),
            handshakes: Semaphore::new(HANDSHAKES),
            unauthenticated: Arc::default(),
            limit: config.connections,
        });
        let entered = runtime.enter();
        let listener = TcpListener::from_std(socket)?;
        drop(entered);
        let accepting = runtime.spawn(accept(listener, Arc::clone(&entrance))).abort_handle();
        Ok(Self { entrance, accepting, port })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// SHA-256 of its certificate; `None` without encryption.
    pub fn fingerprint(&self) -> Option<tls::Fingerprint> {
        self.entrance.identity.as_ref().map(|identity| identity.fingerprint)
    }
}

/// Accepts connections, which end with this.
async fn accept(listener: TcpListener, entrance: Arc<Entrance>) {
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the cache group cannot be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        let stats = Arc::clone(entrance.serving.group.stats());
        let Some(unauthenticated) = entrance.unauthenticated.one(from.ip()) else {
            stats.refused.add(1);
            continue;
        };
        if entrance.connections.fetch_add(1, Ordering::Relaxed) >= entrance.limit {
            entrance.connections.fetch_sub(1, Ordering::Relaxed);
            stats.refused.add(1);
            continue;
        }
        let entrance = Arc::clone(&entrance);
        sessions.spawn(async move {
            let _counted = Counted(&entrance.connections);
            if let Err(error) = serve(stream, &entrance, unauthenticated).await {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    stats.refused.add(1);
                    tracing::warn!(%from, "a client without the key of the cache group was refused");
                } else {
                    tracing::debug!(%from, %error, "a connection to the cache group ended");
                }
            }
        });
    }
}

/// A connection that is counted.
struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets a client in, and serves it.
async fn serve(
    mut stream: TcpStream,
    entrance: &Arc<Entrance>,
    unauthenticated: UnauthenticatedConnection,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let until = Instant::now() + HANDSHAKE;
    let handshakes = timeout_at(until, entrance.handshakes.acquire()).await.map_err(late)?;
    stream.set_nodelay(true)?;
    let ring = entrance.serving.group.ring();
    let Some(identity) = &entrance.identity else {
        timeout_at(until, admit(&mut stream, ring, b"")).await.map_err(late)??;
        drop((handshakes, unauthenticated));
        return ServedConnection::new(stream, &entrance.serving).run().await;
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&identity.config));
    let mut stream = timeout_at(until, acceptor.accept(stream)).await.map_err(late)??;
    let binding = tls::binding(stream.get_ref().1)?;
    timeout_at(until, admit(&mut stream, ring, &binding)).await.map_err(late)??;
    drop((handshakes, unauthenticated));
    ServedConnection::new(stream, &entrance.serving).run().await
}
