//! Reads a binary dump from its beginning to its end.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use bytes::{Bytes, BytesMut};
use prost::Message;
use sluice_meta::schema::Row;

use super::{
    Contents, END, VERSION,
    messages::{Batch, Footer, Format, Segments},
    segment::{Kind, rows},
};
use crate::DumpError;

/// Bytes of the largest segment that is read: JuiceFS puts 100,000 records into one.
const LARGEST: u64 = 1 << 30;

/// Reads the records of a dump, a segment at a time.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    read: u64,
    ended: bool,
    kinds: BTreeMap<String, Segments>,
}

impl<R: Read> Reader<R> {
    /// The dump that `input` begins with.
    pub const fn new(input: R) -> Self {
        Self::at(input, 0)
    }

    /// For what follows the first `read` bytes of a dump.
    pub(super) const fn at(input: R, read: u64) -> Self {
        Self { input, read, ended: false, kinds: BTreeMap::new() }
    }

    /// What the footer says that the dump holds; nothing before the end.
    pub(super) fn contents(self) -> Vec<Contents> {
        let contents = |(name, Segments { offsets, count })| Contents { name, count, offsets };
        self.kinds.into_iter().map(contents).collect()
    }

    /// Bytes read so far.
    pub const fn position(&self) -> u64 {
        self.read
    }

    /// The records of the next segment, none for a kind that this version does not know; `None` at
    /// the end of the dump, once its footer is whole.
    ///
    /// # Errors
    /// If `input` cannot be read, is cut off, or is no dump.
    pub fn segment(&mut self) -> Result<Option<Vec<Row>>, DumpError> {
        if self.ended {
            return Ok(None);
        }
        let begin = self.read;
        let number = u32::from_be_bytes(self.array()?);
        if number == END {
            self.footer(begin)?;
            self.ended = true;
            return Ok(None);
        }
        // The first is the settings: of what begins otherwise the length means nothing.
        if begin == 0 && number != Kind::Format as u32 {
            return Err(DumpError::damaged("this is no binary dump: it does not begin with settings", 0));
        }
        let length = u64::from_be_bytes(self.array()?);
        if length > LARGEST {
            return Err(DumpError::damaged(format!("a segment of {length} bytes"), begin));
        }
        let body = self.bytes(length)?;
        let broken = |_| DumpError::damaged(format!("a segment of kind {number} that cannot be read"), begin);
        match Kind::from_number(number) {
            Some(Kind::Format) => {
                let format = Format::decode(body).map_err(broken)?;
                Ok(Some(vec![Row::Setting(format.data)]))
            }
            Some(_) => rows(Batch::decode(body).map_err(broken)?)
                .map(Some)
                .map_err(|key| DumpError::damaged(format!("the record {key:?} cannot be read"), begin)),
            None => Ok(Some(Vec::new())),
        }
    }

    /// Everything up to the end; the last 8 bytes are the footer's length.
    fn footer(&mut self, begin: u64) -> Result<(), DumpError> {
        let mut rest = Vec::new();
        io::copy(&mut (&mut self.input).take(LARGEST), &mut rest)?;
        self.read += rest.len() as u64;
        let cut_off = DumpError::CutOff(self.read);
        let Some((body, length)) = rest.split_last_chunk::<8>() else { return Err(cut_off) };
        if u64::from_be_bytes(*length) != body.len() as u64 {
            return Err(cut_off);
        }
        match Footer::decode(body) {
            Ok(footer) if footer.magic == END && footer.version == VERSION => {
                self.kinds = footer.kinds;
                Ok(())
            }
            Ok(footer) if footer.magic == END => Err(DumpError::Newer(footer.version)),
            _ => Err(DumpError::damaged("a footer that cannot be read", begin)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DumpError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A length that lies costs no memory that the file does not fill.
    fn bytes(&mut self, length: u64) -> Result<Bytes, DumpError> {
        const PIECE: u64 = 1 << 20;
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < length {
            let begin = bytes.len();
            bytes.resize(begin + PIECE.min(length - begin as u64) as usize, 0);
            self.fill(&mut bytes[begin..])?;
        }
        Ok(bytes.freeze())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), DumpError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DumpError::CutOff(self.read),
            _ => error.into(),
        })?;
        self.read += bytes.len() as u64;
        Ok(())
    }
}
