/* The NVML calls of a whole inventory, in the order in which gpu-core makes them, and what they take.
 *
 * inventory LIBRARY ROUNDS: prints the nanoseconds of each round. What NVML answers is looked at only as far as the next call depends
 * on it. With ROUNDS 0 it makes them once and prints nothing: for a library that notes what it is asked. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *Handle;
typedef struct { unsigned start, size; } Placement;
typedef struct { unsigned id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; unsigned long long mib; } Profile;
typedef struct { unsigned id, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; } ComputeProfile;

static void *library;

static int function_not_found(void) { return 13; }

/* A driver may be too old for a function. */
static void *find(const char *name) {
	void *function = dlsym(library, name);
	return function ? function : (void *)function_not_found;
}

/* Each function is looked up once; all take words and pointers. */
typedef int (*Function)();
#define CALL(name, ...) ({ static Function name; if (!name) name = (Function)find(#name); name(__VA_ARGS__); })

enum { OK = 0, ENABLED = 1, GPUS = 64, LINKS = 64 };

static unsigned version(unsigned size, unsigned number) { return size | number << 24; }

static void fabric(Handle gpu) {
	unsigned char info[64] = { 0 };
	unsigned sizes[] = { 40, 36 };
	for (int i = 0; i < 2; i++) {
		unsigned which = version(sizes[i], 3 - i);
		memcpy(info, &which, sizeof which);
		int code = CALL(nvmlDeviceGetGpuFabricInfoV, gpu, info);
		if (code != 25 && code != 2)
			return;
	}
	CALL(nvmlDeviceGetGpuFabricInfo, gpu, info);
}

static void links(Handle gpu) {
	for (unsigned link = 0; link < LINKS; link++) {
		unsigned active, kind;
		unsigned char pci[68];
		if (CALL(nvmlDeviceGetNvLinkState, gpu, link, &active) != OK)
			return;
		CALL(nvmlDeviceGetNvLinkRemoteDeviceType, gpu, link, &kind);
		CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu, link, pci);
	}
}

static void names(Handle gpu, unsigned profile) {
	/* The third version of the struct, and where its name is empty the second. */
	struct { unsigned version, fields[10]; unsigned long long mib; char name[96]; unsigned capabilities; } third = { 0 };
	struct { unsigned version, fields[10]; unsigned long long mib; char name[96]; } second = { 0 };
	third.version = version(sizeof third, 3);
	int code = CALL(nvmlDeviceGetGpuInstanceProfileInfoV, gpu, profile, &third);
	if ((code == OK && !third.name[0]) || code == 25 || code == 2) {
		second.version = version(sizeof second, 2);
		CALL(nvmlDeviceGetGpuInstanceProfileInfoV, gpu, profile, &second);
	}
}

static void compute_instances(Handle instance) {
	unsigned seen[16], known = 0;
	for (unsigned constant = 0; constant < 9; constant++) {
		ComputeProfile profile;
		if (CALL(nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, constant, 0, &profile) != OK)
			continue;
		int old = 0;
		for (unsigned i = 0; i < known; i++)
			old |= seen[i] == profile.id;
		if (old)
			continue;
		seen[known++] = profile.id;
		Handle found[64];
		unsigned count = profile.instances;
		if (CALL(nvmlGpuInstanceGetComputeInstances, instance, profile.id, found, &count) != OK)
			continue;
		for (unsigned i = 0; i < count; i++) {
			unsigned char info[64];
			CALL(nvmlComputeInstanceGetInfo_v2, found[i], info);
		}
	}
}

static void mig(Handle gpu) {
	unsigned current, pending, ids[18], most[18], profiles = 0;
	if (CALL(nvmlDeviceGetMigMode, gpu, &current, &pending) != OK)
		return;
	for (unsigned constant = 0; constant < 18; constant++) {
		Profile profile;
		if (CALL(nvmlDeviceGetGpuInstanceProfileInfo, gpu, constant, &profile) != OK)
			continue;
		names(gpu, constant);
		unsigned count = 0;
		if (CALL(nvmlDeviceGetGpuInstancePossiblePlacements_v2, gpu, profile.id, NULL, &count) == OK && count) {
			Placement places[64];
			CALL(nvmlDeviceGetGpuInstancePossiblePlacements_v2, gpu, profile.id, places, &count);
		}
		ids[profiles] = profile.id;
		most[profiles++] = profile.instances;
	}
	if (current != ENABLED)
		return;
	for (unsigned i = 0; i < profiles; i++) {
		Handle found[64];
		unsigned count = most[i];
		if (CALL(nvmlDeviceGetGpuInstances, gpu, ids[i], found, &count) != OK)
			continue;
		for (unsigned j = 0; j < count; j++) {
			unsigned char info[64];
			if (CALL(nvmlGpuInstanceGetInfo, found[j], info) == OK)
				compute_instances(found[j]);
		}
	}
	unsigned slots;
	if (CALL(nvmlDeviceGetMaxMigDeviceCount, gpu, &slots) != OK)
		return;
	for (unsigned slot = 0; slot < slots; slot++) {
		Handle device;
		if (CALL(nvmlDeviceGetMigDeviceHandleByIndex, gpu, slot, &device) != OK)
			continue;
		char text[96];
		unsigned id;
		unsigned char attributes[48];
		CALL(nvmlDeviceGetUUID, device, text, sizeof text);
		CALL(nvmlDeviceGetGpuInstanceId, device, &id);
		CALL(nvmlDeviceGetComputeInstanceId, device, &id);
		CALL(nvmlDeviceGetAttributes_v2, device, attributes);
		CALL(nvmlDeviceGetName, device, text, sizeof text);
	}
}

