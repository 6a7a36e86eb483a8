//! A client of a Prometheus Pushgateway. The gateway keeps the last metrics of each label group.

use anyhow::Result;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

use super::labels::Labels;
use crate::small_request;

/// Where metrics are pushed to, and under which labels.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// User and password, `USER:PASSWORD`.
    pub(crate) auth: Option<String>,
    /// The labels of the group.
    pub(crate) group: Labels,
    /// Labels added to every metric.
    pub(crate) labels: Labels,
}

impl Gateway {
    /// Replaces the metrics of this group in the gateway by `text`.
    pub(super) fn push(&self, text: impl Fn(&[(String, String)]) -> String) -> Result<()> {
        let body = text(&self.labels);
        let auth = self.auth.as_ref().map(|auth| STANDARD.encode(auth));
        let auth = auth.map_or_else(String::new, |auth| format!("Authorization: Basic {auth}\r\n"));
        let headers = format!("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n{auth}");
        let stream = small_request::connect(&self.address)?;
        small_request::put(stream, &self.address, &self.path(), &headers, &body)
    }

    /// The path of the group. A value with special characters is encoded.
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
