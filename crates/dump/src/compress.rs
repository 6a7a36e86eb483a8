//! Compression; the name of the file selects the method.

use std::io::{self, BufReader, Read, Write};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// gzip: `.gz`.
    Gzip,
    /// Zstandard: `.zst` or `.zstd`.
    Zstd,
}

impl Packing {
    /// What the end of a file's name says.
    pub fn of(name: &str) -> Self {
        match name.rsplit_once('.').map_or("", |(_, end)| end) {
            "gz" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            _ => Self::None,
        }
    }

    /// What the first bytes of a file say, for input that has no name.
    pub fn of_content(begin: &[u8]) -> Self {
        match begin {
            [0x1F, 0x8B, ..] => Self::Gzip,
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// Unpacks `input`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn unpack<'r>(self, input: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
        Ok(match self {
            Self::None => Box::new(BufReader::with_capacity(1 << 20, input)),
            Self::Gzip => Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(input))),
            Self::Zstd => Box::new(BufReader::with_capacity(1 << 20, zstd::Decoder::new(input)?)),
        })
    }

    /// Packs what is written, for `output`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn pack<W: Write>(self, output: W) -> io::Result<Packer<W>> {
        Ok(match self {
            Self::None => Packer::None(output),
            Self::Gzip => Packer::Gzip(GzEncoder::new(output, Compression::new(4))),
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(output, 0)?;
                encoder.include_checksum(true)?;
                Packer::Zstd(encoder)
            }
        })
    }
}

/// Packs what is written. What was written is whole only after [`Packer::finish`].
pub enum Packer<W: Write> {
    /// Hands it on.
    None(W),
    /// gzip.
    Gzip(GzEncoder<W>),
    /// Zstandard.
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packer<W> {
    /// Ends the packing and gives the output back.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::None(output) => Ok(output),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(output) => output.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::None(output) => output.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

impl<W: Write> std::fmt::Debug for Packer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None(_) => "Packer::None",
            Self::Gzip(_) => "Packer::Gzip",
            Self::Zstd(_) => "Packer::Zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let data = b"metadata ".repeat(10_000);
        for (name, packing) in [
            ("a.json", Packing::None),
            ("a.gz", Packing::Gzip),
            ("a.zst", Packing::Zstd),
            ("a.b.zstd", Packing::Zstd),
        ] {
            assert_eq!(Packing::of(name), packing);
            let mut packer = packing.pack(Vec::new()).unwrap();
            packer.write_all(&data).unwrap();
            let packed = packer.finish().unwrap();
            assert_eq!(Packing::of_content(&packed), packing);
            let mut again = Vec::new();
            packing.unpack(&packed[..]).unwrap().read_to_end(&mut again).unwrap();
            assert_eq!(again, data);
            let cut = packed.len() - 1;
            let mut part = Vec::new();
            let read = packing.unpack(&packed[..cut]).unwrap().read_to_end(&mut part);
            assert!(read.is_err() || part != data, "{name} cut off");
            if packing != Packing::None {
                let mut damaged = packed.clone();
                damaged[packed.len() - 1] ^= 1;
                let read = packing.unpack(&damaged[..]).unwrap().read_to_end(&mut Vec::new());
                assert!(read.is_err(), "the checksum of {name} is wrong");
            }
        }
    }
}
