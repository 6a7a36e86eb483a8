//! Opens the engine of a metadata URL. Only this file has the list of all engines.

use std::{fs, path::Path, sync::Arc};

use sluice_meta::{ClientCache, engine::Engine, mem::MemEngine};
use sluice_meta_kv::EtcdEngine;
#[cfg(feature = "tikv")]
use sluice_meta_kv::TikvEngine;
use sluice_meta_redis::{Config as RedisConfig, RedisEngine, Secret};
use sluice_meta_sql::{MysqlEngine, PostgresEngine, SqliteEngine};
use sluice_types::parse_duration;

use crate::{
    error::{OpenError, Result, invalid},
    variables::Variables,
};

/// Opens the engine that `url` names. A password may come from the environment instead of the URL.
///
/// # Errors
/// The URL is wrong, or its engine cannot be opened.
pub fn engine(url: &str, variables: Variables<'_>) -> Result<Arc<dyn Engine>> {
    if url.trim().is_empty() {
        return invalid(
            "META-URL is empty; name the database of the volume, such as redis://HOST:PORT/DB or sqlite3://FILE",
        );
    }
    if !url.contains("://") && (url.starts_with(['/', '.', '~']) || Path::new(url).exists()) {
        return invalid(format!(
            "{url} is a path, not the URL of a metadata engine; for an SQLite database write sqlite3://{url}"
        ));
    }
    // As JuiceFS does it: no scheme at all means Redis.
    let url = if url.contains("://") { url.to_owned() } else { format!("redis://{url}") };
    let (url, _) = split_client_cache(&url)?;
    let scheme = url.split("://").next().unwrap_or_default();
    let engine: Arc<dyn Engine> = match scheme {
        "sqlite3" => Arc::new(SqliteEngine::open(&absolute(&url)?)?),
        "redis" | "rediss" | "unix" => Arc::new(RedisEngine::with_config(redis(&url, variables)?)?),
        "postgres" | "postgresql" => Arc::new(PostgresEngine::open(&with_password(&url, variables)?)?),
        "mysql" => Arc::new(MysqlEngine::open(&url, password(variables)?)?),
        "etcd" => Arc::new(EtcdEngine::open(&with_password(&url, variables)?)?),
        #[cfg(feature = "tikv")]
        "tikv" => Arc::new(TikvEngine::open(&url)?),
        #[cfg(not(feature = "tikv"))]
        "tikv" => return invalid("this sluice was built without TiKV; build it with --features tikv"),
        "mem" => Arc::new(MemEngine::new()),
        other => {
            return invalid(format!(
                "no metadata engine is called {other}://; there are sqlite3://FILE, redis://HOST:PORT/DB, rediss://, unix://SOCKET, postgres://USER@HOST/DB, mysql://USER:PASSWORD@(HOST:PORT)/DB, tikv://PD:PORT,PD:PORT/PREFIX, etcd://HOST:PORT,HOST:PORT/PREFIX and mem://"
            ));
        }
    };
    Ok(engine)
}

/// What a Redis URL says, with the passwords that the environment gives.
fn redis(url: &str, variables: Variables<'_>) -> Result<RedisConfig> {
    let mut config = RedisConfig::parse(&with_password(url, variables)?)?;
    let password = variables("SENTINEL_PASSWORD").filter(|password| !password.is_empty());
    config.sentinel_password = password.map(Secret);
    Ok(config)
}

/// What `url` says of the cache of a client: see [`ClientCache`].
///
/// # Errors
/// It says something else.
pub fn client_cache(url: &str) -> Result<Option<ClientCache>> {
    Ok(split_client_cache(url)?.1)
}

/// The URL without the options that no engine knows, and what they say. Named as `JuiceFS` names
/// them, hyphens or underscores: `client-cache` (anything but `false` turns it on),
/// `client-cache-size`, `client-cache-expire`, `client-cache-preload`.
fn split_client_cache(url: &str) -> Result<(String, Option<ClientCache>)> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut on, mut cache, mut rest) = (false, ClientCache::default(), Vec::new());
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |what: &str| OpenError::Invalid(format!("{name}={value} in the metadata URL: {what}"));
        let number = || value.parse::<usize>().map_err(|_| wrong("it takes a number of entries"));
        match name.replace('_', "-").as_str() {
            "client-cache" => on = value != "false",
            "client-cache-size" => cache.size = number()?,
            "client-cache-preload" => cache.preload = number()?,
            "client-cache-expire" => {
                let takes = "it takes numbers with ms, s, m, h or d, such as 1h30m";
                cache.expire = parse_duration(value).ok_or_else(|| wrong(takes))?;
            }
            _ => rest.push(pair),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, on.then_some(cache)))
}

