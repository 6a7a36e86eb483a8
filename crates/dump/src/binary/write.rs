//! Writes a binary dump.

use std::{collections::BTreeMap, io::Write};

use prost::Message;
use sluice_meta::schema::Row;

use super::{
    END, VERSION,
    messages::{Batch, Footer, Format, Segments},
    segment::{Kind, add},
};
use crate::DumpError;

/// Records in a segment. JuiceFS reads a segment whole, and so does [`super::Reader`].
const ROWS: usize = 10_000;

/// Writes records, in any order; those of one kind are best written together.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    written: u64,
    kinds: BTreeMap<String, Segments>,
    kind: Option<Kind>,
    rows: usize,
    batch: Batch,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A dump that goes to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            kinds: BTreeMap::new(),
            kind: None,
            rows: 0,
            batch: Batch::default(),
            buffer: Vec::new(),
        }
    }

    /// Writes a record, unless it is of a kind that dumps do not have.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write(&mut self, row: Row) -> Result<(), DumpError> {
        let Some(kind) = Kind::of(&row) else { return Ok(()) };
        if self.kind != Some(kind) || self.rows == ROWS {
            self.end_segment()?;
            self.kind = Some(kind);
        }
        self.rows += 1;
        if let Row::Setting(data) = row {
            return self.segment(Kind::Format, &Format { data });
        }
        add(&mut self.batch, row);
        Ok(())
    }

    /// Ends the dump and gives `out` back.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn finish(mut self) -> Result<W, DumpError> {
        self.end_segment()?;
        let footer = Footer { magic: END, version: VERSION, kinds: std::mem::take(&mut self.kinds) };
        let body = footer.encode_to_vec();
        self.out.write_all(&END.to_be_bytes())?;
        self.out.write_all(&body)?;
        self.out.write_all(&(body.len() as u64).to_be_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_segment(&mut self) -> Result<(), DumpError> {
        let batch = std::mem::take(&mut self.batch);
        match self.kind.take() {
            Some(kind) if kind != Kind::Format => self.segment(kind, &batch),
            _ => Ok(()),
        }
    }

    fn segment(&mut self, kind: Kind, body: &impl Message) -> Result<(), DumpError> {
        self.buffer.clear();
        self.buffer.extend((kind as u32).to_be_bytes());
        self.buffer.extend((body.encoded_len() as u64).to_be_bytes());
        body.encode_raw(&mut self.buffer);
        self.out.write_all(&self.buffer)?;
        let segments = self.kinds.entry(kind.name().into()).or_default();
        segments.offsets.push(self.written);
        segments.count += std::mem::take(&mut self.rows) as u64;
        self.written += self.buffer.len() as u64;
        Ok(())
    }
}
