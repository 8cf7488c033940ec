/* Faults at the system calls of a writer: preload this library, and arm it from inside the process.
 *
 * Calls that change something below the watched folder are numbered from 0. At the number it was
 * armed with, the library kills the process, tears a write, reports an error or writes less than it
 * was given. It can also log each call with its data, or wait at each until it is told to go on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { NONE, KILL_BEFORE, KILL_AFTER, TORN_KILL, FAIL_ONCE, FAIL_ALWAYS, SHORT, SHORT_THEN_FAIL, PAUSE };
enum { FDS = 4096, EVERY_CALL = -2, NEVER = -1 };

static char watched[PATH_MAX];
static size_t watched_length;
static long armed_at = NEVER;
static int action, failure, log_fd = -1, list_fd = -1, tell_fd = -1, go_fd = -1;
static long amount;
static atomic_long calls;
static atomic_int failing;
static char *paths[FDS];  /* of descriptors below the watched folder */
static char writable[FDS];

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })

/* ---- what is watched ---- */

static int absolute(int dirfd, const char *path, char *out) {
  char base[PATH_MAX], link[64];
  if (!path) return 0;
  if (path[0] == '/') {
    if (strlen(path) >= PATH_MAX) return 0;
    strcpy(out, path);
    return 1;
  }
  if (dirfd == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) return 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    ssize_t size = readlink(link, base, sizeof base - 1);
    if (size < 0) return 0;
    base[size] = 0;
  }
  return snprintf(out, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static int below(int dirfd, const char *path, char *out) {
  return watched_length && absolute(dirfd, path, out) && !strncmp(out, watched, watched_length) &&
         (out[watched_length] == '/' || out[watched_length] == 0);
}

static const char *path_of(int fd) { return watched_length && fd >= 0 && fd < FDS ? paths[fd] : NULL; }

static void remember(int fd, const char *path, int flags) {
  if (fd < 0 || fd >= FDS) return;
  free(paths[fd]);
  paths[fd] = strdup(path);
  writable[fd] = (flags & O_ACCMODE) != O_RDONLY;
}

static void forget(int fd) {
  if (fd < 0 || fd >= FDS) return;
  free(paths[fd]);
  paths[fd] = NULL;
}

/* ---- what happens at a call ---- */

static void die(void) {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

static void log_bytes(const void *data, size_t size) {
  const char *at = data;
  while (size) {
    ssize_t done = syscall(SYS_write, log_fd, at, size);
    if (done <= 0) return;
    at += done;
    size -= done;
  }
}

static void log_call(const char *name, const char *a, const char *b, long offset, const void *data, size_t size) {
  char line[2 * PATH_MAX + 100];
  if (log_fd < 0) return;
  int length = snprintf(line, sizeof line, "%s\t%s\t%s\t%ld\t%zu\t%d\n", name, a, b ? b : "", offset, size, data != NULL);
  log_bytes(line, length);
  if (data) log_bytes(data, size);
}

/* Calls that fail as long as the disk is full, broken or read-only. */
static int fails_too(const char *name) {
  if (failure == EROFS) return strcmp(name, "close") && strcmp(name, "opendir") && strcmp(name, "flock") && strcmp(name, "fsync");
  if (!strcmp(name, "write") || !strcmp(name, "open") || !strcmp(name, "rename") || !strcmp(name, "mkdir")) return 1;
  return failure == EIO && (!strcmp(name, "fsync") || !strcmp(name, "close") || !strcmp(name, "truncate"));
}

/* What to do at this call: NONE, or the action it was armed with. */
static int next(const char *name, size_t size) {
  long number = atomic_fetch_add(&calls, 1);
  if (list_fd >= 0) dprintf(list_fd, "%s %zu\n", name, size);
  if (atomic_load(&failing) && fails_too(name)) return FAIL_ALWAYS;
  if (armed_at == EVERY_CALL) {
    char byte = 0;
    if (syscall(SYS_write, tell_fd, &number, sizeof number) < 0 || syscall(SYS_read, go_fd, &byte, 1) != 1) die();
    return NONE;
  }
  if (number != armed_at) return NONE;
  if (action == KILL_BEFORE) die();
  if (action == FAIL_ALWAYS || action == SHORT_THEN_FAIL) atomic_store(&failing, 1);
  return action;
}

static int fails(int what) { return what == FAIL_ONCE || what == FAIL_ALWAYS; }

#define AROUND(name, call)                       \
  int what = next(name, 0);                       \
  if (fails(what)) { errno = failure; return -1; } \
  __typeof__(call) result = call;                \
  if (what == KILL_AFTER) die();

static size_t limited(size_t size) {
  long wanted = amount < 0 ? (long)size + amount : amount;
  return wanted < 0 ? 0 : (size_t)wanted < size ? (size_t)wanted : size;
}

static ssize_t do_write(int fd, const void *data, size_t size, off_t offset, int positioned) {
  int what = next("write", size);
  if (fails(what)) { errno = failure; return -1; }
  size_t now = what == TORN_KILL || what == SHORT || what == SHORT_THEN_FAIL ? limited(size) : size;
  if (!now && size && what != TORN_KILL) { errno = failure ? failure : ENOSPC; return -1; }
  off_t at = positioned ? offset : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
  ssize_t result = positioned ? syscall(SYS_pwrite64, fd, data, now, offset) : syscall(SYS_write, fd, data, now);
  if (result > 0) log_call("write", paths[fd], NULL, at, data, result);
  if (what == TORN_KILL || what == KILL_AFTER) die();
  return result;
}

/* ---- the calls ---- */

static int do_open(int dirfd, const char *path, int flags, mode_t mode, int (*real)(int, const char *, int, ...)) {
  char full[PATH_MAX];
  if (!below(dirfd, path, full)) return real(dirfd, path, flags, mode);
  struct stat status;
  int there = syscall(SYS_newfstatat, AT_FDCWD, full, &status, 0) == 0;
  int changes = (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY;
  int what = NONE;
  if (changes || (there && S_ISDIR(status.st_mode))) what = next(changes ? "open" : "opendir", 0);
  if (fails(what)) { errno = failure; return -1; }
  int fd = real(dirfd, path, flags, mode);
  if (fd >= 0) {
    remember(fd, full, flags);
    if (changes && (!there || flags & O_TRUNC)) log_call(there ? "truncate" : "create", full, NULL, 0, NULL, 0);
  }
  if (what == KILL_AFTER) die();
  return fd;
}

static int real_openat(int dirfd, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return syscall(SYS_openat, dirfd, path, flags, mode);
}

#define MODE(last) \
  mode_t mode = 0; \
  if (last & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, last); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE(flags) return do_open(AT_FDCWD, path, flags, mode, real_openat); }
int open64(const char *path, int flags, ...) { MODE(flags) return do_open(AT_FDCWD, path, flags, mode, real_openat); }
int openat(int dir, const char *path, int flags, ...) { MODE(flags) return do_open(dir, path, flags, mode, real_openat); }
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) return do_open(dir, path, flags, mode, real_openat); }
int creat(const char *path, mode_t mode) {
  return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, real_openat);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

