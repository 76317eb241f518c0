/* A library whose NVML functions do nothing but succeed: what calling costs by itself, through the loader and the caller's loop. */

typedef void *Handle;

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 8; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *gpu) { *gpu = gpu; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(Handle gpu, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle gpu, unsigned index, Handle *device) { *device = device; return 0; }
int nvmlDeviceGetName(Handle device, char *name, unsigned length) { return 0; }
int nvmlDeviceGetUUID(Handle device, char *uuid, unsigned length) { return 0; }
int nvmlDeviceGetMemoryInfo(Handle device, void *memory) { return 0; }
