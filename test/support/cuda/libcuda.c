// A stand-in for libcuda.so.1 and libnvidia-ml.so.1: one device whose memory is a text file ($CUDA_STAND_IN), shared by all
// processes that load this library. It behaves as an H200 with driver 580 was seen to behave. Lines of the file:
//   total BYTES        memory of the device
//   others BYTES       memory that programs outside of the file use
//   speed DOWN UP      bytes per second of a checkpoint and of a restore; 0: at once
//   process PID START STATE BUSY BYTES
// $CUDA_STAND_IN.orders has one fault a line, used up once: CALL CODE, or CALL kill (the calling process), CALL kill-target,
// CALL sleep-MS.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3 };
enum { OPERATING_SYSTEM = 304, ILLEGAL_STATE = 401, NOT_READY = 600 };
enum { RUNNING = 0, LOCKED = 1, CHECKPOINTED = 2, FAILED = 3 };

typedef struct { unsigned int timeoutMs; unsigned int reserved0; uint64_t reserved1[7]; } CUcheckpointLockArgs;
typedef struct { uint64_t reserved[8]; } CUcheckpointArgs;

typedef struct { int pid; unsigned long long start; int state; int busy; unsigned long long bytes; } Entry;
typedef struct { unsigned long long total, others, down, up; int count; Entry entries[64]; } Device;

static const char *path(void) {
  const char *given = getenv("CUDA_STAND_IN");
  return given ? given : "/nonexistent/cuda-stand-in";
}

static void pause_ms(long ms) {
  struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
  while (nanosleep(&time, &time) != 0 && errno == EINTR) {}
}

// Start time of a process; 0: it is dead.
static unsigned long long start_of(int pid) {
  char name[64], text[1024];
  snprintf(name, sizeof name, "/proc/%d/stat", pid);
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  char *at = strrchr(text, ')');
  char state = 0;
  unsigned long long start = 0;
  if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &start) != 2) return 0;
  return state == 'Z' || state == 'X' ? 0 : start;
}

// The kernel releases the lock of a killed process.
static int open_lock(void) {
  char name[4096];
  snprintf(name, sizeof name, "%s.lock", path());
  int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) flock(file, LOCK_EX);
  return file;
}

static void load(Device *device) {
  memset(device, 0, sizeof *device);
  device->total = 8ULL << 30;
  FILE *file = fopen(path(), "re");
  if (!file) return;
  char line[256];
  while (fgets(line, sizeof line, file)) {
    Entry entry;
    if (sscanf(line, "total %llu", &device->total) == 1) continue;
    if (sscanf(line, "others %llu", &device->others) == 1) continue;
    if (sscanf(line, "speed %llu %llu", &device->down, &device->up) == 2) continue;
    if (sscanf(line, "process %d %llu %d %d %llu", &entry.pid, &entry.start, &entry.state, &entry.busy, &entry.bytes) != 5) continue;
    // The driver frees the memory of a process that is killed, also of a suspended one.
    if (start_of(entry.pid) == entry.start && device->count < 64) device->entries[device->count++] = entry;
  }
  fclose(file);
}

static void save(const Device *device) {
  char name[4096];
  snprintf(name, sizeof name, "%s.%d.new", path(), getpid());
  FILE *file = fopen(name, "we");
  if (!file) return;
  fprintf(file, "total %llu\nothers %llu\nspeed %llu %llu\n", device->total, device->others, device->down, device->up);
  for (int at = 0; at < device->count; at++) {
    const Entry *entry = &device->entries[at];
    fprintf(file, "process %d %llu %d %d %llu\n", entry->pid, entry->start, entry->state, entry->busy, entry->bytes);
  }
  fclose(file);
  rename(name, path());
}

static Entry *find(Device *device, int pid) {
  for (int at = 0; at < device->count; at++) if (device->entries[at].pid == pid) return &device->entries[at];
  return NULL;
}

static unsigned long long used(const Device *device) {
  unsigned long long sum = device->others;
  for (int at = 0; at < device->count; at++) {
    const Entry *entry = &device->entries[at];
    if (entry->state == RUNNING || entry->state == LOCKED) sum += entry->bytes;
  }
  return sum;
}

