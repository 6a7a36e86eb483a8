//! The faults, each with its end.
//!
//! What must stay true: after a fault, the group is as it was before it.

use super::{
    cluster::{Cluster, LATE_NODE, LATE_TAKER, NODES, each_file},
    flood::Flood,
    garbage::Garbage,
    node::Node,
    readers::read_all,
    watch::Watch,
};
use anyhow::{Context, ensure};
use rustix::process::Signal;
use sluice_testkit::server::Behaviour;
use std::{
    fs::{self, File},
    io::Write,
    process::Command,
    time::{Duration, Instant},
};

/// A fault and its end.
type Fault = fn(&mut Cluster, &mut Watch) -> anyhow::Result<()>;

/// All faults by their names.
pub(super) const ALL: [(&str, Fault); 17] = [
    ("server-killed", server_killed),
    ("node-killed", node_killed),
    ("frozen", frozen),
    ("cut-off", cut_off),
    ("mute", mute),
    ("deaf", deaf),
    ("slow", slow),
    ("garbage", garbage),
    ("damaged-packets", damaged_packets),
    ("damaged-cache", damaged_cache),
    ("full-disk", full_disk),
    ("joins-and-leaves", joins_and_leaves),
    ("drained", drained),
    ("old-cache", old_cache),
    ("key-changed", key_changed),
    ("stranger", stranger),
    ("flood", flood),
];

/// What a slow link takes, in bytes a second.
const SLOW_LINK: u64 = 1_000_000;
/// The node behind the gateway.
const BEHIND: usize = NODES - 1;
/// How long something may take that nobody waits for.
const SOON: Duration = Duration::from_secs(90);
/// How long nobody asks a node that is drained.
const QUIET: Duration = Duration::from_secs(2);

fn server_killed(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "the process that serves is killed", |cluster| {
        cluster.nodes[0].signal(Signal::KILL)
    })?;
    used(cluster, watch, 0)
}

fn node_killed(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "a node is killed with its guardian", |cluster| {
        cluster.nodes[1].die();
        Ok(())
    })?;
    watch.meets(cluster, "it is mounted again", |cluster| cluster.nodes[1].mount())?;
    used(cluster, watch, 1)
}

fn frozen(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    let frozen = watch.meets(cluster, "a node is frozen", |cluster| cluster.nodes[0].signal(Signal::STOP));
    let thawed = watch.meets(cluster, "it goes on", |cluster| cluster.nodes[0].signal(Signal::CONT));
    frozen.and(thawed)?;
    used(cluster, watch, 0)
}

fn cut_off(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    link(cluster, watch, 1, "a node is cut off", |cluster, machine| cluster.network.cut(machine))
}

fn mute(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    link(cluster, watch, 0, "nobody hears a node", |cluster, machine| cluster.network.mute(machine))
}

fn deaf(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    link(cluster, watch, 1, "a node hears nobody", |cluster, machine| cluster.network.deafen(machine))
}

fn slow(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    link(cluster, watch, 0, "the link of a node is slow", |cluster, machine| {
        cluster.network.slow(machine, SLOW_LINK)
    })
}

/// Breaks the link of a node, and mends it.
fn link(
    cluster: &mut Cluster,
    watch: &mut Watch,
    node: usize,
    what: &str,
    change: impl FnOnce(&Cluster, usize) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let machine = cluster.nodes[node].machine;
    watch.meets(cluster, what, |cluster| Ok(change(cluster, machine)?))?;
    watch.meets(cluster, "its link is as before", |cluster| Ok(cluster.network.heal(machine)?))?;
    used(cluster, watch, node)
}

fn garbage(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    let server = Garbage::start()?;
    watch.meets(cluster, "something else answers in the place of a node", |cluster| {
        cluster.gateway.retarget(server.address());
        cluster.gateway.reset();
        Ok(())
    })?;
    watch.meets(cluster, "the node answers again", |cluster| {
        cluster.gateway.retarget(cluster.nodes[BEHIND].address.context("it gives no blocks")?);
        cluster.gateway.reset();
        Ok(())
    })?;
    used(cluster, watch, BEHIND)
}

