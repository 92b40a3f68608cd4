/* A preloaded recorder of what a process does to one directory.
 *
 * Every write, truncation, creation, rename, removal and sync of a file under STORE_DIR is
 * appended to the file SHIM_LOG, together with everything written to standard output (the
 * acknowledgements). One lock around each call makes the order of the log the order of
 * what happened. Syncs are recorded and not done: the test rebuilds from the log what a
 * disk would hold that kept synced bytes only. sync_file_range is not a sync.
 *
 * With FAIL_SYNC_AT=n the n-th sync of a file whose path ends with FAIL_FILE fails with EIO,
 * and with FAIL_WRITE_AT=n the n-th write to one with ENOSPC, or EIO if FAIL_WRITE_EIO is set,
 * after FAIL_WRITE_US microseconds if that is set.
 * With SLOW_SYNC_US=n every sync takes so many microseconds. With KILL_BEFORE_UNLINK=n the
 * process kills itself instead of removing the n-th such file, with KILL_BEFORE_WRITE=n instead
 * of the n-th write to one. With SHIM_ARM=text none of these counts before the process has written that text to its
 * standard output.
 *
 * A record: kind (1), length of path (4), path, offset (8), length of data (4), data.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_FD 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *paths[MAX_FD];
static const char *dir;
static size_t dir_len;
static int log_fd = -1;
static long fail_sync_at = -1;
static long fail_write_at = -1;
static long kill_before_unlink = -1;
static long kill_before_write = -1;
static const char *fail_file;
static int write_error = ENOSPC;
static unsigned slow_sync_us;
static unsigned fail_write_us;
static const char *arm;

__attribute__((constructor)) static void begin(void) {
    dir = getenv("STORE_DIR");
    const char *log = getenv("SHIM_LOG");
    if (!dir || !log) return;
    dir_len = strlen(dir);
    if (getenv("FAIL_SYNC_AT")) fail_sync_at = atol(getenv("FAIL_SYNC_AT"));
    fail_file = getenv("FAIL_FILE");
    arm = getenv("SHIM_ARM");
    if (getenv("FAIL_WRITE_EIO")) write_error = EIO;
    if (getenv("SLOW_SYNC_US")) slow_sync_us = (unsigned)atol(getenv("SLOW_SYNC_US"));
    if (getenv("KILL_BEFORE_WRITE")) kill_before_write = atol(getenv("KILL_BEFORE_WRITE"));
    if (getenv("KILL_BEFORE_UNLINK")) kill_before_unlink = atol(getenv("KILL_BEFORE_UNLINK"));
    if (getenv("FAIL_WRITE_US")) fail_write_us = (unsigned)atol(getenv("FAIL_WRITE_US"));
    if (getenv("FAIL_WRITE_AT")) fail_write_at = atol(getenv("FAIL_WRITE_AT"));
    log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) abort();
}

static int ours(const char *path) {
    return log_fd >= 0 && path && strncmp(path, dir, dir_len) == 0;
}

static void put(const void *data, size_t len) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = syscall(SYS_write, log_fd, p, len);
        if (n <= 0) abort();
        p += n;
        len -= (size_t)n;
    }
}

static void record(char kind, const char *path, uint64_t offset, const void *data, uint32_t len) {
    uint32_t path_len = (uint32_t)strlen(path);
    put(&kind, 1);
    put(&path_len, 4);
    put(path, path_len);
    put(&offset, 8);
    put(&len, 4);
    put(data, len);
}

static int open_recorded(int at, const char *path, int flags, mode_t mode) {
    if (!ours(path)) return (int)syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat st;
    int missing = fstatat(AT_FDCWD, path, &st, 0) != 0;
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    int saved = errno;
    if (fd >= 0 && fd < MAX_FD) {
        free(paths[fd]);
        paths[fd] = strdup(path);
        if (missing && (flags & O_CREAT)) record('C', path, 0, "", 0);
        if (!missing && (flags & O_TRUNC)) record('T', path, 0, "", 0);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return fd;
}

#define OPEN_BODY(at)                                                    \
    mode_t mode = 0;                                                     \
    if (flags & (O_CREAT | O_TMPFILE)) {                                 \
        va_list args;                                                    \
        va_start(args, flags);                                           \
        mode = va_arg(args, mode_t);                                     \
        va_end(args);                                                    \
    }                                                                    \
    return open_recorded(at, path, flags, mode);

int open(const char *path, int flags, ...) { OPEN_BODY(AT_FDCWD) }
int open64(const char *path, int flags, ...) { OPEN_BODY(AT_FDCWD) }
int openat(int at, const char *path, int flags, ...) { OPEN_BODY(at) }
int openat64(int at, const char *path, int flags, ...) { OPEN_BODY(at) }

static const char *path_of(int fd) {
    return fd >= 0 && fd < MAX_FD ? paths[fd] : NULL;
}

int close(int fd) {
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < MAX_FD && fd != log_fd) {
        free(paths[fd]);
        paths[fd] = NULL;
    }
    int result = (int)syscall(SYS_close, fd);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t write(int fd, const void *data, size_t len) {
    if (log_fd < 0) return syscall(SYS_write, fd, data, len);
    pthread_mutex_lock(&lock);
    const char *path = path_of(fd);
    uint64_t offset = path ? (uint64_t)lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t n = syscall(SYS_write, fd, data, len);
    int saved = errno;
    if (n > 0 && path) record('W', path, offset, data, (uint32_t)n);
    if (n > 0 && fd == 1) record('A', "", 0, data, (uint32_t)n);
    if (n > 0 && fd == 1 && arm && memmem(data, (size_t)n, arm, strlen(arm))) arm = NULL;
    pthread_mutex_unlock(&lock);
    errno = saved;
    return n;
}

static int is_meant(const char *path) {
    size_t len = path ? strlen(path) : 0;
    size_t end = fail_file && !arm ? strlen(fail_file) : 0;
    return end > 0 && len > end && strcmp(path + len - end, fail_file) == 0;
}

static ssize_t pwrite_recorded(int fd, const void *data, size_t len, off_t offset) {
    pthread_mutex_lock(&lock);
    const char *path = path_of(fd);
    if (is_meant(path) && kill_before_write >= 0 && kill_before_write-- == 0)
        kill(getpid(), SIGKILL);
    if (is_meant(path) && fail_write_at >= 0 && fail_write_at-- <= 0) {
        fail_write_at = 0;
        pthread_mutex_unlock(&lock);
        if (fail_write_us) usleep(fail_write_us);
        errno = write_error;
        return -1;
    }
    ssize_t n = syscall(SYS_pwrite64, fd, data, len, offset);
    int saved = errno;
    if (n > 0 && path) record('W', path, (uint64_t)offset, data, (uint32_t)n);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset) {
    return pwrite_recorded(fd, data, len, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t len, off_t offset) {
    return pwrite_recorded(fd, data, len, offset);
}

static int truncate_recorded(int fd, off_t len) {
    pthread_mutex_lock(&lock);
    const char *path = path_of(fd);
    int result = (int)syscall(SYS_ftruncate, fd, len);
    int saved = errno;
    if (result == 0 && path) record('T', path, (uint64_t)len, "", 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

int ftruncate(int fd, off_t len) { return truncate_recorded(fd, len); }
int ftruncate64(int fd, off_t len) { return truncate_recorded(fd, len); }

static int sync_recorded(int fd, int number) {
    if (slow_sync_us && path_of(fd)) usleep(slow_sync_us);
    pthread_mutex_lock(&lock);
    const char *path = path_of(fd);
    int result = 0;
    if (is_meant(path) && fail_sync_at >= 0 && fail_sync_at-- == 0) {
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return -1;
    }
    if (path) record('S', path, 0, "", 0);
    else result = (int)syscall(number, fd);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return sync_recorded(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_recorded(fd, SYS_fdatasync); }

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    int saved = errno;
    if (result == 0 && ours(from)) {
        record('R', from, 0, to, (uint32_t)strlen(to));
        /* Who has it open goes on under its new name. */
        for (int fd = 0; fd < MAX_FD; fd++) {
            if (!paths[fd] || strcmp(paths[fd], from) != 0) continue;
            free(paths[fd]);
            paths[fd] = strdup(to);
        }
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    if (ours(path) && is_meant(path) && kill_before_unlink >= 0 && kill_before_unlink-- == 0)
        kill(getpid(), SIGKILL);
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    int saved = errno;
    if (result == 0 && ours(path)) record('U', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

int mkdir(const char *path, mode_t mode) {
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    int saved = errno;
    if (result == 0 && ours(path)) record('M', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
