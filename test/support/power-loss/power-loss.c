// Preloaded into a process: logs each change of the files below one folder, and each fsync, in order. From the log,
// disk.ts derives what a disk may hold after a power cut. No fsync reaches the real disk, which makes it fast.
//
// POWER_LOSS_DIR: the folder. POWER_LOSS_LOG: the log, a file elsewhere; its first page is shared by all processes.
// POWER_LOSS_FAIL: `sync:N`, the Nth fsync of a file fails with EIO, and all later ones of that file; `write:N`, the
// Nth write fails with EIO; `short:N`, each Nth write stores half of its bytes.
//
// Not logged: writes through stdio and through mapped memory. disk.ts drops files that only stdio wrote.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_FILES 65536
#define MAX_PARTS 1024

// As in disk-log.ts.
enum kind { CREATE = 1, WRITE, RESIZE, SYNC, FAILED_SYNC, LINK, UNLINK, MOVE };

struct record {
  uint32_t kind;
  uint32_t name_bytes;
  uint64_t inode, at, bytes, folder, other_folder;
};

// The log's first page. `bytes` counts whole records only: a process killed while it writes one leaves no trace.
struct shared {
  uint64_t bytes;
  pthread_mutex_t mutex;
  uint64_t syncs, writes, broken_inode;
};

static char folder[PATH_MAX];
static size_t folder_length;
static int log_file = -1;
static struct shared *shared;
static uint64_t fail_sync, fail_write, short_write;
// Inode of each descriptor that was opened below the folder. A number that was closed and used again does not match.
static uint64_t inodes[MAX_FILES];

// The function of this name that the library stands before.
#define REAL(name)                                     \
  ({                                                   \
    static __typeof__(&name) next;                     \
    if (!next) next = dlsym(RTLD_NEXT, #name);         \
    next;                                              \
  })

static void fail(const char *what) {
  fprintf(stderr, "power-loss: %s: %s\n", what, strerror(errno));
  _exit(97);
}

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("POWER_LOSS_DIR"), *log = getenv("POWER_LOSS_LOG"), *mode = getenv("POWER_LOSS_FAIL");
  if (!path || !log) return;
  if (!realpath(path, folder)) fail(path);
  folder_length = strlen(folder);
  if (mode && sscanf(mode, "sync:%lu", &fail_sync) + sscanf(mode, "write:%lu", &fail_write) +
                      sscanf(mode, "short:%lu", &short_write) < 1)
    fail(mode);
  // A high number: programs close or replace low ones.
  int opened = REAL(open)(log, O_RDWR | O_CLOEXEC);
  if (opened < 0 || (log_file = fcntl(opened, F_DUPFD_CLOEXEC, 1000)) < 0) fail(log);
  REAL(close)(opened);
  shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, log_file, 0);
  if (shared == MAP_FAILED) fail("mmap");
  // The test empties the log before it starts the first process; processes that this one starts find it in use.
  if (shared->bytes == 0) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    shared->bytes = PAGE;
  }
}

static void lock(void) {
  if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared->mutex);
}

static void unlock(void) { pthread_mutex_unlock(&shared->mutex); }

static void append(struct record record, const char *name, const char *other, const struct iovec *parts, int count) {
  int error = errno, used = 0;
  struct iovec all[MAX_PARTS + 4];
  if (count > MAX_PARTS) fail("too many parts");
  record.name_bytes = (name ? strlen(name) + 1 : 0) + (other ? strlen(other) + 1 : 0);
  all[used++] = (struct iovec){&record, sizeof record};
  if (name) all[used++] = (struct iovec){(void *)name, strlen(name) + 1};
  if (other) all[used++] = (struct iovec){(void *)other, strlen(other) + 1};
  uint64_t left = record.kind == WRITE ? record.bytes : 0;
  for (int i = 0; i < count && left > 0; i++) {
    size_t length = parts[i].iov_len < left ? parts[i].iov_len : left;
    all[used++] = (struct iovec){parts[i].iov_base, length};
    left -= length;
  }
  uint64_t total = 0;
  for (int i = 0; i < used; i++) total += all[i].iov_len;
  if (REAL(pwritev64)(log_file, all, used, shared->bytes) != (ssize_t)total) fail("log");
  shared->bytes += total;
  errno = error;
}

// Inode of the file if it is one of the folder's, else 0.
static uint64_t find(int fd) {
  struct stat about;
  if (!shared || fd < 0 || fd >= MAX_FILES || inodes[fd] == 0) return 0;
  if (fstat(fd, &about) != 0 || about.st_ino != inodes[fd]) return inodes[fd] = 0;
  return about.st_ino;
}

struct place {
  uint64_t folder;
  char name[NAME_MAX + 1];
};

