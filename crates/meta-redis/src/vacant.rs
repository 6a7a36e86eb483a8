//! Finds keys of other programs in a database in which a volume is to be made.
//!
//! On a single server, the whole database belongs to the volume. In a cluster, only the keys with
//! the volume's prefix do, all of which are in one slot.

use redis::Value;
use sluice_meta::engine::EngineError;

use crate::{keys::Keys, pipeline::Pipeline, pool::Pool};

/// Fails if there is any key that would be the volume's.
pub(crate) fn check(pool: &Pool, keys: &Keys) -> Result<(), EngineError> {
    if keys.prefix.is_empty() { check_database(pool, keys.db()) } else { check_slot(pool, keys) }
}

fn check_database(pool: &Pool, db: u32) -> Result<(), EngineError> {
    let mut pipeline = Pipeline::default();
    pipeline.command("DBSIZE");
    pipeline.command("RANDOMKEY");
    let mut answers = sound(pool, &pipeline)?.into_iter();
    match (answers.next(), answers.next()) {
        (Some(Value::Int(0)), _) => Ok(()),
        (Some(Value::Int(count)), Some(key)) => Err(pool.errors().refused(format!(
            "database {db} holds no volume, but {}. A volume needs a database of its own: use another number in the \
             URL, or remove all keys of this one with FLUSHDB if nothing needs them",
            described(count, bytes(&key))
        ))),
        _ => Err(pool.errors().unexpected("DBSIZE")),
    }
}

fn check_slot(pool: &Pool, keys: &Keys) -> Result<(), EngineError> {
    let mut pipeline = Pipeline::default();
    pipeline.command("CLUSTER").extend([&b"KEYSLOT"[..], &keys.missing_key()]);
    let Some(slot) = sound(pool, &pipeline)?.first().and_then(number) else {
        return Err(pool.errors().unexpected("CLUSTER KEYSLOT"));
    };
    let of_slot = |what: &str, most: Option<u64>| {
        let mut pipeline = Pipeline::default();
        let command = pipeline.command("CLUSTER");
        command.push(what.as_bytes());
        command.push_number(slot);
        if let Some(most) = most {
            command.push_number(most);
        }
        sound(pool, &pipeline).map(|answers| answers.into_iter().next())
    };
    let Some(count) = of_slot("COUNTKEYSINSLOT", None)?.as_ref().and_then(number) else {
        return Err(pool.errors().unexpected("CLUSTER COUNTKEYSINSLOT"));
    };
    let Some(Value::Array(found)) = of_slot("GETKEYSINSLOT", Some(count))? else {
        return Err(pool.errors().unexpected("CLUSTER GETKEYSINSLOT"));
    };
    // Keys of other volumes, and of other programs, may be in the same slot.
    let own: Vec<&[u8]> = found.iter().map(bytes).filter(|key| key.starts_with(&keys.prefix)).collect();
    let Some(first) = own.first() else { return Ok(()) };
    Err(pool.errors().refused(format!(
        "the cluster holds no volume with the prefix {}, but {}. A volume needs a prefix of its own: use another \
         number in the URL, or delete all keys with this prefix if nothing needs them",
        keys.prefix.escape_ascii(),
        described(own.len() as i64, first)
    )))
}

fn sound(pool: &Pool, pipeline: &Pipeline) -> Result<Vec<Value>, EngineError> {
    pool.ask(pipeline)?.into_iter().map(|answer| pool.errors().sound(answer)).collect()
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None }
}

fn bytes(value: &Value) -> &[u8] {
    if let Value::BulkString(bytes) = value { bytes } else { &[] }
}

fn described(count: i64, key: &[u8]) -> String {
    match count {
        1 => format!("the key `{}`", key.escape_ascii()),
        _ => format!("{count} keys, such as `{}`", key.escape_ascii()),
    }
}
