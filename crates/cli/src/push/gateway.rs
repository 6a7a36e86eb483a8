//! A Pushgateway of Prometheus: it keeps what it was sent last of each group of labels.

use std::io::{Read as _, Write as _};

use anyhow::{Result, bail};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

use super::connection::{Labels, connect};

/// Most bytes of an answer that are looked at.
const ANSWER: u64 = 64 << 10;

/// Where metrics are pushed to, and under which labels.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// User and password, `USER:PASSWORD`.
    pub(crate) auth: Option<String>,
    /// The labels of the group.
    pub(crate) group: Labels,
    /// What every metric gets besides.
    pub(crate) labels: Labels,
}

impl Gateway {
    /// Replaces what the gateway has of this group by what `text` says.
    pub(super) fn push(&self, text: impl Fn(&[(String, String)]) -> String) -> Result<()> {
        let body = text(&self.labels);
        let mut stream = connect(&self.address)?;
        let (path, length) = (self.path(), body.len());
        let auth =
            self.auth.as_ref().map(|auth| format!("Authorization: Basic {}\r\n", STANDARD.encode(auth)));
        write!(
            stream,
            "PUT {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n{}\
             Content-Length: {length}\r\n\r\n{body}",
            self.address,
            auth.unwrap_or_default()
        )?;
        let mut answer = Vec::new();
        stream.take(ANSWER).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            let reason = answer.split_once("\r\n\r\n").map_or("", |(_, reason)| reason.trim());
            bail!("{} answers {status} {reason}", self.address);
        }
        Ok(())
    }

    /// The path of the group. A value with other signs than those of a word is encoded.
    fn path(&self) -> String {
        let mut path = "/metrics/job/juicefs".to_owned();
        for (name, value) in &self.group {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            let (mark, value) = if value.is_empty() {
                ("@base64", "=".to_owned())
            } else if value.bytes().all(plain) {
                ("", value.clone())
            } else {
                ("@base64", URL_SAFE.encode(value))
            };
            path.extend(["/", name, mark, "/", &value]);
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_group_are_encoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let group = vec![pair("vol_name", "v-1"), pair("mp", "/mnt/a b"), pair("team", "")];
        let gateway = Gateway { address: String::new(), auth: None, group, labels: Vec::new() };
        assert_eq!(gateway.path(), "/metrics/job/juicefs/vol_name/v-1/mp@base64/L21udC9hIGI=/team@base64/=");
    }
}