fn damaged_packets(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "bits flip on the way from a node", |cluster| {
        cluster.gateway.set(Behaviour { damage: true, ..Behaviour::default() });
        Ok(())
    })?;
    watch.meets(cluster, "they do not any more", |cluster| {
        cluster.gateway.heal();
        Ok(())
    })?;
    used(cluster, watch, BEHIND)
}

fn damaged_cache(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "bits flip in the cache of a node", |cluster| {
        let mut damaged = 0;
        each_file(cluster.nodes[0].cache(), &mut |path| {
            let Ok(mut bytes) = fs::read(path) else { return Ok(()) };
            for at in (1000..bytes.len()).step_by(7000) {
                bytes[at] ^= 1;
            }
            damaged += 1;
            // In its place, as a disk does: the node has the file open.
            File::options().write(true).open(path)?.write_all(&bytes)
        })?;
        ensure!(damaged > 10, "{damaged} files are damaged");
        Ok(())
    })?;
    used(cluster, watch, 0)
}

/// The cache of a node moves to a small file system of its own, which is full.
fn full_disk(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    let cache = cluster.nodes[1].cache().to_owned();
    watch.meets(cluster, "the cache of a node is on a full disk", |cluster| {
        cluster.nodes[1].unmount()?;
        fs::remove_dir_all(&cache)?;
        fs::create_dir_all(&cache)?;
        let cache = cache.to_string_lossy();
        cluster.network.run_here(&["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", &cache])?;
        let mut filler = File::create(format!("{cache}/filler"))?;
        while filler.write_all(&[7; 8 << 10]).is_ok() {}
        cluster.nodes[1].mount()
    })?;
    used(cluster, watch, 1)?;
    watch.meets(cluster, "it is on its disk again", |cluster| {
        cluster.nodes[1].unmount()?;
        cluster.network.run_here(&["umount", &cache.to_string_lossy()])?;
        cluster.nodes[1].mount()
    })?;
    used(cluster, watch, 1)
}

fn joins_and_leaves(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "one more node joins", |cluster| {
        let mut node = cluster.new_node(NODES, LATE_NODE);
        node.mount()?;
        cluster.nodes.push(node);
        Ok(())
    })?;
    used(cluster, watch, NODES)?;
    watch.meets(cluster, "it leaves", |cluster| {
        let mut node = cluster.nodes.pop().context("it is there")?;
        node.unmount()
    })
}

fn drained(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "a node is drained", |cluster| {
        cluster.nodes[0].set("--group-weight", "0");
        cluster.nodes[0].upgrade()
    })?;
    let (mut before, mut since, mut looked) = (0.0, Instant::now(), Instant::now());
    watch.until("nobody to ask it any more", SOON, || {
        if looked.elapsed() < QUIET / 10 {
            return false;
        }
        looked = Instant::now();
        let now = cluster.nodes[0].served().unwrap_or(0.0);
        if now > before {
            (before, since) = (now, looked);
        }
        since.elapsed() > QUIET
    })?;
    watch.meets(cluster, "it gets its share again", |cluster| {
        cluster.nodes[0].set("--group-weight", "100");
        cluster.nodes[0].upgrade()
    })?;
    used(cluster, watch, 0)
}

fn old_cache(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    watch.meets(cluster, "a node is unmounted", |cluster| cluster.nodes[0].unmount())?;
    watch.meets(cluster, "it comes back with its old cache", |cluster| cluster.nodes[0].mount())?;
    used(cluster, watch, 0)?;
    let node = &cluster.nodes[0];
    let (cached, read) =
        (node.stat("sluice_group_served_cached_total")?, node.stat("sluice_group_served_read_total")?);
    ensure!(
        read < cached / 4.0,
        "its old cache is of no use: {cached} requests from it, {read} from the store"
    );
    Ok(())
}

