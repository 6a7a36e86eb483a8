//! The operations, run on an engine: against the reference file system, against each other, and
//! over failing answers.
//!
//! Each case takes a factory of fresh, empty stores that can be opened several times, as several
//! clients do. An engine's crate runs them under their own names:
//!
//! ```text
//! fn fresh() -> SharedStore { … }
//! sluice_testkit::operations_tests!(fresh);
//! ```
//!
//! What is random has a seed. A failure prints it, and `SLUICE_SEED=<seed>` runs that one alone.

pub mod against_model;
pub mod change_log;
mod clients;
pub mod dir_quotas;
pub mod files;
pub mod following;
pub mod groups;
pub mod locks;
pub mod owners;
mod play;
mod quota_steps;
pub mod quota_stress;
pub mod races;
pub mod state;
pub mod stress;
pub mod successors;
pub mod trees;

pub use self::clients::{Factory, SharedStore, at, create, options, seeds};

/// Hands the list of all cases to a macro: the only place where they are listed.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_operations_case {
    ($then:ident $args:tt) => {
        $crate::$then! { $args
            against_model::random_operations_do_what_the_model_does,
            against_model::with_a_trash_too,
            change_log::operations_say_what_they_did,
            change_log::lost_answers_make_no_line_twice,
            change_log::without_a_log_nothing_is_said,
            change_log::old_lines_are_trimmed,
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
            groups::clients_that_join_at_once_are_all_counted,
            groups::a_member_lives_as_long_as_its_session,
            groups::one_client_makes_the_first_key,
            groups::a_lost_answer_raises_nothing_twice,
            groups::a_report_is_kept,
            locks::two_clients_never_hold_a_flock_both,
            locks::two_clients_never_hold_a_record_lock_both,
            trees::a_clone_is_what_its_source_once_was,
            trees::a_sparse_file_is_cloned,
            trees::a_tree_that_got_no_name_goes_to_the_trash,
            trees::a_tree_rebuilt_in_the_trash_expires,
            trees::an_interrupt_ends_work_on_a_tree,
            dir_quotas::usage_of_a_tree_follows_every_change,
            dir_quotas::a_clone_over_the_limit_leaves_nothing,
            dir_quotas::a_clone_that_one_user_may_not_have_leaves_nothing,
            dir_quotas::a_limit_holds_for_moves_and_links,
            dir_quotas::a_limit_holds_for_files_with_several_names,
            dir_quotas::a_limit_holds_for_clients_that_know_nothing_of_each_other,
            owners::usage_follows_every_change,
            owners::usage_follows_every_change_with_a_trash,
            owners::a_limit_holds_at_once,
            owners::without_the_feature_nothing_is_kept,
            quota_stress::random_changes_are_counted,
            stress::stress_leaves_a_tree,
            stress::stress_over_a_failing_engine_leaves_a_tree,
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
