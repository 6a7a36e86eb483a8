/* Sluice: a file system in a volume, without a mount.
 *
 * There is no authentication: a program that reaches the database of a volume may state any user.
 *
 * Handles are numbers. On failure, a function returns a negative error number, such as -ENOENT. On
 * success, it returns a handle, a count or 0. sluice_last_error() gives the message: what failed,
 * for what, and what to do. Every function may be called from any thread. After fork(), a child has
 * to open its volumes anew: the handles of its parent are -EBADF there.
 *
 * Paths and names are bytes that end in NUL. Paths begin at the root of the volume, with or without
 * a slash. Pointers have to be valid during the call, and what is written must be used by nobody
 * else meanwhile; NULL is -EFAULT unless a function says otherwise.
 *
 * The tests of the crate crates/c generate this file from crates/c/src. */

#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

/**
 * For sluice_rename: if the new name exists, the call fails.
 */
#define SLUICE_RENAME_NOREPLACE 1

/**
 * For sluice_rename: swap the two names.
 */
#define SLUICE_RENAME_EXCHANGE 2

/**
 * For the nanoseconds of a time to set: set the time of the call.
 */
#define SLUICE_TIME_NOW 4294967295

/**
 * For the nanoseconds of a time to set: leave this time as it is.
 */
#define SLUICE_TIME_OMIT 4294967294

/**
 * For sluice_chown: leave the owner or the group as it is.
 */
#define SLUICE_KEEP_ID 4294967295

/**
 * For sluice_setxattr: if the attribute exists, the call fails.
 */
#define SLUICE_XATTR_CREATE 1

/**
 * For sluice_setxattr: if the attribute does not exist, the call fails.
 */
#define SLUICE_XATTR_REPLACE 2

/**
 * Which ACL: the one that decides who may do what.
 */
#define SLUICE_ACL_ACCESS 0

/**
 * Which ACL: the one that new children of a directory inherit.
 */
#define SLUICE_ACL_DEFAULT 1

/**
 * An entry for the owner.
 */
#define SLUICE_ACL_USER_OBJ 1

/**
 * An entry for a user by id.
 */
#define SLUICE_ACL_USER 2

/**
 * An entry for the group of the file.
 */
#define SLUICE_ACL_GROUP_OBJ 4

/**
 * An entry for a group by id.
 */
#define SLUICE_ACL_GROUP 8

/**
 * The upper bound of what users and groups by id and the group of the file may do.
 */
#define SLUICE_ACL_MASK 16

/**
 * An entry for everybody else.
 */
#define SLUICE_ACL_OTHER 32

/**
 * For sluice_set_quota: leave the limit as it is.
 */
#define SLUICE_KEEP_LIMIT 18446744073709551615ull

/**
 * Sizes of a volume.
 */
struct sluice_statvfs {
  /**
   * Bytes in all.
   */
  uint64_t total;
  /**
   * Bytes in use.
   */
  uint64_t used;
  /**
   * Inodes in use.
   */
  uint64_t inodes;
  /**
   * Inodes that can still be made.
   */
  uint64_t free_inodes;
};

/**
 * Attributes of a node.
 */
struct sluice_stat {
  /**
   * Inode.
   */
  uint64_t ino;
  /**
   * Length in bytes.
   */
  uint64_t size;
  /**
   * Bytes it counts for, in units of 512.
   */
  uint64_t blocks;
  /**
   * Time of the last access: seconds since 1970.
   */
  int64_t atime;
  /**
   * Time of the last change of the content.
   */
  int64_t mtime;
  /**
   * Time of the last change of the attributes.
   */
  int64_t ctime;
  /**
   * Nanoseconds on top of `atime`.
   */
  uint32_t atime_nsec;
  /**
   * Nanoseconds on top of `mtime`.
   */
  uint32_t mtime_nsec;
  /**
   * Nanoseconds on top of `ctime`.
   */
  uint32_t ctime_nsec;
  /**
   * Type and permission bits, as in `st_mode`: `S_ISDIR()` and its kin take it.
   */
  uint32_t mode;
  /**
   * Number of names; of a directory, 2 and its directories.
   */
  uint32_t nlink;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * Device number of a device.
   */
  uint32_t rdev;
};

/**
 * One name of a directory.
 */
struct sluice_entry {
  /**
   * Attributes. If `has_stat` is 0, only `ino` and the type in `mode` are known: the user may
   * not search the directory, or the node was removed meanwhile.
   */
  struct sluice_stat stat;
  /**
   * Whether all of `stat` is known.
   */
  uint32_t has_stat;
  /**
   * Bytes of the name.
   */
  uint32_t name_length;
  /**
   * The name, which ends in NUL.
   */
  uint8_t name[256];
};

