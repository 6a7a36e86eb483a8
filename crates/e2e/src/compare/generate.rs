//! Random lists of operations. A list is a function of its seed alone, never of what the operations
//! did, so that a seed and the numbers of some operations are enough to repeat them.

use super::{
    capability::Capabilities,
    op::{How, Op, RenameHow, Reserve, Special},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Files that are open at once, at most.
pub(super) const SLOTS: usize = 6;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "Ünïcode name"];
const XATTRS: [&str; 4] = ["user.a", "user.b", "user.long-name.with-parts", "user.ä"];
const BLOCK: u64 = 4 << 20;
const CHUNK: u64 = 64 << 20;

struct Generator {
    rng: StdRng,
    /// Names that operations before may have made, the latest last.
    made: Vec<String>,
    folders: Vec<String>,
    counter: u64,
}

/// `count` operations of seed `seed`, without those that the reference cannot do.
pub fn generate(seed: u64, count: usize, can: Capabilities) -> Vec<Op> {
    let mut generator = Generator {
        rng: StdRng::seed_from_u64(seed),
        made: vec!["a".to_owned()],
        folders: vec![String::new()],
        counter: seed << 32,
    };
    std::iter::repeat_with(|| generator.op()).filter(|op| can.allow(op)).take(count).collect()
}

impl Generator {
    fn op(&mut self) -> Op {
        let slot = self.slot();
        match self.rng.random_range(0..100) {
            0..9 => self.open(slot),
            9..13 => Op::Close { slot },
            13..28 => {
                Op::Write { slot, offset: self.offset(), length: self.length(), pattern: self.number() }
            }
            28..37 => Op::Read { slot, offset: self.offset(), length: self.length() },
            37..40 => Op::Truncate { slot, length: self.offset() },
            40..41 => Op::TruncatePath { path: self.old(), length: self.offset() },
            41..46 => self.reserve(slot),
            46..49 => Op::Copy {
                from: slot,
                to: self.slot(),
                from_offset: self.offset(),
                to_offset: self.offset(),
                length: self.length(),
            },
            49..51 => Op::Holes { slot },
            51..52 => Op::Sync { slot },
            52..57 => self.mkdir(),
            57..60 => Op::Rmdir { path: self.old() },
            60..62 => self.mknod(),
            62..66 => Op::Unlink { path: self.old() },
            66..73 => self.rename(),
            73..76 => Op::Link { from: self.old(), to: self.new_or_old() },
            76..78 => {
                let target = self.new_path();
                Op::Symlink { target, path: self.new_or_old() }
            }
            78..79 => Op::Readlink { path: self.old() },
            79..82 => Op::Stat { path: self.old(), follow: self.chance(0.5) },
            82..85 => Op::Chmod { path: self.old(), mode: self.mode() },
            85..87 => Op::Chown {
                path: self.old(),
                uid: self.rng.random_range(0..4),
                gid: self.rng.random_range(0..4),
            },
            87..90 => Op::Utimens { path: self.old(), atime: self.ancient(), mtime: self.ancient() },
            90..95 => Op::SetXattr {
                path: self.old(),
                name: self.pick(&XATTRS),
                length: self.rng.random_range(0..700),
                pattern: self.number(),
                how: self.rng.random_range(0..3),
            },
            95..97 => Op::RemoveXattr { path: self.old(), name: self.pick(&XATTRS) },
            _ => Op::List { path: self.folder() },
        }
    }

    fn open(&mut self, slot: usize) -> Op {
        let how = How {
            write: self.chance(0.85),
            append: self.chance(0.15),
            create: self.chance(0.7),
            exclusive: self.chance(0.1),
            truncate: self.chance(0.1),
        };
        let how = How { truncate: how.truncate && how.write, append: how.append && how.write, ..how };
        let path = if how.create { self.new_or_old() } else { self.old() };
        Op::Open { slot, path, how }
    }

