/* cuda-load MIB [SECONDS]: takes so much memory of the first GPU and works on it for as long as its standard input is open, but no
 * longer than SECONDS (60). Prints `ready PID BYTES` once the first result is right.
 *
 * It needs neither a CUDA toolkit nor its headers: cc -O2 -o cuda-load cuda-load.c -ldl, and libcuda.so.1 where it runs. */

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Adds one to each word. */
static const char kernel[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry increment(.param .u64 words, .param .u32 count) {\n"
	"  .reg .pred %p; .reg .u32 %r<6>; .reg .u64 %rd<4>;\n"
	"  ld.param.u64 %rd1, [words]; ld.param.u32 %r1, [count];\n"
	"  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	"  setp.ge.u32 %p, %r5, %r1; @%p bra done;\n"
	"  cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd3, %rd1, %rd2;\n"
	"  ld.global.u32 %r2, [%rd3]; add.u32 %r2, %r2, 1; st.global.u32 [%rd3], %r2;\n"
	"done:\n  ret;\n}\n";

static void *cuda;

static void check(const char *what, int code) {
	if (code) {
		fprintf(stderr, "cuda-load: %s answered %d\n", what, code);
		exit(1);
	}
}

/* Calls a function of the driver's interface, and ends where it fails. */
#define CALL(name, ...) do { \
	int (*entry)() = (int (*)())dlsym(cuda, #name); \
	if (!entry) { fprintf(stderr, "cuda-load: libcuda has no %s\n", #name); exit(1); } \
	check(#name, entry(__VA_ARGS__)); \
} while (0)

int main(int count, char **arguments) {
	unsigned long long bytes = count > 1 ? strtoull(arguments[1], NULL, 10) << 20 : 0;
	time_t end = time(NULL) + (count > 2 ? atoi(arguments[2]) : 60);
	unsigned long long memory;
	void *context, *module, *function;
	unsigned words, first;
	int device;

	if (!bytes) {
		fprintf(stderr, "cuda-load MIB [SECONDS]\n");
		return 2;
	}
	if (!(cuda = dlopen("libcuda.so.1", RTLD_NOW))) {
		fprintf(stderr, "cuda-load: %s\n", dlerror());
		return 1;
	}
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuMemAlloc_v2, &memory, bytes);
	words = bytes / 4 < 1u << 28 ? bytes / 4 : 1u << 28;
	CALL(cuMemsetD32_v2, memory, 41, (size_t)words);
	CALL(cuModuleLoadData, &module, kernel);
	CALL(cuModuleGetFunction, &function, module, "increment");
	for (int round = 0;; round++) {
		void *parameters[] = { &memory, &words };
		struct pollfd input = { .fd = 0, .events = POLLIN | POLLHUP };
		CALL(cuLaunchKernel, function, (words + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
		CALL(cuCtxSynchronize);
		if (round == 0) {
			CALL(cuMemcpyDtoH_v2, &first, memory, (size_t)4);
			if (first != 42) {
				fprintf(stderr, "cuda-load: 41 + 1 is %u\n", first);
				return 1;
			}
			printf("ready %d %llu\n", (int)getpid(), bytes);
			fflush(stdout);
		}
		if (poll(&input, 1, 10) > 0 || time(NULL) >= end)
			return 0;
	}
}
