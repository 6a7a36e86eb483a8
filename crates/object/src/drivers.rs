//! The table of drivers: the storage names of `JuiceFS`, and how each reads the bucket's address.
//!
//! What must stay true: one row per name, and a bucket is read as `JuiceFS` reads it, so that a
//! volume made there opens here.

use opendal::{Builder, Operator, services};

use crate::{bucket_address::BucketAddress, config::StoreConfig};

/// Makes an operator, or returns what is wrong with the configuration.
type Build = fn(&StoreConfig, &BucketAddress) -> Result<Operator, String>;

/// A driver that talks to a server.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The name in a volume's settings.
    pub(crate) name: &'static str,
    /// Scheme of a bucket written without one.
    scheme: &'static str,
    build: Build,
}

const fn driver(name: &'static str, scheme: &'static str, build: Build) -> Driver {
    Driver { name, scheme, build }
}

/// Drivers besides `file` and `mem`, which have no server.
const DRIVERS: &[Driver] = &[
    driver("b2", "https", b2),
    driver("bos", "https", bos),
    driver("cos", "https", cos),
    driver("eos", "https", |config, address| host_bucket(config, address, |_| None, Style::Path)),
    driver("gs", "gs", gs),
    driver("ks3", "https", ks3),
    driver("minio", "http", minio),
    driver("obs", "https", obs),
    driver("oos", "https", oos),
    driver("oss", "https", oss),
    driver("qingstor", "https", qingstor),
    driver("qiniu", "https", qiniu),
    driver("s3", "https", s3),
    driver("scw", "https", |config, address| {
        host_bucket(config, address, |rest| label(rest, 1), Style::Host)
    }),
    driver("space", "https", |config, address| {
        host_bucket(config, address, |rest| label(rest, 0), Style::Host)
    }),
    driver("tos", "https", tos),
    driver("wasabi", "https", |config, address| {
        host_bucket(config, address, |rest| label(rest, 1), Style::Host)
    }),
    driver("wasb", "https", wasb),
    driver("webdav", "http", webdav),
];

/// Names of all drivers, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = DRIVERS.iter().map(|driver| driver.name).chain(["file", "mem"]).collect();
    names.sort_unstable();
    names
}

impl Driver {
    /// The driver of this name, in any case.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        DRIVERS.iter().find(|driver| driver.name.eq_ignore_ascii_case(name))
    }

    /// Where `config` says the bucket is.
    pub(crate) fn address(&self, config: &StoreConfig) -> Result<BucketAddress, String> {
        // Only Amazon's host names and single names are assumed to have TLS.
        let bare = config.bucket.split(['/', '?']).next().unwrap_or_default();
        let foreign = self.name == "s3" && bare.contains('.') && !bare.ends_with(".amazonaws.com");
        BucketAddress::parse(&config.bucket, if foreign { "http" } else { self.scheme })
    }

    /// Sends no request yet.
    pub(crate) fn build(&self, config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
        if config.access_key.is_empty() != config.secret_key.is_empty()
            && !matches!(config.access_key.as_str(), "anonymous")
            && !matches!(self.name, "wasb" | "gs" | "webdav")
        {
            let (given, missing) =
                if config.access_key.is_empty() { ("a secret", "access") } else { ("an access", "secret") };
            return Err(format!("there is {given} key but no {missing} key: give both, or neither"));
        }
        (self.build)(config, address)
    }
}

fn finish(builder: impl Builder) -> Result<Operator, String> {
    Operator::new(builder).map_err(|error| format!("the configuration is refused: {}", error.message()))
}

/// How a request names the bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Host,
    Path,
}

/// Any server with the S3 protocol.
fn s3_at(
    config: &StoreConfig,
    endpoint: &str,
    bucket: &str,
    region: Option<&str>,
    style: Style,
) -> Result<Operator, String> {
    let configured = Some(config.region.as_str()).filter(|region| !region.is_empty());
    let mut builder = services::S3::default()
        .endpoint(endpoint)
        .bucket(bucket)
        .region(region.or(configured).unwrap_or("us-east-1"));
    if config.access_key == "anonymous" {
        builder = builder.skip_signature();
    } else if !config.access_key.is_empty() {
        builder = builder
            .disable_config_load()
            .access_key_id(&config.access_key)
            .secret_access_key(config.secret_key.expose());
        if !config.session_token.is_empty() {
            builder = builder.session_token(config.session_token.expose());
        }
    }
    if !config.storage_class.is_empty() {
        builder = builder.default_storage_class(&config.storage_class);
    }
    finish(if style == Style::Host { builder.enable_virtual_host_style() } else { builder })
}

