//! Writes a binary dump.

use std::{collections::BTreeMap, io::Write};

use prost::Message;
use sluice_meta::schema::Row;

use super::{
    END, VERSION,
    messages::{Footer, Segments},
    segment::{Kind, ROWS, Segment},
};
use crate::DumpError;

/// Writes records, in any order; those of one kind are best written together.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    written: u64,
    kinds: BTreeMap<String, Segments>,
    kind: Option<Kind>,
    rows: Vec<Row>,
}

impl<W: Write> Writer<W> {
    /// A dump that goes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, written: 0, kinds: BTreeMap::new(), kind: None, rows: Vec::new() }
    }

    /// Writes a record, unless it is of a kind that dumps do not have.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write(&mut self, row: Row) -> Result<(), DumpError> {
        let Some(kind) = Kind::of(&row) else { return Ok(()) };
        if self.kind != Some(kind) || self.rows.len() == ROWS {
            self.end_segment()?;
            self.kind = Some(kind);
        }
        self.rows.push(row);
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

    /// Writes a segment, after all records that were written.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn append(&mut self, segment: &Segment) -> Result<(), DumpError> {
        self.end_segment()?;
        self.put(segment)
    }

    fn put(&mut self, segment: &Segment) -> Result<(), DumpError> {
        self.out.write_all(&segment.bytes)?;
        let segments = self.kinds.entry(segment.kind.name().into()).or_default();
        segments.offsets.push(self.written);
        segments.count += segment.rows as u64;
        self.written += segment.bytes.len() as u64;
        Ok(())
    }

    fn end_segment(&mut self) -> Result<(), DumpError> {
        self.kind = None;
        Segment::of(std::mem::take(&mut self.rows)).iter().try_for_each(|segment| self.put(segment))
    }
}
