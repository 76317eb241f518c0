//! Names that CUDA, the vendor's programs and ours go by.

/// Where daemon and clients meet; read by both.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Where the daemon logs; read by the daemon.
pub const LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";

/// Which GPUs the daemon serves; read by the daemon.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// How CUDA numbers GPUs; read by the daemon.
pub const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";

/// The value of [`DEVICE_ORDER`] with which CUDA numbers GPUs as NVML does.
pub const PCI_ORDER: &str = "PCI_BUS_ID";

/// The share of a GPU's threads that a client may use, in per cent; read by CUDA in a client.
pub const ACTIVE_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The memory that a client may take of each GPU; read by CUDA in a client.
pub const PINNED_DEVICE_MEM_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// The program that is the daemon, and that sends it commands.
pub const CONTROL: &str = "nvidia-cuda-mps-control";

/// The file in the pipe folder that says the daemon's process number; the daemon writes it.
pub const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// Where daemon, device plugin and clients see the MPS root.
pub const CONTAINER_ROOT: &str = "/mps";

/// Where clients and servers share memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The `SELinux` label with which an unprivileged container may use a folder.
pub const CONTAINER_LABEL: &str = "system_u:object_r:container_file_t:s0";
