//! `sluice summary`: the biggest entries of a tree.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::{
    control::{self, Control, Denied, Message},
    progress::Progress,
    sizes, table,
};

/// Show the biggest entries of a tree
#[derive(Args)]
#[command(after_help = "Example:\n  sluice summary --depth 3 /mnt/vol")]
pub(crate) struct Summary {
    /// A directory
    path: PathBuf,
    /// Levels to show, at most 10
    #[arg(short, long, default_value_t = 2)]
    depth: u8,
    /// Entries to show of each directory, at most 100
    #[arg(short, long, default_value_t = 10)]
    entries: u8,
    /// Count each file instead of believing the directories' own sums, as a mount of Sluice always
    /// does
    #[arg(long)]
    strict: bool,
    /// Comma-separated values
    #[arg(long)]
    csv: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    errno: i32,
    tree: Tree,
    #[serde(default)]
    denied: Denied,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tree {
    path: String,
    #[serde(rename = "Type")]
    kind: u8,
    size: u64,
    files: u64,
    dirs: u64,
    #[serde(default)]
    children: Option<Vec<Self>>,
}

const DIRECTORY: u8 = 2;

impl Summary {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let path = std::path::absolute(&self.path)?;
        let message = Message::new(control::SUMMARY).ino(control::inode(&path)?).put(&[
            self.depth.min(10),
            self.entries.min(100),
            u8::from(self.strict),
        ]);
        let progress = Progress::new("count entries", None);
        let answer = Control::open(&path)?.ask(message, progress.piece());
        progress.finish();
        let answer = answer.with_context(|| format!("cannot sum {} up", path.display()))?;
        let answer: Answer =
            serde_json::from_slice(&answer).context("the mount's answer is not understood")?;
        if answer.errno != 0 {
            return Err(std::io::Error::from_raw_os_error(answer.errno).into());
        }
        let mut rows = vec![["PATH", "SIZE", "DIRS", "FILES"].map(str::to_owned).to_vec()];
        self.add(&mut rows, &answer.tree);
        if self.csv {
            for row in &rows {
                outln!("{}", csv(row));
            }
        } else {
            table::print(&rows, &[0]);
        }
        Ok(if answer.denied.say(&path) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn add(&self, rows: &mut Vec<Vec<String>>, tree: &Tree) {
        let slash = if tree.kind == DIRECTORY && !tree.path.ends_with('/') { "/" } else { "" };
        let size = if self.csv { tree.size.to_string() } else { sizes::human(tree.size) };
        rows.push(vec![format!("{}{slash}", tree.path), size, tree.dirs.to_string(), tree.files.to_string()]);
        for child in tree.children.iter().flatten() {
            self.add(rows, child);
        }
    }
}

/// A line of comma-separated values.
fn csv(row: &[String]) -> String {
    let cell = |cell: &String| {
        if cell.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    };
    row.iter().map(cell).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_names_stay_one_value() {
        assert_eq!(csv(&["a,b".to_owned(), "c\"d".into(), "e".into()]), "\"a,b\",\"c\"\"d\",e");
    }
}