// Takes the first order for this call; called under the lock. Returns a code, 0: none; times in `sleep`.
static int take_order(const char *call, int pid, long *sleep) {
  char name[4096], all[4096] = "", line[256];
  int code = 0, found = 0;
  snprintf(name, sizeof name, "%s.orders", path());
  FILE *file = fopen(name, "re");
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    char of[64], what[64];
    if (!found && sscanf(line, "%63s %63s", of, what) == 2 && strcmp(of, call) == 0) {
      found = 1;
      if (strcmp(what, "kill") == 0) code = -1;
      else if (strcmp(what, "kill-target") == 0) code = -2;
      else if (sscanf(what, "sleep-%ld", sleep) != 1) code = atoi(what);
    } else strncat(all, line, sizeof all - strlen(all) - 1);
  }
  fclose(file);
  if (!found) return 0;
  file = fopen(name, "we");
  if (file) { fputs(all, file); fclose(file); }
  if (code == -1) kill(getpid(), SIGKILL);
  if (code == -2) { kill(pid, SIGKILL); pause_ms(50); return 0; }
  return code;
}

static int is_initialized = 0;

int cuInit(unsigned int flags) {
  (void)flags;
  // A process does not inherit CUDA from its parent.
  is_initialized = getpid();
  return access(path(), F_OK) == 0 ? SUCCESS : 100;
}

int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return is_initialized ? SUCCESS : NOT_INITIALIZED; }

// Any call of a process that is locked or suspended waits.
static int begin(Device *device, Entry **entry) {
  if (is_initialized != getpid()) return -1;
  for (;;) {
    int lock = open_lock();
    load(device);
    *entry = find(device, getpid());
    if (!*entry && device->count < 64) {
      *entry = &device->entries[device->count++];
      **entry = (Entry){getpid(), start_of(getpid()), RUNNING, 0, 0};
    }
    if ((*entry)->state == RUNNING || (*entry)->state == FAILED) return lock;
    close(lock);
    pause_ms(2);
  }
}

int cuMemGetInfo_v2(size_t *room, size_t *total) {
  Device device;
  Entry *entry;
  int lock = begin(&device, &entry);
  if (lock < 0) return NOT_INITIALIZED;
  *total = device.total;
  *room = device.total > used(&device) ? device.total - used(&device) : 0;
  close(lock);
  return SUCCESS;
}

// The stand-in counts the bytes of a process; an address means nothing.
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  Device device;
  Entry *entry;
  long sleep = 0;
  int lock = begin(&device, &entry);
  if (lock < 0) return NOT_INITIALIZED;
  int code = entry->state == FAILED ? OPERATING_SYSTEM : take_order("MemAlloc", getpid(), &sleep);
  if (code == 0 && used(&device) + bytes > device.total) code = OUT_OF_MEMORY;
  if (code == 0) { entry->bytes += bytes; *address = bytes; save(&device); }
  close(lock);
  return code;
}

int cuMemFree_v2(uint64_t address) {
  Device device;
  Entry *entry;
  int lock = begin(&device, &entry);
  if (lock < 0) return NOT_INITIALIZED;
  entry->bytes -= address < entry->bytes ? address : entry->bytes;
  save(&device);
  close(lock);
  return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, device, 16); return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)1; return SUCCESS; }
int cuCtxSetCurrent(void *context) { (void)context; return SUCCESS; }

// All of a process's memory has one value.
static unsigned char content = 0;

int cuCtxSynchronize(void) {
  size_t room, total;
  return cuMemGetInfo_v2(&room, &total);
}

int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes) {
  (void)address, (void)bytes;
  content = value;
  return cuCtxSynchronize();
}

int cuMemcpyDtoH_v2(void *target, uint64_t address, size_t bytes) {
  (void)address;
  int code = cuCtxSynchronize();
  memset(target, content, bytes);
  return code;
}

// Of the stand-in only: a kernel that runs until it is told to end.
int standInBusy(int busy) {
  Device device;
  Entry *entry;
  int lock = begin(&device, &entry);
  if (lock < 0) return NOT_INITIALIZED;
  entry->busy = busy;
  save(&device);
  close(lock);
  return SUCCESS;
}

static int check_owner(int pid) {
  char name[64];
  struct stat status;
  snprintf(name, sizeof name, "/proc/%d", pid);
  if (stat(name, &status) != 0) return INVALID_VALUE;
  return status.st_uid == geteuid() || geteuid() == 0 ? SUCCESS : OPERATING_SYSTEM;
}

// Opens the device for a call on another process that must be in the state `from`.
static int reach(const char *call, int pid, int from, Device *device, Entry **entry, int *lock) {
  if (!is_initialized) return NOT_INITIALIZED;
  int code = check_owner(pid);
  if (code != SUCCESS) return code;
  long sleep = 0;
  *lock = open_lock();
  code = take_order(call, pid, &sleep);
  if (sleep > 0) {
    close(*lock);
    pause_ms(sleep);
    *lock = open_lock();
  }
  load(device);
  *entry = find(device, pid);
  if (code == 0 && !*entry) code = INVALID_VALUE;
  if (code == 0 && (*entry)->state == FAILED) code = OPERATING_SYSTEM;
  if (code == 0 && (*entry)->state != from) code = ILLEGAL_STATE;
  if (code != 0) close(*lock);
  return code;
}

