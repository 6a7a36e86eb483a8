//! Statements on their way.
//!
//! What must stay true: no statement runs unless all before it did and all checks held; COMMIT is the last.

use crate::mysql::error::CHECK;

/// How the statements of a transaction are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mysql) enum Style {
    /// One after the other, each answered by itself.
    Single,
    /// As one compound statement, which is answered once. Only MariaDB has them.
    Compound,
}

/// Statements that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::mysql) struct Packet {
    pub(in crate::mysql) text: String,
    /// How many answers there are.
    pub(in crate::mysql) answers: usize,
}

/// Statements of one transaction.
pub(super) struct Flight {
    style: Style,
    statements: Vec<String>,
    /// Rows that the last statement must have met.
    due: Option<usize>,
    /// The statement that numbers the commit, until it is in its place.
    number: Option<String>,
}

impl Style {
    /// A statement that fails if `wrong` is 1, with the error of a number that left its type.
    fn check(self, wrong: &str) -> String {
        match self {
            // Unlike `DO`, `SET` reports errors, and unlike `SELECT` it answers nothing.
            Self::Single => format!("SET @sluice=18446744073709551615+({wrong})"),
            Self::Compound => {
                format!("IF {wrong} THEN SIGNAL SQLSTATE '22003' SET MYSQL_ERRNO={CHECK};END IF")
            }
        }
    }

    const fn begin(self) -> &'static str {
        match self {
            Self::Single => "BEGIN",
            Self::Compound => "START TRANSACTION",
        }
    }

    /// What stands before and behind the statements of a packet.
    const fn around(self) -> [&'static str; 2] {
        match self {
            Self::Single => ["", ""],
            // The server itself undoes what fails: a client that is cut off could not, and what it had locked would stay
            // locked until the server takes the connection for dead.
            Self::Compound => [
                "BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK;RESIGNAL;END;",
                ";END",
            ],
        }
    }
}

impl Flight {
    pub(super) fn new(style: Style) -> Self {
        Self { style, statements: vec![style.begin().into()], due: None, number: None }
    }

    /// Takes the statement that numbers the commit and must meet one row. Nobody else locks that row, so it may stand
    /// anywhere: right before the first check, which then looks at both.
    pub(super) fn number(&mut self, statement: String) {
        self.number = Some(statement);
    }

    fn place_number(&mut self) {
        if let Some(statement) = self.number.take() {
            self.push_met(statement, 1);
        }
    }

    /// Adds a statement.
    pub(super) fn push(&mut self, statement: String) {
        if let Some(rows) = self.due.take() {
            self.statements.push(self.style.check(&format!("ROW_COUNT()<>{rows}")));
        }
        self.statements.push(statement);
    }

    /// Adds a statement that must meet so many rows.
    pub(super) fn push_met(&mut self, statement: String, rows: usize) {
        self.push(statement);
        self.due = Some(rows);
    }

    /// Adds a check, given what would be wrong.
    pub(super) fn check(&mut self, wrong: &str) {
        self.place_number();
        // Of the statement before, which this one need not be parted from.
        let checked = match self.due.take() {
            Some(rows) => self.style.check(&format!("ROW_COUNT()<>{rows} OR {wrong}")),
            None => self.style.check(wrong),
        };
        self.statements.push(checked);
    }

    /// The packets to be sent one after another; nothing if a statement fits into none.
    pub(super) fn packets(mut self, most: usize) -> Option<Vec<Packet>> {
        self.place_number();
        self.push("COMMIT".into());
        let [head, tail] = self.style.around();
        let most = most.saturating_sub(head.len() + tail.len() + 4);
        let mut packets: Vec<Packet> = Vec::new();
        for statement in self.statements {
            if statement.len() > most {
                return None;
            }
            match packets.last_mut() {
                Some(packet) if packet.text.len() + 1 + statement.len() <= most => {
                    packet.text.push(';');
                    packet.text.push_str(&statement);
                    packet.answers += 1;
                }
                _ => packets.push(Packet { text: head.to_owned() + &statement, answers: 1 }),
            }
        }
        for packet in &mut packets {
            packet.text.push_str(tail);
            if self.style == Style::Compound {
                packet.answers = 1;
            }
        }
        Some(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(style: Style, checks: &[&str]) -> String {
        let mut flight = Flight::new(style);
        flight.number("UPDATE n".into());
        flight.push("INSERT".into());
        for wrong in checks {
            flight.check(wrong);
        }
        let mut packets = flight.packets(1000).expect("small");
        let answers = if style == Style::Single { packets[0].text.split(';').count() } else { 1 };
        assert_eq!((packets.len(), packets[0].answers), (1, answers));
        packets.remove(0).text
    }

    #[test]
    fn the_number_is_checked_with_the_first_check_or_by_itself() {
        let most = "SET @sluice=18446744073709551615+(";
        assert_eq!(text(Style::Single, &[]), format!("BEGIN;INSERT;UPDATE n;{most}ROW_COUNT()<>1);COMMIT"));
        assert_eq!(
            text(Style::Single, &["a", "b"]),
            format!("BEGIN;INSERT;UPDATE n;{most}ROW_COUNT()<>1 OR a);{most}b);COMMIT")
        );
        let head = "BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK;RESIGNAL;END;";
        let signal = "THEN SIGNAL SQLSTATE '22003' SET MYSQL_ERRNO=1690;END IF";
        assert_eq!(
            text(Style::Compound, &["a"]),
            format!("{head}START TRANSACTION;INSERT;UPDATE n;IF ROW_COUNT()<>1 OR a {signal};COMMIT;END")
        );
    }

    #[test]
    fn packets_keep_their_limit() {
        for style in [Style::Single, Style::Compound] {
            let mut flight = Flight::new(style);
            for n in 0..10 {
                flight.push(format!("{n}{}", "x".repeat(50)));
            }
            let packets = flight.packets(250).expect("small enough");
            assert!(packets.len() > 2 && packets.iter().all(|packet| packet.text.len() <= 246));
            let [head, tail] = style.around();
            let bare =
                |packet: &Packet| packet.text.trim_start_matches(head).trim_end_matches(tail).to_owned();
            let bare: Vec<String> = packets.iter().map(bare).collect();
            assert_eq!(bare.iter().map(|text| text.split(';').count()).sum::<usize>(), 12);
            let last = bare.last().expect("some");
            assert!(bare[0].starts_with(style.begin()) && last.ends_with("COMMIT"));
            let mut flight = Flight::new(style);
            flight.push("x".repeat(300));
            assert_eq!(flight.packets(200), None);
        }
    }
}
