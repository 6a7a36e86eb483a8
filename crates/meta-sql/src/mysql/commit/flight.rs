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
}

impl Flight {
    pub(super) fn new() -> Self {
        Self { statements: vec!["BEGIN".into()], due: None }
    }

    /// Adds a statement.
    pub(super) fn push(&mut self, statement: String) {
        if let Some(rows) = self.due.take() {
            self.statements.push(format!("{MOST}ROW_COUNT()<>{rows})"));
        }
        self.statements.push(statement);
    }

    /// Says how many rows the last statement must have met.
    pub(super) fn met(&mut self, rows: usize) {
        self.due = Some(rows);
    }

    /// Adds a check, given what would be wrong.
    pub(super) fn check(&mut self, wrong: &str) {
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
    fn counts_are_checked_before_anything_else_runs() {
        let mut flight = Flight::new();
        flight.push("UPDATE a".into());
        flight.met(1);
        flight.check("wrong");
        flight.push("UPDATE b".into());
        flight.met(2);
        let packets = flight.packets(1000).expect("small");
        assert_eq!((packets.len(), packets[0].statements), (1, 6));
        assert_eq!(
            packets[0].text,
            format!("BEGIN;UPDATE a;{MOST}ROW_COUNT()<>1 OR wrong);UPDATE b;{MOST}ROW_COUNT()<>2);COMMIT")
        );
    }

    #[test]
    fn packets_keep_their_limit() {
        let mut flight = Flight::new();
        (0..10).for_each(|n| flight.push(format!("{n}{}", "x".repeat(50))));
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
