/* Calls every function of libsluice that the example leaves out, and what must fail.
 *
 *   calls META-URL
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice.h>

static void fail(const char *call, long line, int64_t got, int64_t expected) {
    char message[512];
    sluice_last_error(message, sizeof message);
    fprintf(stderr, "line %ld: %s is %lld, not %lld (%s)\n", line, call, (long long)got, (long long)expected, message);
    exit(1);
}

#define IS(call, expected)                                                                         \
    do {                                                                                           \
        int64_t got_ = (call);                                                                     \
        if (got_ != (int64_t)(expected)) fail(#call, __LINE__, got_, (int64_t)(expected));         \
    } while (0)
#define BYTES(text) (const uint8_t *)(text), strlen(text)

static int64_t handle(int64_t number, long line) {
    if (number <= 0) fail("a handle", line, number, 1);
    return number;
}

static int64_t shared_file;

static void *appender(void *unused) {
    (void)unused;
    for (int round = 0; round < 100; round++)
        if (sluice_append(shared_file, BYTES("0123456789")) < 0) exit(1);
    return NULL;
}

static void files(int64_t v) {
    char buffer[64];
    struct sluice_stat stat;
    int64_t f = handle(sluice_file_open(v, "/f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640), __LINE__);
    IS(sluice_pwrite(f, BYTES("hello world"), 0), 11);
    IS(sluice_pwrite(f, BYTES("W"), 6), 1);
    IS(sluice_pread(f, (uint8_t *)buffer, sizeof buffer, 6), 5);
    IS(memcmp(buffer, "World", 5), 0);
    IS(sluice_pread(f, (uint8_t *)buffer, sizeof buffer, 100), 0);
    IS(sluice_fsync(f), 0);
    IS(sluice_ftruncate(f, 5), 0);
    IS(sluice_fstat(f, &stat), 0);
    IS(stat.size, 5);
    IS(stat.mode, S_IFREG | 0640);
    IS(sluice_file_flush(f), 0);
    int64_t g = handle(sluice_file_create(v, "/g", 0644), __LINE__);
    IS(sluice_pread(g, (uint8_t *)buffer, 1, 0), -EBADF);
    IS(sluice_copy_file_range(f, 0, g, 3, 100), 5);
    IS(sluice_file_close(g), 0);
    IS(sluice_file_close(g), -EBADF);
    IS(sluice_file_close(f), 0);
    IS(sluice_stat(v, "/g", &stat), 0);
    IS(stat.size, 8);
    IS(sluice_truncate(v, "/g", 2), 0);
    const char *sources[] = {"/f"};
    IS(sluice_concat(v, "/g", sources, 1), 0);
    IS(sluice_stat(v, "/f", &stat), -ENOENT);
    IS(sluice_stat(v, "/g", &stat), 0);
    IS(stat.size, 7);
    IS(sluice_file_open(v, "/g", O_RDONLY | O_DIRECTORY, 0), -EINVAL);
    IS(sluice_file_open(v, "/g", O_WRONLY | O_CREAT | O_EXCL, 0644), -EEXIST);
    IS(sluice_file_open(v, "/", O_RDONLY, 0), -EISDIR);

    /* Threads append to one file, and nothing overlaps. */
    pthread_t threads[8];
    shared_file = handle(sluice_file_open(v, "/log", O_WRONLY | O_CREAT | O_APPEND, 0644), __LINE__);
    for (int at = 0; at < 8; at++) pthread_create(&threads[at], NULL, appender, NULL);
    for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
    IS(sluice_file_close(shared_file), 0);
    IS(sluice_stat(v, "/log", &stat), 0);
    IS(stat.size, 8000);
}