/// `<bucket>.<endpoint>`, with the region somewhere in the endpoint.
fn host_bucket(
    config: &StoreConfig,
    address: &BucketAddress,
    region: fn(&str) -> Option<&str>,
    style: Style,
) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    s3_at(config, &address.at(rest), bucket, region(rest), style)
}

/// The `n`th label of a host.
fn label(host: &str, n: usize) -> Option<&str> {
    host.split('.').nth(n)
}

fn s3(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let host = address.host();
    let amazon = host.contains(".amazonaws.com");
    if let Some(bucket) = address.in_path() {
        let region = if amazon { Some(amazon_region(host)) } else { None };
        return s3_at(config, &address.origin(), bucket, region, Style::Path);
    }
    if !host.contains('.') {
        return s3_at(config, "https://s3.amazonaws.com", host, None, Style::Host);
    }
    let (bucket, rest) = address.in_host()?;
    if !amazon {
        return s3_at(config, &address.at(rest), bucket, region_in(rest), Style::Path);
    }
    if let Some(private) = rest.strip_suffix(".vpce.amazonaws.com") {
        return s3_at(config, &address.at(rest), bucket, private.rsplit('.').next(), Style::Path);
    }
    // The name of a bucket may contain dots.
    let (bucket, rest) = host.split_once(".s3").ok_or_else(|| format!("{host} has no s3 in its name"))?;
    // A wildcard certificate does not cover names with more labels.
    let style = if bucket.contains('.') { Style::Path } else { Style::Host };
    let endpoint = format!("s3{rest}");
    s3_at(config, &address.at(&endpoint), bucket, Some(amazon_region(&endpoint)), style)
}

/// The region in a host name of Amazon: `s3.<region>.amazonaws.com`, `s3-<region>.…`,
/// `s3.dualstack.<region>.…`.
fn amazon_region(host: &str) -> &str {
    let rest = host.strip_prefix("s3.").or_else(|| host.strip_prefix("s3-")).unwrap_or(host);
    let rest = rest.strip_prefix("dualstack.").unwrap_or(rest);
    match rest.split('.').next() {
        Some("amazonaws" | "external-1") | None => "us-east-1",
        Some(region) => region,
    }
}

/// The region in the host names of other services that check it.
fn region_in(host: &str) -> Option<&str> {
    if let Some(oracle) = host.strip_suffix(".oraclecloud.com") {
        return oracle.split_once(".compat.objectstorage.").map(|(_, region)| region);
    }
    let ovh = host.strip_suffix(".cloud.ovh.net")?;
    ovh.strip_prefix("s3.")?.split('.').next()
}

fn minio(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let mut parts = address.address().split('/').skip(3).map(str::to_owned).collect::<Vec<_>>();
    parts.retain(|part| !part.is_empty());
    if parts.len() > 1 && parts[0] == "minio" {
        parts.remove(0);
    }
    let bucket = parts.first().ok_or_else(|| format!("no bucket: write {}/<bucket>", address.origin()))?;
    s3_at(config, &address.origin(), bucket, address.option("region").as_deref(), Style::Path)
}

/// Backblaze, through its S3 endpoint.
fn b2(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    if !rest.starts_with("s3.") {
        return Err(format!(
            "write the bucket with its S3 endpoint, https://{bucket}.s3.<region>.backblazeb2.com (the bucket's page tells it)"
        ));
    }
    s3_at(config, &address.at(rest), bucket, label(rest, 1), Style::Path)
}

fn bos(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    if rest == "bcebos.com" {
        return Err(format!("write the bucket with its region: https://{bucket}.<region>.bcebos.com"));
    }
    s3_at(config, &address.at(&format!("s3.{rest}")), bucket, label(rest, 0), Style::Path)
}

fn qingstor(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    s3_at(config, &address.at(&format!("s3.{rest}")), bucket, label(rest, 0), Style::Path)
}

fn qiniu(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    let region = label(rest, 0).and_then(|first| first.strip_prefix("s3-"));
    s3_at(config, &address.origin().replacen(&format!("{bucket}."), "", 1), bucket, region, Style::Path)
}

fn oos(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (_, rest) = address.in_host()?;
    let style = if rest.contains("xstore.ctyun.cn") { Style::Host } else { Style::Path };
    host_bucket(config, address, |rest| label(rest, 0).and_then(|first| first.get(4..)), style)
}

