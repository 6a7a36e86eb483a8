//! The language of the scripts.

use sluice_meta::{
    engine::Hold,
    schema::{Entry, Key, Row},
};
use sluice_types::{Attr, FileType, Ino, Name, Time};

/// Changes to fields of a node, as `uid=1`.
pub(super) type Fields = Vec<(Field, u64)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Mode,
    Uid,
    Nlink,
    Length,
    Parent,
}

impl Field {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "mode" => Self::Mode,
            "uid" => Self::Uid,
            "nlink" => Self::Nlink,
            "length" => Self::Length,
            "parent" => Self::Parent,
            _ => return None,
        })
    }

    pub(super) fn get(self, attr: &Attr) -> u64 {
        match self {
            Self::Mode => attr.mode.into(),
            Self::Uid => attr.uid.into(),
            Self::Nlink => attr.nlink.into(),
            Self::Length => attr.length,
            Self::Parent => attr.parent.0,
        }
    }

    pub(super) fn set(self, attr: &mut Attr, value: u64) {
        match self {
            Self::Mode => attr.mode = value as u16,
            Self::Uid => attr.uid = value as u32,
            Self::Nlink => attr.nlink = value as u32,
            Self::Length => attr.length = value,
            Self::Parent => attr.parent = Ino(value),
        }
    }
}

/// What a record is said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Node(Ino, Fields),
    Entry(Ino, Name),
    Absent(Key),
}

impl Claim {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Node(ino, _) => Key::Node(*ino),
            Self::Entry(dir, name) => Key::Entry(*dir, name.clone()),
            Self::Absent(key) => key.clone(),
        }
    }

    pub(super) fn holds(&self, row: Option<&Row>) -> bool {
        match (self, row) {
            (Self::Node(_, fields), Some(Row::Node(_, attr))) => {
                fields.iter().all(|(field, value)| field.get(attr) == *value)
            }
            (Self::Entry(..), Some(_)) | (Self::Absent(_), None) => true,
            _ => false,
        }
    }
}

/// One step of a transaction.
#[allow(clippy::large_enum_variant, reason = "a script has a handful of them")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read(Key, Hold),
    Follow(Ino, Name, Hold),
    Empty(Ino),
    If(Claim),
    Put(Ino, Fields),
    Add(Ino, Field, u64),
    Insert(Row),
    Delete(Key),
    Bump(Ino, i32),
    Commit,
    Abort,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Ok,
    Conflict,
    GaveUp,
}

/// Part of an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Ended(usize, End),
    Stored(Claim),
    Saw(usize, Claim),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Never,
    Always,
    Weak,
}

/// A script, understood.
#[derive(Debug, Default)]
pub struct Script {
    pub(super) given: Vec<Row>,
    /// Transaction and step, in the order in which they are tried.
    pub(super) steps: Vec<(usize, Step)>,
    pub(super) verdicts: Vec<(Verdict, Vec<Condition>, String)>,
}

impl Script {
    /// Reads a script; the error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if !words.is_empty() {
                script.line(&words).ok_or_else(|| format!("line {}: {line:?} is not understood", at + 1))?;
            }
        }
        Ok(script)
    }

    fn line(&mut self, words: &[&str]) -> Option<()> {
        let verdict = match words[0] {
            "given" => {
                self.given.push(row(&words[1..])?);
                return Some(());
            }
            "never" => Verdict::Never,
            "always" => Verdict::Always,
            "weak" => Verdict::Weak,
            who => {
                self.steps.push((transaction(who)?, step(&words[1..])?));
                return Some(());
            }
        };
        let conditions = words[1..].split(|word| *word == "and").map(condition).collect::<Option<_>>()?;
        self.verdicts.push((verdict, conditions, words.join(" ")));
        Some(())
    }
}

fn transaction(word: &str) -> Option<usize> {
    word.strip_prefix('t')?.parse().ok()
}

fn ino(word: &str) -> Option<Ino> {
    word.parse().ok().map(Ino)
}

fn name(word: &str) -> Option<Name> {
    Name::new(word.as_bytes()).ok()
}