    fn reserve(&mut self, slot: usize) -> Op {
        let forms = [Reserve::Grow, Reserve::Keep, Reserve::Punch, Reserve::Zero, Reserve::ZeroKeep];
        let form = *forms.choose(&mut self.rng).unwrap_or(&Reserve::Grow);
        Op::Reserve { slot, form, offset: self.offset(), length: self.length() as u64 }
    }

    fn mkdir(&mut self) -> Op {
        let path = self.new_or_old();
        self.folders.push(path.clone());
        let mode = self.mode();
        Op::Mkdir { path, mode }
    }

    fn mknod(&mut self) -> Op {
        let kinds = [Special::Fifo, Special::Socket, Special::Regular];
        let kind = *kinds.choose(&mut self.rng).unwrap_or(&Special::Fifo);
        Op::Mknod { path: self.new_or_old(), kind, mode: self.mode() }
    }

    fn rename(&mut self) -> Op {
        let how = match self.rng.random_range(0..10) {
            0..7 => RenameHow::Replace,
            7 => RenameHow::NoReplace,
            _ => RenameHow::Exchange,
        };
        let from = self.old();
        let to = if how == RenameHow::Exchange { self.old() } else { self.new_or_old() };
        // A folder that moves takes its names along.
        if self.folders.contains(&from) {
            self.folders.push(to.clone());
        }
        Op::Rename { from, to, how }
    }

    fn chance(&mut self, of: f64) -> bool {
        self.rng.random_bool(of)
    }

    fn slot(&mut self) -> usize {
        self.rng.random_range(0..SLOTS)
    }

    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn pick(&mut self, from: &[&str]) -> String {
        (*from.choose(&mut self.rng).unwrap_or(&"a")).to_owned()
    }

    fn mode(&mut self) -> u32 {
        let special = if self.chance(0.15) { self.rng.random_range(0..8) << 9 } else { 0 };
        special
            | [0o755, 0o644, 0o700, 0o600, 0o777, 0o000, 0o555]
                .choose(&mut self.rng)
                .copied()
                .unwrap_or(0o755)
    }

    /// A time long before this run, so that one given by an operation is told from the clock's.
    fn ancient(&mut self) -> (i64, i64) {
        (self.rng.random_range(0..1_400_000_000), self.rng.random_range(0..1_000_000_000))
    }

    fn offset(&mut self) -> u64 {
        let near = |rng: &mut StdRng, at: u64| (at + rng.random_range(0..8192)).saturating_sub(4096);
        match self.rng.random_range(0..200) {
            0..130 => self.rng.random_range(0..200_000),
            130..160 => self.rng.random_range(0..50) * 4096,
            160..170 => 0,
            170..195 => near(&mut self.rng, BLOCK),
            195..198 => near(&mut self.rng, 2 * BLOCK),
            _ => near(&mut self.rng, CHUNK),
        }
    }

    fn length(&mut self) -> usize {
        match self.rng.random_range(0..100) {
            0..3 => 0,
            3..50 => self.rng.random_range(1..5000),
            50..80 => self.rng.random_range(1..20) * 4096,
            80..98 => self.rng.random_range(1..200_000),
            _ => self.rng.random_range(1..6_000_000),
        }
    }

    fn folder(&mut self) -> String {
        let latest = self.folders.len().saturating_sub(12);
        self.folders[latest..].choose(&mut self.rng).cloned().unwrap_or_default()
    }

    fn new_path(&mut self) -> String {
        let folder = if self.chance(0.3) { String::new() } else { self.folder() };
        // Deep trees find nothing that shallow ones do not.
        let folder = if folder.matches('/').count() > 3 { String::new() } else { folder };
        let name = if self.chance(0.005) { "n".repeat(256) } else { self.pick(&NAMES) };
        if folder.is_empty() { name } else { format!("{folder}/{name}") }
    }

    fn new_or_old(&mut self) -> String {
        let path = if self.chance(0.75) { self.new_path() } else { self.old() };
        self.made.push(path.clone());
        path
    }

    fn old(&mut self) -> String {
        let latest = self.made.len().saturating_sub(40);
        self.made[latest..].choose(&mut self.rng).cloned().unwrap_or_default()
    }
}
