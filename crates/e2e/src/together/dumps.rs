//! Dumps: each program reads what the other wrote, and both say the same of a volume.

use super::both::both;
use crate::rig::{Engine, Volume, command};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::Path;

/// Names of extended attributes that only one of the two forms of escapes leaves as they are.
const XATTRS: [&str; 4] = ["user.50%", "user.%41", "user.\"q\\", "user.a b"];

/// Makes a volume with `make`, dumps it with both programs, and has each load what the other wrote.
pub(super) fn run(
    [sluice, juicefs]: [&Path; 2],
    engine: Engine,
    within: &Path,
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(within)?;
    let mut volume = Volume::new(sluice, engine, within, &["--enable-acl"])?;
    both(&mut volume, [sluice, juicefs], |mounts| {
        let tree = mounts[0].join("tree");
        make(&tree)?;
        let set = |name| rustix::fs::setxattr(&tree, name, b"%41", rustix::fs::XattrFlags::empty());
        Ok(XATTRS.into_iter().try_for_each(set)?)
    })?;
    let meta = volume.meta.clone();
    let place = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let url = |name: &str| format!("sqlite3://{}", place(name));
    let tree = |name: &str| -> anyhow::Result<Value> {
        let mut tree: Value = serde_json::from_slice(&std::fs::read(place(name))?)?;
        normalize(&mut tree);
        // Before the first file is in the trash it has no record; each makes attributes up.
        if let Some(Value::Object(trash)) = tree.get_mut("Trash") {
            trash.remove("attr");
        }
        Ok(tree)
    };
    command(juicefs, &["dump", &meta, &place("theirs.json")])?;
    let theirs = tree("theirs.json")?;
    command(sluice, &["dump", &meta, &place("ours.json")])?;
    alike(&tree("ours.json")?, &theirs).context("what both dump")?;
    for (form, flags) in [("json", &[][..]), ("binary", &["--binary"][..])] {
        for (writer, reader) in [(sluice, juicefs), (juicefs, sluice)] {
            let who = if writer == sluice { "ours" } else { "theirs" };
            let (dump, loaded) = (place(&format!("{who}.{form}")), url(&format!("{who}-{form}.db")));
            command(writer, &[&["dump"], flags, &[&meta, &dump]].concat())?;
            command(reader, &[&["load"], flags, &[&loaded, &dump]].concat())
                .with_context(|| format!("{form} that {} wrote", writer.display()))?;
            command(sluice, &["dump", &loaded, &place("again.json")])?;
            alike(&tree("again.json")?, &theirs).with_context(|| format!("{form}, {who}, loaded"))?;
        }
    }
    Ok(())
}

/// What is left out, and what says nothing: numbers of sessions, and the next free numbers, which
/// loading counts anew.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for name in ["nextInodes", "nextChunk", "nextSession", "Sustained", "Setting"] {
                members.remove(name);
            }
            members.values_mut().for_each(normalize);
            members.retain(|_, value| {
                !(value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty))
            });
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

fn alike(one: &Value, other: &Value) -> anyhow::Result<()> {
    let mut different = Vec::new();
    compare("", one, other, &mut different);
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

fn compare(path: &str, one: &Value, other: &Value, different: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let only = theirs.keys().filter(|name| !ours.contains_key(*name));
            for name in ours.keys().chain(only) {
                let of =
                    |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
                compare(&format!("{path}/{name}"), &of(ours), &of(theirs), different);
            }
        }
        _ if one != other => different.push(format!("{path}: {one} and {other}")),
        _ => {}
    }
}