/**
 * A time to set.
 */
struct sluice_time {
  /**
   * Seconds since 1970.
   */
  int64_t sec;
  /**
   * Nanoseconds on top, or `SLUICE_TIME_NOW`, or `SLUICE_TIME_OMIT`.
   */
  uint32_t nsec;
};

/**
 * One entry of an ACL.
 */
struct sluice_acl_entry {
  /**
   * For whom: `SLUICE_ACL_USER_OBJ` and so on.
   */
  uint32_t tag;
  /**
   * Id of a named user or group, else 0.
   */
  uint32_t id;
  /**
   * 4 to read, 2 to write, 1 to execute or search.
   */
  uint32_t perm;
};

/**
 * What a tree holds.
 */
struct sluice_summary {
  /**
   * Sum of the lengths of files, bytes.
   */
  uint64_t length;
  /**
   * Bytes they count for, in units of 4 KiB for each node.
   */
  uint64_t size;
  /**
   * Everything but directories.
   */
  uint64_t files;
  /**
   * Directories, the root of the tree included.
   */
  uint64_t dirs;
  /**
   * Directories that the user may not list. They are left out of the sums.
   */
  uint64_t denied;
};

/**
 * Limits of a directory, a user or a group, and what is used.
 */
struct sluice_quota {
  /**
   * Bytes allowed, -1 for no limit.
   */
  int64_t max_space;
  /**
   * Inodes allowed, -1 for no limit.
   */
  int64_t max_inodes;
  /**
   * Bytes in use, in units of 4 KiB for each node.
   */
  int64_t used_space;
  /**
   * Inodes in use.
   */
  int64_t used_inodes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library.
 */
const char *sluice_version(void);

/**
 * The message of the last failed call of this thread: what failed, for what, and what to do.
 * Returns the number of bytes without the NUL that ends them; a message that is too long for the
 * buffer is cut.
 */
int64_t sluice_last_error(char *buffer, size_t size);

/**
 * Opens a volume and returns its handle. `url` names its metadata, as for the command `sluice`.
 *
 * `options` is NULL, or a JSON object, or lines of `name=value`. An unknown name is an error.
 * These options of `sluice mount` exist: `bucket`, `buffer-size`, `cache-dir`, `cache-group` (only
 * taking), `cache-size`, `heartbeat`, `max-downloads`, `max-readahead`, `max-uploads`, `no-bgjob`,
 * `open-cache`, `prefetch`, `read-only`, `subdir` and `writeback`. `purpose` is what other clients
 * see in place of a mount point. `uid`, `gid`, `groups`, `superuser` and `umask`, or `user` by
 * name, say who calls; by default it is the user of the process, and root is a superuser.
 * `superuser-name` and `supergroup` say which names are superusers. `passwd-file` and `group-file`
 * take the place of `/etc/passwd` and `/etc/group`. A name in capital letters is an environment
 * variable that the command line would read, such as `META_PASSWORD`.
 *
 * Handles that one process opened with the same url and options share connections and memory.
 */
int64_t sluice_open(const char *url, const char *options);

/**
 * Returns a second handle of the same volume, whose calls run as another user. Close it
 * separately. `groups` are `count` further groups. Nothing authenticates the user.
 */
int64_t sluice_as_user(int64_t volume,
                       uint32_t uid,
                       uint32_t gid,
                       const uint32_t *groups,
                       size_t count,
                       int32_t superuser,
                       uint32_t umask);

/**
 * Like sluice_as_user, with the name of the user, which also decides the groups. `superuser` is
 * the name of the user who is a superuser, `supergroup` that of the group whose members are; each
 * may be NULL.
 */
int64_t sluice_as_name(int64_t volume,
                       const char *name,
                       const char *superuser,
                       const char *supergroup);

/**
 * Stores everything that was written to open files of the volume.
 */
int32_t sluice_flush_all(int64_t volume);

/**
 * Closes a handle of a volume. The volume itself is closed with the last of its handles and files.
 * Then everything that was written is stored.
 */
int32_t sluice_close(int64_t volume);

/**
 * Used and total size of the volume.
 */
int32_t sluice_statvfs(int64_t volume, struct sluice_statvfs *sizes);

/**
 * Opens a file and returns its handle. `flags` are those of open(2): one of `O_RDONLY`,
 * `O_WRONLY` and `O_RDWR`, with any of `O_CREAT`, `O_EXCL`, `O_TRUNC` and `O_APPEND`;
 * `O_CLOEXEC` has no effect. `mode` is that of a file that is made, before the umask.
 */
int64_t sluice_file_open(int64_t volume, const char *path, int32_t flags, uint32_t mode);

/**
 * Makes a file, or empties the one that is there, and opens it to write.
 */
int64_t sluice_file_create(int64_t volume, const char *path, uint32_t mode);

/**
 * Reads up to `count` bytes from `offset`. Returns their number: less than `count` only at the end
 * of the file, 0 behind it.
 */
int64_t sluice_pread(int64_t file, uint8_t *buffer, size_t count, uint64_t offset);

/**
 * Writes `count` bytes at `offset`, all of them, and returns their number.
 */
int64_t sluice_pwrite(int64_t file, const uint8_t *data, size_t count, uint64_t offset);

/**
 * Writes `count` bytes at the end of a file, all of them, and returns where they lie. Appends of
 * one process never overlap.
 */
int64_t sluice_append(int64_t file, const uint8_t *data, size_t count);

/**
 * Stores what was written to a file: other clients that open it then see it, and it survives the
 * end of this process.
 */
int32_t sluice_file_flush(int64_t file);

/**
 * As sluice_file_flush; the data also survives a power cut, as far as the database and the object
 * store promise that.
 */
int32_t sluice_fsync(int64_t file);

/**
 * Stores what was written to a file and closes it. It is closed whatever the result is. A call
 * that another thread is in goes on.
 */
int32_t sluice_file_close(int64_t file);

/**
 * Attributes of an open file.
 */
int32_t sluice_fstat(int64_t file, struct sluice_stat *stat);

/**
 * Sets the length of a file that is open to write.
 */
int32_t sluice_ftruncate(int64_t file, uint64_t length);

/**
 * Sets the length of a file.
 */
int32_t sluice_truncate(int64_t volume, const char *path, uint64_t length);

/**
 * Copies from one open file to another of the same volume, without a transfer of data. Returns the
 * number of bytes: less than `length` only at the end of the source.
 */
int64_t sluice_copy_file_range(int64_t source,
                               uint64_t source_offset,
                               int64_t target,
                               uint64_t target_offset,
                               uint64_t length);

/**
 * Begins to list a directory and returns the handle of the listing. Its memory does not depend on
 * the size of the directory.
 */
int64_t sluice_dir_open(int64_t volume, const char *path);

/**
 * The next name of a listing, without `.` and `..`. Returns 1, or 0 at the end. Names that are
 * there all the time come at least once, and once only if the metadata engine sorts names: all but
 * Redis do.
 */
int32_t sluice_dir_next(int64_t dir, struct sluice_entry *entry);

/**
 * Ends a listing.
 */
int32_t sluice_dir_close(int64_t dir);

/**
 * Makes a directory.
 */
int32_t sluice_mkdir(int64_t volume, const char *path, uint32_t mode);

/**
 * Makes a directory and those above it that do not exist. It is no error if it exists.
 */
int32_t sluice_mkdirs(int64_t volume, const char *path, uint32_t mode);

/**
 * Removes an empty directory.
 */
int32_t sluice_rmdir(int64_t volume, const char *path);

/**
 * Removes a name of what is no directory.
 */
int32_t sluice_unlink(int64_t volume, const char *path);

/**
 * Removes what is at a path and all below it. It goes to the trash if the volume has one, unless
 * `skip_trash` is not 0, which only superusers may say.
 */
int32_t sluice_remove_all(int64_t volume, const char *path, int32_t skip_trash);

/**
 * Moves a name. `flags` is 0 (an existing new name is replaced), `SLUICE_RENAME_NOREPLACE` or
 * `SLUICE_RENAME_EXCHANGE`.
 */
int32_t sluice_rename(int64_t volume, const char *from, const char *to, uint32_t flags);

/**
 * Gives a file one more name.
 */
int32_t sluice_link(int64_t volume, const char *existing, const char *new_name);

/**
 * Makes a symbolic link.
 */
int32_t sluice_symlink(int64_t volume, const char *target, const char *path);

/**
 * Target of a symbolic link, without a NUL. Returns the number of its bytes; `-ERANGE` if they do
 * not fit. With `size` 0 only the number is returned.
 */
int64_t sluice_readlink(int64_t volume, const char *path, char *buffer, size_t size);

/**
 * Attributes of what a path leads to.
 */
int32_t sluice_stat(int64_t volume, const char *path, struct sluice_stat *stat);

/**
 * As sluice_stat, of a symbolic link itself.
 */
int32_t sluice_lstat(int64_t volume, const char *path, struct sluice_stat *stat);

/**
 * Checks permissions as access(2) does: `mode` is 0 or of 4 (read), 2 (write), 1 (execute or
 * search).
 */
int32_t sluice_access(int64_t volume, const char *path, int32_t mode);

/**
 * Sets the permission bits.
 */
int32_t sluice_chmod(int64_t volume, const char *path, uint32_t mode);

/**
 * Sets the owner and the group; `SLUICE_KEEP_ID` leaves one as it is. A symbolic link at the end
 * of the path is followed unless `follow` is 0.
 */
int32_t sluice_chown(int64_t volume, const char *path, uint32_t uid, uint32_t gid, int32_t follow);

/**
 * Sets the times of the last access (`times[0]`) and of the last change (`times[1]`). A symbolic
 * link at the end of the path is followed unless `follow` is 0.
 */
int32_t sluice_utimens(int64_t volume,
                       const char *path,
                       const struct sluice_time *times,
                       int32_t follow);

/**
 * Value of an extended attribute. Returns the number of its bytes; `-ERANGE` if they do not fit.
 * With `size` 0 only the number is returned.
 */
int64_t sluice_getxattr(int64_t volume,
                        const char *path,
                        const char *name,
                        uint8_t *buffer,
                        size_t size);

/**
 * Sets an extended attribute. `flags` is 0, `SLUICE_XATTR_CREATE` or `SLUICE_XATTR_REPLACE`.
 */
int32_t sluice_setxattr(int64_t volume,
                        const char *path,
                        const char *name,
                        const uint8_t *value,
                        size_t size,
                        int32_t flags);

/**
 * Names of the extended attributes that the user may see, each with a NUL at its end. Returns the
 * number of bytes; `-ERANGE` if they do not fit. With `size` 0 only the number is returned.
 */
int64_t sluice_listxattr(int64_t volume, const char *path, char *buffer, size_t size);

/**
 * Removes an extended attribute.
 */
int32_t sluice_removexattr(int64_t volume, const char *path, const char *name);

/**
 * Reads an ACL into up to `count` entries. Returns their number; 0 if there is no ACL, and the
 * mode says it all; `-ERANGE` if they do not fit. With `count` 0 only the number is returned.
 */
int64_t sluice_getacl(int64_t volume,
                      const char *path,
                      uint32_t which,
                      struct sluice_acl_entry *entries,
                      size_t count);

/**
 * Sets an ACL to `count` entries. With `count` 0 the ACL is removed.
 */
int32_t sluice_setacl(int64_t volume,
                      const char *path,
                      uint32_t which,
                      const struct sluice_acl_entry *entries,
                      size_t count);

/**
 * Appends `count` files to a file, without a copy of data, and removes them.
 */
int32_t sluice_concat(int64_t volume, const char *target, const char *const *sources, size_t count);

/**
 * Clones what is at a path, and all below it, without a copy of data. Owner, mode and times are
 * kept if `preserve` is not 0. Returns the inode of the clone.
 */
int64_t sluice_clone(int64_t volume, const char *from, const char *to, int32_t preserve);

/**
 * Counts what is at a path and all below it.
 */
int32_t sluice_summary(int64_t volume, const char *path, struct sluice_summary *summary);

/**
 * The quota of a directory (a path), of a user (`uid:N`) or of a group (`gid:N`): its limits and
 * what is used. A directory counts what is below it, not itself. `-ENODATA` if there is no quota.
 */
int32_t sluice_quota(int64_t volume, const char *owner, struct sluice_quota *quota);

/**
 * The owners of all quotas that have a limit, as sluice_quota takes them, each with a NUL at its
 * end. Returns the number of bytes; `-ERANGE` if they do not fit. With `size` 0 only the number is
 * returned. For superusers.
 */
int64_t sluice_quota_owners(int64_t volume, char *buffer, size_t size);

/**
 * Sets the limits of a quota: bytes and inodes. 0 means no limit; `SLUICE_KEEP_LIMIT` leaves one
 * as it is. The first limits of a directory count what is below it: node by node if `strict` is
 * not 0, else by the sums that the volume keeps of each directory. If other clients have the
 * volume open, this takes two of their heartbeats. For superusers.
 */
int32_t sluice_set_quota(int64_t volume,
                         const char *owner,
                         uint64_t space,
                         uint64_t inodes,
                         int32_t strict);

/**
 * Removes the limits of a quota. Returns 1, or 0 if there were none. For superusers.
 */
int32_t sluice_remove_quota(int64_t volume, const char *owner);

/**
 * Counts what a quota limits, as sluice_set_quota does: `counted` gets the limits and what was
 * counted. If `repair` is not 0, a quota whose record says something else is corrected. Returns 1
 * if it says something else, or 0. For superusers.
 */
int32_t sluice_check_quota(int64_t volume,
                           const char *owner,
                           int32_t repair,
                           int32_t strict,
                           struct sluice_quota *counted);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLUICE_H */
