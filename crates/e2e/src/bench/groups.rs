//! All rows, in the order of the table: which are measured together, on which engines, and by what.

use super::{
    Plan, Turn, backups, busy, clients, dumps, far_store, file, memory, metadata, operations, pages,
    published, ranks,
    row::{
        BYTES, COUNT, FILES, MEMORY, NOTHING, OPERATIONS, PERCENT, Row, SECONDS, Targets, Unit, all, local,
    },
    small, streams, trees, trips,
};
use crate::rig::Engine;

/// Rows that one turn measures together: one figure for each, or none where there is no limit to
/// measure.
pub(super) struct Group {
    pub(super) engines: &'static [Engine],
    /// Engines to measure by default. If there is none, the rows are measured only when somebody
    /// names engines or these rows.
    pub(super) usual: &'static [Engine],
    pub(super) rows: &'static [Row],
    pub(super) turn: fn(&Turn) -> anyhow::Result<Vec<Option<f64>>>,
    /// Whether `JuiceFS` is measured, too.
    pub(super) rival: fn(&Plan) -> bool,
}

fn program(plan: &Plan) -> bool {
    plan.juicefs.is_some()
}

pub(super) const ALL: &[Engine] =
    &[Engine::Redis, Engine::Sqlite, Engine::Postgres, Engine::Mariadb, Engine::Tikv];
/// Engines that are one server.
const SERVERS: &[Engine] = &[Engine::Redis, Engine::Postgres, Engine::Mariadb];
const SQL_SERVERS: &[Engine] = &[Engine::Postgres, Engine::Mariadb];
pub(super) const LOCAL: &[Engine] = &[Engine::Redis, Engine::Sqlite];