static void names(int64_t v) {
    char buffer[64];
    struct sluice_stat stat;
    struct sluice_entry entry;
    IS(sluice_mkdir(v, "/d", 0755), 0);
    IS(sluice_mkdir(v, "/d", 0755), -EEXIST);
    IS(sluice_mkdirs(v, "/d/e/f", 0755), 0);
    IS(sluice_rmdir(v, "/d/e"), -ENOTEMPTY);
    IS(sluice_symlink(v, "e/f", "/d/s"), 0);
    IS(sluice_readlink(v, "/d/s", NULL, 0), 3);
    IS(sluice_readlink(v, "/d/s", buffer, 2), -ERANGE);
    IS(sluice_readlink(v, "/d/s", buffer, sizeof buffer), 3);
    IS(memcmp(buffer, "e/f", 3), 0);
    IS(sluice_lstat(v, "/d/s", &stat), 0);
    IS(S_ISLNK(stat.mode), 1);
    IS(sluice_stat(v, "/d/s", &stat), 0);
    IS(S_ISDIR(stat.mode), 1);
    IS(sluice_link(v, "/g", "/d/g"), 0);
    IS(sluice_rename(v, "/d/g", "/d/h", SLUICE_RENAME_NOREPLACE), 0);
    IS(sluice_rename(v, "/d/h", "/g", SLUICE_RENAME_NOREPLACE), -EEXIST);
    IS(sluice_rename(v, "/d/h", "/d/s", SLUICE_RENAME_EXCHANGE), 0);
    IS(sluice_rename(v, "/d/h", "/d/s", 8), -EINVAL);
    IS(sluice_unlink(v, "/d"), -EISDIR);
    IS(sluice_unlink(v, "/d/s"), 0);
    int64_t dir = handle(sluice_dir_open(v, "/d"), __LINE__);
    int found = 0;
    while (sluice_dir_next(dir, &entry) == 1) {
        IS(entry.has_stat, 1);
        IS(strlen((const char *)entry.name), entry.name_length);
        found += !strcmp((const char *)entry.name, "e") + 10 * !strcmp((const char *)entry.name, "h");
    }
    IS(found, 11);
    IS(sluice_dir_close(dir), 0);
    IS(sluice_dir_open(v, "/g"), -ENOTDIR);

    /* More names than one page has. */
    char path[64];
    IS(sluice_mkdir(v, "/many", 0755), 0);
    for (int at = 0; at < 1500; at++) {
        snprintf(path, sizeof path, "/many/%d", at);
        IS(sluice_symlink(v, "x", path), 0);
    }
    dir = handle(sluice_dir_open(v, "/many"), __LINE__);
    for (found = 0; sluice_dir_next(dir, &entry) == 1; found++)
        ;
    IS(found, 1500);
    IS(sluice_dir_close(dir), 0);
    struct sluice_summary summary;
    IS(sluice_summary(v, "/many", &summary), 0);
    IS(summary.files, 1500);
    IS(summary.dirs, 1);
    IS(sluice_remove_all(v, "/many", 1), 0);
}

static void attributes(int64_t v) {
    struct sluice_stat stat;
    char buffer[64];
    struct sluice_time times[2] = {{7, 8}, {9, SLUICE_TIME_OMIT}};
    IS(sluice_chmod(v, "/g", 0600), 0);
    IS(sluice_chown(v, "/g", 1000, SLUICE_KEEP_ID, 1), 0);
    IS(sluice_utimens(v, "/g", times, 1), 0);
    IS(sluice_stat(v, "/g", &stat), 0);
    IS(stat.mode, S_IFREG | 0600);
    IS(stat.uid, 1000);
    IS(stat.gid, 0);
    IS(stat.atime, 7);
    IS(stat.atime_nsec, 8);
    times[0].nsec = 1000000000;
    IS(sluice_utimens(v, "/g", times, 1), -EINVAL);
    IS(sluice_access(v, "/g", 4), 0);
    IS(sluice_access(v, "/g", 8), -EINVAL);

    IS(sluice_setxattr(v, "/g", "user.a", BYTES("value"), SLUICE_XATTR_CREATE), 0);
    IS(sluice_setxattr(v, "/g", "user.a", BYTES("value"), SLUICE_XATTR_CREATE), -EEXIST);
    IS(sluice_setxattr(v, "/g", "user.b", BYTES("value"), SLUICE_XATTR_REPLACE), -ENODATA);
    IS(sluice_getxattr(v, "/g", "user.a", NULL, 0), 5);
    IS(sluice_getxattr(v, "/g", "user.a", (uint8_t *)buffer, 4), -ERANGE);
    IS(sluice_getxattr(v, "/g", "user.a", (uint8_t *)buffer, 5), 5);
    IS(memcmp(buffer, "value", 5), 0);
    IS(sluice_listxattr(v, "/g", buffer, sizeof buffer), 7);
    IS(memcmp(buffer, "user.a", 7), 0);
    IS(sluice_removexattr(v, "/g", "user.a"), 0);
    IS(sluice_getxattr(v, "/g", "user.a", NULL, 0), -ENODATA);

    struct sluice_acl_entry set[] = {{SLUICE_ACL_USER_OBJ, 0, 6}, {SLUICE_ACL_USER, 1001, 4},
                                     {SLUICE_ACL_GROUP_OBJ, 0, 0}, {SLUICE_ACL_MASK, 0, 4},
                                     {SLUICE_ACL_OTHER, 0, 0}};
    struct sluice_acl_entry got[8];
    int64_t bob = handle(sluice_as_user(v, 1001, 1001, NULL, 0, 0, 022), __LINE__);
    IS(sluice_file_open(bob, "/g", O_RDONLY, 0), -EACCES);
    IS(sluice_setacl(bob, "/g", SLUICE_ACL_ACCESS, set, 5), -EPERM);
    IS(sluice_setacl(v, "/g", SLUICE_ACL_ACCESS, set, 5), 0);
    IS(sluice_file_close(handle(sluice_file_open(bob, "/g", O_RDONLY, 0), __LINE__)), 0);
    IS(sluice_getacl(v, "/g", SLUICE_ACL_ACCESS, got, 8), 5);
    IS(memcmp(got, set, sizeof set), 0);
    IS(sluice_getacl(v, "/g", SLUICE_ACL_ACCESS, got, 2), -ERANGE);
    IS(sluice_setacl(v, "/g", SLUICE_ACL_ACCESS, NULL, 0), 0);
    IS(sluice_getacl(v, "/g", SLUICE_ACL_ACCESS, got, 8), 0);
    IS(sluice_setacl(v, "/g", 7, set, 5), -EINVAL);
    IS(sluice_close(bob), 0);
}

