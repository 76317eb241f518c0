"""The life of MIG instances, driven by NVIDIA's own Python binding. Expected values were measured on an H200."""

import os
from ctypes import byref, c_uint

import pynvml as nvml


def fails(code, function, *arguments):
    try:
        function(*arguments)
    except nvml.NVMLError as error:
        assert error.value == code, (function.__name__, error)
    else:
        raise AssertionError(f"{function.__name__} succeeded")


def profiles(gpu):
    """What the board offers, by NVML's constant."""
    found = {}
    for constant in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            found[constant] = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, constant)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            pass
    return found


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def placements(gpu, profile):
    count = c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.id, None, byref(count))
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.id, places, byref(count))
    return [(place.start, place.size) for place in places]


def mig_devices(gpu):
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nvml.NVMLError_NotFound:
            pass
    return found


def main():
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]

    offered = profiles(gpu)
    names = [text(profile.name) for profile in offered.values()]
    assert names == [
        "MIG 1g.18gb", "MIG 2g.35gb", "MIG 3g.71gb", "MIG 4g.71gb", "MIG 7g.141gb", "MIG 1g.18gb+me", "MIG 1g.35gb",
    ], names
    one, three = offered[0], offered[2]
    assert (one.id, one.memorySizeMB, one.multiprocessorCount) == (19, 16384, 16)
    assert placements(gpu, three) == [(0, 4), (4, 4)]
    fails(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceCreateGpuInstance, gpu, one.id)

    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert mig_devices(gpu) == []

    instance = nvml.nvmlDeviceCreateGpuInstance(gpu, three.id)
    info = nvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (1, 9, 4, 4)
    remaining = nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, one.id)
    assert remaining == 4, remaining
    compute = [nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0) for _ in range(3)]
    fails(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES, nvml.nvmlGpuInstanceCreateComputeInstance, instance, 0)
    full = nvml.nvmlDeviceCreateGpuInstance(gpu, offered[3].id)
    nvml.nvmlGpuInstanceCreateComputeInstance(full, 3)
    fails(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES, nvml.nvmlDeviceCreateGpuInstance, gpu, one.id)

    devices = mig_devices(gpu)
    names = [text(nvml.nvmlDeviceGetName(device)) for device in devices]
    assert names == ["NVIDIA H200 MIG 1c.3g.71gb"] * 3 + ["NVIDIA H200 MIG 4g.71gb"], names
    ids = [(nvml.nvmlDeviceGetGpuInstanceId(device), nvml.nvmlDeviceGetComputeInstanceId(device)) for device in devices]
    assert ids == [(1, 0), (1, 1), (1, 2), (2, 0)], ids
    uuids = [text(nvml.nvmlDeviceGetUUID(device)) for device in devices]
    assert len(set(uuids)) == 4 and all(uuid.startswith("MIG-") for uuid in uuids), uuids
    assert text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(uuids[3]))) == names[3]
    assert nvml.nvmlDeviceGetAttributes(devices[3]).gpuInstanceSliceCount == 4
    assert nvml.nvmlDeviceGetMemoryInfo(devices[3]).total == 71424 << 20
    whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(devices[0])
    assert text(nvml.nvmlDeviceGetUUID(whole)) == text(nvml.nvmlDeviceGetUUID(gpu))
    capabilities = os.path.join(os.environ["GPU_HOST_ROOT"], "proc/driver/nvidia/capabilities/gpu0/mig")
    assert sorted(os.listdir(capabilities)) == ["gi1", "gi2"]

    fails(nvml.NVML_ERROR_IN_USE, nvml.nvmlDeviceSetMigMode, gpu, 0)
    fails(nvml.NVML_ERROR_IN_USE, nvml.nvmlGpuInstanceDestroy, instance)
    for one_of_them in compute:
        nvml.nvmlComputeInstanceDestroy(one_of_them)
    nvml.nvmlGpuInstanceDestroy(instance)
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(full, 0))
    nvml.nvmlGpuInstanceDestroy(nvml.nvmlDeviceGetGpuInstanceById(gpu, 2))
    assert mig_devices(gpu) == [] and os.listdir(capabilities) == []
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == nvml.NVML_SUCCESS
    nvml.nvmlShutdown()
    print(f"nvidia-ml-py drove MIG on {len(offered)} profiles")


main()
