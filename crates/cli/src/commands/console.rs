//! `sluice console`: a page that shows the state of volumes.

use std::{
    env, fmt,
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use sluice_console::{Config, Console, Opened, Volume};
use sluice_meta::{Meta, Options};

use crate::{arguments, engines, metrics, volume};

/// Environment variable with the token of the API.
const TOKEN: &str = "SLUICE_CONSOLE_TOKEN";
/// Characters of a token that nobody guesses.
const LENGTH: usize = 16;
/// How long a database that does not answer is waited for: what is shown is old, and says so.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Show the state of volumes on a page in the browser
///
/// Prints the address of the page, with a token that lets one browser in. The page changes nothing.
/// Whoever reads it needs no login for the database. SLUICE_CONSOLE_TOKEN sets the token of the
/// JSON API; docs/console.md describes it.
#[derive(Args)]
#[command(after_help = "Examples:
  sluice console redis://localhost/1
  ssh -L 9567:127.0.0.1:9567 server sluice console redis://localhost/1 --listen 127.0.0.1:9567")]
pub(crate) struct ConsoleCommand {
    /// Metadata engines of the volumes
    #[arg(value_name = "META-URL", required = true)]
    meta_urls: Vec<String>,
    /// Listen here and nowhere else [default: 127.0.0.1:9567, or the next free port]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    listen: Option<String>,
    /// A name by which browsers reach the console, beside localhost and addresses
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("it must be HOST:PORT, such as 127.0.0.1:9567".into()),
    }
}

impl ConsoleCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let api_token = env::var(TOKEN).ok().filter(|token| !token.is_empty());
        if let Some(token) = &api_token {
            ensure!(
                token.len() >= LENGTH && token.bytes().all(|byte| byte.is_ascii_graphic()),
                "{TOKEN} needs at least {LENGTH} characters, letters, digits and signs"
            );
        }
        // A URL that nothing can be made of is refused before anything starts.
        let volumes = self.meta_urls.iter().map(|url| opener(url)).collect::<Result<Vec<_>>>()?;
        let listener = match &self.listen {
            Some(address) => TcpListener::bind(address)
                .with_context(|| format!("cannot listen on {address}; give another --listen HOST:PORT"))?,
            None => metrics::any_port(metrics::HOST)?,
        };
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen to signals")?;
        let listens = listener.local_addr()?;
        let on_token = Box::new(move |token: &str| {
            let page = page(listens, token);
            // The console goes on if nobody reads what it prints any more.
            let _ = writeln!(io::stdout(), "{page} (for another browser; the address above has been used)");
        });
        let config = Config {
            hosts: self.host.clone(),
            api_token: api_token.clone(),
            ..Config::new(volume::VERSION, volume::host_name(), on_token)
        };
        let console = Console::start(listener, volumes, config).context("the console cannot start")?;
        outln!("{}", page(listens, &console.login_token()));
        if api_token.is_none() {
            outln!("Token of the API: {}", console.api_token());
        }
        if !listens.ip().is_loopback() {
            errln!(
                "Others can reach the console, and what it sends is not encrypted; put a proxy with TLS before it, or \
                 listen on 127.0.0.1 and use ssh -L"
            );
        }
        signals.forever().next();
        Ok(ExitCode::SUCCESS)
    }
}

/// The address that lets a browser in.
fn page(listens: SocketAddr, token: &str) -> impl fmt::Display {
    let mut reached = listens;
    if reached.ip().is_unspecified() {
        reached.set_ip(if listens.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            [0, 0, 0, 0, 0, 0, 0, 1].into()
        });
    }
    format!("http://{reached}/?token={token}")
}

/// What opens the volume at `url`, only to be read.
fn opener(url: &str) -> Result<Volume> {
    let shown = arguments::without_password(url);
    let address = engines::absolute(url)?;
    let open = move || {
        let opened = || {
            let engine = engines::open(&address)?;
            let options = Options { read_only: true, timeout: TIMEOUT, ..Options::default() };
            let meta = Meta::open(engine.clone(), options)?;
            Ok::<_, anyhow::Error>(Opened { engine, meta })
        };
        opened().map_err(|error| format!("{error:#}"))
    };
    Ok(Volume { url: shown, open: Box::new(open) })
}
