//! Tables, columns and indexes of the volume format, and their definitions in each SQL dialect.
//!
//! What must stay true: names, order and nullability are those that JuiceFS creates. JuiceFS alters
//! existing tables if they differ from its own definitions.

use std::{borrow::Cow, collections::BTreeSet};

use crate::volume::Volume;

/// A database, by what its statements look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    Mysql,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 32-bit number.
    I4,
    /// 64-bit number.
    I8,
    /// 32-bit number that the database gives out itself; the primary key.
    Auto4,
    /// 64-bit number that the database gives out itself; the primary key.
    Auto8,
    /// Short text, at most 255 characters.
    Short,
    /// Text of any length.
    Text,
    /// Bytes.
    Bytes,
    /// At most so many bytes.
    Limited(u32),
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) null: bool,
    /// Whether rows written before the column existed hold 0.
    pub(crate) zero: bool,
}

/// A table of the volume format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// Name without the prefix.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    /// Columns of the primary key; none if the first column is numbered by the database.
    pub(crate) primary: &'static [&'static str],
    /// Name and columns of the unique index.
    pub(crate) unique: Option<(&'static str, &'static [&'static str])>,
    /// Column of the other index.
    pub(crate) index: Option<&'static str>,
}

impl Column {
    /// Whether it is a text.
    pub(crate) const fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Short | Kind::Text)
    }

    /// Whether it is a number of 32 bits.
    pub(crate) const fn is_narrow(&self) -> bool {
        matches!(self.kind, Kind::I4 | Kind::Auto4)
    }

    /// Whether it is a number.
    pub(crate) const fn is_number(&self) -> bool {
        matches!(self.kind, Kind::I4 | Kind::I8 | Kind::Auto4 | Kind::Auto8)
    }

    /// What stands for NULL.
    pub(crate) const fn nothing(&self) -> &'static str {
        if self.is_number() { "0" } else { "''" }
    }
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, null: false, zero: false }
}

const fn i4(name: &'static str) -> Column {
    column(name, Kind::I4)
}

const fn i8(name: &'static str) -> Column {
    column(name, Kind::I8)
}

const fn bytes(name: &'static str) -> Column {
    column(name, Kind::Bytes)
}

const fn null(column: Column) -> Column {
    Column { null: true, ..column }
}

const fn zero(column: Column) -> Column {
    Column { zero: true, ..column }
}

const AUTO: Column = column("id", Kind::Auto8);
const AUTO4: Column = column("id", Kind::Auto4);

