//! Compares two trees completely: names, facts, links and every byte.

use super::side::{Side, list, read};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags},
    io::Errno,
};
use std::{collections::HashMap, path::Path};

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// The first difference between the trees of two sides, if any.
pub fn difference(a: &Side, b: &Side) -> Option<String> {
    let mut folders = vec![String::new()];
    // Which names are one file: each inode by the name under which it was met first.
    let mut first = [HashMap::new(), HashMap::new()];
    while let Some(folder) = folders.pop() {
        let names = [list(&a.at(&folder)), list(&b.at(&folder))];
        if names[0] != names[1] {
            return Some(format!("names in {folder:?}:\n  {:?}\n  {:?}", names[0], names[1]));
        }
        let [Ok(names), _] = names else {
            return Some(format!("{folder:?} cannot be listed: {:?}", names[0]));
        };
        for entry in names {
            let name = entry.rsplit_once(' ').map_or(entry.as_str(), |(name, _)| name);
            if name == "." || name == ".." {
                continue;
            }
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            let facts = [a.facts(&path), b.facts(&path)];
            if facts[0] != facts[1] {
                return Some(format!("{path:?}:\n  {:?}\n  {:?}", facts[0], facts[1]));
            }
            let [Ok(facts), _] = facts else {
                return Some(format!("{path:?} cannot be read: {:?}", facts[0]));
            };
            match FileType::from_raw_mode(facts.mode) {
                FileType::Directory => folders.push(path),
                FileType::RegularFile => {
                    let origins = [a, b].map(|side| inode(&side.at(&path)));
                    let seen = [0, 1].map(|at| {
                        origins[at]
                            .map(|inode| first[at].entry(inode).or_insert_with(|| path.clone()).clone())
                    });
                    if seen[0] != seen[1] {
                        return Some(format!(
                            "{path:?} is one file with {:?} here, with {:?} there",
                            seen[0], seen[1]
                        ));
                    }
                    if seen[0].as_ref() == Ok(&path)
                        && let Some(what) = content(&a.at(&path), &b.at(&path))
                    {
                        return Some(format!("{path:?}: {what}"));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn inode(path: &Path) -> Result<u64, Errno> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino)
}

fn content(a: &Path, b: &Path) -> Option<String> {
    let open = |path| rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty());
    let (a, b) = match (open(a), open(b)) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return Some(format!("open: {:?} here, {:?} there", a.err(), b.err())),
    };
    let mut at = 0;
    loop {
        match (read(&a, at, STEP), read(&b, at, STEP)) {
            (Ok(left), Ok(right)) if left == right && left.is_empty() => return None,
            (Ok(left), Ok(right)) if left == right => at += left.len() as u64,
            (Ok(left), Ok(right)) => {
                let same = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
                let place = at + same as u64;
                return Some(format!("byte {place}: {:?} here, {:?} there", left.get(same), right.get(same)));
            }
            (left, right) => {
                return Some(format!("read at {at}: {:?} here, {:?} there", left.err(), right.err()));
            }
        }
    }
}