// Whether the path is below the folder. Then `place` has its name and the inode of the folder that holds it.
static int locate(int at, const char *path, struct place *place) {
  char joined[PATH_MAX], parent[PATH_MAX];
  struct stat about;
  if (!shared || !path) return 0;
  if (path[0] == '/' || at == AT_FDCWD) snprintf(joined, sizeof joined, "%s", path);
  else snprintf(joined, sizeof joined, "/proc/self/fd/%d/%s", at, path);
  size_t length = strlen(joined);
  while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
  char *slash = strrchr(joined, '/');
  const char *name = slash ? slash + 1 : joined;
  if (strlen(name) > NAME_MAX) return 0;
  strcpy(place->name, name);
  if (slash == joined) return 0;
  if (slash) *slash = 0;
  int error = errno;
  int found = realpath(slash ? joined : ".", parent) && strncmp(parent, folder, folder_length) == 0 &&
              (parent[folder_length] == 0 || parent[folder_length] == '/') && stat(parent, &about) == 0;
  errno = error;
  if (found) place->folder = about.st_ino;
  return found;
}

static uint64_t identify(int at, const char *path) {
  struct stat about;
  int error = errno, found = fstatat(at, path, &about, AT_SYMLINK_NOFOLLOW) == 0;
  errno = error;
  return found ? about.st_ino : 0;
}

static void note_name(enum kind kind, const struct place *place, uint64_t inode, int is_folder) {
  append((struct record){kind, 0, inode, is_folder, 0, place->folder, 0}, place->name, NULL, NULL, 0);
}

static int open_logged(int at, const char *path, int flags, mode_t mode) {
  __typeof__(&openat) next = REAL(openat);
  struct place place;
  struct stat about;
  if (!shared || (flags & O_PATH)) return next(at, path, flags, mode);
  if (!locate(at, path, &place)) {
    // The folder itself.
    int fd = next(at, path, flags, mode);
    if (fd >= 0 && fd < MAX_FILES) {
      char real_path[PATH_MAX];
      int error = errno;
      inodes[fd] = (flags & O_DIRECTORY || !(flags & (O_WRONLY | O_RDWR))) && realpath(path, real_path) &&
                           strcmp(real_path, folder) == 0 && fstat(fd, &about) == 0
                       ? about.st_ino
                       : 0;
      errno = error;
    }
    return fd;
  }
  lock();
  int is_new = 0, fd = -1;
  if ((flags & (O_CREAT | O_EXCL)) == O_CREAT) {
    fd = next(at, path, flags | O_EXCL, mode);
    is_new = fd >= 0;
  }
  if (fd < 0) {
    fd = next(at, path, flags, mode);
    is_new = fd >= 0 && (flags & O_CREAT) && (flags & O_EXCL);
  }
  if (fd >= MAX_FILES) fail("too many files");
  int error = errno;
  if (fd >= 0 && fstat(fd, &about) == 0) {
    inodes[fd] = about.st_ino;
    if (is_new) {
      append((struct record){CREATE, 0, about.st_ino, 0, 0, 0, 0}, NULL, NULL, NULL, 0);
      note_name(LINK, &place, about.st_ino, 0);
    } else if (flags & O_TRUNC) {
      append((struct record){RESIZE, 0, about.st_ino, 0, 0, 0, 0}, NULL, NULL, NULL, 0);
    }
  }
  errno = error;
  unlock();
  return fd;
}

static mode_t read_mode(int flags, va_list rest) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name, ...)                                          \
  int name(__VA_ARGS__ const char *path, int flags, ...) {       \
    va_list rest;                                                \
    va_start(rest, flags);                                       \
    mode_t mode = read_mode(flags, rest);                        \
    va_end(rest);                                                \
    return open_logged(AT, path, flags, mode);                   \
  }
