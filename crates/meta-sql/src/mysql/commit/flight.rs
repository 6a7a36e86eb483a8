//! The statements of one transaction, in packets.
//!
//! What must stay true: a statement runs only if all statements before it succeeded. COMMIT is the
//! last statement.

use crate::mysql::{style::Style, tables::Tables};

/// Longest check in bytes that also checks how many rows the statement before matched, because both
/// must be in one packet.
const SHORT: usize = 1 << 10;

/// Statements that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) text: String,
    /// How many answers there are.
    pub(crate) answers: usize,
}

/// Builds a commit: the tables, and the statements so far.
pub(crate) struct Builder<'b> {
    pub(super) tables: &'b Tables,
    pub(super) flight: Flight,
}

struct Statement {
    text: String,
    /// Whether it checks how many rows the one before matched, which is unknown in the next packet.
    looks_back: bool,
}

/// Statements of one transaction.
pub(super) struct Flight {
    style: Style,
    statements: Vec<Statement>,
    /// Rows that the last statement must have matched.
    due: Option<usize>,
    /// The statement that writes the number of the commit, until it is added.
    number: Option<String>,
}

impl Flight {
    pub(super) fn new(style: Style) -> Self {
        let mut flight = Self { style, statements: Vec::new(), due: None, number: None };
        flight.push(style.begin().into());
        flight
    }

    /// Sets the statement that writes the number of the commit, and must match one row. No other
    /// client locks that row, so it may be anywhere. It is put right before the first check, which
    /// then checks both.
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
        self.look_back();
        self.statements.push(Statement { text: statement, looks_back: false });
    }

    /// Checks how many rows the last statement matched, if that is not checked yet.
    fn look_back(&mut self) {
        if let Some(rows) = self.due.take() {
            let text = self.style.check(&format!("ROW_COUNT()<>{rows}"));
            self.statements.push(Statement { text, looks_back: true });
        }
    }

    /// Adds a statement that must match this many rows.
    pub(super) fn push_met(&mut self, statement: String, rows: usize) {
        self.push(statement);
        self.due = Some(rows);
    }

    /// Adds a check that fails if `wrong` is true.
    pub(super) fn check(&mut self, wrong: &str) {
        self.place_number();
        if wrong.len() > SHORT {
            self.look_back();
        }
        // The check of the statement before. A short check can be combined with it.
        let due = self.due.take();
        let text = match due {
            Some(rows) => self.style.check(&format!("ROW_COUNT()<>{rows} OR {wrong}")),
            None => self.style.check(wrong),
        };
        self.statements.push(Statement { text, looks_back: due.is_some() });
    }

    /// The packets to send one after another; `None` if a statement is too long for a packet.
    pub(super) fn packets(mut self, most: usize) -> Option<Vec<Packet>> {
        self.place_number();
        self.push("COMMIT".into());
        let [head, tail] = self.style.around();
        let most = most.saturating_sub(head.len() + tail.len() + 4);
        let mut packets: Vec<Packet> = Vec::new();
        let mut statements = self.statements.into_iter().peekable();
        while let Some(Statement { text: mut together, .. }) = statements.next() {
            let mut answers = 1;
            while let Some(next) = statements.next_if(|next| next.looks_back) {
                together = together + ";" + &next.text;
                answers += 1;
            }
            if together.len() > most {
                return None;
            }
            match packets.last_mut() {
                Some(packet) if packet.text.len() + 1 + together.len() <= most => {
                    packet.text.push(';');
                    packet.text.push_str(&together);
                    packet.answers += answers;
                }
                _ => packets.push(Packet { text: head.to_owned() + &together, answers }),
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

    #[test]
    fn what_looks_back_is_in_the_packet_of_what_it_looks_at() {
        for style in [Style::Single, Style::Compound] {
            for filling in 150..250 {
                let mut flight = Flight::new(style);
                flight.push("x".repeat(filling));
                flight.push_met("UPDATE".into(), 7);
                flight.check(&"y".repeat(20));
                flight.push_met("UPDATE".into(), 7);
                flight.check(&"y".repeat(SHORT + 1));
                let packets = flight.packets(SHORT + 300).expect("small enough");
                assert!(packets.len() > 1, "{filling}");
                let looks = packets.iter().map(|packet| {
                    let [updates, looks] =
                        ["UPDATE", "ROW_COUNT()<>7"].map(|part| packet.text.matches(part).count());
                    assert_eq!(updates, looks, "{style:?} {filling}: {packets:?}");
                    looks
                });
                assert_eq!(looks.sum::<usize>(), 2);
            }
        }
    }
}