ssize_t write(int fd, const void *data, size_t size) {
  return path_of(fd) ? do_write(fd, data, size, 0, 0) : syscall(SYS_write, fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  return path_of(fd) ? do_write(fd, data, size, offset, 1) : syscall(SYS_pwrite64, fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }

static ssize_t do_writev(int fd, const struct iovec *pieces, int count, off_t offset, int positioned) {
  size_t size = 0;
  for (int i = 0; i < count; i++) size += pieces[i].iov_len;
  char *joined = malloc(size + 1), *at = joined;
  if (!joined) { errno = ENOMEM; return -1; }
  for (int i = 0; i < count; i++) at = mempcpy(at, pieces[i].iov_base, pieces[i].iov_len);
  ssize_t result = do_write(fd, joined, size, offset, positioned);
  int kept = errno;
  free(joined);
  errno = kept;
  return result;
}
ssize_t writev(int fd, const struct iovec *pieces, int count) {
  return path_of(fd) ? do_writev(fd, pieces, count, 0, 0) : syscall(SYS_writev, fd, pieces, count);
}
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
  return path_of(fd) ? do_writev(fd, pieces, count, offset, 1) : REAL(pwritev)(fd, pieces, count, offset);
}

/* These need not work anywhere: whoever uses them must know another way. */
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  if (path_of(out)) { errno = EXDEV; return -1; }
  return REAL(copy_file_range)(in, from, out, to, size, flags);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
  if (path_of(out)) { errno = EINVAL; return -1; }
  return REAL(sendfile)(out, in, offset, size);
}

static int do_sync(int fd, int (*real)(int)) {
  if (!path_of(fd)) return real(fd);
  AROUND("fsync", real(fd))
  if (!result) log_call("fsync", paths[fd], NULL, 0, NULL, 0);
  return result;
}
int fsync(int fd) { return do_sync(fd, REAL(fsync)); }
int fdatasync(int fd) { return do_sync(fd, REAL(fdatasync)); }

int close(int fd) {
  if (!path_of(fd) || !writable[fd]) {
    if (watched_length) forget(fd);
    return syscall(SYS_close, fd);
  }
  int what = next("close", 0);
  log_call("close", paths[fd], NULL, 0, NULL, 0);
  forget(fd);
  int result = syscall(SYS_close, fd);
  if (what == KILL_AFTER) die();
  if (fails(what)) { errno = failure; return -1; } /* it is closed all the same, as on Linux */
  return result;
}