static void quotas(int64_t v) {
    struct sluice_quota quota;
    char owners[64];
    int64_t bob = handle(sluice_as_user(v, 1001, 1001, NULL, 0, 0, 022), __LINE__);
    IS(sluice_mkdirs(v, "/q/a/b", 0777), 0);
    IS(sluice_quota(v, "/q", &quota), -ENODATA);
    IS(sluice_quota_owners(v, NULL, 0), 0);
    IS(sluice_set_quota(bob, "/q", 0, 3, 0), -EPERM);
    IS(sluice_set_quota(v, "/q", SLUICE_KEEP_LIMIT, SLUICE_KEEP_LIMIT, 0), -EINVAL);
    IS(sluice_set_quota(v, "/absent", 0, 3, 0), -ENOENT);
    IS(sluice_set_quota(v, "/g", 0, 3, 0), -ENOTDIR);
    IS(sluice_set_quota(v, "/q", 0, 3, 0), 0);
    IS(sluice_quota(bob, "/q", &quota), 0);
    IS(quota.max_space, -1);
    IS(quota.max_inodes, 3);
    IS(quota.used_inodes, 2);
    IS(quota.used_space, 8192);
    IS(sluice_mkdir(v, "/q/c", 0777), 0);
    IS(sluice_mkdir(v, "/q/d", 0777), -EDQUOT);
    IS(sluice_set_quota(v, "/q", 1 << 20, SLUICE_KEEP_LIMIT, 1), 0);
    IS(sluice_check_quota(v, "/q", 0, 1, &quota), 0);
    IS(quota.max_space, 1 << 20);
    IS(quota.max_inodes, 3);
    IS(quota.used_inodes, 3);
    IS(sluice_check_quota(v, "/q/a", 0, 1, &quota), -ENODATA);

    IS(sluice_set_quota(v, "uid:0", 0, 3, 0), -EINVAL);
    IS(sluice_set_quota(v, "uid:bob", 0, 3, 0), -EINVAL);
    IS(sluice_set_quota(v, "gid:1001", 4096, 0, 0), 0);
    IS(sluice_quota(bob, "gid:1001", &quota), 0);
    IS(quota.max_space, 4096);
    IS(sluice_quota(bob, "uid:0", &quota), -EPERM);
    IS(sluice_quota_owners(bob, owners, sizeof owners), -EPERM);
    IS(sluice_quota_owners(v, owners, 8), -ERANGE);
    IS(sluice_quota_owners(v, owners, sizeof owners), 12);
    IS(memcmp(owners, "/q\0gid:1001", 12), 0);
    IS(sluice_remove_quota(v, "gid:1001"), 1);
    IS(sluice_remove_quota(v, "/q"), 1);
    IS(sluice_remove_quota(v, "/q"), 0);
    IS(sluice_mkdir(v, "/q/d", 0777), 0);
    IS(sluice_remove_all(v, "/q", 1), 0);
    IS(sluice_close(bob), 0);
}

static void wrong(int64_t v, const char *url) {
    struct sluice_stat stat;
    struct sluice_statvfs sizes;
    char small[8];
    IS(sluice_statvfs(v, &sizes), 0);
    IS(sizes.inodes > 0, 1);
    IS(sluice_stat(v, NULL, &stat), -EFAULT);
    IS(sluice_stat(v, "/g", NULL), -EFAULT);
    IS(sluice_pread(v, NULL, 1, 0), -EBADF);
    IS(sluice_stat(0, "/g", &stat), -EBADF);
    IS(sluice_stat(-1, "/g", &stat), -EBADF);
    IS(sluice_stat(v + 100000, "/g", &stat), -EBADF);
    IS(sluice_open("nonsense://", NULL), -EINVAL);
    IS(sluice_open(url, "no-such-option=1"), -EINVAL);
    IS(sluice_last_error(NULL, 0), strlen("there is no option no-such-option"));
    IS(sluice_last_error(small, sizeof small), strlen("there is no option no-such-option"));
    IS(strcmp(small, "there i"), 0);

    /* Handles of a parent mean nothing in its child. */
    pid_t child = fork();
    if (child == 0)
        _exit(sluice_stat(v, "/g", &stat) == -EBADF ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    IS(status, 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *options = "{\"uid\": 0, \"gid\": 0, \"groups\": \"\", \"superuser\": true, \"umask\": \"022\", \"cache-size\": \"64M\"}";
    int64_t v = handle(sluice_open(argv[1], options), __LINE__);
    int64_t same = handle(sluice_open(argv[1], options), __LINE__);
    files(v);
    names(v);
    attributes(same);
    quotas(v);
    wrong(v, argv[1]);
    IS(sluice_flush_all(v), 0);
    IS(sluice_close(same), 0);
    IS(sluice_close(same), -EBADF);
    IS(sluice_close(v), 0);
    printf("libsluice %s: all calls\n", sluice_version());
    return 0;
}