int cuCheckpointProcessGetState(int pid, int *state) {
  if (!is_initialized) return NOT_INITIALIZED;
  int code = check_owner(pid);
  if (code != SUCCESS) return code;
  Device device;
  long sleep = 0;
  int lock = open_lock();
  code = take_order("GetState", pid, &sleep);
  load(&device);
  Entry *entry = find(&device, pid);
  if (entry) *state = entry->state;
  close(lock);
  if (code != SUCCESS) return code;
  return entry ? SUCCESS : INVALID_VALUE;
}

int cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
  Device device;
  Entry *entry;
  int lock;
  int code = reach("Lock", pid, RUNNING, &device, &entry, &lock);
  if (code != SUCCESS) return code;
  unsigned int left = args && args->timeoutMs ? args->timeoutMs : 3600000;
  while (entry && entry->busy) {
    close(lock);
    if (left < 5) return NOT_READY;
    pause_ms(5);
    left -= 5;
    lock = open_lock();
    load(&device);
    entry = find(&device, pid);
  }
  if (entry) { entry->state = LOCKED; save(&device); }
  close(lock);
  return entry ? SUCCESS : OPERATING_SYSTEM;
}

static void copy(unsigned long long bytes, unsigned long long speed) {
  if (speed > 0) pause_ms((long)(bytes * 1000 / speed));
}

int cuCheckpointProcessCheckpoint(int pid, CUcheckpointArgs *args) {
  (void)args;
  Device device;
  Entry *entry;
  int lock;
  int code = reach("Checkpoint", pid, LOCKED, &device, &entry, &lock);
  if (code != SUCCESS) return code;
  unsigned long long bytes = entry->bytes;
  close(lock);
  copy(bytes, device.down);
  lock = open_lock();
  load(&device);
  entry = find(&device, pid);
  if (entry) { entry->state = CHECKPOINTED; save(&device); }
  close(lock);
  return entry ? SUCCESS : OPERATING_SYSTEM;
}

int cuCheckpointProcessRestore(int pid, CUcheckpointArgs *args) {
  (void)args;
  Device device;
  Entry *entry;
  int lock;
  int code = reach("Restore", pid, CHECKPOINTED, &device, &entry, &lock);
  if (code != SUCCESS) return code;
  int fits = used(&device) + entry->bytes <= device.total;
  // Its memory is taken at once and filled while it copies. A restore without room destroys the process.
  entry->state = fits ? LOCKED : FAILED;
  unsigned long long bytes = entry->bytes;
  save(&device);
  close(lock);
  if (fits) copy(bytes, device.up);
  return fits ? SUCCESS : OUT_OF_MEMORY;
}

int cuCheckpointProcessUnlock(int pid, CUcheckpointArgs *args) {
  (void)args;
  Device device;
  Entry *entry;
  int lock;
  int code = reach("Unlock", pid, LOCKED, &device, &entry, &lock);
  if (code != SUCCESS) return code;
  entry->state = RUNNING;
  save(&device);
  close(lock);
  return SUCCESS;
}

// The part of NVML that reads memory.

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; unsigned int gpuInstanceId, computeInstanceId; } ProcessInfo;

int nvmlInit_v2(void) { return access(path(), F_OK) == 0 ? 0 : 9; }
int nvmlShutdown(void) { return 0; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  const char *given = getenv("CUDA_STAND_IN_DRIVER");
  snprintf(version, length, "%s", given ? given : "580.159.04");
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = (void *)1;
  return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 6;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
  (void)handle;
  Device device;
  int lock = open_lock();
  load(&device);
  close(lock);
  memory->total = device.total;
  memory->used = used(&device);
  memory->free = device.total > memory->used ? device.total - memory->used : 0;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, ProcessInfo *infos) {
  (void)handle;
  Device device;
  unsigned int listed = 0;
  int lock = open_lock();
  load(&device);
  close(lock);
  // As in a container.
  if (getenv("CUDA_STAND_IN_HIDES")) device.count = 0;
  for (int at = 0; at < device.count; at++) {
    const Entry *entry = &device.entries[at];
    if (entry->state == CHECKPOINTED || entry->state == FAILED) continue;
    if (listed < *count) infos[listed] = (ProcessInfo){(unsigned int)entry->pid, entry->bytes, 0, 0};
    listed++;
  }
  int fits = listed <= *count;
  *count = listed;
  return fits ? 0 : 7;
}
