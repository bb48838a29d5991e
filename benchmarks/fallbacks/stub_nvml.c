/* A management library that tells of one GPU, where there is none. It leaves a mark when it was asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int asked(void) {
  const char* mark = getenv("HWCOMPAT_PLANTED");
  FILE* file = mark ? fopen(mark, "w") : NULL;
  if (file) fclose(file);
  return 0;
}

typedef struct { unsigned long long total, free, used; } Memory;

static int text(char* to, unsigned length, const char* from) {
  strncpy(to, from, length);
  return 0;
}

int nvmlInit_v2(void) { return asked(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return asked(); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* to, unsigned length) { return text(to, length, "999.99"); }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) { *handle = (void*)1; return index ? 2 : 0; }
int nvmlDeviceGetName(void* handle, char* to, unsigned length) { (void)handle; return text(to, length, "A GPU"); }
int nvmlDeviceGetUUID(void* handle, char* to, unsigned length) { (void)handle; return text(to, length, "GPU-0"); }
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  (void)handle;
  memory->total = 16ull << 30;
  memory->used = 0;
  memory->free = memory->total;
  return 0;
}
