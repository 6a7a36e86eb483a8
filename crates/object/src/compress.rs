//! Compression of blocks, before encryption.
//!
//! What must stay true: a block must decode to exactly the length that its name states. Otherwise
//! it is reported as damaged. A decompressed block has a buffer of its own.

use std::{cell::RefCell, fmt, io, str::FromStr};

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};

use crate::buffers;

/// The level with which JuiceFS writes; any level can be read.
const ZSTD_LEVEL: i32 = 1;

thread_local! {
    // To make a context takes longer than to compress a small block.
    static ZSTD_IN: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_OUT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// How a volume compresses its blocks. It is always applied, even when the result is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// A bare LZ4 block, without frame or length.
    Lz4,
    /// One Zstandard frame that states the length of its content.
    Zstd,
}

/// A block that could not be coded; says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

impl Compression {
    /// The stored form of `block`.
    ///
    /// Fails only if the coder gets no memory.
    pub fn encode(self, block: Bytes) -> Result<Bytes, CodecError> {
        match self {
            Self::None => Ok(block),
            Self::Lz4 => Ok(lz4_flex::block::compress(&block).into()),
            Self::Zstd => {
                with_context(&ZSTD_IN, || Compressor::new(ZSTD_LEVEL), |coder| coder.compress(&block))
                    .map(Bytes::from)
                    .map_err(|error| CodecError(format!("zstd cannot compress the block: {error}")))
            }
        }
    }

    /// Decompresses `stored` to the block of `length` bytes.
    ///
    /// Fails if `stored` cannot be decoded or is of another length.
    pub fn decode(self, stored: Bytes, length: usize) -> Result<Bytes, CodecError> {
        let block = match self {
            Self::None => stored,
            Self::Lz4 => {
                let mut block = buffers::take(length);
                block.resize(length, 0);
                let got = lz4_flex::block::decompress_into(&stored, &mut block)
                    .map_err(|error| CodecError(format!("its LZ4 block is broken: {error}")))?;
                block.truncate(got);
                buffers::lend(block)
            }
            Self::Zstd => {
                let mut block = buffers::take(length);
                with_context(&ZSTD_OUT, Decompressor::new, |coder| {
                    coder.decompress_to_buffer(&stored[..], &mut block)
                })
                .map_err(|error| CodecError(format!("its zstd frame is broken: {error}")))?;
                buffers::lend(block)
            }
        };
        if block.len() == length {
            Ok(block)
        } else {
            Err(CodecError(format!("it decodes to {} bytes, its name says {length}", block.len())))
        }
    }
}

/// Runs `work` with this thread's context, made on first use.
fn with_context<C, T>(
    slot: &'static std::thread::LocalKey<RefCell<Option<C>>>,
    make: impl FnOnce() -> io::Result<C>,
    work: impl FnOnce(&mut C) -> io::Result<T>,
) -> io::Result<T> {
    slot.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            empty => empty.insert(make()?),
        };
        work(context)
    })
}

impl FromStr for Compression {
    type Err = CodecError;

    /// From the name in a volume's settings; an empty one means none.
    fn from_str(name: &str) -> Result<Self, CodecError> {
        match name.to_ascii_lowercase().as_str() {
            "" | "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err(CodecError(format!("unknown compression {name:?}: use none, lz4 or zstd"))),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    proptest! {
        #[test]
        fn what_is_encoded_decodes(
            block in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..5000),
                (any::<u8>(), 0_usize..300_000).prop_map(|(byte, n)| vec![byte; n]),
            ],
        ) {
            for codec in ALL {
                let stored = codec.encode(Bytes::from(block.clone())).unwrap();
                prop_assert_eq!(codec.decode(stored.clone(), block.len()).unwrap(), Bytes::from(block.clone()));
                // Neither a longer nor a shorter block passes for this one.
                prop_assert!(codec.decode(stored.clone(), block.len() + 1).is_err());
                if !block.is_empty() {
                    prop_assert!(codec.decode(stored, block.len() - 1).is_err());
                }
            }
        }

        #[test]
        fn rubbish_never_panics_nor_overruns(rubbish in prop::collection::vec(any::<u8>(), 0..2000), n in 0_usize..5000) {
            for codec in ALL {
                if let Ok(block) = codec.decode(Bytes::from(rubbish.clone()), n) {
                    prop_assert_eq!(block.len(), n);
                }
            }
        }
    }

    #[test]
    fn zstd_frames_state_their_length() {
        let stored = Compression::Zstd.encode(Bytes::from(vec![7; 100_000])).unwrap();
        let stated = zstd::zstd_safe::get_frame_content_size(&stored).unwrap();
        assert_eq!(stated, Some(100_000));
    }

    #[test]
    fn names_come_and_go() {
        for codec in ALL {
            assert_eq!(codec.to_string().parse::<Compression>().unwrap(), codec);
        }
        assert_eq!("".parse::<Compression>().unwrap(), Compression::None);
        assert!("gzip".parse::<Compression>().unwrap_err().to_string().contains("lz4"));
    }
}
