//! Which crate may depend on which, checked in the manifests. The table defines the architecture: a
//! new dependency between crates must be added here.

use crate::{Fault, Source, sources::DEV_CRATES};

/// Each crate with the crates of the workspace that it may use. `cli` may use all that ship.
const ARROWS: [(&str, &[&str]); 20] = [
    ("types", &[]),
    ("meta", &["types"]),
    ("net", &["types"]),
    ("tikv", &[]),
    ("meta-sql", &["types", "meta", "net"]),
    ("meta-redis", &["types", "meta", "net"]),
    ("meta-kv", &["types", "meta", "net", "tikv"]),
    ("dump", &["types", "meta"]),
    ("console", &["types", "meta"]),
    ("object", &["types"]),
    ("data", &["types", "object"]),
    ("peer", &["types", "data", "net"]),
    ("vfs", &["types", "meta", "data"]),
    ("fuse", &["types", "vfs"]),
    ("fs", &["types", "vfs"]),
    ("tasks", &["types"]),
    ("open", &["types", "meta", "meta-sql", "meta-redis", "meta-kv", "object", "data", "peer", "vfs", "fs"]),
    ("c", &["types", "fs", "open"]),
    ("python", &["types", "fs", "open"]),
    ("jni", &["fs", "open"]),
];

/// External crates with the only crates that may use them in what ships.
const KEPT_TO: [(&str, &[&str]); 14] = [
    ("rusqlite", &["meta-sql"]),
    ("postgres-protocol", &["meta-sql"]),
    ("mysql_async", &["meta-sql"]),
    ("redis", &["meta-redis"]),
    ("tikv-client", &["meta-kv"]),
    ("tonic", &["meta-kv", "tikv"]),
    ("opendal", &["object"]),
    ("fuser", &[]),
    ("rand", &["types"]),
    ("getrandom", &["types"]),
    ("anyhow", &["cli"]),
    ("clap", &["cli"]),
    ("pyo3", &["python"]),
    ("jni", &["jni"]),
];

/// The folders of the workspace's crates.
pub fn members(sources: &[Source]) -> Vec<&str> {
    sources
        .iter()
        .filter(|source| {
            source.path == format!("crates/{}/Cargo.toml", source.crate_folder().unwrap_or_default())
        })
        .filter_map(Source::crate_folder)
        .collect()
}

/// Every dependency goes the way of the table, and heavy ones stay where they belong.
pub fn directions(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for manifest in sources.iter().filter(|source| source.path.ends_with("/Cargo.toml")) {
        let Some(folder) = manifest.crate_folder() else { continue };
        if !manifest.text.contains("[lints]\nworkspace = true") {
            faults.push(format!("{}: say [lints] workspace = true", manifest.path));
        }
        if DEV_CRATES.contains(&folder) {
            continue;
        }
        for name in dependencies(&manifest.text) {
            let at = &manifest.path;
            if let Some(used) = name.strip_prefix("sluice-") {
                let allowed = match ARROWS.iter().find(|(folder_of_arrow, _)| *folder_of_arrow == folder) {
                    Some((_, allowed)) => allowed.contains(&used),
                    None if folder == "cli" => !DEV_CRATES.contains(&used),
                    None => {
                        faults.push(format!(
                            "{at}: crate {folder} is in no table: add it to tidy's directions"
                        ));
                        break;
                    }
                };
                if !allowed {
                    faults.push(format!("{at}: {folder} must not depend on {used}"));
                }
            }
            if let Some((_, homes)) = KEPT_TO.iter().find(|(kept, _)| *kept == name)
                && !homes.contains(&folder)
            {
                faults.push(format!("{at}: {name} belongs to {homes:?} only"));
            }
        }
    }
    faults
}

/// The names under `[dependencies]`, `[build-dependencies]` and those of targets; development ones
/// may point anywhere.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let section = section.rsplit_once("'.").map_or(section, |(_, section)| section);
            inside = section == "dependencies" || section == "build-dependencies";
            if let Some(name) = section.strip_prefix("dependencies.") {
                names.push(name);
            }
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            names.extend(line.split(['=', '.', ' ']).next());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(folder: &str, dependencies: &str) -> Source {
        let text = format!("[dependencies]\n{dependencies}\n[lints]\nworkspace = true\n");
        Source::new(&format!("crates/{folder}/Cargo.toml"), &text)
    }

    #[test]
    fn an_arrow_against_the_table_is_found() {
        let found =
            directions(&[manifest("meta", "sluice-types.workspace = true\nsluice-object.workspace = true")]);
        assert_eq!(found, ["crates/meta/Cargo.toml: meta must not depend on object"]);
        let found = directions(&[manifest("cli", "sluice-testkit = { path = \"x\" }")]);
        assert_eq!(found, ["crates/cli/Cargo.toml: cli must not depend on testkit"]);
        assert_eq!(directions(&[manifest("unheard-of", "sluice-types.workspace = true")]).len(), 1);
    }

    #[test]
    fn a_kept_crate_elsewhere_is_found() {
        assert_eq!(directions(&[manifest("vfs", "opendal = \"1\"")]).len(), 1);
        assert_eq!(directions(&[manifest("object", "opendal = { workspace = true }")]), Vec::<Fault>::new());
    }

    #[test]
    fn every_kind_of_section_is_read() {
        let text = "[package]\nname = \"sluice-x\"\n[dependencies]\na.workspace = true\n[dev-dependencies]\nb = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\nc = { version = \"1\" }\n[dependencies.d]\nversion = \"1\"\n";
        assert_eq!(dependencies(text), ["a", "c", "d"]);
    }
}
