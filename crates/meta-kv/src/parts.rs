//! Encodes and decodes parts of keys and values.

use sluice_meta::schema::{Counter, Extra};
use sluice_types::{Ino, Name};

use crate::stored::{Damage, Raw};

/// A value with an encoding. Numbers have a fixed length, and a name continues to the end.
pub(crate) trait Part: Sized {
    /// Appends its bytes.
    fn write(&self, raw: &mut Raw);

    /// Removes it from the front of `raw`.
    fn read(raw: &mut &[u8]) -> Option<Self>;
}

/// Numbers are big endian.
macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Part for $number {
            fn write(&self, raw: &mut Raw) {
                raw.extend_from_slice(&self.to_be_bytes());
            }

            fn read(raw: &mut &[u8]) -> Option<Self> {
                raw.split_off(..size_of::<Self>())?.try_into().ok().map(Self::from_be_bytes)
            }
        }
    )+};
}

numbers!(u8 u16 u32 u64 i64);

/// Inodes are little endian.
impl Part for Ino {
    fn write(&self, raw: &mut Raw) {
        self.0.swap_bytes().write(raw);
    }

    fn read(raw: &mut &[u8]) -> Option<Self> {
        u64::read(raw).map(|number| Self(number.swap_bytes()))
    }
}

impl Part for Name {
    fn write(&self, raw: &mut Raw) {
        raw.extend_from_slice(self);
    }

    fn read(raw: &mut &[u8]) -> Option<Self> {
        Some(Self::stored(std::mem::take(raw)))
    }
}

impl Part for Counter {
    fn write(&self, raw: &mut Raw) {
        raw.extend_from_slice(self.name().as_bytes());
    }

    fn read(raw: &mut &[u8]) -> Option<Self> {
        let name = std::mem::take(raw);
        Self::ALL.into_iter().find(|counter| counter.name().as_bytes() == name)
    }
}

impl Part for Extra {
    fn write(&self, raw: &mut Raw) {
        self.code().write(raw);
    }

    fn read(raw: &mut &[u8]) -> Option<Self> {
        u8::read(raw).and_then(Self::from_code)
    }
}

/// The value of some numbers.
pub(crate) fn numbers(all: &[i64]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// The numbers of a value.
pub(crate) fn read_numbers<const N: usize>(value: &[u8]) -> Result<[i64; N], Damage> {
    let (all, rest) = value.as_chunks::<8>();
    let all: &[_; N] = all.try_into().map_err(|_| "not the right number of 8-byte numbers")?;
    if rest.is_empty() { Ok(all.map(i64::from_be_bytes)) } else { Err("no list of 8-byte numbers") }
}
