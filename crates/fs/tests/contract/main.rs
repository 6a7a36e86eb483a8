//! The contract of the path API. Everything that stands on it may rely on what is tested here.
//!
//! Each test runs on SQLite and on Redis, with the object store in a local directory, by a thread
//! and by a task. The tests about users compare the answers with those of the kernel for a local
//! directory.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod attributes;
mod cost;
mod files;
mod kernel;
mod names;
mod paths;
mod random;
mod rig;
mod tasks;
mod trees;
mod trips;
mod users;
mod volumes;

/// Makes tests of each function of a module, which gets a fresh volume.
macro_rules! contract {
    ($($module:ident: $($name:ident)*;)*) => {
        mod sqlite {
            $( mod $module { $(
                #[test]
                fn $name() {
                    crate::$module::$name(&crate::rig::Rig::sqlite());
                }
            )* } )*
        }
        mod redis {
            $( mod $module { $(
                #[test]
                fn $name() {
                    if let Some(rig) = crate::rig::Rig::redis() {
                        crate::$module::$name(&rig);
                    }
                }
            )* } )*
        }
        mod task_on_redis {
            $( mod $module { $(
                #[test]
                fn $name() {
                    if let Some(rig) = crate::rig::Rig::redis() {
                        crate::tasks::run(move || crate::$module::$name(&rig));
                    }
                }
            )* } )*
        }
    };
}

contract! {
    paths:
        dots_and_slashes_mean_what_posix_says
        links_are_followed_and_stay_in_the_volume
        chains_of_links_end
        limits_of_paths
        the_trash_is_a_directory_and_internal_files_do_not_exist
        a_moved_directory_is_found_at_its_new_place
        an_error_names_the_path
        a_node_is_found_again_by_its_inode
        a_view_has_the_umask_that_it_was_given;
    names:
        names_are_made_moved_and_removed
        directories_are_made_with_those_above
        many_make_the_same_directories
        trailing_slashes_name_directories
        listings_are_whole_and_continue
        what_was_written_shows_in_listings;
    files:
        content_is_read_and_written_anywhere
        options_without_a_meaning_are_refused
        opens_make_and_empty_files
        appends_of_many_threads_lie_side_by_side
        what_was_flushed_is_seen_by_others
        a_file_without_a_name_is_still_there
        files_are_made_of_others
        a_failed_concat_leaves_the_file;
    attributes:
        modes_owners_and_times_are_set
        xattrs_are_kept_by_kind
        acls_decide;
    trees:
        trees_are_cloned_counted_and_removed
        removed_files_are_in_the_trash
        quotas_are_set_checked_and_removed;
    users:
        the_matrix_of_users
        root_without_privileges
        superusers_own_what_they_make;
    random:
        users_at_random_are_told_what_a_kernel_says;
    tasks:
        thousands_of_calls_wait_on_two_threads
        a_store_that_fails_keeps_no_thread
        tasks_that_change_one_file_do_not_stop_each_other;
    volumes:
        one_volume_for_each_key
        the_last_user_closes
        a_failed_open_is_tried_again;
}
