//! The bare engines: the rows of a small file, written with nothing around them.
//!
//! What must stay true: a file costs what it costs in the volume format, an entry, a node, a chunk and (SQL) a slice
//! reference, at the durability that volumes have.

use super::Turn;
use crate::rig::{Engine, Volume};
use anyhow::{Context, ensure};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Instant,
};

/// Writes `files` files, `per_commit` of them at once; files a second.
pub(super) fn rows(turn: &Turn, files: usize, per_commit: usize) -> anyhow::Result<Vec<Option<f64>>> {
    // For its folder, its server and its end.
    let volume = turn.volume()?;
    let rate = match turn.engine {
        Engine::Redis => redis(&volume, files, per_commit),
        Engine::Sqlite => sqlite(&volume, files, per_commit),
    };
    Ok(vec![Some(rate.context("the bare engine")?)])
}

/// A node's attributes, about as long as they are stored.
const ATTR: [u8; 73] = [7; 73];
const SLICE: [u8; 24] = [7; 24];

const SCRIPT: &str = "
for i = 1, #ARGV, 2 do
  redis.call('SET', 'i' .. ARGV[i], ARGV[i + 1])
  redis.call('HSET', KEYS[1], 'file.mdtest.' .. ARGV[i], '123456789')
  redis.call('RPUSH', 'c' .. ARGV[i] .. '_0', KEYS[2])
end
redis.call('INCRBY', 'usedSpace', 8192 * #ARGV / 2)
redis.call('INCRBY', 'totalInodes', #ARGV / 2)
return 1";

fn redis(volume: &Volume, files: usize, per_commit: usize) -> anyhow::Result<f64> {
    let address = volume.meta.trim_start_matches("redis://").trim_end_matches("/1");
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut send = |words: &[&[u8]]| {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).into_bytes());
            command.extend_from_slice(word);
            command.extend(b"\r\n");
        }
        (&stream).write_all(&command)?;
        let mut reply = String::new();
        replies.read_line(&mut reply)?;
        ensure!(reply.starts_with(['+', ':']), "Redis says {reply}");
        Ok(())
    };
    send(&[b"SELECT", b"7"])?;
    let inodes: Vec<String> = (0..files).map(|file| file.to_string()).collect();
    let start = Instant::now();
    for inodes in inodes.chunks(per_commit) {
        let mut words: Vec<&[u8]> = vec![b"EVAL", SCRIPT.as_bytes(), b"2", b"d1", &SLICE];
        words.extend(inodes.iter().flat_map(|inode| [inode.as_bytes(), &ATTR]));
        send(&words)?;
    }
    Ok(super::rate(files, start))
}

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE edge (id INTEGER PRIMARY KEY AUTOINCREMENT, parent INTEGER, name BLOB, inode INTEGER, type INTEGER);
CREATE UNIQUE INDEX edge_name ON edge (parent, name);
CREATE INDEX edge_inode ON edge (inode);
CREATE TABLE node (inode INTEGER PRIMARY KEY, type INTEGER, mode INTEGER, mtime INTEGER, nlink INTEGER,
                   length INTEGER, attr BLOB);
CREATE TABLE chunk (id INTEGER PRIMARY KEY AUTOINCREMENT, inode INTEGER, indx INTEGER, slices BLOB);
CREATE UNIQUE INDEX chunk_indx ON chunk (inode, indx);
CREATE TABLE chunk_ref (chunkid INTEGER PRIMARY KEY, size INTEGER, refs INTEGER);
CREATE INDEX chunk_refs ON chunk_ref (refs);";

fn sqlite(volume: &Volume, files: usize, per_commit: usize) -> anyhow::Result<f64> {
    let mut connection = rusqlite::Connection::open(volume.path("bare.db"))?;
    connection.execute_batch(SCHEMA)?;
    let start = Instant::now();
    let inodes: Vec<i64> = (0..files as i64).collect();
    for inodes in inodes.chunks(per_commit) {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for inode in inodes {
            let name = format!("file.mdtest.{inode}").into_bytes();
            let insert = |sql, values: &[&dyn rusqlite::ToSql]| {
                transaction.prepare_cached(sql)?.execute(values).map(drop)
            };
            insert("INSERT INTO edge (parent, name, inode, type) VALUES (1, ?, ?, 1)", &[&name, inode])?;
            insert(
                "INSERT INTO node VALUES (?, 1, 420, 1700000000000000, 1, 8192, ?)",
                &[inode, &&ATTR[..32]],
            )?;
            insert("INSERT INTO chunk (inode, indx, slices) VALUES (?, 0, ?)", &[inode, &&SLICE[..]])?;
            insert("INSERT INTO chunk_ref VALUES (?, 8192, 1)", &[inode])?;
        }
        transaction.commit()?;
    }
    Ok(super::rate(files, start))
}
