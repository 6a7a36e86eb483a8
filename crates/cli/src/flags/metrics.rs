//! Flags about the metrics of a mount.

use std::{net::TcpListener, path::Path, time::Duration};

use clap::Args;
use sluice_vfs::OWN_LABELS;

use crate::{
    metrics::{Address, Exporter},
    push::{Gateway, Graphite, Pushes},
    sizes, volume,
};

/// Where metrics are shown, and how.
#[derive(Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsFlags {
    /// Show metrics to Prometheus at http://ADDRESS/metrics; empty for not at all [default:
    /// 127.0.0.1:9567, or the next free port]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    metrics: Option<Address>,
    /// Labels that every metric gets, as NAME:VALUE;NAME:VALUE
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    custom_labels: Option<Labels>,
    /// Tell the Consul at this address where the metrics are, as HOST:PORT; without --metrics they
    /// are then shown at the address of this machine that Consul sees
    #[arg(long, value_name = "ADDRESS", value_parser = consul)]
    consul: Option<String>,
    /// Send metrics to the Pushgateway of Prometheus at this address, as HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = place)]
    push_gateway: Option<String>,
    /// User and password for the Pushgateway, as USER:PASSWORD
    #[arg(long, value_name = "LOGIN", value_parser = login, requires = "push_gateway")]
    push_auth: Option<String>,
    /// Send metrics to the Graphite at this address, as HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = place)]
    push_graphite: Option<String>,
    /// Time between two sendings
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    push_interval: Duration,
    /// Labels that all metrics get that are sent, as NAME:VALUE;NAME:VALUE
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    push_labels: Option<Labels>,
    /// Where people find a console of the volume; `sluice status` and the console show it
    #[arg(long, value_name = "URL", value_parser = console_url)]
    pub(crate) console_url: Option<String>,
}

/// Labels with their values.
#[derive(Clone)]
struct Labels(Vec<(String, String)>);

impl MetricsFlags {
    /// What shows the metrics of a mount; `None` if nobody shall see them.
    pub(crate) fn exporter(&self, volume: &str, mountpoint: &Path) -> Option<Exporter> {
        let address = self.address();
        if matches!(address, Address::Nowhere) {
            return None;
        }
        let labels = self.labels(volume, mountpoint);
        let (consul, mountpoint) = (self.consul.clone(), mountpoint.display().to_string());
        Some(Exporter { address, labels, consul, mountpoint, bound: None })
    }

    fn address(&self) -> Address {
        self.metrics.clone().unwrap_or(Address::Default)
    }

    /// Where metrics will be shown, bound before the session is made, so that its record says so
    /// from the beginning. `None` if Consul has to be asked first. A failure is told when they are
    /// to be shown.
    pub(crate) fn bind(&self) -> Option<TcpListener> {
        if self.consul.is_some() { None } else { self.address().bind().ok().flatten() }
    }

    /// The labels of a mount.
    fn labels(&self, volume: &str, mountpoint: &Path) -> Vec<(String, String)> {
        let mut labels = vec![
            ("instance".to_owned(), volume::host_name()),
            ("juicefs_version".to_owned(), volume::VERSION.to_owned()),
            ("mp".to_owned(), mountpoint.display().to_string()),
            ("vol_name".to_owned(), volume.to_owned()),
        ];
        replace(&mut labels, self.custom_labels.as_ref());
        labels
    }

    /// Where the metrics of a mount are sent, if they are.
    pub(crate) fn pushes(&self, volume: &str, mountpoint: &Path) -> Option<Pushes> {
        let mut labels = self.labels(volume, mountpoint);
        replace(&mut labels, self.push_labels.as_ref());
        let graphite = self.push_graphite.clone().map(|address| Graphite { address, labels: labels.clone() });
        // With the version in its name a group would stay when the mount is upgraded.
        let (labels, group) = labels.into_iter().partition(|(name, _)| name == "juicefs_version");
        let auth = self.push_auth.clone();
        let gateway = self.push_gateway.clone().map(|address| Gateway { address, auth, group, labels });
        let interval = self.push_interval;
        (gateway.is_some() || graphite.is_some()).then_some(Pushes { gateway, graphite, interval })
    }
}

fn address(text: &str) -> Result<Address, String> {
    if text.is_empty() {
        return Ok(Address::Nowhere);
    }
    match text.rsplit_once(':') {
        // As with others, no host means all addresses.
        Some(("", port)) if port.parse::<u16>().is_ok() => Ok(Address::This(format!("0.0.0.0:{port}"))),
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Address::This(text.to_owned())),
        _ => Err("it must be HOST:PORT, such as 127.0.0.1:9567, or empty for no metrics".into()),
    }
}

/// Gives labels other values, or adds them.
fn replace(labels: &mut Vec<(String, String)>, by: Option<&Labels>) {
    for (name, value) in by.iter().flat_map(|labels| &labels.0) {
        labels.retain(|(known, _)| known != name);
        labels.push((name.clone(), value.clone()));
    }
}

