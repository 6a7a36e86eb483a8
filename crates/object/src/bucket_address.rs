//! Parses the bucket's address, as users write it.
//!
//! What must stay true: an address has the same meaning here as in JuiceFS.

use std::net::IpAddr;

use url::{Host, Url};

/// A bucket's address: `scheme://host[:port]/path?options`, where the first label of the host or
/// the first part of the path names the bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketAddress {
    url: Url,
    /// Whether the scheme was left out.
    assumed: bool,
}

impl BucketAddress {
    /// Parses `bucket`; if it has no scheme, `scheme` is used.
    pub(crate) fn parse(bucket: &str, scheme: &str) -> Result<Self, String> {
        if bucket.trim().is_empty() {
            return Err("the bucket is missing: give its URL".into());
        }
        let assumed = !bucket.contains("://");
        let text = if assumed { format!("{scheme}://{bucket}") } else { bucket.to_owned() };
        let url = Url::parse(&text).map_err(|error| format!("the bucket {bucket:?} is no URL: {error}"))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(format!("the bucket {bucket:?} names no host"));
        }
        Ok(Self { url, assumed })
    }

    /// Whether it is used without TLS although the user did not write so.
    pub(crate) fn is_plain_by_default(&self) -> bool {
        self.assumed && self.url.scheme() == "http"
    }

    /// Host without port.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// `scheme://host[:port]` with another host.
    pub(crate) fn at(&self, host: &str) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}", self.url.scheme())
    }

    /// `scheme://host[:port]`.
    pub(crate) fn origin(&self) -> String {
        self.at(self.host())
    }

    /// The whole address without options.
    pub(crate) fn address(&self) -> String {
        format!("{}{}", self.origin(), self.url.path())
    }

    /// The first part of the path, if there is one.
    pub(crate) fn in_path(&self) -> Option<&str> {
        self.url.path_segments()?.find(|part| !part.is_empty())
    }

    /// The first label of the host and the rest, or why the host cannot name a bucket.
    pub(crate) fn in_host(&self) -> Result<(&str, &str), String> {
        let numeric = match self.url.host() {
            Some(Host::Domain(name)) => name.parse::<IpAddr>().is_ok(),
            _ => true,
        };
        match self.host().split_once('.') {
            Some(parts) if !numeric => Ok(parts),
            _ => Err(format!(
                "{} names no bucket: write {}/<bucket> or <bucket>.<endpoint>",
                self.origin(),
                self.origin()
            )),
        }
    }

    /// An option after `?`.
    pub(crate) fn option(&self, name: &str) -> Option<String> {
        self.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Whether an option after `?` is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.option(name).is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_buckets_apart() {
        let address = BucketAddress::parse("http://127.0.0.1:9000/bucket/deeper?region=x", "https").unwrap();
        assert_eq!(address.origin(), "http://127.0.0.1:9000");
        assert_eq!(address.in_path(), Some("bucket"));
        assert_eq!(address.option("region").as_deref(), Some("x"));
        assert!(address.in_host().unwrap_err().contains("/<bucket>"));
        let address = BucketAddress::parse("mybucket.s3.us-east-1.amazonaws.com", "https").unwrap();
        assert_eq!(address.in_host().unwrap(), ("mybucket", "s3.us-east-1.amazonaws.com"));
        assert_eq!(address.in_path(), None);
        assert!(BucketAddress::parse("", "https").unwrap_err().contains("missing"));
        assert!(BucketAddress::parse("http://", "https").is_err());
    }
}
