//! What a seed decides before anything happens: how many clients, what they mostly do, what goes
//! wrong.

use sluice_types::Rng;

/// What the operations of a seed are mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// A bit of everything.
    All,
    /// Directories that move.
    Moves,
    /// Attributes of directories in which others work.
    Attributes,
    /// Files that are open while they lose their names.
    Opens,
    /// Locks of clients that others take for dead.
    Locks,
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
    /// The answer to a commit is lost, which happened.
    pub lost_after: u64,
    /// The answer to a commit is lost, which did not happen.
    pub lost_before: u64,
    /// The answer to a commit is lost, which happens later.
    pub late: u64,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    /// Threads of programs.
    pub threads: usize,
    /// Lanes of its engine.
    pub lanes: usize,
    /// Whether changes start from what it saw last.
    pub record_cache: bool,
    /// Whether it believes what it saw last.
    pub cache: bool,
    /// How often in a round it shows that it lives; one that never does is taken for dead when the
    /// clocks jump.
    pub beats: u64,
    /// Whether it dies.
    pub dies: bool,
}

/// A seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is about.
    pub theme: Theme,
    /// Who takes part.
    pub clients: Vec<ClientPlan>,
    /// Rounds, after each of which all is checked.
    pub rounds: usize,
    /// What each thread does in a round.
    pub actions: usize,
    /// What goes wrong.
    pub chances: Chances,
    /// Outages of the engine in a round.
    pub outages: u64,
    /// Jumps of all clocks in a round.
    pub jumps: u64,
    /// Operations that are interrupted in a round.
    pub signals: u64,
    /// Days that the trash is kept.
    pub trash_days: i64,
}

impl Plan {
    /// What `seed` stands for.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed ^ 0x5eed_5eed_5eed_5eed);
        // The first client is taken for dead by the others, and comes back.
        let returns = seed % 8 == 3;
        let drawn = rng.below(4);
        let theme = match drawn {
            _ if seed % 8 == 7 => Theme::Locks,
            _ if returns => Theme::Opens,
            0 => Theme::All,
            1 => Theme::Moves,
            2 => Theme::Attributes,
            _ => Theme::Opens,
        };
        let faulty = rng.below(3) == 0;
        let chances = if faulty {
            Chances { read: 20, unavailable: 20, conflict: 30, lost_after: 40, lost_before: 30, late: 30 }
        } else {
            Chances::default()
        };
        let troubled = rng.below(3) == 0 || seed % 16 == 7 || returns;
        let count = 2 + rng.below(2) as usize;
        let mut clients: Vec<ClientPlan> =
            (0..count).map(|_| ClientPlan::of(theme, troubled, &mut rng)).collect();
        if returns {
            clients.iter_mut().enumerate().for_each(|(at, client)| client.beats = 8 * u64::from(at > 0));
        }
        Self {
            theme,
            clients,
            rounds: 1 + rng.below(2) as usize,
            actions: 3 + rng.below(4) as usize,
            chances,
            outages: if troubled { rng.below(2) } else { 0 },
            jumps: if troubled { 3 + rng.below(6) } else { 0 },
            signals: if troubled { rng.below(3) } else { 0 },
            trash_days: i64::from(rng.below(6) == 0),
        }
    }
}

impl ClientPlan {
    fn of(theme: Theme, troubled: bool, rng: &mut Rng) -> Self {
        Self {
            threads: 2 + rng.below(3) as usize,
            lanes: 1 + rng.below(3) as usize,
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
