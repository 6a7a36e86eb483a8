//! A running console: starts its threads and its HTTP server, and stops them.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use sluice_meta::Interrupt;
use sluice_types::job;
use tokio::runtime::Runtime;

use crate::{
    access::{Access, OnToken},
    live,
    server::{self, Served},
    watch::{Volume, Watched},
};

/// How a console works.
pub struct Config {
    /// Version of the program.
    pub version: String,
    /// Name of this machine: mounts on it may show their metrics to it alone.
    pub host_name: String,
    /// Names by which browsers reach the console, beside `localhost` and addresses.
    pub hosts: Vec<String>,
    /// The token of the API; drawn if there is none.
    pub api_token: Option<String>,
    /// Called with each new one-time token, once the one before it was used.
    pub on_token: OnToken,
    /// Time between two readings of the metadata.
    pub survey: Duration,
    /// The same of what may be long: quotas, and what waits to be deleted; of directories five
    /// times as long. They are read more seldom if reading takes long.
    pub count: Duration,
    /// Time between two readings of the metrics of clients.
    pub scrape: Duration,
}

impl Config {
    /// As it is for people.
    pub fn new(version: &str, host_name: String, on_token: OnToken) -> Self {
        Self {
            version: version.to_owned(),
            host_name,
            hosts: Vec::new(),
            api_token: None,
            on_token,
            survey: Duration::from_secs(10),
            count: Duration::from_mins(1),
            scrape: Duration::from_secs(5),
        }
    }
}

/// A console that runs. It ends when it is dropped.
pub struct Console {
    address: SocketAddr,
    served: Arc<Served>,
    stop: Interrupt,
    /// Ends its tasks when it is dropped.
    _runtime: Runtime,
}

impl Console {
    /// Starts to watch `volumes`, and to answer whoever connects to `listener`.
    ///
    /// # Errors
    /// If threads or the listener cannot be had.
    pub fn start(listener: TcpListener, volumes: Vec<Volume>, config: Config) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let Config { version, host_name, hosts, api_token, on_token, survey, count, scrape } = config;
        let access = Access::new(address.port(), &hosts, api_token, on_token);
        let volumes: Vec<_> =
            volumes.into_iter().zip(1..).map(|(volume, id)| Arc::new(Watched::new(id, volume))).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("sluice-console")
            .enable_all()
            .build()?;
        let stop = Interrupt::default();
        for volume in &volumes {
            let (watched, stop) = (Arc::clone(volume), stop.clone());
            let watch = job("sluice-watch", move || watched.run(survey, count, &stop));
            thread::Builder::new().name("sluice-watch".into()).spawn(watch)?;
            let watched = Arc::clone(volume);
            let clients = move || {
                let survey = watched.known().survey?;
                Some((Arc::clone(&survey.clients), survey.settings.name.clone()))
            };
            runtime.spawn(live::watch(Arc::clone(&volume.live), scrape, host_name.clone(), clients));
        }
        listener.set_nonblocking(true)?;
        let served = Arc::new(Served { access, volumes, version });
        let listener = {
            let _within = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(server::accept(listener, Arc::clone(&served)));
        Ok(Self { address, served, stop, _runtime: runtime })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The one-time token that lets the next browser in: `http://ADDRESS/?token=TOKEN`.
    pub fn login_token(&self) -> String {
        self.served.access.login_token()
    }

    /// The token of the API.
    pub fn api_token(&self) -> &str {
        self.served.access.api_token()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.set();
    }
}
