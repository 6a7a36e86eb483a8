//! The operations, run on an engine: against the reference file system, against each other, and over failing answers.
//!
//! Each case takes a factory of fresh, empty stores that can be opened several times, as several clients do. An
//! engine's crate runs them under their own names:
//!
//! ```text
//! fn fresh() -> SharedStore { … }
//! sluice_testkit::operations_tests!(fresh);
//! ```
//!
//! What is random has a seed. A failure prints it, and `SLUICE_SEED=<seed>` runs that one alone.

pub mod against_model;
pub mod dir_quotas;
pub mod files;
pub mod following;
pub mod locks;
pub mod owners;
mod play;
pub mod races;
pub mod state;
pub mod storm;
pub mod successors;
pub mod trees;

use std::sync::Arc;

use sluice_meta::{Meta, Options, engine::Engine, op::At, ops::create::Create, schema::VolumeFormat};
use sluice_types::{Caller, FileType, Ino, ManualClock, Name, Time};

/// When the clocks of all clients stand.
const NOW: Time = Time { sec: 1_700_000_000, nsec: 0 };

/// A store that several clients open.
pub struct SharedStore(Box<dyn Fn() -> Arc<dyn Engine>>);

impl SharedStore {
    /// `open` answers one more handle to the same store, independent of the others, at each call. What the store needs
    /// (a directory, a server) belongs to `open`, and outlives all handles.
    pub fn new(open: impl Fn() -> Arc<dyn Engine> + 'static) -> Self {
        Self(Box::new(open))
    }

    /// One more handle.
    pub fn open(&self) -> Arc<dyn Engine> {
        (self.0)()
    }

    /// Makes a volume and opens it.
    pub fn format(&self, trash_days: i64) -> Arc<Meta> {
        self.format_as(VolumeFormat { trash_days, ..VolumeFormat::default() })
    }

    /// Makes a volume that keeps what each user and group uses, and opens it.
    pub fn format_with_owners(&self, trash_days: i64) -> Arc<Meta> {
        self.format_as(VolumeFormat { trash_days, user_group_quota: true, ..VolumeFormat::default() })
    }

    fn format_as(&self, format: VolumeFormat) -> Arc<Meta> {
        let format = VolumeFormat {
            name: "test".into(),
            uuid: "9d6d5a4e-6a86-4d3c-8a5f-2f2b1f7c0a11".into(),
            dir_stats: true,
            ..format
        };
        let engine = self.open();
        Meta::format(engine.as_ref(), &format, NOW).expect("format");
        Meta::open(engine, options()).expect("open")
    }

    /// One more client of the volume.
    pub fn client(&self) -> Arc<Meta> {
        Meta::open(self.open(), options()).expect("open")
    }
}

/// How clients open a volume here: the clock stands, so that the trash has one hour.
pub fn options() -> Options {
    Options { clock: Arc::new(ManualClock::new(NOW)), ..Options::default() }
}

/// Makes a fresh, empty store.
pub type Factory<'f> = dyn Fn() -> SharedStore + 'f;

/// A name in a directory.
pub fn at(dir: u64, name: &str) -> At {
    At::new(Ino(dir), Name::new(name.as_bytes()).expect("valid"))
}

/// Makes a node, as the client itself.
pub fn create(dir: u64, name: &str, ino: u64, kind: FileType) -> Create {
    let target = (kind == FileType::Symlink).then(|| bytes::Bytes::from_static(b"target"));
    Create {
        at: at(dir, name),
        ino: Ino(ino),
        kind,
        mode: 0o755,
        umask: 0,
        rdev: 0,
        target,
        caller: Caller::client(),
    }
}

/// The seeds of a random case: `count` of them, or the one that `SLUICE_SEED` names.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("SLUICE_SEED") {
        Ok(seed) => vec![seed.parse().expect("SLUICE_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Hands the list of all cases to a macro: the only place where they are listed.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_operations_case {
    ($then:ident $args:tt) => {
        $crate::$then! { $args
            against_model::random_operations_do_what_the_model_does,
            against_model::with_a_trash_too,
            races::create_against_rmdir_leaves_no_orphan,
            races::directories_that_cross_build_no_cycle,
            races::link_against_unlink_keeps_the_count,
            races::one_of_two_unlinks_wins,
            files::write_against_unlink_leaks_no_slice,
            files::chunks_behind_the_end_are_deleted,
            files::writes_of_two_clients_all_show,
            files::times_before_1970_are_kept,
            following::what_others_change_is_seen,
            following::who_comes_and_goes_is_noticed,
            following::own_changes_and_questions_are_never_stale,
            locks::two_clients_never_hold_a_flock_both,
            locks::two_clients_never_hold_a_record_lock_both,
            trees::a_clone_is_what_its_source_once_was,
            trees::a_sparse_file_is_cloned,
            trees::an_interrupt_ends_work_on_a_tree,
            dir_quotas::usage_of_a_tree_follows_every_change,
            dir_quotas::a_clone_over_the_limit_leaves_nothing,
            dir_quotas::a_limit_holds_for_moves_and_links,
            dir_quotas::a_limit_holds_for_files_with_several_names,
            owners::usage_follows_every_change,
            owners::usage_follows_every_change_with_a_trash,
            owners::a_limit_holds_at_once,
            owners::without_the_feature_nothing_is_kept,
            storm::a_storm_leaves_a_tree,
            storm::a_storm_over_a_failing_engine_leaves_a_tree,
            successors::a_session_goes_on_in_another_process,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! operations_functions {
    (($factory:expr) $($module:ident :: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::operations::$module::$case(&$factory);
            }
        )*
    };
}

/// Declares one `#[test]` for each case, run on the stores that `$factory` makes.
#[macro_export]
macro_rules! operations_tests {
    ($factory:expr) => {
        $crate::for_each_operations_case! { operations_functions ($factory) }
    };
}
