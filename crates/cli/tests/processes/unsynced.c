/*
 * Loses unsynced writes when the process is killed, as in a power failure. For LD_PRELOAD.
 *
 * Writes to the files of a data directory (registry, cluster, and the .new files that replace them) are kept in memory
 * until fsync or fdatasync of that file. Of every second write the first half is written at once: a torn record. A
 * rename or removal of such a file takes effect when the directory is synced. So SIGKILL may undo whatever a power
 * failure may undo.
 *
 * UNSYNCED=lies: a sync of the file `registry` does nothing, as on a disk that confirms writes it has not done.
 * UNSYNCED_LOG=FILE: 'w' for each write that is kept in memory, 's' for each sync that writes it to the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The duration of a sync, long enough for a kill to find unsynced writes. */
#define SYNC_MICROS 5000
#define FILES 4096
#define CHANGES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char *bytes; size_t length; } unsynced[FILES];
/* Renames, and removals (without `to`), in order. */
static struct { char *from, *to; } changes[CHANGES];
static int changed;
static unsigned long writes;

#define REAL(type, name, ...) \
    static type (*real_##name)(__VA_ARGS__); \
    __attribute__((constructor)) static void find_##name(void) { real_##name = dlsym(RTLD_NEXT, #name); }
REAL(ssize_t, write, int, const void *, size_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, close, int)
REAL(int, rename, const char *, const char *)
REAL(int, unlink, const char *)

static int is_name(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

static int is_ours(const char *path) {
    return is_name(path, "registry") || is_name(path, "registry.new") || is_name(path, "cluster")
        || is_name(path, "cluster.new");
}

/* Returns whether this is a file of a data directory, and its path. */
static int path_of(int fd, char *path) {
    char link[64];
    struct stat about;
    if (fd < 0 || fd >= FILES || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_ours(path);
}

static void note(char what) {
    const char *log = getenv("UNSYNCED_LOG");
    int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    if (real_write(fd, &what, 1) != 1) abort();
    real_close(fd);
}

static void put(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t done = real_write(fd, bytes, length);
        if (done <= 0) abort();
        bytes += done;
        length -= done;
    }
}

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[PATH_MAX];
    if (length == 0 || !path_of(fd, path)) return real_write(fd, bytes, length);
    pthread_mutex_lock(&lock);
    size_t torn = unsynced[fd].length == 0 && ++writes % 2 == 0 ? length / 2 : 0;
    put(fd, bytes, torn);
    size_t rest = length - torn, before = unsynced[fd].length;
    unsynced[fd].bytes = realloc(unsynced[fd].bytes, before + rest);
    if (!unsynced[fd].bytes) abort();
    memcpy(unsynced[fd].bytes + before, (const char *)bytes + torn, rest);
    unsynced[fd].length = before + rest;
    note('w');
    pthread_mutex_unlock(&lock);
    return length;
}

static void forget(int fd) {
    free(unsynced[fd].bytes);
    unsynced[fd].bytes = NULL;
    unsynced[fd].length = 0;
}

/* Performs the renames and removals in this directory. */
static void sync_directory(const struct stat *directory) {
    int kept = 0;
    for (int at = 0; at < changed; at++) {
        char *from = changes[at].from, *to = changes[at].to, parent[PATH_MAX];
        struct stat about;
        snprintf(parent, sizeof parent, "%s", from);
        if (stat(dirname(parent), &about) != 0) abort();
        if (about.st_dev != directory->st_dev || about.st_ino != directory->st_ino) {
            changes[kept].from = from;
            changes[kept++].to = to;
            continue;
        }
        if (to ? real_rename(from, to) != 0 : real_unlink(from) != 0 && access(from, F_OK) == 0) abort();
        free(from);
        free(to);
    }
    changed = kept;
}

static int sync_with(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    struct stat about;
    if (path_of(fd, path)) {
        const char *how = getenv("UNSYNCED");
        if (how && strcmp(how, "lies") == 0 && is_name(path, "registry")) return 0;
        usleep(SYNC_MICROS);
        pthread_mutex_lock(&lock);
        if (unsynced[fd].length > 0) note('s');
        put(fd, unsynced[fd].bytes, unsynced[fd].length);
        forget(fd);
        pthread_mutex_unlock(&lock);
    } else if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        usleep(SYNC_MICROS);
        pthread_mutex_lock(&lock);
        sync_directory(&about);
        pthread_mutex_unlock(&lock);
    }
    return real(fd);
}

int fsync(int fd) { return sync_with(fd, real_fsync); }

int fdatasync(int fd) { return sync_with(fd, real_fdatasync); }

int close(int fd) {
    char path[PATH_MAX];
    if (path_of(fd, path)) {
        pthread_mutex_lock(&lock);
        forget(fd);
        pthread_mutex_unlock(&lock);
    }
    return real_close(fd);
}

static int change(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    if (changed == CHANGES) abort();
    changes[changed].from = strdup(from);
    changes[changed++].to = to ? strdup(to) : NULL;
    pthread_mutex_unlock(&lock);
    return 0;
}

int rename(const char *from, const char *to) { return is_ours(to) ? change(from, to) : real_rename(from, to); }

int unlink(const char *path) { return is_ours(path) ? change(path, NULL) : real_unlink(path); }
