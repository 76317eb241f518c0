//! The flags of `gpuctl cdi generate`.

use std::path::PathBuf;

use clap::Args;
use gpu_cdi::{NameStrategy, ORIN_COMPAT_DIR, TegraConfig};

use super::mode::Mode;
use crate::{cdi_feature::CdiFeature, gpuctl::cdi::output::Notation, names, vendor};

/// The flags and variables of `nvidia-ctk cdi generate` (v1.20).
#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Generate {
    /// Where the spec is written [default: standard output]
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", value_name = "PATH")]
    pub(super) output: Option<PathBuf>,

    /// Its notation [default: as the extension of the output says, else yaml]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT", value_enum)]
    pub(super) format: Option<Notation>,

    /// What is described
    #[arg(
        long,
        alias = "discovery-mode",
        env = "NVIDIA_CTK_CDI_GENERATE_MODE",
        value_enum,
        default_value = "auto"
    )]
    pub(super) mode: Mode,

    /// The GPUs and MIG devices, by index (0, 0:1) or UUID, or the IMEX channels, with commas between them or the flag given
    /// again; `all` for all that there are, `none` for a device with the driver and no GPU
    #[arg(
        long,
        visible_alias = "device",
        alias = "device-ids",
        alias = "devices",
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS",
        value_delimiter = ',',
        default_value = "all",
        value_name = "ID"
    )]
    pub(super) device_id: Vec<String>,

    /// How GPUs and MIG devices are named, each name making one device
    #[arg(
        long,
        alias = "device-name-strategies",
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES",
        value_delimiter = ',',
        default_values = ["index", "uuid"],
        value_name = "index|type-index|uuid"
    )]
    pub(super) device_name_strategy: Vec<NameStrategy>,

    /// Leaves out the device `all`, which is all that the file describes: needed where another file beside it describes other
    /// devices of this kind and has one too, as nobody could use a device of two files
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) no_all_device: bool,

    /// The vendor part of the kind
    #[arg(long, alias = "cdi-vendor", default_value = "nvidia.com")]
    pub(super) vendor: String,

    /// The class part of the kind
    #[arg(long, alias = "cdi-class", default_value = "gpu")]
    pub(super) class: String,

    /// The root of the driver's files [default: `nvidia-container-cli.root` of the toolkit's configuration, else /]
    #[arg(long, env = names::DRIVER_ROOT, value_name = "PATH")]
    pub(super) driver_root: Option<PathBuf>,

    /// The root of the device nodes [default: the driver root]
    #[arg(long, env = "NVIDIA_CTK_DEV_ROOT", value_name = "PATH")]
    pub(super) dev_root: Option<PathBuf>,

    /// Folders to look for libraries in, in place of the usual ones
    #[arg(
        long,
        alias = "library-search-paths",
        env = "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    pub(super) library_search_path: Vec<PathBuf>,

    /// Folders to look for configuration files in, in place of the usual ones
    #[arg(
        long,
        alias = "config-search-paths",
        env = "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    pub(super) config_search_path: Vec<PathBuf>,

    /// The hook program on the host [default: nvidia-cdi-hook as found in PATH, else /usr/bin/nvidia-cdi-hook]
    #[arg(
        long,
        alias = "nvidia-ctk-path",
        env = "NVIDIA_CTK_CDI_HOOK_PATH",
        value_name = "PATH"
    )]
    pub(super) nvidia_cdi_hook_path: Option<String>,

    /// The host's ldconfig, for the hook that calls it [default: the hook's own]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH", value_name = "PATH")]
    pub(super) ldconfig_path: Option<String>,

    /// Hooks to leave out: create-symlinks, enable-cuda-compat, update-ldcache, disable-device-node-modification,
    /// update-application-profile; `all` for all
    #[arg(
        long,
        alias = "disable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS",
        value_name = "NAMES"
    )]
    pub(super) disable_hook: Vec<String>,

    /// Hooks to keep that `--disable-hook` would leave out
    #[arg(
        long,
        alias = "enable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS",
        value_name = "NAMES"
    )]
    pub(super) enable_hook: Vec<String>,

    /// In mode csv: the files that name what a container gets
    #[arg(long = "csv.file", value_delimiter = ',', value_name = "PATH", default_values = TegraConfig::FILES)]
    pub(super) csv_file: Vec<PathBuf>,

    /// In mode csv: paths that are not mounted, or names where the pattern has no slash
    #[arg(long = "csv.ignore-pattern", value_delimiter = ',', value_name = "PATTERN")]
    pub(super) csv_ignore_pattern: Vec<String>,

    /// In mode csv: where images have the compatibility libraries for Orin
    #[arg(long = "csv.compat-container-root", value_name = "PATH", default_value = ORIN_COMPAT_DIR)]
    pub(super) csv_compat_container_root: String,

    /// Has one hook do the work of all; the hook program must be gpu-cdi-hook (an addition of this program)
    #[arg(long)]
    pub(super) combined_hook: bool,

    /// Mounts the driver's libraries for 32-bit programs too (an addition of this program)
    #[arg(long)]
    pub(super) compat32: bool,

    /// The vendor's switches: enable-explicit-driver-libraries, enable-coherent-annotations,
    /// no-additional-gids-for-device-nodes, disable-ipc-discoverer; and those that ask for what is so anyway:
    /// allow-additional-gids-for-device-nodes, disable-nvsandboxutils, disable-multiple-csv-devices
    #[arg(
        long,
        alias = "feature-flags",
        env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub(super) feature_flag: Vec<CdiFeature>,

    /// The toolkit's configuration file, for the driver root [default: .config/nvidia-container-runtime/config.toml beside this program if it is
    /// there, else nvidia-container-runtime/config.toml in `XDG_CONFIG_HOME` or /etc]
    #[arg(long, env = names::TOOLKIT_CONFIG_FILE, value_name = "PATH")]
    pub(super) config: Option<PathBuf>,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, value_name = "PATH", env = names::NVML_LIBRARY)]
    pub(super) nvml_library: Option<PathBuf>,

    /// Where the host's /sys and /proc are (an addition of this program)
    #[arg(long, value_name = "PATH", env = names::HOST_ROOT, default_value = "/")]
    pub(super) host_root: PathBuf,
}
