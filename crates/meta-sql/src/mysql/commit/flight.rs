//! Statements on their way.
//!
//! What must stay true: no statement runs unless all before it did and all checks held; COMMIT is the last.

use std::fmt::Write as _;

/// A number to which nothing can be added: what is wrong is 1, and the sum is an error. Unlike `DO`, `SET` reports
/// errors, and unlike `SELECT` it answers nothing.
const MOST: &str = "SET @sluice=18446744073709551615+(";

/// Statements that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::mysql) struct Packet {
    pub(in crate::mysql) text: String,
    pub(in crate::mysql) statements: usize,
}

/// Statements of one transaction.
pub(super) struct Flight {
    statements: Vec<String>,
    /// Rows that the last statement must have met.
    due: Option<usize>,
    /// The statement that numbers the commit, until it is in its place.
    number: Option<String>,
}

impl Flight {
    pub(super) fn new() -> Self {
        Self { statements: vec!["BEGIN".into()], due: None, number: None }
    }

    /// Takes the statement that numbers the commit and must meet one row. Nobody else locks that row, so it may stand
    /// anywhere: right before the first check, which then looks at both.
    pub(super) fn number(&mut self, statement: String) {
        self.number = Some(statement);
    }

    fn place_number(&mut self) {
        if let Some(statement) = self.number.take() {
            self.push(statement);
            self.due = Some(1);
        }
    }

    /// Adds a statement.
    pub(super) fn push(&mut self, statement: String) {
        if let Some(rows) = self.due.take() {
            self.statements.push(format!("{MOST}ROW_COUNT()<>{rows})"));
        }
        self.statements.push(statement);
    }

    /// Adds a check, given what would be wrong.
    pub(super) fn check(&mut self, wrong: &str) {
        self.place_number();
        let mut statement = String::with_capacity(MOST.len() + wrong.len() + 32);
        statement.push_str(MOST);
        // Of the statement before, which this one need not be parted from.
        if let Some(rows) = self.due.take() {
            let _ = write!(statement, "ROW_COUNT()<>{rows} OR ");
        }
        statement.push_str(wrong);
        statement.push(')');
        self.statements.push(statement);
    }

    /// The packets to be sent one after another; nothing if a statement fits into none.
    pub(super) fn packets(mut self, most: usize) -> Option<Vec<Packet>> {
        self.place_number();
        self.push("COMMIT".into());
        let most = most.saturating_sub(64);
        let mut packets: Vec<Packet> = Vec::new();
        for statement in self.statements {
            if statement.len() > most {
                return None;
            }
            match packets.last_mut() {
                Some(packet) if packet.text.len() + 1 + statement.len() <= most => {
                    packet.text.push(';');
                    packet.text.push_str(&statement);
                    packet.statements += 1;
                }
                _ => packets.push(Packet { text: statement, statements: 1 }),
            }
        }
        Some(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_checked_with_the_first_check_or_by_itself() {
        let texts = |checks: &[&str]| {
            let mut flight = Flight::new();
            flight.number("UPDATE n".into());
            flight.push("INSERT".into());
            for wrong in checks {
                flight.check(wrong);
            }
            let packets = flight.packets(1000).expect("small");
            assert_eq!(packets.len(), 1);
            assert_eq!(packets[0].statements, packets[0].text.split(';').count());
            packets.into_iter().map(|packet| packet.text).collect::<String>()
        };
        assert_eq!(texts(&[]), format!("BEGIN;INSERT;UPDATE n;{MOST}ROW_COUNT()<>1);COMMIT"));
        assert_eq!(
            texts(&["a", "b"]),
            format!("BEGIN;INSERT;UPDATE n;{MOST}ROW_COUNT()<>1 OR a);{MOST}b);COMMIT")
        );
    }

    #[test]
    fn packets_keep_their_limit() {
        let mut flight = Flight::new();
        for n in 0..10 {
            flight.push(format!("{n}{}", "x".repeat(50)));
        }
        let packets = flight.packets(200).expect("small enough");
        assert!(packets.len() > 3 && packets.iter().all(|packet| packet.text.len() <= 136));
        assert_eq!(packets.iter().map(|packet| packet.statements).sum::<usize>(), 12);
        let last = packets.last().expect("some");
        assert!(packets[0].text.starts_with("BEGIN;0") && last.text.ends_with("COMMIT"));
        let mut flight = Flight::new();
        flight.push("x".repeat(300));
        assert_eq!(flight.packets(200), None);
    }
}
