/* Writes a file to a volume, reads it back from four threads, and lists its directory.
 *
 *   cc -o example example.c -lsluice -lpthread
 *   ./example sqlite3:///tmp/volume.db
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sluice.h>

enum { BLOCK = 1 << 20, BLOCKS = 8, THREADS = 4 };

/* Ends the program unless a call succeeded. */
static int64_t check(int64_t result, const char *what) {
    char message[512];
    if (result < 0) {
        sluice_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s (%s)\n", what, message, strerror((int)-result));
        exit(1);
    }
    return result;
}

struct part {
    int64_t file;
    int first;
};

/* Reads every fourth block of the file. Files have no cursor: all threads use one handle. */
static void *reader(void *argument) {
    struct part *part = argument;
    unsigned char *buffer = malloc(BLOCK);
    for (int block = part->first; block < BLOCKS; block += THREADS) {
        int64_t count = sluice_pread(part->file, buffer, BLOCK, (uint64_t)block * BLOCK);
        check(count, "read");
        for (int64_t at = 0; at < count; at++)
            if (count != BLOCK || buffer[at] != block) {
                fprintf(stderr, "block %d is not what was written\n", block);
                exit(1);
            }
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s META-URL [OPTIONS]\n", argv[0]);
        return 2;
    }
    int64_t volume = check(sluice_open(argv[1], argc > 2 ? argv[2] : NULL), "open the volume");
    check(sluice_mkdirs(volume, "/example/data", 0755), "make a directory");

    unsigned char *block = malloc(BLOCK);
    int64_t file = check(sluice_file_create(volume, "/example/data/file", 0644), "create a file");
    for (int number = 0; number < BLOCKS; number++) {
        memset(block, number, BLOCK);
        check(sluice_append(file, block, BLOCK), "append");
    }
    free(block);
    /* Other clients see the data once the file is closed, or flushed. */
    check(sluice_file_close(file), "close");

    file = check(sluice_file_open(volume, "/example/data/file", O_RDONLY, 0), "open a file");
    pthread_t threads[THREADS];
    struct part parts[THREADS];
    for (int number = 0; number < THREADS; number++) {
        parts[number] = (struct part){file, number};
        pthread_create(&threads[number], NULL, reader, &parts[number]);
    }
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    check(sluice_file_close(file), "close");

    /* A copy of the tree, without a copy of its data. */
    check(sluice_clone(volume, "/example/data", "/example/copy", 0), "clone");
    int64_t listing = check(sluice_dir_open(volume, "/example/copy"), "list");
    struct sluice_entry entry;
    while (check(sluice_dir_next(listing, &entry), "list") == 1)
        printf("%s %llu bytes%s\n", (const char *)entry.name, (unsigned long long)entry.stat.size,
               S_ISREG(entry.stat.mode) ? "" : ", no file");
    check(sluice_dir_close(listing), "list");

    /* An error is a negative errno. */
    struct sluice_stat stat;
    int missing = sluice_stat(volume, "/example/missing", &stat);
    char message[256];
    sluice_last_error(message, sizeof message);
    printf("%d: %s\n", missing, message);

    check(sluice_remove_all(volume, "/example", 0), "remove");
    check(sluice_close(volume), "close the volume");
    return 0;
}
