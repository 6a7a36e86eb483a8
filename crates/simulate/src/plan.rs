//! What a seed decides before anything happens: the number of clients, what they do, and which
//! faults occur.
//!
//! Each seed leaves out most kinds of operations and faults. So the remaining ones occur together
//! more often, even two rare ones. Some themes favour combinations that are known to fail.

use sluice_types::Rng;

use crate::mix::Mix;

/// What the operations of a seed are mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Whatever the seed draws.
    Any,
    /// Directories that move.
    Moves,
    /// Attributes of directories in which others work.
    Attributes,
    /// Files that are open while they lose their names.
    Opens,
    /// Open files and locks of a client that others take for dead, and that comes back.
    Returns,
    /// Locks of clients that others take for dead.
    Locks,
    /// Whole mounts: what they keep, open files and the order of answers.
    Mounts,
}

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One operation.
    Act,
    /// Several operations at once.
    Several,
    /// Opens a file.
    Open,
    /// Closes a file.
    Close,
    /// Reads what may be cached.
    Look,
    /// Checks whether an open file exists.
    Check,
    /// Takes or releases a lock.
    Lock,
    /// Joins a cache group, or leaves it.
    Group,
    /// Writes to an open file.
    Write,
    /// Lists a directory.
    List,
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A new directory.
    Mkdir,
    /// A new file.
    Create,
    /// A directory less.
    Rmdir,
    /// A name less.
    Unlink,
    /// A name more.
    Link,
    /// Other attributes.
    SetAttr,
    /// Another length.
    Truncate,
    /// Another place.
    Rename,
}

/// Chances of faults, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    /// A read is not answered.
    pub read: u64,
    /// A commit does not reach the engine, and that is known.
    pub unavailable: u64,
    /// A commit conflicts for no reason.
    pub conflict: u64,
    /// The answer to a commit that happened is lost.
    pub lost_after: u64,
    /// The answer to a commit that did not happen is lost.
    pub lost_before: u64,
    /// The answer to a commit that happens later is lost.
    pub late: u64,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    /// Threads of programs.
    pub threads: usize,
    /// What each of them does in a round.
    pub steps: usize,
    /// Microseconds between two of them, usually.
    pub pause: u64,
    /// Lanes of its engine.
    pub lanes: usize,
    /// Operations of one commit at most.
    pub batch: usize,
    /// Seconds for which a mount keeps what it shows.
    pub ttl: u64,
    /// How many times as long as usual its messages take.
    pub distance: u32,
    /// Whether changes start from cached records.
    pub record_cache: bool,
    /// Whether reads use cached records.
    pub cache: bool,
    /// Heartbeats in a round. A client without any is fenced when the clocks jump.
    pub beats: u64,
    /// Whether it dies.
    pub dies: bool,
}

/// A seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is about.
    pub theme: Theme,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// Rounds, after each of which all is checked.
    pub rounds: usize,
    /// What programs do.
    pub steps: Mix<Step>,
    /// Which operations.
    pub kinds: Mix<Kind>,
    /// Names in use.
    pub names: usize,
    /// Which faults occur.
    pub chances: Chances,
    /// Outages of the engine in a round.
    pub outages: u64,
    /// Jumps of all clocks in a round.
    pub jumps: u64,
    /// Seconds of one jump, more or less.
    pub jump: u64,
    /// Microseconds between two things that go wrong, usually.
    pub pace: u64,
    /// Operations that are interrupted in a round.
    pub signals: u64,
    /// Days that the trash is kept.
    pub trash_days: i64,
}

impl Plan {
    /// What `seed` stands for.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed ^ 0x5eed_5eed_5eed_5eed);
        let theme = Theme::of(seed);
        let returning = matches!(theme, Theme::Returns | Theme::Locks);
        let chances = if rng.below(3) == 0 { Chances::drawn(&mut rng) } else { Chances::default() };
        let troubled = returning || rng.below(3) == 0;
        let count = 2 + rng.below(2) as usize;
        let mut clients: Vec<ClientPlan> =
            (0..count).map(|_| ClientPlan::of(theme, troubled, &mut rng)).collect();
        if theme == Theme::Moves {
            // While the first is between two trips, the others move what it read.
            for (at, client) in clients.iter_mut().enumerate() {
                client.distance = if at == 0 { 1 << rng.below(5) } else { 1 };
                client.pause = if at == 0 { 0 } else { 100 };
                client.threads = client.threads.max(2);
            }
        }
        if theme == Theme::Mounts {
            // Mostly one operation in a commit: then everything that was ever shown is known.
            let (batch, ttl) = ([1, 1, 1, 64][rng.below(4) as usize], rng.below(2));
            for client in &mut clients {
                (client.batch, client.ttl) = (batch, ttl);
                // Else work for many batches would go to threads that nobody schedules.
                client.lanes = if batch == 1 { 1 } else { client.lanes };
            }
        }
        if returning {
            // The first is fenced and goes on. The others are slow to clean up after it.
            for (at, client) in clients.iter_mut().enumerate() {
                client.beats = 40 * u64::from(at > 0);
                client.dies = false;
                client.distance = if at > 0 { 1 << rng.below(4) } else { 1 };
                client.pause = 800;
                client.steps = if at > 0 { 1 + rng.below(8) } else { 15 + rng.below(20) } as usize;
            }
        }
        Self {
            theme,
            clients,
            rounds: 1 + rng.below(2) as usize,
            steps: theme.steps(&mut rng),
            kinds: theme.kinds(&mut rng),
            names: if theme == Theme::Moves { 5 } else { 1 + rng.below(5) as usize },
            chances,
            outages: if troubled { rng.below(2) } else { 0 },
            jumps: if returning {
                8 + rng.below(8)
            } else if troubled {
                3 + rng.below(6)
            } else {
                0
            },
            pace: if returning { 4000 } else { 1000 },
            jump: if rng.below(2) == 0 || returning { 12 } else { 25 },
            signals: if troubled { rng.below(3) } else { 0 },
            trash_days: i64::from(rng.below(3) == 0),
        }
    }
}

