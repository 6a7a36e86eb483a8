//! Lists the content of a binary dump without loading it.

use std::io::{self, Read};

use sluice_meta::schema::Row;

use super::{Contents, Reader, segment::Kind};
use crate::DumpError;

/// What the dump `input` holds, by kind. All of it is read, so a dump that is listed is whole.
///
/// # Errors
/// If `input` cannot be read, is cut off, or is no dump.
pub fn contents(input: impl Read) -> Result<Vec<Contents>, DumpError> {
    let mut reader = Reader::new(input);
    while reader.segment()?.is_some() {}
    Ok(reader.contents())
}

/// The kind and the records of the segment at `offset` of the dump `input`.
///
/// # Errors
/// If `input` cannot be read or ends there, or if no segment begins there.
pub fn segment_at(mut input: impl Read, offset: u64) -> Result<(&'static str, Vec<Row>), DumpError> {
    let skipped = io::copy(&mut (&mut input).take(offset), &mut io::sink())?;
    if skipped < offset {
        return Err(DumpError::CutOff(skipped));
    }
    let rows = Reader::at(input, offset).segment()?.unwrap_or_default();
    match rows.first().and_then(Kind::of) {
        Some(kind) => Ok((kind.name(), rows)),
        None => Err(DumpError::damaged("no segment begins", offset)),
    }
}
