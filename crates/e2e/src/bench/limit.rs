//! The limits of the engines: the database alone stores the records of small files.
//!
//! What must stay true: a file consists of the same records as in a volume: an entry, a node, a
//! chunk and (SQL) a slice reference. The durability is also the same.

pub(super) mod etcd;
mod kv;
pub(super) mod tikv;

use super::Turn;
use crate::rig::{Engine, Volume};
use anyhow::{Context, ensure};
use sluice_testkit::server::mariadb::{PASSWORD, USER};
use std::{
    fmt::Write as _,
    fs::File,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Command,
    time::Instant,
};

/// Writes `files` files, `per_commit` of them at once; files a second.
pub(super) fn rows(turn: &Turn, files: usize, per_commit: usize) -> anyhow::Result<Vec<Option<f64>>> {
    // For its folder, its server and its end.
    let volume = turn.volume()?;
    let rate = match turn.engine {
        Engine::Redis => redis(&volume, files, per_commit),
        Engine::Sqlite => sqlite(&volume, files, per_commit),
        Engine::Mariadb => mariadb(&volume, files, per_commit),
        // What stands in for TiKV here says nothing about its limits; a server process of
        // PostgreSQL is all it takes.
        Engine::Postgres | Engine::Tikv | Engine::Etcd | Engine::RedisCluster | Engine::RedisSentinel => {
            return Ok(vec![None]);
        }
    };
    Ok(vec![Some(rate.context("the bare engine")?)])
}

/// A node's attributes, about as long as they are stored.
const ATTR: [u8; 73] = [7; 73];
const SLICE: [u8; 24] = [7; 24];
/// Inodes that no new volume has.
const FIRST: i64 = 1000;

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

const EDGE: &str = "INSERT INTO jfs_edge (parent, name, inode, type) VALUES (1, ?, ?, 1)";
const NODE: &str =
    "INSERT INTO jfs_node (inode, type, flags, mode, uid, gid, atime, mtime, ctime, nlink, length, parent)
                    VALUES (?, 1, 0, 420, 0, 0, ?2, ?2, ?2, 1, 8192, 1)";
const CHUNK: &str = "INSERT INTO jfs_chunk (inode, indx, slices) VALUES (?, 0, ?)";
const SLICE_REF: &str = "INSERT INTO jfs_chunk_ref (chunkid, size, refs) VALUES (?, 8192, 1)";

/// Into the volume's own tables, so that every column and every index costs what it costs there.
fn sqlite(volume: &Volume, files: usize, per_commit: usize) -> anyhow::Result<f64> {
    let mut connection = rusqlite::Connection::open(volume.path("meta.db"))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")?;
    let start = Instant::now();
    let inodes: Vec<i64> = (FIRST..FIRST + files as i64).collect();
    for inodes in inodes.chunks(per_commit) {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for inode in inodes {
            let name = format!("file.mdtest.{inode}").into_bytes();
            let insert = |sql, values: &[&dyn rusqlite::ToSql]| {
                transaction.prepare_cached(sql)?.execute(values).map(drop)
            };
            insert(EDGE, &[&name, inode])?;
            insert(NODE, &[inode, &1_700_000_000_000_000_i64])?;
            insert(CHUNK, &[inode, &&SLICE[..]])?;
            insert(SLICE_REF, &[inode])?;
        }
        transaction.commit()?;
    }
    Ok(super::rate(files, start))
}

/// By the server's own client on one connection: each transaction one request, each table one
/// statement in it.
fn mariadb(volume: &Volume, files: usize, per_commit: usize) -> anyhow::Result<f64> {
    let (_, place) = volume.meta.split_once("@(").context("no address in the URL")?;
    let (address, database) = place.split_once(")/").context("no database in the URL")?;
    let (host, port) = address.rsplit_once(':').context("no port in the URL")?;
    let mut script = "delimiter //\n".to_owned();
    let inodes: Vec<i64> = (FIRST..FIRST + files as i64).collect();
    for inodes in inodes.chunks(per_commit) {
        let rows = |row: &dyn Fn(&i64) -> String| inodes.iter().map(row).collect::<Vec<_>>().join(",");
        let time = "1700000000000000";
        writeln!(
            script,
            "BEGIN;INSERT INTO jfs_edge (parent,name,inode,type) VALUES {};\
             INSERT INTO jfs_node (inode,type,flags,mode,uid,gid,atime,mtime,ctime,nlink,length,parent) VALUES {};\
             INSERT INTO jfs_chunk (inode,indx,slices) VALUES {};\
             INSERT INTO jfs_chunk_ref (chunkid,size,refs) VALUES {};COMMIT//",
            rows(&|inode| format!("(1,'file.mdtest.{inode}',{inode},1)")),
            rows(&|inode| format!("({inode},1,0,420,0,0,{time},{time},{time},1,8192,1)")),
            rows(&|inode| format!("({inode},0,REPEAT('s',24))")),
            rows(&|inode| format!("({inode},8192,1)")),
        )?;
    }
    let file = volume.path("limit.sql");
    std::fs::write(&file, script)?;
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--host", host, "--port", port, "--user", USER, database]);
    let start = Instant::now();
    let output = client.env("MYSQL_PWD", PASSWORD).stdin(File::open(&file)?).output()?;
    ensure!(output.status.success(), "mariadb says {}", String::from_utf8_lossy(&output.stderr));
    Ok(super::rate(files, start))
}