fn place(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("it must be HOST:PORT, such as 10.0.0.1:9091".into()),
    }
}

fn login(text: &str) -> Result<String, String> {
    if text.contains(':') { Ok(text.to_owned()) } else { Err("it must be USER:PASSWORD".into()) }
}

fn console_url(text: &str) -> Result<String, String> {
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return Err("it must be http://HOST:PORT/ or https://HOST/".into());
    }
    // Everybody who has the volume mounted can read it.
    if text.contains(['@', '?', '#']) || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("write the address alone, without login and token".into());
    }
    Ok(text.to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    match sizes::duration(text) {
        Ok(interval) if interval >= Duration::from_secs(1) => Ok(interval),
        Ok(_) => Err("it must be at least 1s".into()),
        Err(error) => Err(error),
    }
}

fn consul(text: &str) -> Result<String, String> {
    match address(text) {
        Ok(Address::This(address)) => Ok(address),
        _ => Err("it must be HOST:PORT, such as 127.0.0.1:8500".into()),
    }
}

/// `NAME:VALUE`, separated by `;`.
fn labels(text: &str) -> Result<Labels, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once(':')
            .ok_or_else(|| format!("{pair:?} is no label; write NAME:VALUE;NAME:VALUE"))?;
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !first || !rest || name.starts_with("__") {
            return Err(format!(
                "{name:?} cannot name a label: letters, digits and _ can, without a digit or __ in front"
            ));
        }
        if OWN_LABELS.contains(&name) {
            return Err(format!("some metrics have a label {name} of their own; choose another name"));
        }
        if found.iter().any(|(known, _)| known == name) {
            return Err(format!("the label {name} is given twice"));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(Labels(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_and_wrong_ones_refused() {
        let read = |text| labels(text).map(|labels| labels.0);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a:1;_b2:x y:z;"), Ok(vec![pair("a", "1"), pair("_b2", "x y:z")]));
        assert_eq!(read(""), Ok(Vec::new()));
        for wrong in ["a", "1a:x", "a-b:x", ":x", "__a:x", "method:x", "le:1", "a:1;a:2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_read_and_wrong_ones_refused() {
        let text = |text| match address(text) {
            Ok(Address::This(address)) => address,
            Ok(Address::Nowhere) => "nowhere".into(),
            Ok(Address::Default) => "default".into(),
            Err(_) => "wrong".into(),
        };
        for (given, expected) in [
            ("", "nowhere"),
            ("127.0.0.1:9567", "127.0.0.1:9567"),
            ("[::1]:1", "[::1]:1"),
            (":9567", "0.0.0.0:9567"),
            ("9567", "wrong"),
            ("host:port", "wrong"),
            ("host:70000", "wrong"),
        ] {
            assert_eq!(text(given), expected, "{given}");
        }
    }

    fn none() -> MetricsFlags {
        MetricsFlags {
            metrics: None,
            custom_labels: None,
            consul: None,
            push_gateway: None,
            push_auth: None,
            push_graphite: None,
            push_interval: Duration::from_secs(10),
            push_labels: None,
            console_url: None,
        }
    }

    #[test]
    fn a_group_has_the_labels_of_the_mount_without_its_version() {
        let push_labels = labels("team:a").ok();
        let flags = MetricsFlags { push_gateway: Some("h:1".into()), push_labels, ..none() };
        let pushes = flags.pushes("vol", Path::new("/mnt")).unwrap();
        assert!(pushes.graphite.is_none());
        let gateway = pushes.gateway.unwrap();
        let names =
            |labels: &[(String, String)]| labels.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&gateway.group), ["instance", "mp", "vol_name", "team"]);
        assert_eq!(names(&gateway.labels), ["juicefs_version"]);
        assert!(none().pushes("vol", Path::new("/mnt")).is_none());
        assert!(place("9091").is_err() && place("h:x").is_err() && place(":9091").is_err());
        assert!(console_url("https://console.example.com:9567/").is_ok());
        for wrong in
            ["console:9567", "http://h/?token=a", "http://me:secret@h/", "http://h/#a", "http://a b/"]
        {
            assert!(console_url(wrong).is_err(), "{wrong}");
        }
        assert!(interval("0.5s").is_err() && login("me").is_err());
    }

    #[test]
    fn a_custom_label_takes_the_place_of_one_that_all_have() {
        let custom_labels = labels("mp:here;team:a").ok();
        let flags = MetricsFlags { custom_labels, ..none() };
        let exporter = flags.exporter("vol", Path::new("/mnt")).unwrap();
        let names: Vec<_> = exporter.labels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["instance", "juicefs_version", "vol_name", "mp", "team"]);
        let off = MetricsFlags { metrics: Some(Address::Nowhere), ..none() };
        assert!(off.exporter("vol", Path::new("/mnt")).is_none());
    }
}
