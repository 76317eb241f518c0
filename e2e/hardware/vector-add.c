/*
 * Adds two vectors on the first GPU and checks each sum: the least that shows that CUDA works where this runs.
 *
 * It needs no CUDA toolkit, neither to build nor to run: the kernel is PTX, which the driver compiles, and the driver's
 * library is opened by its name, as every CUDA program does. `cc -O2 -o vector-add vector-add.c -ldl`
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, BLOCK = 256 };

/* c[i] = a[i] + b[i] for i < n */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n"
	"	.reg .pred p;\n"
	"	.reg .u32 i, count, block, size, thread;\n"
	"	.reg .u64 at, from, sum;\n"
	"	.reg .f32 x, y;\n"
	"	ld.param.u32 count, [n];\n"
	"	mov.u32 block, %ctaid.x;\n"
	"	mov.u32 size, %ntid.x;\n"
	"	mov.u32 thread, %tid.x;\n"
	"	mad.lo.u32 i, block, size, thread;\n"
	"	setp.ge.u32 p, i, count;\n"
	"	@p bra end;\n"
	"	mul.wide.u32 at, i, 4;\n"
	"	ld.param.u64 from, [a];\n"
	"	cvta.to.global.u64 from, from;\n"
	"	add.u64 from, from, at;\n"
	"	ld.global.f32 x, [from];\n"
	"	ld.param.u64 from, [b];\n"
	"	cvta.to.global.u64 from, from;\n"
	"	add.u64 from, from, at;\n"
	"	ld.global.f32 y, [from];\n"
	"	add.f32 x, x, y;\n"
	"	ld.param.u64 sum, [c];\n"
	"	cvta.to.global.u64 sum, sum;\n"
	"	add.u64 sum, sum, at;\n"
	"	st.global.f32 [sum], x;\n"
	"end:\n"
	"	ret;\n"
	"}\n";

typedef unsigned long long device_pointer;

static void *library;

static void *find(const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "vector-add: libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return function;
}

static void check(const char *call, int result)
{
	if (result != 0) {
		fprintf(stderr, "vector-add: %s: CUDA error %d\n", call, result);
		exit(1);
	}
}

#define CALL(name, types, ...) check(#name, ((int (*) types)find(#name))(__VA_ARGS__))

int main(void)
{
	static float a[COUNT], b[COUNT], c[COUNT];
	size_t bytes = sizeof(a);
	int device, count = 0;
	unsigned n = COUNT;
	char name[256] = "";
	void *context, *module, *kernel;
	device_pointer on_device[3];

	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "vector-add: %s\n", dlerror());
		return 1;
	}
	for (int i = 0; i < COUNT; i++) {
		a[i] = (float)i;
		b[i] = (float)(2 * i + 1);
		c[i] = -1.0f;
	}
	CALL(cuInit, (unsigned), 0);
	CALL(cuDeviceGetCount, (int *), &count);
	CALL(cuDeviceGet, (int *, int), &device, 0);
	CALL(cuDeviceGetName, (char *, int, int), name, sizeof(name), device);
	CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, device);
	CALL(cuModuleLoadData, (void **, const void *), &module, ptx);
	CALL(cuModuleGetFunction, (void **, void *, const char *), &kernel, module, "vector_add");
	for (int i = 0; i < 3; i++)
		CALL(cuMemAlloc_v2, (device_pointer *, size_t), &on_device[i], bytes);
	CALL(cuMemcpyHtoD_v2, (device_pointer, const void *, size_t), on_device[0], a, bytes);
	CALL(cuMemcpyHtoD_v2, (device_pointer, const void *, size_t), on_device[1], b, bytes);

	void *arguments[] = { &on_device[0], &on_device[1], &on_device[2], &n };

	CALL(cuLaunchKernel,
	     (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
	     kernel, COUNT / BLOCK, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL);
	CALL(cuCtxSynchronize, (void), );
	CALL(cuMemcpyDtoH_v2, (void *, device_pointer, size_t), c, on_device[2], bytes);
	for (int i = 0; i < COUNT; i++) {
		if (c[i] != a[i] + b[i]) {
			fprintf(stderr, "vector-add: element %d is %f and not %f\n", i, (double)c[i], (double)(a[i] + b[i]));
			return 1;
		}
	}
	printf("vector-add: %d sums are right on 1 of %d: %s\n", COUNT, count, name);
	return 0;
}
