//! How the statements of a transaction are sent, and how a failed check makes a statement fail.

/// The error of a failed check: the statement computed a value outside its type.
pub(super) const CHECK: u16 = 1690;

/// An expression that fails if `wrong` is 1, with the error [`CHECK`].
pub(super) fn overflow(wrong: &str) -> String {
    format!("18446744073709551615+({wrong})")
}

/// How the statements of a transaction are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// One after the other, each answered by itself.
    Single,
    /// As one compound statement, which is answered once. Only MariaDB has them.
    Compound,
}

impl Style {
    /// A statement that fails if `wrong` is 1, with the error of a number that left its type.
    pub(super) fn check(self, wrong: &str) -> String {
        match self {
            // Unlike `DO`, `SET` reports errors, and unlike `SELECT` it answers nothing.
            Self::Single => format!("SET @sluice={}", overflow(wrong)),
            Self::Compound => {
                format!("IF {wrong} THEN SIGNAL SQLSTATE '22003' SET MYSQL_ERRNO={CHECK};END IF")
            }
        }
    }

    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::Single => "BEGIN",
            Self::Compound => "START TRANSACTION",
        }
    }

    /// What comes before and after the statements of a packet.
    pub(super) const fn around(self) -> [&'static str; 2] {
        match self {
            Self::Single => ["", ""],
            // The server itself rolls back after a failure. A client that is cut off could not, and
            // its locks would stay until the server drops the connection.
            Self::Compound => [
                "BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK;RESIGNAL;END;",
                ";END",
            ],
        }
    }
}