static int do_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
  char a[PATH_MAX], b[PATH_MAX];
  if (!below(from_dir, from, a) || !below(to_dir, to, b)) return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
  AROUND("rename", (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags))
  if (result) return result;
  log_call(flags & RENAME_EXCHANGE ? "exchange" : "rename", a, b, 0, NULL, 0);
  for (int fd = 0; fd < FDS; fd++) /* a file that is open goes by its new name */
    if (paths[fd] && !strcmp(paths[fd], a)) remember(fd, b, writable[fd] ? O_RDWR : O_RDONLY);
  return result;
}
int rename(const char *from, const char *to) { return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return do_rename(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return do_rename(a, from, b, to, flags); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
  char a[PATH_MAX], b[PATH_MAX];
  if (!below(to_dir, to, b)) return syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
  AROUND("link", (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags))
  if (!result) log_call("link", absolute(from_dir, from, a) ? a : "", b, 0, NULL, 0);
  return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

static int do_unlink(int dir, const char *path, int flags) {
  char full[PATH_MAX];
  if (!below(dir, path, full)) return syscall(SYS_unlinkat, dir, path, flags);
  AROUND("unlink", (int)syscall(SYS_unlinkat, dir, path, flags))
  if (!result) log_call("unlink", full, NULL, 0, NULL, 0);
  return result;
}
int unlink(const char *path) { return do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int dir, const char *path, int flags) { return do_unlink(dir, path, flags); }
int remove(const char *path) {
  struct stat status;
  if (lstat(path, &status)) return -1;
  return do_unlink(AT_FDCWD, path, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
}
int rmdir(const char *path) { return do_unlink(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dir, const char *path, mode_t mode) {
  char full[PATH_MAX];
  if (!below(dir, path, full)) return syscall(SYS_mkdirat, dir, path, mode);
  AROUND("mkdir", (int)syscall(SYS_mkdirat, dir, path, mode))
  if (!result) log_call("mkdir", full, NULL, 0, NULL, 0);
  return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int ftruncate(int fd, off_t size) {
  if (!path_of(fd)) return syscall(SYS_ftruncate, fd, size);
  AROUND("truncate", (int)syscall(SYS_ftruncate, fd, size))
  if (!result) log_call("truncate", paths[fd], NULL, size, NULL, 0);
  return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate(const char *path, off_t size) {
  char full[PATH_MAX];
  if (!below(AT_FDCWD, path, full)) return syscall(SYS_truncate, path, size);
  AROUND("truncate", (int)syscall(SYS_truncate, path, size))
  if (!result) log_call("truncate", full, NULL, size, NULL, 0);
  return result;
}
int truncate64(const char *path, off64_t size) { return truncate(path, size); }
int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (path_of(fd)) { errno = EOPNOTSUPP; return -1; }
  return syscall(SYS_fallocate, fd, mode, offset, size);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  if (path_of(fd)) return EOPNOTSUPP;
  return REAL(posix_fallocate)(fd, offset, size);
}

int fchmod(int fd, mode_t mode) {
  if (!path_of(fd)) return syscall(SYS_fchmod, fd, mode);
  AROUND("chmod", (int)syscall(SYS_fchmod, fd, mode))
  return result;
}
int fchown(int fd, uid_t user, gid_t group) {
  if (!path_of(fd)) return syscall(SYS_fchown, fd, user, group);
  AROUND("chown", (int)syscall(SYS_fchown, fd, user, group))
  return result;
}
int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags) {
  if (!path_of(fd)) return syscall(SYS_fsetxattr, fd, name, value, size, flags);
  AROUND("setxattr", (int)syscall(SYS_fsetxattr, fd, name, value, size, flags))
  return result;
}
int flock(int fd, int operation) {
  if (!path_of(fd)) return syscall(SYS_flock, fd, operation);
  int what = next("flock", 0);
  if (fails(what) && (failure == ENOLCK || failure == EINTR)) { errno = failure; return -1; } /* full disks have locks */
  int result = syscall(SYS_flock, fd, operation);
  if (what == KILL_AFTER) die();
  return result;
}

/* A shared, writable map would change files behind the back of all this: say so, loudly. */
void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && path_of(fd) && (flags & MAP_SHARED) && (protection & PROT_WRITE)) log_call("mmap", paths[fd], NULL, offset, NULL, size);
  return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}

/* ---- what the process itself calls ---- */

void shim_watch(const char *folder, int log, int list) {
  strncpy(watched, folder, sizeof watched - 1);
  watched_length = strlen(watched);
  log_fd = log;
  list_fd = list;
  atomic_store(&calls, 0);
  atomic_store(&failing, 0);
  armed_at = NEVER;
}

void shim_arm(long at, int what, int error, long bytes) {
  action = what;
  failure = error;
  amount = bytes;
  armed_at = at;
}

void shim_pause(int tell, int go) {
  tell_fd = tell;
  go_fd = go;
  armed_at = EVERY_CALL;
}

void shim_stop(void) {
  armed_at = NEVER;
  watched_length = 0;
  atomic_store(&failing, 0);
}

void shim_mark(long number) { log_call("mark", "", NULL, number, NULL, 0); }

long shim_calls(void) { return atomic_load(&calls); }

/* A program of its own is armed from outside. */
__attribute__((constructor)) static void from_environment(void) {
  const char *folder = getenv("SHIM_FOLDER"), *at = getenv("SHIM_AT");
  const char *what = getenv("SHIM_ACTION"), *error = getenv("SHIM_ERROR"), *bytes = getenv("SHIM_BYTES");
  if (!folder || !at) return;
  shim_watch(folder, -1, -1);
  shim_arm(atol(at), what ? atoi(what) : KILL_BEFORE, error ? atoi(error) : 0, bytes ? atol(bytes) : 0);
}
