//! Compares the two transports of FUSE: requests from `/dev/fuse`, and through `io_uring`. Both
//! serve the same file system in memory, in turns.
//!
//! What must stay true: both sides do the same work, and the order changes from round to round. A
//! ratio is of two figures of one round.

mod load;
mod plan;
mod server;

pub use self::plan::Plan;
use self::{
    load::Load,
    plan::{Figure, Work},
    server::Server,
};
use anyhow::ensure;

/// The figures of a work with so many threads: of each round, first from `/dev/fuse`, then through
/// `io_uring`.
struct Row {
    work: Work,
    threads: usize,
    rounds: Vec<[Figure; 2]>,
}

impl Row {
    fn median(&self, of: impl Fn(&[Figure; 2]) -> f64) -> f64 {
        let mut all: Vec<f64> = self.rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }

    fn speed(&self) -> f64 {
        self.median(|[device, ring]| ring.rate / device.rate)
    }

    fn cost(&self) -> f64 {
        self.median(|[device, ring]| ring.cost / device.cost)
    }

    fn line(&self) -> String {
        format!(
            "| {} | {} | {:.0} | {:.0} | {:.2} | {:.1} | {:.1} | {:.2} |",
            self.work.name(),
            self.threads,
            self.median(|[device, _]| device.rate),
            self.median(|[_, ring]| ring.rate),
            self.speed(),
            self.median(|[device, _]| device.cost),
            self.median(|[_, ring]| ring.cost),
            self.cost(),
        )
    }
}

/// Measures, and prints a table.
///
/// # Errors
/// If a server does not start, or work fails.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    ensure!(plan.rounds > 0 && !plan.threads.is_empty(), "no rounds or no threads, no figures");
    let servers = [Server::pair(plan, "")?, Server::pair(plan, "io_uring")?];
    let wanted = |work: &&Work| plan.works.is_empty() || plan.works.iter().any(|w| work.name().contains(w));
    let mut rows: Vec<Row> = Work::ALL
        .iter()
        .filter(wanted)
        .flat_map(|work| {
            plan.threads.iter().map(|threads| Row { work: *work, threads: *threads, rounds: Vec::new() })
        })
        .collect();
    for round in 0..plan.rounds {
        for row in &mut rows {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            let mut figures = [Figure { rate: 0.0, cost: 0.0 }; 2];
            for side in order {
                let server = servers[side].for_work(row.work);
                figures[side] =
                    Load { work: row.work, threads: row.threads, millis: plan.millis }.run(server)?;
            }
            row.rounds.push(figures);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    println!("| work | threads | `/dev/fuse`, /s | io_uring, /s | ratio | µs of CPU | µs of CPU | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    for row in &rows {
        println!("{}", row.line());
    }
    let mean = |large: bool, of: fn(&Row) -> f64| {
        let all: Vec<f64> = rows.iter().filter(|row| row.work.is_large() == large).map(of).collect();
        (all.iter().map(|ratio| ratio.ln()).sum::<f64>() / all.len() as f64).exp()
    };
    println!(
        "\ngeometric means: small operations {:.2} of the speed at {:.2} of the processor time; 1 MiB {:.2} at {:.2}",
        mean(false, Row::speed),
        mean(false, Row::cost),
        mean(true, Row::speed),
        mean(true, Row::cost),
    );
    Ok(())
}