fn key_changed(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    for time in ["once", "twice"] {
        watch.meets(cluster, &format!("the key is changed {time}"), |cluster| {
            cluster.command(&["config", &cluster.meta, "--change-group-key"]).map(drop)
        })?;
    }
    let meta = cluster.meta.clone();
    let mut late = cluster.new_taker("late", LATE_TAKER, &meta, &[]);
    late.mount()?;
    gets_blocks(cluster, &late)?;
    // Those that were there before need new connections.
    watch.meets(cluster, "all connections end", |cluster| {
        for node in 0..NODES {
            cluster.nodes[node].signal(Signal::KILL)?;
        }
        Ok(())
    })?;
    late.unmount()?;
    (0..NODES).try_for_each(|node| used(cluster, watch, node))
}

/// Another volume, which is a copy of this one but for the keys.
fn stranger(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    let (server, _) = cluster.meta.rsplit_once('/').context("a database of Redis")?;
    let copy = format!("{server}/2");
    let address = server.trim_start_matches("redis://");
    let (host, port) = address.split_once(':').context("where Redis is")?;
    let script = "for _, key in ipairs(redis.call('keys', '*')) do redis.call('copy', key, key, 'db', 2) end";
    let words = ["-h", host, "-p", port, "-n", "1", "eval", script, "0"];
    let copied = Command::new("redis-cli").args(words).output()?;
    ensure!(copied.status.success() && copied.stderr.is_empty(), "not copied: {copied:?}");
    for _ in 0..2 {
        cluster.command(&["config", &copy, "--change-group-key"])?;
    }
    let refused = |cluster: &Cluster| -> anyhow::Result<f64> {
        cluster.nodes.iter().map(|node| node.stat("sluice_group_refused_total")).sum()
    };
    let before = refused(cluster)?;
    let mut stranger = cluster.new_taker("stranger", LATE_TAKER, &copy, &["--read-only"]);
    watch.meets(cluster, "somebody has another key", |cluster| {
        stranger.mount()?;
        read_all(stranger.point(), cluster.seed)
    })?;
    let got = stranger.stat("juicefs_remotecache_gets")?;
    ensure!(got.abs() < f64::EPSILON, "a stranger got {got} blocks");
    ensure!(refused(cluster)? > before, "nobody refused the stranger");
    stranger.unmount()
}

fn flood(cluster: &mut Cluster, watch: &mut Watch) -> anyhow::Result<()> {
    let addresses: Vec<_> = cluster.nodes[..NODES - 1].iter().filter_map(|node| node.address).collect();
    let mut flood = None;
    watch.meets(cluster, "unauthenticated connections flood two nodes", |_| {
        flood = Some(Flood::start(&addresses)?);
        Ok(())
    })?;
    let opened = flood.as_ref().map_or(0, Flood::opened);
    ensure!(opened > 2000, "{opened} connections are no flood");
    // Others get in all the same.
    let meta = cluster.meta.clone();
    let mut late = cluster.new_taker("late", LATE_TAKER, &meta, &[]);
    late.mount()?;
    gets_blocks(cluster, &late)?;
    watch.meets(cluster, "the flood ends", |_| {
        drop(flood.take());
        Ok(())
    })?;
    late.unmount()?;
    (0..NODES).try_for_each(|node| used(cluster, watch, node))
}

/// Nodes answer a new client.
fn gets_blocks(cluster: &Cluster, taker: &Node) -> anyhow::Result<()> {
    read_all(taker.point(), cluster.seed)?;
    let got = taker.stat("juicefs_remotecache_gets")?;
    let read = taker.stat("juicefs_object_request_data_bytes_GET")? / f64::from(256 << 10);
    println!("  a new client got {got} blocks of members and read {read:.0} itself");
    ensure!(got > 3.0 * read, "a new client got {got} blocks of members and read {read} itself");
    Ok(())
}

/// A node is asked again.
fn used(cluster: &Cluster, watch: &mut Watch, node: usize) -> anyhow::Result<()> {
    let node = &cluster.nodes[node];
    let (before, mut looked) = (node.served()?, Instant::now());
    watch.until("the member to be asked again", SOON, || {
        if looked.elapsed() < QUIET / 10 {
            return false;
        }
        looked = Instant::now();
        node.served().is_ok_and(|served| served > before + 50.0)
    })
}
