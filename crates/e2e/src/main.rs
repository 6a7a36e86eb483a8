//! The end-to-end tests as commands: each prints counts at its end, and exits with an error after
//! any failure.

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use sluice_e2e::{
    bench, compare, crash, group, notices, outage, outlive,
    rig::{Engine, Volume},
    shared, together, transports, year,
};
use std::{
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

#[derive(Parser)]
#[command(about = "End-to-end tests of a file system")]
struct Arguments {
    #[command(subcommand)]
    command: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Do the same random operations in two directories and compare what is seen
    Compare {
        /// The trusted directory; made if missing
        reference: PathBuf,
        /// The directory under test
        tested: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 10_000)]
        operations: usize,
        /// Only the operations of these numbers
        #[arg(long, value_delimiter = ',')]
        only: Vec<usize>,
        /// Compare whole trees after so many operations
        #[arg(long, default_value_t = 1000)]
        every: usize,
        /// Flush open files before looking at their names
        #[arg(long)]
        sync: bool,
        /// Seconds that a failure may take to be shortened
        #[arg(long, default_value_t = 60)]
        shorten: u64,
    },
    /// Write through one mount of a volume, read through another
    CloseToOpen {
        /// Mounts of one volume
        #[arg(required = true, num_args = 2..)]
        mounts: Vec<PathBuf>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 2000)]
        operations: usize,
    },
    /// Kill a mount under load, many times
    Crash {
        engine: Engine,
        #[command(flatten)]
        program: Program,
        #[arg(long, default_value_t = 10)]
        rounds: u64,
        #[arg(long, default_value_t = 3)]
        writers: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value = "kill")]
        death: crash::Death,
        /// Mount with --writeback
        #[arg(long)]
        writeback: bool,
    },
    /// Kill the process that serves a mount, or put another in its place, while programs go on
    Outlive {
        engine: Engine,
        #[command(flatten)]
        program: Program,
        #[arg(long, default_value_t = 8)]
        rounds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value = "killed")]
        way: outlive::Way,
        /// Mount with --writeback
        #[arg(long)]
        writeback: bool,
    },
    /// Break a server that mounts need, under load
    Outage {
        case: outage::Case,
        /// Where the metadata is, for a partition; the others break Redis
        #[arg(long, default_value = "redis")]
        engine: Engine,
        #[command(flatten)]
        program: Program,
        #[arg(long, default_value_t = 8)]
        rounds: u64,
        #[arg(long, default_value_t = 6)]
        writers: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Break members of a cache group, on machines of their own, while programs read (for root)
    Group {
        #[command(flatten)]
        program: Program,
        /// Only faults whose names contain one of these
        only: Vec<String>,
        /// Members do not encrypt
        #[arg(long)]
        plaintext: bool,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Let two programs work on one volume at once: formatted by each, written by both
    Together {
        engine: Engine,
        #[command(flatten)]
        program: Program,
        /// The other program
        #[arg(long, env = "JUICEFS")]
        juicefs: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 500)]
        operations: usize,
    },
    /// Run a volume for many days, with a clock that moves: work, quotas, backups, gc, crashes, and
    /// the metadata moves from one engine to another
    Year {
        /// Where the metadata is at first
        engine: Engine,
        #[command(flatten)]
        program: Program,
        /// Another program that looks at the volume at the end
        #[arg(long, env = "JUICEFS")]
        juicefs: Option<PathBuf>,
        /// Where the metadata may move to
        #[arg(long, value_delimiter = ',', default_value = "sqlite,redis,postgres,mariadb")]
        engines: Vec<Engine>,
        #[arg(long, default_value_t = 365)]
        days: u64,
        /// Random operations of each day
        #[arg(long, default_value_t = 300)]
        operations: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Change things through one mount, watch another that remembers them
    Notices {
        engine: Engine,
        #[command(flatten)]
        program: Program,
        #[arg(long, default_value_t = 10)]
        rounds: usize,
    },
    /// Measure, beside another program if there is one
    Bench {
        /// Rows whose name contains one of these [default: all]
        rows: Vec<String>,
        #[command(flatten)]
        program: Program,
        /// The other program
        #[arg(long, env = "JUICEFS")]
        juicefs: Option<PathBuf>,
        /// A program that mounts a file system in memory on its argument: what FUSE alone can do
        #[arg(long)]
        floor: Option<PathBuf>,
        /// What prints JuiceFS' figures of operations on metadata, as `go test -bench` does: a
        /// file, or a command that is told a volume and a time by its environment
        #[arg(long, env = "JUICEFS_META_BENCH", value_name = "FILE or COMMAND")]
        juicefs_meta: Option<String>,
        /// The mdtest of IOR, started by mpirun, for the rows of the published benchmark [default:
        /// the same work by threads]
        #[arg(long, env = "MDTEST")]
        mdtest: Option<PathBuf>,
        /// Engines to measure on [default: those that each row names]
        #[arg(long, value_delimiter = ',')]
        engines: Option<Vec<Engine>>,
        /// Words that Sluice's mounts get, too, such as `-o io_uring`
        #[arg(long, value_name = "WORDS", allow_hyphen_values = true, default_value = "")]
        mount_options: String,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Little work: to see that all rows run
        #[arg(long)]
        quick: bool,
        /// Files of the directory that is cloned and removed
        #[arg(long)]
        files: Option<usize>,
        /// Put the results into this file, between its markers
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Measure the two transports of FUSE, with a file system in memory
    Transports {
        /// A program that mounts a file system in memory: its directory, and options of -o
        #[arg(long)]
        memfs: PathBuf,
        #[arg(long, default_value = "target/bench")]
        within: PathBuf,
        /// Only work whose name contains one of these [default: all]
        works: Vec<String>,
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Milliseconds for each measurement
        #[arg(long, default_value_t = 300)]
        millis: u64,
        #[arg(long, value_delimiter = ',', default_value = "1,8,16")]
        threads: Vec<usize>,
    },
    /// The process that crash starts
    #[command(hide = true)]
    CrashWriter {
        folder: PathBuf,
        #[arg(long)]
        seed: u64,
    },
    /// Format and mount a volume, run a command on it ({mnt}, {mnt2}, … and {meta} are replaced),
    /// check and remove it
    WithVolume {
        engine: Engine,
        #[command(flatten)]
        program: Program,
        #[arg(long, default_value_t = 1)]
        mounts: usize,
        /// A flag of `format`, such as --format=--block-size=256
        #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
        format: Vec<String>,
        /// A flag of `mount`, such as --mount=--writeback
        #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
        mount: Vec<String>,
        /// Leave the volume unchecked: for work that makes slices without objects
        #[arg(long)]
        unchecked: bool,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command on a volume whose Redis and object store go away and come back, and check the
    /// volume. {meta} and {mnt} are replaced; {until} becomes a file that exists once the command
    /// may end
    WithOutages {
        #[command(flatten)]
        program: Program,
        /// A flag of `format`, such as --format=--enable-acl
        #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
        format: Vec<String>,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Program {
    /// The program to test [default: sluice beside this program]
    #[arg(long, env = "SLUICE")]
    program: Option<PathBuf>,
    /// Where volumes are made [default: e2e beside this program's folder]
    #[arg(long)]
    within: Option<PathBuf>,
}

impl Program {
    fn paths(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        let here = std::env::current_exe()?;
        let beside = here.parent().context("this program lies nowhere")?;
        let within = self
            .within
            .clone()
            .or_else(|| Some(beside.parent()?.join("e2e")))
            .context("no folder to work in")?;
        Ok((self.program.clone().unwrap_or_else(|| beside.join("sluice")), within))
    }
}

fn main() -> ExitCode {
    // Modes are compared as asked for.
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let order = Arguments::parse().command;
    // The command that is run on a volume does the counting.
    let counts = !matches!(
        order,
        Order::WithVolume { .. }
            | Order::WithOutages { .. }
            | Order::CrashWriter { .. }
            | Order::Bench { .. }
    );
    let result = run(order);
    if let Err(why) = &result {
        // The chain of causes; a backtrace of this program tells nothing.
        eprintln!("{why:#}");
    }
    if counts {
        println!("{} passed, {} failed", u8::from(result.is_ok()), u8::from(result.is_err()));
    }
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(order: Order) -> anyhow::Result<()> {
    match order {
        Order::Compare { reference, tested, seed, operations, only, every, sync, shorten } => {
            std::fs::create_dir_all(&reference)?;
            let shorten = Duration::from_secs(shorten);
            let plan = compare::Plan { reference, tested, seed, operations, only, every, sync, shorten };
            match compare::run(&plan)? {
                Some(different) => anyhow::bail!("{different}"),
                None => println!("{operations} operations of seed {seed}: no difference"),
            }
        }
        Order::CloseToOpen { mounts, seed, operations } => {
            shared::run(&mounts, shared::Among::Ours, seed, operations)?;
            println!("{operations} rounds of seed {seed}: each seen by the next open");
        }
        Order::Crash { engine, program, rounds, writers, seed, death, writeback } => {
            let (program, within) = program.paths()?;
            let mount = if writeback { vec!["--writeback".to_owned()] } else { Vec::new() };
            crash::run(&crash::Plan { program, engine, within, death, mount, rounds, writers, seed })?;
        }
        Order::Outlive { engine, program, rounds, seed, way, writeback } => {
            let (program, within) = program.paths()?;
            let mount = if writeback { vec!["--writeback".to_owned()] } else { Vec::new() };
            outlive::run(&outlive::Plan { program, engine, within, way, mount, rounds, seed })?;
        }
        Order::Outage { case, engine, program, rounds, writers, seed } => {
            let (program, within) = program.paths()?;
            outage::run(&outage::Plan { case, engine, program, within, writers, rounds, seed })?;
        }
        Order::Group { program, only, plaintext, seed } => {
            let (program, within) = program.paths()?;
            group::run(&group::Plan { program, within, only, plaintext, seed })?;
        }
        Order::Together { engine, program, juicefs, seed, operations } => {
            let (program, within) = program.paths()?;
            for programs in [[&program, &juicefs], [&juicefs, &program]] {
                together::run(programs.map(PathBuf::as_path), &juicefs, engine, &within, seed, operations)
                    .with_context(|| format!("formatted by {}", programs[0].display()))?;
            }
        }
        Order::Year { engine, program, juicefs, engines, days, operations, seed } => {
            let (program, within) = program.paths()?;
            let plan = year::Plan { program, juicefs, engine, engines, within, days, operations, seed };
            year::run(&plan)?;
            println!("{days} days of seed {seed}: nothing lost, nothing leaked");
        }
        Order::Notices { engine, program, rounds } => {
            let (program, within) = program.paths()?;
            notices::run(&notices::Plan { program, engine, within, rounds: rounds.max(1) })?;
        }
        Order::Bench {
            rows,
            program,
            juicefs,
            juicefs_meta,
            mdtest,
            floor,
            engines,
            mount_options,
            rounds,
            seed,
            quick,
            files,
            write,
        } => {
            let (sluice, within) = program.paths()?;
            let sizes = bench::Sizes::of(quick, files);
            let plan = bench::Plan {
                sluice,
                juicefs,
                juicefs_meta,
                mdtest,
                floor,
                within,
                engines,
                mount_options: mount_options.split_whitespace().map(String::from).collect(),
                words: rows,
                rounds,
                seed,
                sizes,
            };
            bench::run(&plan, write.as_deref())?;
        }
        Order::Transports { memfs, within, works, rounds, millis, threads } => {
            transports::run(&transports::Plan { memfs, within, rounds, millis, threads, works })?;
        }
        Order::CrashWriter { folder, seed } => {
            crash::writer::run(&folder, seed)?;
        }
        Order::WithVolume { engine, program, mounts, format, mount, unchecked, command } => {
            let volume = with_volume(engine, &program, [&format, &mount], mounts, &command)?;
            if !unchecked {
                volume.fsck()?;
            }
        }
        Order::WithOutages { program, format, command } => {
            let (program, within) = program.paths()?;
            outage::around(&outage::Around { program, within, format, command })?;
        }
    }
    Ok(())
}

fn with_volume(
    engine: Engine,
    program: &Program,
    flags: [&[String]; 2],
    mounts: usize,
    command: &[String],
) -> anyhow::Result<Volume> {
    let (program, within) = program.paths()?;
    let [format, mount] = flags.map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
    let mut volume = Volume::new(&program, engine, &within, &format)?;
    let mut replaced: Vec<String> = command.iter().map(|word| word.replace("{meta}", &volume.meta)).collect();
    for number in 1..=mounts {
        let point = volume.mount(&mount)?.to_string_lossy().into_owned();
        let place = if number == 1 { "{mnt}".to_owned() } else { format!("{{mnt{number}}}") };
        for word in &mut replaced {
            *word = word.replace(&place, &point);
        }
    }
    let (first, rest) = replaced.split_first().context("no command")?;
    let status = Command::new(first).args(rest).status().with_context(|| format!("cannot run {first}"))?;
    ensure!(status.success(), "{first} ended with {status}; the mounts said:\n{}", volume.log());
    let rings = mount.iter().any(|flag| flag.contains("io_uring"));
    ensure!(
        !rings || volume.log().contains("requests come through io_uring"),
        "the mounts do not use io_uring:\n{}",
        volume.log()
    );
    volume.unmount()?;
    Ok(volume)
}