pub(super) const GROUPS: &[Group] = &[
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row {
            name: "mdtest, 100 threads",
            unit: FILES,
            targets: Targets { redis: 3.0, sqlite: 8.0, postgres: 6.0, mariadb: 10.0, tikv: 2.0 },
        }],
        turn: metadata::many,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row {
            name: "mdtest, 50 threads",
            unit: FILES,
            targets: Targets { redis: 3.0, sqlite: 0.0, postgres: 6.0, mariadb: 10.0, tikv: 2.0 },
        }],
        turn: metadata::some,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row { name: "mdtest, 1 thread", unit: FILES, targets: Targets { tikv: 0.0, ..all(1.5) } }],
        turn: metadata::alone,
        rival: program,
    },
    Group {
        engines: SQL_SERVERS,
        usual: &[],
        rows: &[
            Row { name: "mdtest, 5 connections", unit: FILES, targets: all(1.0) },
            Row { name: "mdtest, 10 connections", unit: FILES, targets: all(1.0) },
            Row { name: "mdtest, 20 connections", unit: FILES, targets: all(1.0) },
        ],
        turn: metadata::few_connections,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &[
            Row { name: "8 clients, one directory", unit: FILES, targets: NOTHING },
            Row { name: "8 clients, a directory each", unit: FILES, targets: NOTHING },
            Row { name: "8 clients, one against each", unit: PERCENT, targets: NOTHING },
            Row { name: "8 clients, slowest of fastest", unit: PERCENT, targets: NOTHING },
        ],
        turn: clients::turn,
        // Its mdtest makes the tree it fills, so that no second one can join.
        rival: |_| false,
    },
    Group {
        engines: ALL,
        usual: LOCAL,
        rows: &[
            Row {
                name: "clone",
                unit: SECONDS,
                targets: Targets { redis: 2.0, sqlite: 4.0, postgres: 2.0, mariadb: 4.0, tikv: 1.5 },
            },
            Row {
                name: "rmr",
                unit: SECONDS,
                targets: Targets { redis: 1.5, sqlite: 4.0, postgres: 2.0, mariadb: 4.0, tikv: 1.5 },
            },
        ],
        turn: metadata::tree,
        rival: program,
    },
    Group {
        engines: &[
            Engine::Redis,
            Engine::Sqlite,
            Engine::Postgres,
            Engine::Mariadb,
            Engine::Tikv,
            Engine::Etcd,
        ],
        usual: LOCAL,
        rows: &[
            Row { name: "dump json", unit: SECONDS, targets: Targets { mariadb: 20.0, ..all(1.5) } },
            Row { name: "load json", unit: SECONDS, targets: all(1.5) },
            Row { name: "dump binary", unit: SECONDS, targets: all(1.5) },
            Row { name: "load binary", unit: SECONDS, targets: all(1.5) },
        ],
        turn: dumps::turn,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &[
            Row { name: "mdtest during backups", unit: PERCENT, targets: NOTHING },
            Row { name: "memory for backups", unit: MEMORY, targets: NOTHING },
        ],
        turn: backups::turn,
        rival: |_| false,
    },
    Group {
        engines: ALL,
        usual: LOCAL,
        rows: &[
            Row { name: "fuse create", unit: OPERATIONS, targets: local(1.5) },
            Row { name: "fuse cold stat", unit: OPERATIONS, targets: local(1.5) },
            Row { name: "fuse unlink", unit: OPERATIONS, targets: local(1.5) },
            Row { name: "memory: small files", unit: MEMORY, targets: local(2.0) },
        ],
        turn: small::turn,
        rival: program,
    },
    Group { engines: ALL, usual: LOCAL, rows: &trees::ROWS, turn: trees::turn, rival: program },
    Group {
        engines: SERVERS,
        usual: &[],
        rows: &[
            Row { name: "create, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
            Row { name: "rename, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
            Row { name: "unlink, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
        ],
        turn: trips::far,
        rival: program,
    },
    Group {
        engines: &[Engine::Mariadb],
        usual: &[],
        rows: &[
            Row { name: "round trips of touch", unit: COUNT, targets: all(2.5) },
            Row { name: "round trips of rm", unit: COUNT, targets: all(2.5) },
            Row { name: "statements of touch", unit: COUNT, targets: NOTHING },
            Row { name: "statements of rm", unit: COUNT, targets: NOTHING },
        ],
        turn: trips::counted,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &operations::ROWS,
        turn: operations::turn,
        rival: operations::rival,
    },
    Group {
        engines: LOCAL,
        usual: LOCAL,
        rows: &[
            Row { name: "sequential write", unit: BYTES, targets: local(1.0) },
            Row { name: "sequential read", unit: BYTES, targets: local(1.0) },
            Row { name: "random read", unit: OPERATIONS, targets: local(2.5) },
            Row { name: "random read, 16 readers", unit: OPERATIONS, targets: local(5.0) },
            Row { name: "random write", unit: OPERATIONS, targets: local(3.0) },
            Row { name: "appends of 4 B", unit: OPERATIONS, targets: NOTHING },
            Row { name: "memory: large file", unit: MEMORY, targets: local(2.0) },
        ],
        turn: file::turn,
        rival: program,
    },
    Group {
        engines: LOCAL,
        usual: &[],
        rows: &[
            Row { name: "own files, opened again", unit: FILES, targets: local(3.0) },
            Row { name: "reads of 512 B in memory", unit: OPERATIONS, targets: NOTHING },
        ],
        turn: pages::turn,
        rival: program,
    },
    Group {
        engines: LOCAL,
        usual: LOCAL,
        rows: &[
            Row { name: "2 writers", unit: BYTES, targets: local(1.2) },
            Row { name: "4 writers, fsync", unit: BYTES, targets: local(1.2) },
            Row { name: "writer of 128 KiB", unit: BYTES, targets: local(1.2) },
            Row { name: "processor for a GiB written", unit: SECONDS, targets: local(1.43) },
            Row { name: "memory: writers", unit: MEMORY, targets: local(2.0) },
            Row { name: "cold read, 1 stream", unit: BYTES, targets: local(1.2) },
            Row { name: "cold read, 4 streams", unit: BYTES, targets: local(1.2) },
            Row { name: "processor for a GiB read", unit: SECONDS, targets: local(1.43) },
            Row { name: "memory: cold reads", unit: MEMORY, targets: local(2.0) },
        ],
        turn: streams::turn,
        rival: program,
    },
    Group {
        engines: LOCAL,
        usual: LOCAL,
        rows: &[Row { name: "4 writers, synced", unit: BYTES, targets: NOTHING }],
        turn: streams::synced,
        rival: |_| false,
    },
    Group {
        engines: &[Engine::Redis],
        usual: LOCAL,
        rows: &[
            Row { name: "memory after bench", unit: MEMORY, targets: local(2.0) },
            Row { name: "memory at its highest", unit: MEMORY, targets: NOTHING },
        ],
        turn: memory::turn,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[Engine::Redis],
        rows: &[
            Row { name: "far store, write", unit: BYTES, targets: NOTHING },
            Row { name: "far store, 1 stream", unit: BYTES, targets: NOTHING },
            Row { name: "far store, 2 streams", unit: BYTES, targets: NOTHING },
            Row { name: "far store, 4 streams", unit: BYTES, targets: all(1.5) },
            Row { name: "far store, 8 streams", unit: BYTES, targets: NOTHING },
            Row { name: "far store, bytes", unit: Unit::Cost("of those read"), targets: NOTHING },
            Row { name: "far store, processor for a GiB read", unit: SECONDS, targets: NOTHING },
            Row { name: "memory: far store, write", unit: MEMORY, targets: all(2.0) },
            Row { name: "memory: far store, streams", unit: MEMORY, targets: all(2.0) },
        ],
        turn: far_store::turn,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[Engine::Redis],
        rows: &[
            Row { name: "busy processors, random read", unit: OPERATIONS, targets: all(1.5) },
            Row { name: "crowded processors, random read", unit: OPERATIONS, targets: all(1.5) },
            Row { name: "memory: busy processors", unit: MEMORY, targets: all(2.0) },
        ],
        turn: busy::turn,
        rival: program,
    },
    Group { engines: ALL, usual: &[], rows: &published::BENCH, turn: published::bench, rival: program },
    Group { engines: ALL, usual: &[], rows: &published::FIO, turn: published::fio, rival: program },
    Group { engines: ALL, usual: &[], rows: &ranks::EMPTY, turn: ranks::empty, rival: program },
    Group { engines: ALL, usual: &[], rows: &ranks::SMALL, turn: ranks::small, rival: program },
];