/// The URL of a database in a file with an absolute path, so that it means the same wherever the
/// process goes. Others are left as they are.
///
/// # Errors
/// The process has no current directory.
pub fn absolute(url: &str) -> Result<String> {
    let Some((scheme @ "sqlite3", rest)) = url.split_once("://") else { return Ok(url.to_owned()) };
    let (path, query) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
    if path.is_empty() || path.starts_with('/') || path.starts_with("file:") || path.contains(":memory:") {
        return Ok(url.to_owned());
    }
    let full = std::path::absolute(path)
        .map_err(|error| OpenError::File(format!("cannot find out where {path} is"), error))?;
    Ok(format!("{scheme}://{}{query}", full.display()))
}

/// The URL with the password that the environment gives, unless it has one itself.
fn with_password(url: &str, variables: Variables<'_>) -> Result<String> {
    let Some(password) = password(variables)? else { return Ok(url.to_owned()) };
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(url.to_owned()) };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let encoded = password.bytes().fold(String::new(), |encoded, byte| encoded + &format!("%{byte:02X}"));
    Ok(match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => url.to_owned(),
        Some((user, _)) => format!("{scheme}://{user}:{encoded}{}", &rest[user.len()..]),
        None => format!("{scheme}://:{encoded}@{rest}"),
    })
}

/// Whether the environment gives the password of the server at `url`.
///
/// # Errors
/// The file with the password cannot be read.
pub fn takes_password_from_environment(url: &str, variables: Variables<'_>) -> Result<bool> {
    Ok(!url.starts_with("sqlite3://") && with_password(url, variables)? != url)
}

fn password(variables: Variables<'_>) -> Result<Option<String>> {
    if let Some(file) = variables("META_PASSWORD_FILE") {
        let password = fs::read_to_string(&file)
            .map_err(|error| OpenError::File(format!("META_PASSWORD_FILE names {file}"), error))?;
        return Ok(Some(password.trim_end_matches('\n').to_owned()));
    }
    let either = variables("META_PASSWORD").or_else(|| variables("REDIS_PASSWORD"));
    Ok(either.filter(|password| !password.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::{env, time::Duration};

    use super::*;

    #[test]
    fn only_the_path_of_a_file_is_made_absolute() {
        for server in ["redis://h:6379/1", "postgres://u:p@h/db?sslmode=disable", "mysql://u@(h:3306)/db"] {
            assert_eq!(absolute(server).expect("absolute"), server);
        }
        for file in ["sqlite3:///a/b.db", "sqlite3://:memory:", "sqlite3://file:b.db?mode=ro"] {
            assert_eq!(absolute(file).expect("absolute"), file);
        }
        let here = env::current_dir().expect("a folder");
        let expected = format!("sqlite3://{}?cache=shared", here.join("a/b.db").display());
        assert_eq!(absolute("sqlite3://a/b.db?cache=shared").expect("absolute"), expected);
    }

    #[test]
    fn the_cache_is_named_in_the_url_and_no_engine_sees_it() {
        let split = |url: &str| split_client_cache(url).expect("valid");
        assert_eq!(split("redis://h/1"), ("redis://h/1".into(), None));
        assert_eq!(split("redis://h/1?client-cache=false&a=b"), ("redis://h/1?a=b".into(), None));
        assert_eq!(
            split("redis://h/1?client-cache=true"),
            ("redis://h/1".into(), Some(ClientCache::default()))
        );
        let url = "mysql://u@(h)/d?x=1&client_cache&client-cache-size=7&client-cache-expire=2m&y&client-cache-preload=3";
        let cache = ClientCache { size: 7, expire: Duration::from_mins(2), preload: 3 };
        assert_eq!(split(url), ("mysql://u@(h)/d?x=1&y".into(), Some(cache)));
        for wrong in ["client-cache-size=many", "client-cache-expire=soon", "client-cache-preload=-1"] {
            let error = split_client_cache(&format!("redis://h/1?{wrong}")).expect_err(wrong);
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_password_comes_from_the_environment_if_the_url_has_none() {
        let variables = |name: &str| (name == "META_PASSWORD").then(|| "p@ss".to_owned());
        let with = |url: &str| with_password(url, &variables).expect("valid");
        assert_eq!(with("redis://h/1"), "redis://:%70%40%73%73@h/1");
        assert_eq!(with("postgres://u@h/db"), "postgres://u:%70%40%73%73@h/db");
        assert_eq!(with("postgres://u:own@h/db"), "postgres://u:own@h/db");
        assert!(takes_password_from_environment("redis://h/1", &variables).expect("valid"));
        assert!(!takes_password_from_environment("sqlite3://a.db", &variables).expect("valid"));
    }
}