#define AT AT_FDCWD
OPEN(open)
OPEN(open64)
#undef AT
#define AT at
OPEN(openat, int at, )
OPEN(openat64, int at, )
#undef AT
int creat(const char *path, mode_t mode) { return open_logged(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

// `at` -1: at the descriptor's own position.
static ssize_t write_logged(int fd, const struct iovec *parts, int count, off64_t at) {
  uint64_t inode = find(fd);
  if (!inode) return at < 0 ? REAL(writev)(fd, parts, count) : REAL(pwritev64)(fd, parts, count, at);
  lock();
  uint64_t number = ++shared->writes;
  struct iovec half;
  if (number == fail_write) {
    unlock();
    errno = EIO;
    return -1;
  }
  if (short_write && number % short_write == 0 && count > 0 && parts[0].iov_len > 1) {
    half = (struct iovec){parts[0].iov_base, parts[0].iov_len / 2};
    parts = &half;
    count = 1;
  }
  ssize_t done = at < 0 ? REAL(writev)(fd, parts, count) : REAL(pwritev64)(fd, parts, count, at);
  if (done > 0) {
    uint64_t from = at < 0 ? (uint64_t)lseek64(fd, 0, SEEK_CUR) - done : (uint64_t)at;
    append((struct record){WRITE, 0, inode, from, done, 0, 0}, NULL, NULL, parts, count);
    int error = errno, flags = fcntl(fd, F_GETFL);
    if (flags & O_DSYNC) append((struct record){SYNC, 0, inode, 0, 0, 0, 0}, NULL, NULL, NULL, 0);
    errno = error;
  }
  unlock();
  return done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
  if (!find(fd)) return REAL(write)(fd, bytes, length);
  return write_logged(fd, &(struct iovec){(void *)bytes, length}, 1, -1);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  if (at < 0 || !find(fd)) return REAL(pwrite64)(fd, bytes, length, at);
  return write_logged(fd, &(struct iovec){(void *)bytes, length}, 1, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_logged(fd, parts, count, -1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  if (at < 0 || !find(fd)) return REAL(pwritev64)(fd, parts, count, at);
  return write_logged(fd, parts, count, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }

int ftruncate64(int fd, off64_t size) {
  uint64_t inode = find(fd);
  if (!inode) return REAL(ftruncate64)(fd, size);
  lock();
  int result = REAL(ftruncate64)(fd, size);
  if (result == 0) append((struct record){RESIZE, 0, inode, size, 0, 0, 0}, NULL, NULL, NULL, 0);
  unlock();
  return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int allocate(int fd, off64_t at, off64_t length) {
  struct stat about;
  if (fstat(fd, &about) != 0) return -1;
  return at + length <= about.st_size ? 0 : ftruncate64(fd, at + length);
}
int fallocate64(int fd, int mode, off64_t at, off64_t length) {
  if (!find(fd)) return REAL(fallocate64)(fd, mode, at, length);
  if (mode == 0) return allocate(fd, at, length);
  errno = EOPNOTSUPP;
  return -1;
}
int fallocate(int fd, int mode, off_t at, off_t length) { return fallocate64(fd, mode, at, length); }
int posix_fallocate64(int fd, off64_t at, off64_t length) {
  if (!find(fd)) return REAL(posix_fallocate64)(fd, at, length);
  return allocate(fd, at, length) == 0 ? 0 : errno;
}
int posix_fallocate(int fd, off_t at, off_t length) { return posix_fallocate64(fd, at, length); }

static int sync_logged(int fd, int (*next)(int)) {
  uint64_t inode = find(fd);
  if (!inode) return next(fd);
  lock();
  if (++shared->syncs == fail_sync) shared->broken_inode = inode;
  int is_broken = shared->broken_inode == inode;
  append((struct record){is_broken ? FAILED_SYNC : SYNC, 0, inode, 0, 0, 0, 0}, NULL, NULL, NULL, 0);
  unlock();
  if (is_broken) errno = EIO;
  return is_broken ? -1 : 0;
}
int fsync(int fd) { return sync_logged(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_logged(fd, REAL(fdatasync)); }

static int move_logged(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
  __typeof__(&renameat2) next = REAL(renameat2);
  struct place old, new;
  int leaves = locate(from_at, from, &old), arrives = locate(to_at, to, &new);
  if (!leaves && !arrives) return next(from_at, from, to_at, to, flags);
  // Neither a swap nor a move across the border is known.
  if (leaves != arrives || (flags & RENAME_EXCHANGE)) {
    errno = EXDEV;
    return -1;
  }
  lock();
  uint64_t inode = identify(from_at, from);
  int result = next(from_at, from, to_at, to, flags);
  if (result == 0) {
    struct record record = {MOVE, 0, inode, 0, 0, old.folder, new.folder};
    append(record, old.name, new.name, NULL, 0);
  }
  unlock();
  return result;
}
int rename(const char *from, const char *to) { return move_logged(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return move_logged(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned f) { return move_logged(a, from, b, to, f); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
  struct place place;
  if (!locate(to_at, to, &place)) return REAL(linkat)(from_at, from, to_at, to, flags);
  lock();
  int result = REAL(linkat)(from_at, from, to_at, to, flags);
  if (result == 0) note_name(LINK, &place, identify(to_at, to), 0);
  unlock();
  return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *path, int flags) {
  struct place place;
  if (!locate(at, path, &place)) return REAL(unlinkat)(at, path, flags);
  lock();
  uint64_t inode = identify(at, path);
  int result = REAL(unlinkat)(at, path, flags);
  if (result == 0) note_name(UNLINK, &place, inode, 0);
  unlock();
  return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
  struct place place;
  if (!locate(at, path, &place)) return REAL(mkdirat)(at, path, mode);
  lock();
  int result = REAL(mkdirat)(at, path, mode);
  if (result == 0) {
    uint64_t inode = identify(at, path);
    append((struct record){CREATE, 0, inode, 1, 0, 0, 0}, NULL, NULL, NULL, 0);
    note_name(LINK, &place, inode, 1);
  }
  unlock();
  return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
