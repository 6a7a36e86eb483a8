//! `sluice load`: creates a volume from a dump, or lists the content of a dump.

use std::{
    env,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use sluice_dump::{DumpError, LoadOptions, Packing, binary, load_binary, load_json};
use sluice_meta::schema::Row;
use sluice_object::crypto::{ObjectCipher, VolumeKey};

use crate::{engines, progress::Progress, sizes};

/// Make a volume of a dump, in an empty database
///
/// Example: `sluice load postgres://me@host/db meta.json.gz`. JSON or binary, and how it is
/// compressed, is seen from the content. What a load that was cut off left in the database is
/// removed by the next. `sluice load --stat meta.bin` says what a binary dump holds.
#[derive(Args)]
pub(crate) struct Load {
    /// Metadata engine; with --stat the dump
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// The dump; standard input if none
    file: Option<PathBuf>,
    /// Threads that write, at most 256, each over a connection of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = sizes::threads)]
    threads: usize,
    /// Load nothing: list how many records of each kind a binary dump holds
    #[arg(long)]
    stat: bool,
    /// With --stat, where in the dump the segments of each kind begin (-1), or the records of the
    /// segment that begins there
    #[arg(long, requires = "stat", allow_negative_numbers = true)]
    offset: Option<i64>,
    /// File with the RSA key (PEM) of an encrypted backup; `JFS_RSA_PASSPHRASE` has its passphrase
    #[arg(long, value_name = "PATH")]
    encrypt_rsa_key: Option<PathBuf>,
    /// How the backup is encrypted: aes256gcm-rsa or chacha20-rsa
    #[arg(long, value_name = "NAME", default_value = "aes256gcm-rsa")]
    encrypt_algo: String,
    /// No effect: the content says it
    #[arg(long, hide = true)]
    binary: bool,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let file = if self.stat { Some(PathBuf::from(&self.meta_url)) } else { self.file.clone() };
        if self.stat && self.file.is_some() {
            bail!("--stat takes the dump alone; leave out META-URL");
        }
        let (input, name): (Box<dyn Read>, String) = match file.as_deref() {
            Some(file) if file != Path::new("-") => {
                let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
                (Box::new(opened), file.display().to_string())
            }
            _ => (Box::new(io::stdin().lock()), "standard input".into()),
        };
        let input = self.opened(input).with_context(|| format!("cannot decrypt {name}"))?;
        let mut input = unpacked(input).with_context(|| format!("cannot read {name}"))?;
        let begin = input.fill_buf().with_context(|| format!("cannot read {name}"))?;
        if begin.is_empty() {
            bail!("{name} is empty; name a dump that `sluice dump` or `juicefs dump` wrote");
        }
        let is_binary = begin.first().is_some_and(|byte| *byte == 0);
        if !is_binary && !is_json(begin) {
            bail!(
                "{name} is neither a JSON dump nor a binary one; if it is an encrypted backup, name the key of the \
                 volume with --encrypt-rsa-key"
            );
        }
        if self.stat {
            if !is_binary {
                bail!("{name} is no binary dump; --stat reads those that `sluice dump --binary` wrote");
            }
            return self.show(input).with_context(|| format!("cannot read {name}"));
        }
        let engine = engines::open(&self.meta_url)?;
        let progress = Progress::new("load records", None);
        let options = LoadOptions { threads: self.threads };
        let add = |count| progress.add(count);
        let loaded = if is_binary {
            load_binary(&*engine, input, options, &add)
        } else {
            load_json(&*engine, input, options, &add)
        };
        loaded.with_context(|| format!("cannot load {name}"))?;
        let (count, time) = progress.finish();
        doneln!("loaded {count} records in {:.2} s", time.as_secs_f64());
        Ok(ExitCode::SUCCESS)
    }

    /// What an encrypted backup holds: one object as the volume's store has them, which is
    /// decrypted as a whole.
    fn opened(&self, mut input: Box<dyn Read>) -> Result<Box<dyn Read>> {
        let Some(key) = &self.encrypt_rsa_key else { return Ok(input) };
        let pem = std::fs::read_to_string(key).with_context(|| format!("cannot read {}", key.display()))?;
        let passphrase = env::var("JFS_RSA_PASSPHRASE").unwrap_or_default();
        let cipher = ObjectCipher::new(VolumeKey::from_pem(&pem, &passphrase)?, self.encrypt_algo.parse()?);
        let mut sealed = Vec::new();
        input.read_to_end(&mut sealed)?;
        let sealed = Bytes::from(sealed);
        match cipher.open(sealed.clone()) {
            Err(_) if is_dump(&sealed) => {
                bail!("the dump is not encrypted; leave out --encrypt-rsa-key")
            }
            opened => Ok(Box::new(Cursor::new(opened?))),
        }
    }

    /// Says what a binary dump holds.
    fn show(&self, input: impl Read) -> Result<ExitCode> {
        if let Some(offset) = self.offset.filter(|offset| *offset != -1) {
            let offset = u64::try_from(offset).context("--offset is -1 or where a segment begins")?;
            let (name, rows) = segment_at(input, offset)?;
            outln!("Segment: {name}");
            for row in rows {
                outln!("{row:?}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let offsets = self.offset.is_some();
        outln!("{:<10}| {:<10}{}", "Name", "Num", if offsets { "| Offset" } else { "" });
        for binary::Contents { name, count, offsets: at } in binary::contents(input)? {
            let at = if offsets { format!("| {at:?}") } else { String::new() };
            outln!("{name:<10}| {count:<10}{at}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn segment_at(input: impl Read, offset: u64) -> Result<(&'static str, Vec<Row>)> {
    const WHERE: &str = "--offset=-1 shows where segments begin";
    match binary::segment_at(input, offset) {
        Err(DumpError::CutOff(length)) if length < offset => {
            bail!("--offset {offset} is beyond the end of the dump, which has {length} bytes; {WHERE}")
        }
        Err(DumpError::CutOff(at)) if at == offset => {
            bail!("--offset {offset} is too near to the end of the dump for a segment; {WHERE}")
        }
        found => Ok(found?),
    }
}

/// Whether a file begins as a dump that is not encrypted, packed or not. An encrypted one begins
/// with the length of a sealed key, which is neither 0 nor thousands of bytes.
fn is_dump(begin: &[u8]) -> bool {
    is_json(begin) || begin.starts_with(&[0; 3]) || Packing::of_content(begin) != Packing::None
}

/// Whether a file begins as a JSON object.
fn is_json(begin: &[u8]) -> bool {
    begin.trim_ascii_start().starts_with(b"{")
}

fn unpacked(input: Box<dyn Read>) -> io::Result<BufReader<Box<dyn Read>>> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let packing = Packing::of_content(input.fill_buf()?);
    Ok(BufReader::new(packing.unpack(input)?))
}