impl Theme {
    fn of(seed: u64) -> Self {
        match seed % 8 {
            0 => Self::Any,
            4 => Self::Mounts,
            1 | 5 => Self::Moves,
            2 => Self::Attributes,
            3 => Self::Returns,
            6 => Self::Opens,
            _ => Self::Locks,
        }
    }

    fn steps(self, rng: &mut Rng) -> Mix<Step> {
        use Step::{Act, Check, Close, Group, List, Lock, Look, Open, Several, Write};
        match self {
            Self::Any => Mix::drawn(&[Act, Several, Open, Close, Look, Check, Lock, Group], Act, rng),
            Self::Moves => Mix::of(&[(Act, 3), (Several, 6), (Look, 1)]),
            Self::Mounts => {
                let mut weight = || 1 + rng.below(4);
                let steps = [Act, Open, Close, Look, Check, Write].map(|step| (step, weight()));
                Mix::of(&[&steps[..], &[(List, rng.below(2))]].concat())
            }
            Self::Attributes => {
                Mix::of(&[(Act, 5), (Several, 1), (Open, 1), (Close, 1), (Look, 1), (Check, 1)])
            }
            Self::Opens => Mix::of(&[(Act, 4), (Several, 1), (Open, 2), (Close, 2), (Check, 1)]),
            Self::Returns => Mix::of(&[
                (Act, 4),
                (Several, 2),
                (Open, 4),
                (Close, 1),
                (Check, 1),
                (Lock, rng.below(3)),
                (Group, 1),
            ]),
            Self::Locks => Mix::of(&[(Act, 2), (Open, 1), (Close, 1), (Lock, 6), (Group, 1)]),
        }
    }

    fn kinds(self, rng: &mut Rng) -> Mix<Kind> {
        use Kind::{Create, Link, Mkdir, Rename, Rmdir, SetAttr, Truncate, Unlink};
        match self {
            Self::Any => {
                Mix::drawn(&[Mkdir, Create, Rmdir, Unlink, Link, SetAttr, Truncate, Rename], Create, rng)
            }
            Self::Moves => Mix::of(&[(Mkdir, 5), (Rmdir, 2), (Rename, 13)]),
            Self::Mounts => Mix::drawn(
                &[Mkdir, Create, Create, Rmdir, Unlink, Unlink, Link, SetAttr, Truncate, Rename],
                Create,
                rng,
            ),
            Self::Attributes => Mix::of(&[
                (Mkdir, 4),
                (Create, 3),
                (Rmdir, 1),
                (Unlink, 3),
                (SetAttr, 8),
                (Truncate, 1),
                (Rename, 2),
            ]),
            Self::Opens | Self::Locks => Mix::of(&[
                (Create, 6),
                (Rmdir, 1),
                (Unlink, 6),
                (Link, 1),
                (SetAttr, 1),
                (Truncate, 1),
                (Rename, 1),
            ]),
            Self::Returns => Mix::of(&[(Create, 6), (Unlink, 6), (SetAttr, 1), (Rename, 1)]),
        }
    }
}

impl Chances {
    /// Each of them or not.
    fn drawn(rng: &mut Rng) -> Self {
        let mut chance = |most: u64| if rng.below(2) == 0 { most } else { 0 };
        Self {
            read: chance(20),
            unavailable: chance(20),
            conflict: chance(30),
            lost_after: chance(60),
            lost_before: chance(40),
            late: chance(50),
        }
    }
}

impl ClientPlan {
    fn of(theme: Theme, troubled: bool, rng: &mut Rng) -> Self {
        Self {
            threads: 1 + rng.below(4) as usize,
            steps: 4 + rng.below(10) as usize,
            pause: [0, 0, 100][rng.below(3) as usize],
            lanes: 1 + rng.below(3) as usize,
            batch: 64,
            ttl: 0,
            distance: [1, 1, 1, 5, 20][rng.below(5) as usize],
            record_cache: rng.below(3) > 0,
            cache: match theme {
                Theme::Attributes => rng.below(4) > 0,
                Theme::Moves => rng.below(4) == 0,
                _ => rng.below(2) > 0,
            },
            beats: if troubled { [0, 4, 8][rng.below(3) as usize] } else { rng.below(2) },
            dies: troubled && rng.below(6) == 0,
        }
    }
}