fn ks3(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (_, rest) = address.in_host()?;
    let own = rest.ends_with("ksyun.com") || rest.ends_with("ksyuncs.com");
    host_bucket(config, address, ks3_region, if own { Style::Host } else { Style::Path })
}

/// Kingsoft uses other region names in signatures.
fn ks3_region(host: &str) -> Option<&str> {
    let first = label(host, 0)?.strip_prefix("ks3")?.trim_start_matches('-');
    Some(match first.trim_end_matches("-internal") {
        "cn-beijing" => "BEIJING",
        "cn-shanghai" => "SHANGHAI",
        "cn-guangzhou" => "GUANGZHOU",
        "cn-qingdao" => "QINGDAO",
        "jr-beijing" => "JR_BEIJING",
        "jr-shanghai" => "JR_SHANGHAI",
        "" => "HANGZHOU",
        "cn-hk-1" => "HONGKONG",
        "rus" => "RUSSIA",
        "sgp" => "SINGAPORE",
        _ => return None,
    })
}

fn gs(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let bucket = address.host().split('.').next().unwrap_or_default();
    let builder = services::Gcs::default().bucket(bucket);
    finish(if config.storage_class.is_empty() {
        builder
    } else {
        builder.default_storage_class(&config.storage_class)
    })
}

fn wasb(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    if config.access_key.is_empty() {
        return Err("the storage account is missing: give its name as access key".into());
    }
    let (container, domain) =
        address.host().split_once('.').unwrap_or((address.host(), "blob.core.windows.net"));
    let blob = if domain.starts_with("blob") { "" } else { "blob." };
    let mut builder = services::Azblob::default()
        .container(container)
        .endpoint(&address.at(&format!("{}.{blob}{domain}", config.access_key)))
        .account_name(&config.access_key);
    if !config.secret_key.is_empty() {
        builder = builder.account_key(config.secret_key.expose());
    } else if !config.session_token.is_empty() {
        builder = builder.sas_token(config.session_token.expose().trim_start_matches('?'));
    }
    finish(builder)
}

fn oss(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host().map_err(|_| {
        format!("write the bucket with its endpoint: https://{}.oss-<region>.aliyuncs.com", address.host())
    })?;
    let mut builder = services::Oss::default().bucket(bucket).endpoint(&address.at(rest));
    if !config.access_key.is_empty() {
        builder = builder.access_key_id(&config.access_key).access_key_secret(config.secret_key.expose());
        if !config.session_token.is_empty() {
            builder = builder.security_token(config.session_token.expose());
        }
    }
    finish(builder)
}

fn cos(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host().map_err(|_| {
        format!("write the bucket with its endpoint: https://{}.cos.<region>.myqcloud.com", address.host())
    })?;
    let mut builder = services::Cos::default().bucket(bucket).endpoint(&address.at(rest));
    if !config.access_key.is_empty() {
        builder = builder
            .disable_config_load()
            .secret_id(&config.access_key)
            .secret_key(config.secret_key.expose());
        if !config.session_token.is_empty() {
            builder = builder.security_token(config.session_token.expose());
        }
    }
    finish(builder)
}

fn obs(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host().map_err(|_| {
        format!(
            "write the bucket with its endpoint: https://{}.obs.<region>.myhuaweicloud.com",
            address.host()
        )
    })?;
    let mut builder = services::Obs::default().bucket(bucket).endpoint(&address.at(rest));
    if !config.access_key.is_empty() {
        builder = builder.access_key_id(&config.access_key).secret_access_key(config.secret_key.expose());
    }
    finish(builder)
}

fn tos(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let (bucket, rest) = address.in_host()?;
    let region = label(rest, 0).unwrap_or_default();
    let mut builder = services::Tos::default()
        .bucket(bucket)
        .endpoint(&address.at(rest))
        .region(region.strip_prefix("tos-").unwrap_or(region));
    if !config.access_key.is_empty() {
        builder = builder.access_key_id(&config.access_key).secret_access_key(config.secret_key.expose());
        if !config.session_token.is_empty() {
            builder = builder.security_token(config.session_token.expose());
        }
    }
    finish(builder)
}

