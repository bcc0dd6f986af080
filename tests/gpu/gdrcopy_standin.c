/* A stand-in for libgdrapi.so (GDRCopy), FOR TESTS: it needs no kernel module, and copies by the GPU's copy engines.
 *
 * NCCL's socket backend of GIN does not start without GDRCopy. It needs two things of it:
 *   1. copies between buffers of the CPU and registered GPU memory (gdr_copy_to_mapping, gdr_copy_from_mapping);
 *   2. small control words that the CPU writes and the GPU reads. NCCL computes their two pointers as
 *      map + (info.va - address) and info.va: with va = H, pinned memory of the host at a low address, and map = address,
 *      both are H. A pointer to other memory becomes data + (address - H), which the copies below turn back.
 *
 * Processes that share a GPU take turns of milliseconds. The driver does small writes (up to 64 KiB) and memsets on the
 * compute engine, in such turns; 2-D copies, writes of values, larger writes and all reads stay on the copy engines.
 * While a kernel spins, the host must load no module and allocate nothing: a copy here could wait behind that.
 *
 * gcc -O2 -msse4.1 -shared -fPIC -o libgdrapi.so gdrcopy_standin.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned long long gpu_address;
typedef struct gdr { int unused; } *gdr_t;
typedef struct { unsigned long handle; } gdr_mh_t;
typedef struct {
  uint64_t va, mapped_size;
  uint32_t page_size;
  uint64_t tm_cycles;
  uint32_t cycles_per_ms;
  unsigned mapped : 1, wc_mapping : 1;
  int mapping_type;
} gdr_info_t;

struct mapping {
  uint64_t address;
  size_t size;
  char *host; /* H */
  size_t host_size;
  int is_host; /* one of our own control words, registered as if it were GPU memory */
};

static struct {
  int (*cuCtxGetCurrent)(void **);
  int (*cuCtxSetCurrent)(void *);
  int (*cuDevicePrimaryCtxRetain)(void **, int);
  int (*cuStreamCreateWithPriority)(void **, unsigned, int);
  int (*cuStreamSynchronize)(void *);
  int (*cuMemcpyHtoDAsync_v2)(gpu_address, const void *, size_t, void *);
  int (*cuMemcpyDtoHAsync_v2)(void *, gpu_address, size_t, void *);
  int (*cuMemHostRegister_v2)(void *, size_t, unsigned);
  int (*cuMemHostUnregister)(void *);
  int (*cuMemHostGetDevicePointer_v2)(gpu_address *, void *, unsigned);
  int (*cuMemHostAlloc)(void **, size_t, unsigned);
  int (*cuPointerGetAttribute)(void *, int, gpu_address);
  int (*cuStreamWriteValue64_v2)(void *, gpu_address, uint64_t, unsigned);
  int (*cuMemcpy2DAsync_v2)(const void *, void *);
} cu;

struct copy2d { /* CUDA_MEMCPY2D_v2 */
  size_t sx, sy; int st; const void *sh; gpu_address sd; void *sa; size_t sp;
  size_t dx, dy; int dt; void *dh; gpu_address dd; void *da; size_t dp;
  size_t w, h;
};

#define RING 65536 /* largest write that goes through the ring of bounce buffers */
#define SLOT (2 * RING)
#define SLOTS 64
#define CONTROL (1u << 20) /* largest size of control words */
#define LOWEST 0x50000000ull
#define BELOW 0x180000000ull

static void *context, *stream;
static char *ring;
static int slot;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_host = LOWEST;
static struct gdr only;

gdr_t gdr_open(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return NULL;
#define LOAD(name) if (!(*(void **)&cu.name = dlsym(driver, #name))) return NULL;
  LOAD(cuCtxGetCurrent) LOAD(cuCtxSetCurrent) LOAD(cuDevicePrimaryCtxRetain) LOAD(cuStreamCreateWithPriority)
  LOAD(cuStreamSynchronize) LOAD(cuMemcpyHtoDAsync_v2) LOAD(cuMemcpyDtoHAsync_v2) LOAD(cuMemHostRegister_v2)
  LOAD(cuMemHostUnregister) LOAD(cuMemHostGetDevicePointer_v2) LOAD(cuMemHostAlloc) LOAD(cuPointerGetAttribute)
  LOAD(cuStreamWriteValue64_v2) LOAD(cuMemcpy2DAsync_v2)
  return &only;
}

int gdr_close(gdr_t g) { (void)g; return 0; }
void gdr_runtime_get_version(int *major, int *minor) { *major = 2; *minor = 4; }
int gdr_driver_get_version(gdr_t g, int *major, int *minor) { (void)g; *major = 2; *minor = 4; return 0; }

static int begin(gpu_address at) {
  void *current = NULL;
  cu.cuCtxGetCurrent(&current);
  if (!context) {
    if (!current) {
      int device = 0;
      cu.cuPointerGetAttribute(&device, 9 /* DEVICE_ORDINAL */, at);
      if (cu.cuDevicePrimaryCtxRetain(&current, device)) return EIO;
    }
    context = current;
  }
  cu.cuCtxGetCurrent(&current);
  if (current != context && cu.cuCtxSetCurrent(context)) return EIO;
  if (!stream) {
    if (cu.cuStreamCreateWithPriority(&stream, 1 /* does not block on stream 0 */, -5)) return EIO;
    if (cu.cuMemHostAlloc((void **)&ring, (size_t)SLOT * SLOTS, 1)) return EIO;
  }
  return 0;
}

