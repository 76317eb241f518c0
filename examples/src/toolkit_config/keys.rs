//! Keys of the file that `gpu-toolkit` writes and `gpu-container-runtime` reads; `gpu_runtime_config::toolkit` has them all.

/// Whether the environment of a container that is not privileged counts.
pub(crate) const ACCEPT_ENVIRONMENT: &str = "accept-nvidia-visible-devices-envvar-when-unprivileged";
/// Whether mounts count.
pub(crate) const ACCEPT_MOUNTS: &str = "accept-nvidia-visible-devices-as-volume-mounts";
/// The root of the driver's files.
pub(crate) const DRIVER_ROOT: &str = "nvidia-container-cli.root";
/// The vendor's program for people, by which its runtime finds hooks.
pub(crate) const CTK_PATH: &str = "nvidia-ctk.path";
/// Whether the vendor's hook takes the mode as given.
pub(crate) const SKIP_MODE_DETECTION: &str = "nvidia-container-runtime-hook.skip-mode-detection";
/// The log file.
pub(crate) const DEBUG: &str = "nvidia-container-runtime.debug";
/// How much is logged.
pub(crate) const LOG_LEVEL: &str = "nvidia-container-runtime.log-level";
/// How devices are given.
pub(crate) const MODE: &str = "nvidia-container-runtime.mode";
/// The low-level runtimes.
pub(crate) const RUNTIMES: &str = "nvidia-container-runtime.runtimes";
/// The folders with CDI files.
pub(crate) const SPEC_DIRS: &str = "nvidia-container-runtime.modes.cdi.spec-dirs";
/// The kind of devices that are named without one.
pub(crate) const DEFAULT_KIND: &str = "nvidia-container-runtime.modes.cdi.default-kind";
/// What annotations begin with that name devices.
pub(crate) const ANNOTATION_PREFIXES: &str = "nvidia-container-runtime.modes.cdi.annotation-prefixes";
