//! `sluice load`: makes a volume of a dump.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;
use sluice_dump::{LoadOptions, Packing, load_binary, load_json};

use crate::{engines, progress::Progress};

/// Make a volume of a dump, in an empty database
///
/// Example: `sluice load postgres://me@host/db meta.json.gz`. JSON or binary, and how it is
/// compressed, is seen from the content.
#[derive(Args)]
pub(crate) struct Load {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// The dump; standard input if none
    file: Option<PathBuf>,
    /// Threads that write, each over a connection of its own
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// No effect: the content says it
    #[arg(long, hide = true)]
    binary: bool,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (input, name): (Box<dyn Read>, String) = match self.file.as_deref() {
            Some(file) if file != Path::new("-") => {
                let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
                (Box::new(opened), file.display().to_string())
            }
            _ => (Box::new(io::stdin().lock()), "standard input".into()),
        };
        let engine = engines::open(&self.meta_url)?;
        let progress = Progress::new("load records", None);
        let options = LoadOptions { threads: self.threads };
        let add = |count| progress.add(count);
        let mut input = unpacked(input).with_context(|| format!("cannot read {name}"))?;
        let begin = input.fill_buf().with_context(|| format!("cannot read {name}"))?;
        let loaded = if begin.first().is_some_and(|byte| *byte == 0) {
            load_binary(&*engine, input, options, &add)
        } else {
            load_json(&*engine, input, options, &add)
        };
        loaded.with_context(|| format!("cannot load {name}"))?;
        let (count, time) = progress.finish();
        outln!("loaded {count} records in {:.2} s", time.as_secs_f64());
        Ok(ExitCode::SUCCESS)
    }
}

fn unpacked(input: Box<dyn Read>) -> io::Result<BufReader<Box<dyn Read>>> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let packing = Packing::of_content(input.fill_buf()?);
    Ok(BufReader::new(packing.unpack(input)?))
}
