//! The contract of [`Engine`](sluice_meta::engine::Engine) as tests. An engine that passes all
//! cases serves every operation.
//!
//! Each case takes a factory of fresh, empty stores. An engine's crate runs them under their own
//! names:
//!
//! ```text
//! fn fresh() -> Arc<dyn Engine> { … }
//! sluice_testkit::conformance_tests!(fresh);
//! ```
//!
//! The cases demand no more than the contract: a commit that conflicts with another one may wait or
//! fail, but a result that the contract forbids must never happen.

pub mod anomalies;
pub mod commuting;
pub mod expects;
pub mod extremes;
mod factory;
pub mod loads;
pub mod logs;
pub mod preconditions;
pub mod reads;
pub mod rows;
pub mod sample;
pub mod scans;
pub mod snapshots;
pub mod steps;
pub mod store;

pub use self::factory::Factory;

/// One case of the suite.
pub struct Case {
    /// `module::case`.
    pub name: &'static str,
    /// Panics if the engine fails it.
    pub run: fn(&Factory<'_>),
}

/// Hands the list of all cases to a macro: the only place where they are listed.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_conformance_case {
    ($then:ident $args:tt) => {
        $crate::$then! { $args
            anomalies::no_forbidden_anomaly,
            rows::every_kind_is_inserted_read_replaced_and_deleted,
            rows::every_kind_is_made_by_put,
            rows::samples_cover_every_kind,
            rows::kinds_do_not_mix,
            rows::collections_are_read_and_cleared,
            rows::a_range_of_chunks_is_cleared,
            rows::parents_follow_the_entries,
            rows::a_removed_volume_leaves_nothing,
            preconditions::insert_of_an_existing_record_conflicts,
            preconditions::delete_of_a_missing_record_conflicts,
            preconditions::discard_removes_what_is_there,
            preconditions::bump_of_a_missing_node_conflicts,
            preconditions::one_failing_write_undoes_hundreds,
            preconditions::adding_writes_start_where_the_contract_says,
            preconditions::usage_without_a_record_is_kept_of_owners_only,
            preconditions::a_quota_admits_as_much_as_its_limits,
            preconditions::bump_raises_times_and_never_lowers_them,
            expects::what_was_held_and_did_not_change_holds,
            expects::a_lock_notices_every_change,
            expects::a_guard_notices_what_it_names,
            expects::a_guard_ignores_the_rest,
            expects::a_guard_notices_a_removed_node,
            expects::many_guard_one_record,
            expects::bumps_pass_a_guard,
            expects::absent_records_are_expected,
            expects::a_followed_entry_is_held,
            expects::empty_spares_what_the_commit_deletes,
            expects::empty_and_a_guarded_create_exclude_each_other,
            expects::a_list_of_locks_is_held,
            expects::a_read_holds_nothing,
            expects::what_was_not_read_is_compared_too,
            expects::expectations_without_writes_are_checked,
            steps::numbers_follow_each_other,
            steps::a_replay_is_refused,
            steps::a_missing_writer_record_fences,
            steps::a_step_is_undone_with_its_commit,
            steps::lanes_count_apart,
            steps::a_late_original_loses_against_its_successor,
            reads::answers_come_in_order,
            reads::follow_answers_the_entry_and_its_node,
            reads::names_keep_their_limit,
            reads::a_moment_reads_several_times,
            reads::what_is_notices_arrives,
            reads::numbered_commits_are_told_in_order,
            scans::each_scan_returns_its_records_and_no_others,
            scans::a_mixed_scan_returns_all_about_inodes,
            scans::pages_join_without_a_gap,
            scans::entries_with_nodes,
            scans::entries_that_stay_appear_while_others_come_and_go,
            scans::a_directory_of_a_hundred_thousand,
            loads::what_is_loaded_is_read_back,
            loads::many_are_loaded_by_several_at_once,
            loads::large_values_are_loaded,
            loads::what_is_loaded_twice_is_there_once,
            snapshots::what_is_committed_later_is_not_seen,
            logs::lines_are_kept_in_order,
            logs::a_line_is_undone_with_its_commit,
            logs::a_trimmed_log_goes_on,
            logs::a_removed_volume_has_no_log,
            extremes::names_of_all_bytes,
            extremes::large_values,
            extremes::inode_numbers_beyond_doubles,
            extremes::times_and_owners_at_their_limits,
            extremes::signs_and_zeroes,
            commuting::bumps_of_many_threads_add_up,
            commuting::counters_of_many_threads_add_up,
            commuting::appends_of_many_threads_all_arrive,
            commuting::references_and_links_of_many_threads_add_up,
            commuting::usage_of_many_threads_adds_up,
            commuting::quotas_of_many_threads_are_filled_and_no_more,
            commuting::lines_of_many_threads_all_arrive,
            commuting::one_of_many_inserts_wins,
            commuting::locked_counters_lose_no_update,
            commuting::absences_that_are_not_made_exclude_each_other,
            commuting::one_of_many_lockers_wins,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    (() $($module:ident :: $case:ident,)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[
            $(Case { name: concat!(stringify!($module), "::", stringify!($case)), run: $module::$case },)*
        ];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_functions {
    (($factory:expr) $($module:ident :: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$module::$case(&$factory);
            }
        )*
    };
}

/// Declares one `#[test]` for each case of the suite, run on the stores that `$factory` makes.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::for_each_conformance_case! { conformance_functions ($factory) }
    };
}

for_each_conformance_case! { conformance_list () }

/// Runs every case, one after another; names the case before it runs.
pub fn run(factory: &Factory<'_>) {
    for case in CASES {
        eprintln!("conformance: {}", case.name);
        (case.run)(factory);
    }
}
