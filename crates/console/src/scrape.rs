//! Asks a mount for its metrics.
//!
//! What must stay true: requests are sent only to addresses in the sessions of the volume. Each
//! request has a deadline. The size of the answer that is read is limited.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{clients::Client, exposition::Counts};

/// How long a mount may take to answer, all its addresses together.
const DEADLINE: Duration = Duration::from_secs(3);
/// Most bytes of an answer; a mount says some 60 KiB.
const ANSWER: u64 = 1 << 20;
/// Addresses of one client that are tried.
const ADDRESSES: usize = 4;

/// Where the metrics of a client are asked for.
///
/// # Errors
/// Why they cannot be, for people. `here` is the name of this machine.
pub(crate) fn addresses(client: &Client, here: &str) -> Result<Vec<SocketAddr>, String> {
    if client.metrics.is_empty() {
        return Err("it does not say where its metrics are".into());
    }
    let Ok(said) = client.metrics.parse::<SocketAddr>() else {
        return Err("what it says of its metrics is no address".into());
    };
    if said.ip().is_loopback() && client.host != here {
        return Err("its metrics are shown to its own machine only; mount it with --metrics HOST:PORT".into());
    }
    if !said.ip().is_unspecified() {
        return Ok(vec![said]);
    }
    // It listens at all addresses of its machine.
    let all = client.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
    let mut all: Vec<_> = all.take(ADDRESSES).map(|ip| SocketAddr::new(ip, said.port())).collect();
    if client.host == here {
        all.insert(0, SocketAddr::new(IpAddr::from([127, 0, 0, 1]), said.port()));
    }
    if all.is_empty() { Err("no address of its machine is known".into()) } else { Ok(all) }
}

/// Asks for the metrics of a mount of `volume`.
///
/// # Errors
/// Why there are none, for people.
pub(crate) async fn ask(client: &Client, volume: &str, here: &str) -> Result<Counts, String> {
    let mut failed = String::new();
    let all = addresses(client, here)?;
    let part = DEADLINE / all.len().max(1) as u32;
    for address in all {
        match timeout(part, exchange(address)).await {
            Ok(Ok(text)) => return accept(&text, client, volume, address),
            Ok(Err(error)) => failed = format!("{address} does not answer: {error}"),
            Err(_) => failed = format!("{address} does not answer within {part:?}"),
        }
    }
    Err(failed)
}

async fn exchange(address: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    // Of this version, so that the answer is not in chunks and ends with the connection.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// The numbers of an answer, if it is that of this mount.
fn accept(answer: &[u8], client: &Client, volume: &str, address: SocketAddr) -> Result<Counts, String> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("what answers at {address} shows no metrics"));
    }
    let counts = Counts::parse(body, Instant::now());
    let other = |said: &Option<String>, wanted: &str| said.as_ref().is_some_and(|said| said != wanted);
    // A port may have gone to another mount.
    if other(&counts.volume, volume) || other(&counts.mount_point, &client.mount_point) {
        return Err(format!("another mount answers at {address}"));
    }
    if counts.volume.is_none() {
        return Err(format!("what answers at {address} is no mount"));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(metrics: &str) -> Client {
        Client {
            host: "a".into(),
            addresses: vec!["192.0.2.7".into(), "fd00::7".into()],
            mount_point: "/m".into(),
            metrics: metrics.into(),
            ..Client::default()
        }
    }

    #[test]
    fn addresses_are_those_of_the_session() {
        let of = |metrics: &str, here: &str| {
            let found = addresses(&client(metrics), here);
            found.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("192.0.2.9:1", "b").as_deref(), Ok("192.0.2.9:1"));
        assert_eq!(of("127.0.0.1:1", "a").as_deref(), Ok("127.0.0.1:1"));
        assert_eq!(of("0.0.0.0:1", "b").as_deref(), Ok("192.0.2.7:1 [fd00::7]:1"));
        assert_eq!(of("[::]:1", "a").as_deref(), Ok("127.0.0.1:1 192.0.2.7:1 [fd00::7]:1"));
        for (metrics, here) in
            [("", "a"), ("127.0.0.1:1", "b"), ("example.com:80", "a"), ("/etc/passwd", "a")]
        {
            assert!(of(metrics, here).is_err(), "{metrics}");
        }
    }

    #[test]
    fn only_the_answer_of_this_mount_is_taken() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let of = |answer: &str| accept(answer.as_bytes(), &client("x"), "v", address).map(|_| ());
        let sample = |labels: &str| format!("HTTP/1.0 200 OK\r\n\r\njuicefs_blockcache_hits{{{labels}}} 1\n");
        assert!(of(&sample("vol_name=\"v\",mp=\"/m\"")).is_ok());
        assert!(of(&sample("vol_name=\"v\"")).is_ok());
        for wrong in [
            sample("vol_name=\"w\",mp=\"/m\""),
            sample("vol_name=\"v\",mp=\"/n\""),
            sample("a=\"b\""),
            "HTTP/1.0 404 Not Found\r\n\r\n".into(),
            "\u{0}\u{1}".into(),
            String::new(),
        ] {
            assert!(of(&wrong).is_err(), "{wrong}");
        }
    }
}