fn number(word: &str) -> Option<u64> {
    word.strip_prefix('0')
        .filter(|rest| !rest.is_empty())
        .map_or_else(|| word.parse().ok(), |octal| u64::from_str_radix(octal, 8).ok())
}

fn fields(words: &[&str]) -> Option<Fields> {
    words
        .iter()
        .map(|word| {
            let (field, value) = word.split_once('=')?;
            Some((Field::parse(field)?, number(value)?))
        })
        .collect()
}

/// `node 5 uid=1`, `dir 2`, `entry 2 name 5`.
fn row(words: &[&str]) -> Option<Row> {
    let node = |kind, at: &str, changes: &[&str]| {
        let mut attr = Attr::new(kind, 0o755, 0, 0, Ino::ROOT, Time { sec: 1_700_000_000, nsec: 0 });
        fields(changes)?.into_iter().for_each(|(field, value)| field.set(&mut attr, value));
        Some(Row::Node(ino(at)?, attr))
    };
    match words {
        ["node", at, changes @ ..] => node(FileType::File, at, changes),
        ["dir", at, changes @ ..] => node(FileType::Dir, at, changes),
        ["entry", dir, called, to] => {
            Some(Row::Entry(ino(dir)?, name(called)?, Entry { kind: FileType::File, ino: ino(to)? }))
        }
        _ => None,
    }
}

/// `node 5`, `entry 2 name`.
fn key(words: &[&str]) -> Option<Key> {
    match words {
        ["node", at] => Some(Key::Node(ino(at)?)),
        ["entry", dir, called] => Some(Key::Entry(ino(dir)?, name(called)?)),
        _ => None,
    }
}

fn claim(words: &[&str]) -> Option<Claim> {
    match words {
        ["no", rest @ ..] => Some(Claim::Absent(key(rest)?)),
        ["node", at, changes @ ..] => Some(Claim::Node(ino(at)?, fields(changes)?)),
        ["entry", dir, called] => Some(Claim::Entry(ino(dir)?, name(called)?)),
        _ => None,
    }
}

fn hold(words: &[&str]) -> (Hold, usize) {
    match words.last() {
        Some(&"guard") => (Hold::Guard, words.len() - 1),
        Some(&"lock") => (Hold::Lock, words.len() - 1),
        _ => (Hold::None, words.len()),
    }
}

fn step(words: &[&str]) -> Option<Step> {
    match words {
        ["read", rest @ ..] => {
            let (hold, end) = hold(rest);
            Some(Step::Read(key(&rest[..end])?, hold))
        }
        ["follow", dir, called, rest @ ..] => Some(Step::Follow(ino(dir)?, name(called)?, hold(rest).0)),
        ["empty", dir] => Some(Step::Empty(ino(dir)?)),
        ["if", rest @ ..] => Some(Step::If(claim(rest)?)),
        ["put", "node", at, changes @ ..] => Some(Step::Put(ino(at)?, fields(changes)?)),
        ["add", "node", at, field, by] => Some(Step::Add(ino(at)?, Field::parse(field)?, number(by)?)),
        ["insert", rest @ ..] => Some(Step::Insert(row(rest)?)),
        ["delete", rest @ ..] => Some(Step::Delete(key(rest)?)),
        ["bump", at, nlink] => Some(Step::Bump(ino(at)?, nlink.parse().ok()?)),
        ["commit"] => Some(Step::Commit),
        ["abort"] => Some(Step::Abort),
        _ => None,
    }
}

fn condition(words: &[&str]) -> Option<Condition> {
    match words {
        [who, "ok"] => Some(Condition::Ended(transaction(who)?, End::Ok)),
        [who, "conflict"] => Some(Condition::Ended(transaction(who)?, End::Conflict)),
        [who, "saw", rest @ ..] => Some(Condition::Saw(transaction(who)?, claim(rest)?)),
        rest => Some(Condition::Stored(claim(rest)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::Script;

    #[test]
    fn every_script_is_understood_and_forbids_or_shows_something() {
        for (name, text) in super::super::SCRIPTS {
            let script = Script::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!script.steps.is_empty() && !script.verdicts.is_empty(), "{name}");
        }
        assert!(Script::parse("t1 frobnicate node 5").is_err());
        assert!(Script::parse("never t1 perhaps").is_err());
    }
}