static int control_words(struct mapping *m) {
  void *at;
  do {
    at = mmap((void *)next_host, m->host_size, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0);
    next_host += (m->host_size + 0xffff) & ~0xffffull;
  } while (at == MAP_FAILED && next_host < BELOW);
  gpu_address seen = 0;
  if (at == MAP_FAILED || cu.cuMemHostRegister_v2(at, m->host_size, 3) ||
      cu.cuMemHostGetDevicePointer_v2(&seen, at, 0) || seen != (gpu_address)at || (uint64_t)at > m->address) return ENOMEM;
  m->host = at;
  return 0;
}

int gdr_pin_buffer(gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t space, gdr_mh_t *handle) {
  (void)g; (void)token; (void)space;
  pthread_mutex_lock(&lock);
  int error = begin(address);
  struct mapping *m = calloc(1, sizeof *m);
  m->address = address;
  m->size = size;
  m->host_size = size < RING ? RING : size;
  if (address >= LOWEST && address < next_host) {
    m->is_host = 1;
    m->host = (char *)address;
  } else if (!error && size <= CONTROL) {
    error = control_words(m);
  } else {
    m->host = (char *)0x10000; /* never followed: an offset only */
  }
  pthread_mutex_unlock(&lock);
  if (error) {
    fprintf(stderr, "gdrcopy_standin: %zu bytes at %lx cannot be pinned: %s\n", size, address, strerror(error));
    free(m);
    return error;
  }
  handle->handle = (unsigned long)m;
  return 0;
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle) {
  (void)g;
  struct mapping *m = (void *)handle.handle;
  if (!m->is_host && m->size <= CONTROL) {
    cu.cuMemHostUnregister(m->host);
    munmap(m->host, m->host_size);
  }
  free(m);
  return 0;
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_t *info) {
  (void)g;
  struct mapping *m = (void *)handle.handle;
  memset(info, 0, sizeof *info);
  info->va = m->is_host ? m->address : (uint64_t)m->host;
  info->mapped_size = m->is_host ? m->size : 1ull << 50;
  info->page_size = 65536;
  info->mapped = 1;
  info->mapping_type = 1;
  return 0;
}
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_t *info) { return gdr_get_info_v2(g, handle, info); }

int gdr_map(gdr_t g, gdr_mh_t handle, void **at, size_t size) {
  (void)g; (void)size;
  struct mapping *m = (void *)handle.handle;
  *at = (void *)m->address;
  return 0;
}
int gdr_unmap(gdr_t g, gdr_mh_t handle, void *at, size_t size) { (void)g; (void)handle; (void)at; (void)size; return 0; }

static int write_gpu(gpu_address to, char *from, size_t size) {
  if (size == 8 && !(to & 7)) {
    uint64_t value;
    memcpy(&value, from, 8);
    return cu.cuStreamWriteValue64_v2(stream, to, value, 0);
  }
  if (size > RING) {
    int error = cu.cuMemcpyHtoDAsync_v2(to, from, size, stream);
    return error ? error : cu.cuStreamSynchronize(stream);
  }
  /* through the ring without a wait: the signal that follows is written in the order of the stream; slot 0 is for reads */
  int error = 0;
  if (++slot == SLOTS) {
    slot = 1;
    if ((error = cu.cuStreamSynchronize(stream))) return error;
  }
  char *bounce = ring + (size_t)slot * SLOT;
  size_t half = size / 2;
  if (!half || size & 1) {
    memcpy(bounce, from, size);
    return cu.cuMemcpyHtoDAsync_v2(to, bounce, size, stream);
  }
  memcpy(bounce, from, half);
  memcpy(bounce + RING, from + half, half);
  struct copy2d two = {.st = 1, .sh = bounce, .sp = RING, .dt = 2, .dd = to, .dp = half, .w = half, .h = 2};
  return cu.cuMemcpy2DAsync_v2(&two, stream);
}

static int read_gpu(char *to, gpu_address from, size_t size) {
  int small = size <= RING;
  int error = cu.cuMemcpyDtoHAsync_v2(small ? ring : to, from, size, stream);
  if (!error) error = cu.cuStreamSynchronize(stream);
  if (!error && small) memcpy(to, ring, size);
  return error;
}

static int copy(struct mapping *m, char *mapped, char *host, size_t size, int writes) {
  int is_control = m->size <= CONTROL && mapped >= m->host && mapped < m->host + m->host_size;
  if (m->is_host || is_control) {
    if (writes) memcpy(mapped, host, size); else memcpy(host, mapped, size);
    __sync_synchronize();
    return 0;
  }
  gpu_address at = (gpu_address)mapped - m->address + (uint64_t)m->host;
  int error = 0;
  pthread_mutex_lock(&lock);
  void *current = NULL;
  cu.cuCtxGetCurrent(&current);
  if (current != context) error = cu.cuCtxSetCurrent(context);
  if (!error) error = writes ? write_gpu(at, host, size) : read_gpu(host, at, size);
  pthread_mutex_unlock(&lock);
  if (error) fprintf(stderr, "gdrcopy_standin: a copy of %zu bytes at %llx failed: CUDA error %d\n", size, at, error);
  return error ? EIO : 0;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *mapped, const void *host, size_t size) {
  return copy((void *)handle.handle, mapped, (char *)host, size, 1);
}
int gdr_copy_from_mapping(gdr_mh_t handle, void *host, const void *mapped, size_t size) {
  return copy((void *)handle.handle, (char *)mapped, host, size, 0);
}
