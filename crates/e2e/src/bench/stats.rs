//! The figures of a row: medians, and ratios of figures that were measured beside each other.
//!
//! What must stay true: a ratio above 1 always means that Sluice is better, whatever the unit.

use super::{
    row::{Row, Unit},
    turn::Side,
};
use crate::rig::Engine;

/// One row and its figures, one of each side a round.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) row: Row,
    pub(super) engine: Engine,
    sluice: Vec<f64>,
    juicefs: Vec<f64>,
    limit: Vec<f64>,
}

impl Measured {
    pub(super) fn new(row: Row, engine: Engine) -> Self {
        Self { row, engine, sluice: Vec::new(), juicefs: Vec::new(), limit: Vec::new() }
    }

    pub(super) fn add(&mut self, side: Side, figure: Option<f64>) {
        match side {
            Side::Sluice => self.sluice.extend(figure),
            Side::JuiceFs => self.juicefs.extend(figure),
            Side::Limit => self.limit.extend(figure),
        }
    }

    /// How many times as good as `JuiceFS` in each round, from the worst to the best.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.sluice.iter().zip(&self.juicefs);
        let mut ratios: Vec<f64> = pairs
            .map(|(ours, theirs)| match self.row.unit {
                Unit::Rate(_) => ours / theirs,
                Unit::Cost(_) => theirs / ours,
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// The median of the ratios.
    pub(super) fn ratio(&self) -> Option<f64> {
        median(&self.ratios())
    }

    /// What has to be reached, if anything is claimed.
    pub(super) fn target(&self) -> Option<f64> {
        let targets = self.row.targets;
        let target = match self.engine {
            Engine::Redis | Engine::RedisCluster | Engine::RedisSentinel => targets.redis,
            Engine::Sqlite => targets.sqlite,
            Engine::Postgres => targets.postgres,
            Engine::Mariadb => targets.mariadb,
            Engine::Tikv => targets.tikv,
            // Nothing is claimed of it yet.
            Engine::Etcd => 0.0,
        };
        (target > 0.0).then_some(target)
    }

    /// Whether it is reached; nothing where nothing was compared or claimed.
    pub(super) fn met(&self) -> Option<bool> {
        Some(self.ratio()? >= self.target()?)
    }

    /// The cells of the table between the names and the last one: Sluice, `JuiceFS`, ratio, target,
    /// limit.
    pub(super) fn cells(&self) -> [String; 5] {
        let figure = |figures: &[f64]| {
            median(figures)
                .map_or("-".into(), |figure| format!("{} {}", number(figure), self.row.unit.name()))
        };
        let ratios = self.ratios();
        let ratio = match (self.ratio(), ratios.first(), ratios.last()) {
            (Some(middle), Some(least), Some(most)) => format!("{middle:.2} ({least:.2} - {most:.2})"),
            _ => "-".into(),
        };
        let target = match (self.target(), self.met()) {
            (Some(target), Some(true)) => format!("{target:.1}, met"),
            (Some(target), Some(false)) => format!("{target:.1}, missed"),
            (Some(target), None) => format!("{target:.1}"),
            (None, _) => "-".into(),
        };
        [figure(&self.sluice), figure(&self.juicefs), ratio, target, figure(&self.limit)]
    }

    /// What this round gave, for people who wait.
    pub(super) fn line(&self, round: usize) -> String {
        let figure = |figures: &[f64]| figures.get(round).map_or("-".into(), |figure| number(*figure));
        format!(
            "{}, {:?}, round {}: Sluice {}, JuiceFS {}, limit {} {}",
            self.row.name,
            self.engine,
            round + 1,
            figure(&self.sluice),
            figure(&self.juicefs),
            figure(&self.limit),
            self.row.unit.name()
        )
    }
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Three digits that count, thousands apart.
fn number(figure: f64) -> String {
    if figure < 10.0 {
        return format!("{figure:.2}");
    }
    if figure < 100.0 {
        return format!("{figure:.1}");
    }
    let digits = format!("{figure:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::Targets, *};

    fn measured(unit: Unit, sluice: &[f64], juicefs: &[f64]) -> Measured {
        let targets = Targets { redis: 2.0, sqlite: 8.0, ..Targets::default() };
        let row = Row { name: "row", unit, targets };
        let mut measured = Measured::new(row, Engine::Redis);
        measured.sluice = sluice.to_vec();
        measured.juicefs = juicefs.to_vec();
        measured
    }

    #[test]
    fn more_than_one_is_better_in_every_unit() {
        let rate = measured(Unit::Rate("/s"), &[300.0, 200.0, 1000.0], &[100.0, 100.0, 100.0]);
        assert_eq!(rate.ratio(), Some(3.0));
        assert_eq!(rate.met(), Some(true));
        assert_eq!(rate.cells()[2], "3.00 (2.00 - 10.00)");
        let time = measured(Unit::Cost("s"), &[2.0], &[3.0]);
        assert_eq!(time.ratio(), Some(1.5));
        assert_eq!(time.met(), Some(false));
        assert_eq!(time.cells()[3], "2.0, missed");
    }

    #[test]
    fn ratios_are_of_one_round_not_of_medians() {
        let row = measured(Unit::Rate("/s"), &[10.0, 20.0, 90.0], &[20.0, 10.0, 30.0]);
        assert_eq!(row.ratio(), Some(2.0));
    }

    #[test]
    fn alone_there_is_no_ratio() {
        let row = measured(Unit::Cost("MiB"), &[80.0], &[]);
        assert_eq!((row.ratio(), row.met()), (None, None));
        assert_eq!(row.cells(), ["80.0 MiB", "-", "-", "2.0", "-"].map(String::from));
    }

    #[test]
    fn an_engine_has_its_own_target() {
        let row = Measured { engine: Engine::Sqlite, ..measured(Unit::Cost("s"), &[], &[]) };
        assert_eq!(row.target(), Some(8.0));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.123, 12.34, 123.4, 1_234_567.8].map(number), ["0.12", "12.3", "123", "1,234,568"]);
    }
}