static void gpu(unsigned index, Handle *others) {
	Handle gpu;
	char text[96];
	unsigned one, two, three, four;
	unsigned long long many;
	unsigned char pci[68];
	struct { unsigned version; unsigned long long values[4]; } memory = { version(40, 2), { 0 } };
	unsigned mode[2] = { version(8, 1), 0 };
	if (CALL(nvmlDeviceGetHandleByIndex_v2, index, &gpu) != OK)
		exit(1);
	CALL(nvmlDeviceGetPciInfo_v3, gpu, pci);
	CALL(nvmlDeviceGetUUID, gpu, text, 96);
	CALL(nvmlDeviceGetMemoryInfo_v2, gpu, &memory);
	CALL(nvmlDeviceGetMinorNumber, gpu, &one);
	CALL(nvmlDeviceGetName, gpu, text, 96);
	CALL(nvmlDeviceGetBrand, gpu, &one);
	CALL(nvmlDeviceGetArchitecture, gpu, &one);
	CALL(nvmlDeviceGetCudaComputeCapability, gpu, &one, &two);
	CALL(nvmlDeviceGetNumaNodeId, gpu, &one);
	CALL(nvmlDeviceGetAddressingMode, gpu, mode);
	CALL(nvmlDeviceGetVirtualizationMode, gpu, &one);
	CALL(nvmlDeviceGetModuleId, gpu, &one);
	fabric(gpu);
	links(gpu);
	mig(gpu);
	if (CALL(nvmlDeviceGetEccMode, gpu, &one, &two) == OK) {
		CALL(nvmlDeviceGetTotalEccErrors, gpu, 1, 0, &many);
		CALL(nvmlDeviceGetTotalEccErrors, gpu, 1, 1, &many);
	}
	CALL(nvmlDeviceGetRemappedRows, gpu, &one, &two, &three, &four);
	CALL(nvmlDeviceGetRetiredPagesPendingStatus, gpu, &one);
	CALL(nvmlDeviceGetComputeMode, gpu, &one);
	CALL(nvmlDeviceGetPersistenceMode, gpu, &one);
	if (CALL(nvmlDeviceGetEnforcedPowerLimit, gpu, &one) == OK) {
		CALL(nvmlDeviceGetPowerManagementLimitConstraints, gpu, &one, &two);
		CALL(nvmlDeviceGetPowerManagementDefaultLimit, gpu, &one);
	}
	CALL(nvmlDeviceGetMaxPcieLinkGeneration, gpu, &one);
	CALL(nvmlDeviceGetMaxPcieLinkWidth, gpu, &one);
	CALL(nvmlDeviceGetSerial, gpu, text, 30);
	CALL(nvmlDeviceGetBoardPartNumber, gpu, text, 80);
	CALL(nvmlDeviceGetVbiosVersion, gpu, text, 32);
	for (unsigned other = 0; other < index; other++) {
		CALL(nvmlDeviceGetTopologyCommonAncestor, others[other], gpu, &one);
		for (unsigned way = 0; way < 3; way++)
			CALL(nvmlDeviceGetP2PStatus, others[other], gpu, way, &one);
	}
	others[index] = gpu;
}

static void inventory(void) {
	char text[96];
	unsigned branch[21] = { version(84, 1) }, cuda, count;
	Handle gpus[GPUS];
	CALL(nvmlSystemGetDriverVersion, text, 80);
	CALL(nvmlSystemGetDriverBranch, branch, 80);
	CALL(nvmlSystemGetNVMLVersion, text, 80);
	if (CALL(nvmlSystemGetCudaDriverVersion_v2, &cuda) != OK)
		CALL(nvmlSystemGetCudaDriverVersion, &cuda);
	if (CALL(nvmlDeviceGetCount_v2, &count) != OK || count > GPUS)
		exit(1);
	for (unsigned index = 0; index < count; index++)
		gpu(index, gpus);
}

int main(int count, char **arguments) {
	if (count != 3 || !(library = dlopen(arguments[1], RTLD_NOW))) {
		fprintf(stderr, "inventory LIBRARY ROUNDS: %s\n", count == 3 ? dlerror() : "usage");
		return 1;
	}
	if (CALL(nvmlInit_v2) != OK)
		return 1;
	inventory();
	for (int round = atoi(arguments[2]); round > 0; round--) {
		struct timespec start, end;
		clock_gettime(CLOCK_MONOTONIC, &start);
		inventory();
		clock_gettime(CLOCK_MONOTONIC, &end);
		printf("%lld\n", (end.tv_sec - start.tv_sec) * 1000000000ll + end.tv_nsec - start.tv_nsec);
	}
	return CALL(nvmlShutdown) != OK;
}