const fn keyed(name: &'static str, primary: &'static [&'static str], columns: &'static [Column]) -> Table {
    Table { name, columns, primary, unique: None, index: None }
}

const fn numbered(
    name: &'static str,
    unique: Option<(&'static str, &'static [&'static str])>,
    columns: &'static [Column],
) -> Table {
    Table { name, columns, primary: &[], unique, index: None }
}

/// The tables of a JuiceFS volume.
pub(crate) const TABLES: [Table; 21] = [
    keyed("setting", &["name"], &[column("name", Kind::Short), column("value", Kind::Text)]),
    keyed("counter", &["name"], &[column("name", Kind::Short), i8("value")]),
    Table {
        index: Some("inode"),
        ..numbered(
            "edge",
            Some(("edge", &["parent", "name"])),
            &[AUTO, i8("parent"), column("name", Kind::Limited(255)), i8("inode"), i4("type")],
        )
    },
    keyed(
        "node",
        &["inode"],
        &[
            i8("inode"),
            i4("type"),
            i4("flags"),
            i4("mode"),
            i4("uid"),
            i4("gid"),
            i8("atime"),
            i8("mtime"),
            i8("ctime"),
            zero(i4("atimensec")),
            zero(i4("mtimensec")),
            zero(i4("ctimensec")),
            i4("nlink"),
            i8("length"),
            null(i4("rdev")),
            null(i8("parent")),
            null(i4("access_acl_id")),
            null(i4("default_acl_id")),
            null(i4("tier_id")),
        ],
    ),
    keyed("symlink", &["inode"], &[i8("inode"), column("target", Kind::Limited(4096))]),
    numbered(
        "xattr",
        Some(("name", &["inode", "name"])),
        &[AUTO, i8("inode"), column("name", Kind::Short), bytes("value")],
    ),
    numbered("chunk", Some(("chunk", &["inode", "indx"])), &[AUTO, i8("inode"), i4("indx"), bytes("slices")]),
    Table {
        index: Some("refs"),
        ..keyed("chunk_ref", &["chunkid"], &[i8("chunkid"), i4("size"), i4("refs")])
    },
    keyed("delslices", &["chunkid"], &[i8("chunkid"), i8("deleted"), bytes("slices")]),
    keyed("session2", &["sid"], &[i8("sid"), i8("expire"), null(bytes("info"))]),
    numbered("sustained", Some(("sustained", &["sid", "inode"])), &[AUTO, i8("sid"), i8("inode")]),
    keyed("delfile", &["inode"], &[i8("inode"), i8("length"), i8("expire")]),
    numbered(
        "flock",
        Some(("flock", &["inode", "sid", "owner"])),
        &[AUTO, i8("inode"), i8("sid"), i8("owner"), i4("ltype")],
    ),
    numbered(
        "plock",
        Some(("plock", &["inode", "sid", "owner"])),
        &[AUTO, i8("inode"), i8("sid"), i8("owner"), bytes("records")],
    ),
    keyed("dir_stats", &["inode"], &[i8("inode"), i8("data_length"), i8("used_space"), i8("used_inodes")]),
    keyed(
        "dir_quota",
        &["inode"],
        &[i8("inode"), i8("max_space"), i8("max_inodes"), i8("used_space"), i8("used_inodes")],
    ),
    keyed(
        "user_group_quota",
        &["qtype", "qkey"],
        &[i4("qtype"), i8("qkey"), i8("max_space"), i8("max_inodes"), i8("used_space"), i8("used_inodes")],
    ),
    keyed("detached_node", &["inode"], &[i8("inode"), i8("added")]),
    numbered(
        "acl",
        None,
        &[
            AUTO4,
            null(i4("owner")),
            null(i4("group")),
            null(i4("mask")),
            null(i4("other")),
            null(bytes("named_users")),
            null(bytes("named_groups")),
        ],
    ),
    numbered("delegation_token", None, &[AUTO4, null(bytes("token"))]),
    numbered("change_log", None, &[AUTO, column("entry", Kind::Text)]),
];

/// Sluice's own table: the last commit of each lane of each process.
pub(crate) const WRITER: Table = keyed("writer", &["writer", "lane"], &[i8("writer"), i4("lane"), i8("n")]);

/// Our own tables.
pub(crate) const OWN: [Table; 3] = [
    WRITER,
    keyed(
        "changes",
        &["writer", "lane", "slot"],
        &[i8("writer"), i4("lane"), i4("slot"), i8("n"), bytes("changes")],
    ),
    keyed("extra", &["kind", "id"], &[i4("kind"), i8("id"), bytes("value")]),
];

impl Table {
    /// The statement that makes the table.
    fn create(&self, dialect: Dialect, prefix: &str) -> String {
        let mut columns: Vec<String> = self.columns.iter().map(|c| self.column(dialect, c)).collect();
        if self.primary.len() > 1 {
            columns.push(format!("PRIMARY KEY ( {} )", dialect.quoted_all(self.primary)));
        }
        let name = dialect.quoted(&format!("{prefix}{}", self.name));
        format!("CREATE TABLE {name} ({})", columns.join(", "))
    }

    /// Names of its indexes and the statements that make them.
    fn indexes(&self, dialect: Dialect, prefix: &str) -> Vec<(String, String)> {
        let table = format!("{prefix}{}", self.name);
        let on = dialect.quoted(&table);
        let plain = self.index.map(|column| {
            let name = format!("IDX_{table}_{column}");
            let text = format!("CREATE INDEX {} ON {on} ({})", dialect.quoted(&name), dialect.quoted(column));
            (name, text)
        });
        let unique = self.unique.map(|(name, columns)| {
            let name = format!("UQE_{table}_{name}");
            let columns = dialect.quoted_all(columns);
            let text = format!("CREATE UNIQUE INDEX {} ON {on} ({columns})", dialect.quoted(&name));
            (name, text)
        });
        plain.into_iter().chain(unique).collect()
    }

    /// A column, as CREATE TABLE and ALTER TABLE … ADD take it.
    fn column(&self, dialect: Dialect, column: &Column) -> String {
        let kind = dialect.kind(column.kind);
        let key = match self.primary {
            _ if matches!(column.kind, Kind::Auto4 | Kind::Auto8) => match dialect {
                Dialect::Sqlite => " PRIMARY KEY AUTOINCREMENT",
                Dialect::Mysql => " PRIMARY KEY AUTO_INCREMENT",
                Dialect::Postgres => " PRIMARY KEY",
            },
            [only] if *only == column.name => " PRIMARY KEY",
            _ => "",
        };
        let zero = if column.zero { " DEFAULT 0" } else { "" };
        let null = if column.null { " NULL" } else { " NOT NULL" };
        format!("{} {kind}{key}{zero}{null}", dialect.quoted(column.name))
    }
}

/// The statements that make what a database lacks. It has these tables, `table.column`s and
/// indexes. `kind` ends the statement that makes a table. Nothing that exists is altered, so that
/// they are harmless on a volume that others use.
pub(crate) fn lacking(
    dialect: Dialect,
    volume: &Volume,
    existing: &BTreeSet<String>,
    kind: &str,
) -> Vec<String> {
    let theirs = TABLES.iter().map(|table| (volume.prefix(), table));
    let ours = OWN.iter().map(|table| (volume.own_prefix(), table));
    let mut statements = Vec::new();
    for (prefix, table) in theirs.chain(ours) {
        let name = format!("{prefix}{}", table.name);
        if existing.contains(&name) {
            let has = |column: &&Column| existing.contains(&format!("{name}.{}", column.name));
            let columns = table.columns.iter().filter(|column| !has(column));
            let quoted = dialect.quoted(&name);
            statements.extend(
                columns.map(|column| format!("ALTER TABLE {quoted} ADD {}", table.column(dialect, column))),
            );
        } else {
            statements.push(table.create(dialect, &prefix) + kind);
        }
        let indexes = table.indexes(dialect, &prefix).into_iter();
        statements.extend(indexes.filter(|(index, _)| !existing.contains(index)).map(|(_, text)| text));
    }
    statements
}

/// What a volume is opened by; without it nothing could be begun again.
const LAST: [&str; 5] = ["dir_quota", "user_group_quota", "session2", "counter", "setting"];

/// The statements that remove all tables of a volume, the settings last.
pub(crate) fn removals(dialect: Dialect, volume: &Volume) -> Vec<String> {
    let rank = |table: &&Table| LAST.iter().position(|last| *last == table.name).map_or(0, |at| at + 1);
    let mut theirs: Vec<&Table> = TABLES.iter().collect();
    theirs.sort_by_key(rank);
    // Of versions of the format that no program makes any more.
    let older = [(volume.prefix(), "session")];
    let ours = OWN.iter().map(|table| (volume.own_prefix(), table.name));
    let theirs = theirs.into_iter().map(|table| (volume.prefix(), table.name));
    let names = ours.chain(older).chain(theirs).map(|(prefix, name)| format!("{prefix}{name}"));
    names.map(|name| format!("DROP TABLE IF EXISTS {}", dialect.quoted(&name))).collect()
}

impl Dialect {
    /// A name in quotes, for some are reserved words.
    fn quoted(self, name: &str) -> String {
        match self {
            Self::Sqlite | Self::Mysql => format!("`{name}`"),
            Self::Postgres => format!("\"{name}\""),
        }
    }

    fn quoted_all(self, names: &[&str]) -> String {
        names.iter().map(|name| self.quoted(name)).collect::<Vec<_>>().join(",")
    }

    fn kind(self, kind: Kind) -> Cow<'static, str> {
        let name = match self {
            Self::Sqlite => match kind {
                Kind::I4 | Kind::I8 | Kind::Auto4 | Kind::Auto8 => "INTEGER",
                Kind::Short | Kind::Text => "TEXT",
                Kind::Bytes | Kind::Limited(_) => "BLOB",
            },
            Self::Postgres => match kind {
                Kind::I4 => "INTEGER",
                Kind::I8 => "BIGINT",
                Kind::Auto4 => "SERIAL",
                Kind::Auto8 => "BIGSERIAL",
                Kind::Short => "VARCHAR(255)",
                Kind::Text => "TEXT",
                Kind::Bytes | Kind::Limited(_) => "BYTEA",
            },
            Self::Mysql => match kind {
                Kind::I4 | Kind::Auto4 => "INT",
                Kind::I8 | Kind::Auto8 => "BIGINT",
                Kind::Short => "VARCHAR(255)",
                Kind::Text => "TEXT",
                Kind::Bytes => "BLOB",
                Kind::Limited(most) => return format!("VARBINARY({most})").into(),
            },
        };
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_are_removed_the_settings_last() {
        let removals = removals(Dialect::Postgres, &Volume::new(""));
        assert_eq!(removals.len(), TABLES.len() + OWN.len() + 1);
        assert_eq!(removals.last().map(String::as_str), Some("DROP TABLE IF EXISTS \"jfs_setting\""));
        assert!(removals.iter().any(|text| text.ends_with("\"sluice_writer\"")));
    }

    #[test]
    fn the_statements_are_those_of_juicefs() {
        let theirs: BTreeSet<&str> = include_str!("../tests/fixtures/juicefs.sql")
            .lines()
            .map(|line| line.trim_end_matches(';'))
            .filter(|line| !line.is_empty())
            .collect();
        let ours: Vec<String> = TABLES
            .iter()
            .flat_map(|table| {
                let indexes = table.indexes(Dialect::Sqlite, "jfs_").into_iter().map(|(_, text)| text);
                std::iter::once(table.create(Dialect::Sqlite, "jfs_")).chain(indexes)
            })
            .collect();
        assert_eq!(ours.iter().map(String::as_str).collect::<BTreeSet<_>>(), theirs);
    }

    #[test]
    fn each_database_has_its_words() {
        let edge = TABLES.iter().find(|table| table.name == "edge").expect("edge");
        assert_eq!(
            edge.create(Dialect::Postgres, "jfs_"),
            "CREATE TABLE \"jfs_edge\" (\"id\" BIGSERIAL PRIMARY KEY NOT NULL, \"parent\" BIGINT NOT NULL, \
             \"name\" BYTEA NOT NULL, \"inode\" BIGINT NOT NULL, \"type\" INTEGER NOT NULL)"
        );
        assert_eq!(
            edge.create(Dialect::Mysql, "jfs_x_"),
            "CREATE TABLE `jfs_x_edge` (`id` BIGINT PRIMARY KEY AUTO_INCREMENT NOT NULL, `parent` BIGINT NOT NULL, \
             `name` VARBINARY(255) NOT NULL, `inode` BIGINT NOT NULL, `type` INT NOT NULL)"
        );
        let (name, text) = &edge.indexes(Dialect::Postgres, "jfs_")[1];
        assert_eq!(name, "UQE_jfs_edge_edge");
        assert_eq!(text, "CREATE UNIQUE INDEX \"UQE_jfs_edge_edge\" ON \"jfs_edge\" (\"parent\",\"name\")");
    }
}