fn webdav(config: &StoreConfig, address: &BucketAddress) -> Result<Operator, String> {
    let mut builder = services::Webdav::default().endpoint(address.address().trim_end_matches('/'));
    if !config.access_key.is_empty() {
        builder = builder.username(&config.access_key).password(config.secret_key.expose());
    }
    finish(builder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(storage: &str, bucket: &str) -> StoreConfig {
        StoreConfig {
            storage: storage.into(),
            bucket: bucket.into(),
            access_key: "AK".into(),
            secret_key: "c2VjcmV0".into(),
            ..StoreConfig::default()
        }
    }

    fn operator(storage: &str, bucket: &str) -> Result<Operator, String> {
        let driver = Driver::named(storage).unwrap();
        let config = config(storage, bucket);
        driver.build(&config, &driver.address(&config)?)
    }

    #[test]
    fn every_driver_takes_its_usual_bucket() {
        let buckets = [
            ("b2", "https://data.s3.us-west-004.backblazeb2.com", "data"),
            ("bos", "https://data.bj.bcebos.com", "data"),
            ("cos", "https://data-125.cos.ap-beijing.myqcloud.com", "data-125"),
            ("eos", "https://data.eos-wuxi-1.cmecloud.cn", "data"),
            ("gs", "gs://data.us-east1", "data"),
            ("ks3", "https://data.ks3-cn-beijing.ksyun.com", "data"),
            ("minio", "http://127.0.0.1:9000/data", "data"),
            ("minio", "http://host/minio/data", "data"),
            ("obs", "https://data.obs.cn-east-3.myhuaweicloud.com", "data"),
            ("oos", "https://data.oos-bj2.ctyunapi.cn", "data"),
            ("oss", "https://data.oss-cn-hangzhou.aliyuncs.com", "data"),
            ("qingstor", "https://data.pek3a.qingstor.com", "data"),
            ("qiniu", "https://data.s3-cn-east-1.qiniucs.com", "data"),
            ("s3", "https://data.s3.us-east-2.amazonaws.com", "data"),
            ("s3", "https://s3.us-east-2.amazonaws.com/data", "data"),
            ("s3", "https://data.with.dots.s3.cn-north-1.amazonaws.com.cn", "data.with.dots"),
            ("s3", "http://127.0.0.1:9000/data", "data"),
            ("s3", "data", "data"),
            ("S3", "data.objects.example.org", "data"),
            ("scw", "https://data.s3.fr-par.scw.cloud", "data"),
            ("space", "https://data.nyc3.digitaloceanspaces.com", "data"),
            ("tos", "https://data.tos-cn-beijing.volces.com", "data"),
            ("wasabi", "https://data.s3.us-east-1.wasabisys.com", "data"),
            ("wasb", "https://data.core.windows.net", "data"),
        ];
        for (storage, bucket, name) in buckets {
            let operator =
                operator(storage, bucket).unwrap_or_else(|error| panic!("{storage} {bucket}: {error}"));
            assert_eq!(operator.info().name(), name, "{storage} {bucket}");
        }
        operator("webdav", "http://127.0.0.1/dav/").unwrap();
        for name in names() {
            let tried = buckets.iter().any(|(storage, ..)| *storage == name);
            assert!(tried || matches!(name, "file" | "mem" | "webdav"), "{name} is not tried above");
        }
    }

    #[test]
    fn regions_are_found_in_hosts() {
        for (host, region) in [
            ("s3.us-east-2.amazonaws.com", "us-east-2"),
            ("s3-us-west-2.amazonaws.com", "us-west-2"),
            ("s3.dualstack.eu-west-1.amazonaws.com", "eu-west-1"),
            ("s3.amazonaws.com", "us-east-1"),
            ("s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ] {
            assert_eq!(amazon_region(host), region);
        }
        assert_eq!(region_in("ns.compat.objectstorage.eu-paris-1.oraclecloud.com"), Some("eu-paris-1"));
        assert_eq!(region_in("s3.gra.cloud.ovh.net"), Some("gra"));
        assert_eq!(region_in("s3.sbg.io.cloud.ovh.net"), Some("sbg"));
        assert_eq!(region_in("objects.example.org"), None);
    }

    #[test]
    fn unusable_configurations_say_what_to_do() {
        for (storage, bucket, hint) in [
            ("s3", "", "missing"),
            ("s3", "http://127.0.0.1:9000", "<bucket>"),
            ("minio", "http://127.0.0.1:9000", "<bucket>"),
            ("oss", "https://data", "aliyuncs"),
            ("b2", "https://data.backblazeb2.com", "S3 endpoint"),
        ] {
            let error = operator(storage, bucket).unwrap_err();
            assert!(error.contains(hint), "{storage} {bucket}: {error}");
        }
        let driver = Driver::named("s3").unwrap();
        let mut half = config("s3", "http://127.0.0.1:9000/data");
        half.secret_key = "".into();
        let error = driver.build(&half, &driver.address(&half).unwrap()).unwrap_err();
        assert!(error.contains("no secret key"), "{error}");
    }
}
