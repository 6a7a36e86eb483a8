//! Sluice's own records that other programs of the volume format neither read nor write, and that
//! are in no dump.
//!
//! What must stay true: the numbers and names defined here are stored in databases, so they never
//! change.

use std::fmt;

use bytes::Bytes;

/// A kind of these records. Each record of a kind has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Extra {
    /// A member of a cache group, by its session id: [`Member`](super::Member).
    Member = 1,
    /// How often the members changed; only number 0.
    GroupVersion = 2,
    /// The keys of the cache groups; only number 0: [`GroupKeys`](super::GroupKeys).
    GroupKeys = 3,
    /// What `fsck` or `gc` found last, by a number for each.
    Report = 4,
    /// Which commits a fenced client had reached, by its session id:
    /// [`LastCommits`](super::LastCommits).
    LastCommits = 5,
}

impl Extra {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Member, Self::GroupVersion, Self::GroupKeys, Self::Report, Self::LastCommits];

    /// Its number in databases that name it by one.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind of that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Its word in databases that name it by one.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Member => "members",
            Self::GroupVersion => "groupversion",
            Self::GroupKeys => "groupkeys",
            Self::Report => "reports",
            Self::LastCommits => "lastcommits",
        }
    }

    /// The kind of that word.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word().as_bytes() == word)
    }
}

/// The value of such a record, never empty. It may be a secret, so that it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Opaque(pub Bytes);

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<Vec<u8>> for Opaque {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_what_is_stored_of_it() {
        let stored = Extra::ALL.map(|kind| (kind.code(), kind.word()));
        let wanted =
            [(1, "members"), (2, "groupversion"), (3, "groupkeys"), (4, "reports"), (5, "lastcommits")];
        assert_eq!(stored, wanted);
        for kind in Extra::ALL {
            assert_eq!(Extra::from_code(kind.code()), Some(kind));
            assert_eq!(Extra::from_word(kind.word().as_bytes()), Some(kind));
        }
        assert_eq!((Extra::from_code(0), Extra::from_code(6)), (None, None));
        assert_eq!((Extra::from_word(b""), Extra::from_word(b"writers")), (None, None));
    }

    #[test]
    fn a_value_is_not_shown() {
        assert_eq!(format!("{:?}", Opaque::from(b"secret".to_vec())), "6 bytes");
    }
}
