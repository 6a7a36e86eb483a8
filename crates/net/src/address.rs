//! Where a server listens.

use std::{fmt, path::PathBuf};

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// Path of a socket.
    Unix(PathBuf),
}

impl Address {
    /// Parses `host:port`, `host`, `[IPv6]:port`, `[IPv6]` or `IPv6`, without escapes. An empty
    /// host means this machine.
    ///
    /// # Errors
    /// A message, if the port is invalid.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let is_port = |(host, port): &(&str, &str)| {
            !port.ends_with(']') && (host.ends_with(']') || !host.contains(':'))
        };
        let (host, port) = match text.rsplit_once(':').filter(is_port) {
            Some((host, "")) => (host, default_port),
            Some((host, port)) => {
                (host, port.parse().map_err(|_| format!("\"{text}\" is no host and port"))?)
            }
            None => (text, default_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self::Tcp(if host.is_empty() { "127.0.0.1" } else { host }.into(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for (text, written) in [
            ("h", "h:9"),
            ("h:", "h:9"),
            ("h:7", "h:7"),
            ("", "127.0.0.1:9"),
            (":7", "127.0.0.1:7"),
            ("[::1]", "[::1]:9"),
            ("::1", "[::1]:9"),
            ("[::1]:7", "[::1]:7"),
        ] {
            let address = Address::parse(text, 9).expect(text);
            assert_eq!(address.to_string(), written);
            assert_eq!(Address::parse(written, 1), Ok(address));
        }
        for wrong in ["h:x", "h:70000"] {
            assert!(Address::parse(wrong, 9).is_err(), "{wrong}");
        }
    }
}
