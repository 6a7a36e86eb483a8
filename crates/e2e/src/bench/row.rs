//! The rows of the table, and their targets.

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// So many a second: more is better.
    Rate(&'static str),
    /// So much of it: less is better.
    Cost(&'static str),
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        let (Self::Rate(name) | Self::Cost(name)) = self;
        name
    }
}

pub(super) const FILES: Unit = Unit::Rate("files/s");
pub(super) const OPERATIONS: Unit = Unit::Rate("/s");
pub(super) const BYTES: Unit = Unit::Rate("MiB/s");
pub(super) const SECONDS: Unit = Unit::Cost("s");
pub(super) const MEMORY: Unit = Unit::Cost("MiB");
pub(super) const PERCENT: Unit = Unit::Rate("%");
pub(super) const COUNT: Unit = Unit::Cost("a file");

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) targets: Targets,
}

/// How many times as good as `JuiceFS` a row has to be; 0 where nothing is claimed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Targets {
    pub(super) redis: f64,
    pub(super) sqlite: f64,
    pub(super) postgres: f64,
    pub(super) mariadb: f64,
    pub(super) tikv: f64,
}

pub(super) const NOTHING: Targets =
    Targets { redis: 0.0, sqlite: 0.0, postgres: 0.0, mariadb: 0.0, tikv: 0.0 };

/// The same on all engines.
pub(super) const fn all(target: f64) -> Targets {
    Targets { redis: target, sqlite: target, postgres: target, mariadb: target, tikv: target }
}

/// The same on Redis and SQLite.
pub(super) const fn local(target: f64) -> Targets {
    Targets { redis: target, sqlite: target, ..NOTHING }
}
