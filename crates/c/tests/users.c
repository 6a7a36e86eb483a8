/* Runs the table of users, sdk/users.txt, through libsluice.
 *
 *   users META-URL TABLE PASSWD-FILE GROUP-FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

static int64_t users[6];
static const char *names[6] = {"super", "ann", "bob", "cay", "adm", "root"};

static int64_t must(int64_t result, const char *what) {
    char message[512];
    if (result < 0) {
        sluice_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s\n", what, message);
        exit(1);
    }
    return result;
}

static int64_t content(int64_t volume, const char *path, int flags) {
    char byte = 'x';
    int64_t file = sluice_file_open(volume, path, flags, 0644);
    if (file < 0)
        return file;
    int64_t done = flags == O_RDONLY ? sluice_pread(file, (uint8_t *)&byte, 1, 0)
                                     : sluice_pwrite(file, (const uint8_t *)&byte, 1, 0);
    int64_t closed = sluice_file_close(file);
    return done < 0 ? done : closed;
}

static int64_t list(int64_t volume, const char *path) {
    struct sluice_entry entry;
    int64_t dir = sluice_dir_open(volume, path), more;
    if (dir < 0)
        return dir;
    while ((more = sluice_dir_next(dir, &entry)) == 1)
        ;
    sluice_dir_close(dir);
    return more;
}

static uint32_t id(const char *text) {
    return strcmp(text, "-1") == 0 ? SLUICE_KEEP_ID : (uint32_t)atoi(text);
}

static int64_t call(int64_t v, const char *what, const char *a, const char *b, const char *c) {
    struct sluice_stat stat;
    struct sluice_time now[2] = {{0, SLUICE_TIME_NOW}, {0, SLUICE_TIME_NOW}};
    if (!strcmp(what, "mkdir")) return sluice_mkdir(v, a, (uint32_t)strtol(b, NULL, 8));
    if (!strcmp(what, "chmod")) return sluice_chmod(v, a, (uint32_t)strtol(b, NULL, 8));
    if (!strcmp(what, "chown")) return sluice_chown(v, a, id(b), id(c), 1);
    if (!strcmp(what, "write")) return content(v, a, O_WRONLY | O_CREAT);
    if (!strcmp(what, "read")) return content(v, a, O_RDONLY);
    if (!strcmp(what, "truncate")) return sluice_truncate(v, a, (uint64_t)atoi(b));
    if (!strcmp(what, "stat")) return sluice_stat(v, a, &stat);
    if (!strcmp(what, "access")) return sluice_access(v, a, atoi(b));
    if (!strcmp(what, "touch")) return sluice_utimens(v, a, now, 1);
    if (!strcmp(what, "link")) return sluice_link(v, a, b);
    if (!strcmp(what, "list")) return list(v, a);
    if (!strcmp(what, "unlink")) return sluice_unlink(v, a);
    if (!strcmp(what, "rmdir")) return sluice_rmdir(v, a);
    if (!strcmp(what, "rename")) return sluice_rename(v, a, b, 0);
    fprintf(stderr, "the table has an unknown call: %s\n", what);
    exit(2);
}

static const char *result_name(int64_t result) {
    switch (-result) {
    case EACCES: return "EACCES";
    case EPERM: return "EPERM";
    case ENOENT: return "ENOENT";
    case EEXIST: return "EEXIST";
    case ENOTDIR: return "ENOTDIR";
    case EISDIR: return "EISDIR";
    case ENOTEMPTY: return "ENOTEMPTY";
    default: return result >= 0 ? "ok" : strerror((int)-result);
    }
}

int main(int argc, char **argv) {
    char options[4096], line[512];
    int rows = 0, wrong = 0;
    if (argc != 5)
        return 2;
    snprintf(options, sizeof options, "passwd-file=%s\ngroup-file=%s\nuid=0\ngid=0\ngroups=\nsuperuser=true\numask=022",
             argv[3], argv[4]);
    users[0] = must(sluice_open(argv[1], options), "open");
    for (int at = 1; at < 6; at++)
        users[at] = must(sluice_as_name(users[0], names[at], NULL, "supers"), names[at]);
    FILE *table = fopen(argv[2], "r");
    while (table && fgets(line, sizeof line, table)) {
        char *words[6] = {0};
        int count = 0, who = 0;
        char *mark = NULL;
        for (char *word = strtok_r(line, " \n", &mark); word && count < 6; word = strtok_r(NULL, " \n", &mark))
            words[count++] = word;
        if (count == 0 || words[0][0] == '#')
            continue;
        while (who < 6 && strcmp(names[who], words[0]))
            who++;
        if (who == 6 || count < 4) {
            fprintf(stderr, "the table has a line that is no row: %s\n", words[0]);
            return 2;
        }
        const char *expected = words[count - 1];
        words[count - 1] = NULL;
        const char *got = result_name(call(users[who], words[1], words[2], words[3], words[4]));
        rows++;
        if (strcmp(got, expected)) {
            wrong++;
            printf("%s %s %s: %s, expected %s\n", words[0], words[1], words[2], got, expected);
        }
    }
    for (int at = 0; at < 6; at++)
        must(sluice_close(users[at]), "close");
    printf("%d rows, %d wrong\n", rows, wrong);
    return wrong != 0 || rows < 80;
}
