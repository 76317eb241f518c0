//! Words that others depend on.

/// Read by the vendor's container images: the folders of the driver libraries, separated by `:`.
pub const LIBCUDA_DIR: &str = "NVIDIA_CTK_LIBCUDA_DIR";

/// Read by the vendor's container runtime: the GPUs that a container gets.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The value of [`VISIBLE_DEVICES`] that has the vendor's runtime leave a container alone: the CDI file says it all.
pub const VISIBLE_DEVICES_VOID: &str = "void";

/// Read by the container runtimes, ours and the vendor's: `enabled` asks for what `GPUDirect` Storage needs.
pub const GDS: &str = "NVIDIA_GDS";

/// The same for `GDRCopy`.
pub const GDRCOPY: &str = "NVIDIA_GDRCOPY";

/// The same for Mellanox network cards.
pub const MOFED: &str = "NVIDIA_MOFED";

/// The same for the NVSwitch devices of the node.
pub const NVSWITCH: &str = "NVIDIA_NVSWITCH";

/// Read by the container runtimes: the IMEX channels that a container gets, by their numbers.
pub const IMEX_CHANNELS: &str = "NVIDIA_IMEX_CHANNELS";

/// Read by the container runtimes: images that say for which version of CUDA they are made, and nothing else, ask for all GPUs.
pub const CUDA_VERSION: &str = "CUDA_VERSION";

/// Read by the container runtimes: what newer images say beside [`CUDA_VERSION`].
pub const REQUIRE_CUDA: &str = "NVIDIA_REQUIRE_CUDA";

/// Read by the container runtimes: a mount of `/dev/null` beneath this folder names a device.
pub const DEVICE_MOUNTS: &str = "/var/run/nvidia-container-devices/";

/// Read by the hook program, ours and the vendor's: `true` has it tell what it does.
pub const DEBUG: &str = "NVIDIA_CTK_DEBUG";

/// The vendor of the kind of device that specs describe unless said otherwise.
pub const VENDOR: &str = "nvidia.com";

/// The class of the kind of device that specs describe unless said otherwise.
pub const CLASS: &str = "gpu";

/// The class of the kind of device that IMEX channels are.
pub const IMEX_CHANNEL_CLASS: &str = "imex-channel";

/// The device that is all others together.
pub const ALL: &str = "all";

/// The device that is none: a container gets the driver's libraries and no GPU.
pub const NONE: &str = "none";

/// The variable that a container gets with [`NONE`], which means nothing.
pub const EMPTY_DEVICE: &str = "NVCT_EMPTY_DEVICE";

/// The annotation of a device that says whether the GPU's memory is coherent with the processor's: `true` or `false`.
pub const COHERENT: &str = "gpu.nvidia.com/coherent";

/// The sub-command of the hook program that is more than one of the others.
pub const SEVERAL_HOOKS: &str = "several";

/// What stands between the hooks of [`SEVERAL_HOOKS`].
pub const NEXT_HOOK: &str = "--then";

/// Where the vendor's packages put the hook program.
pub const HOOK_PATH: &str = "/usr/bin/nvidia-cdi-hook";

/// The vendor's program whose sub-command `hook` is the hook program.
pub const HOOK_PARENT: &str = "nvidia-ctk";

/// The host's `ldconfig`, unless a spec names another.
pub const LDCONFIG_PATH: &str = "/sbin/ldconfig";

/// Where images have CUDA's compatibility libraries, unless a spec names another folder.
pub const CUDA_COMPAT_DIR: &str = "/usr/local/cuda/compat";

/// The driver's parameters, which its libraries read.
pub const PARAMS_PATH: &str = "/proc/driver/nvidia/params";
