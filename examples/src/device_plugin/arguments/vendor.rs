//! The flags of settings that may also be in the configuration file.

use std::str::FromStr;

use clap::Args;
use gpu_sharing::config::{
    AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, Imex, MigStrategy, PluginFlags,
};

use crate::vendor::parse_bool;

/// Settings that may also be in the configuration file.
#[derive(Debug, Clone, Args)]
pub(super) struct VendorArguments {
    /// What MIG devices are offered as: none, single or mixed [`MIG_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    mig_strategy: Option<MigStrategy>,

    /// Whether a node that cannot be read or offered, or a CDI file that cannot be written, ends the program at its start; if
    /// false, it is waited for; by default yes [`FAIL_ON_INIT_ERROR`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    fail_on_init_error: Option<bool>,

    /// Where plugin, MPS daemon and its clients meet on the host [`MPS_ROOT`]
    #[arg(long, value_name = "PATH")]
    mps_root: Option<String>,

    /// The root of the driver's files on the host; by default / [`NVIDIA_DRIVER_ROOT`]
    #[arg(long, alias = "nvidia-driver-root", value_name = "PATH")]
    driver_root: Option<String>,

    /// The root of the device nodes on the host; by default the driver root [`NVIDIA_DEV_ROOT`]
    #[arg(long, alias = "nvidia-dev-root", value_name = "PATH")]
    dev_root: Option<String>,

    /// Where the driver root is seen from here; by default /driver-root, or / if that is not there and the driver root is /
    /// [`DRIVER_ROOT_CTR_PATH`, `CONTAINER_DRIVER_ROOT`]
    #[arg(long, alias = "container-driver-root", value_name = "PATH")]
    driver_root_ctr_path: Option<String>,

    /// Whether containers get the devices of `GDRCopy` [`GDRCOPY_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    gdrcopy_enabled: Option<bool>,

    /// Whether containers get the devices of `GPUDirect` Storage [`GDS_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    gds_enabled: Option<bool>,

    /// Whether containers get the `InfiniBand` devices [`MOFED_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    mofed_enabled: Option<bool>,

    /// Where GPUs are looked for: auto, nvml or tegra, where the GPU of a Tegra machine is one device and needs no NVML; by default auto
    /// [`DEVICE_DISCOVERY_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    device_discovery_strategy: Option<DiscoveryStrategy>,

    /// Whether answers list device nodes too, for the kubelet's CPU manager [`PASS_DEVICE_SPECS`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pass_device_specs: Option<bool>,

    /// How containers are told their GPUs, several joined by commas: envvar, volume-mounts, cdi-annotations, cdi-cri; by
    /// default envvar [`DEVICE_LIST_STRATEGY`]
    #[arg(long, value_delimiter = ',', value_name = "STRATEGY")]
    device_list_strategy: Option<Vec<DeviceListStrategy>>,

    /// By which name containers are told their GPUs: uuid or index; by default uuid [`DEVICE_ID_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    device_id_strategy: Option<DeviceIdStrategy>,

    /// What the key of a CDI annotation begins with; by default cdi.k8s.io/ [`CDI_ANNOTATION_PREFIX`]
    #[arg(long, value_name = "PREFIX")]
    cdi_annotation_prefix: Option<String>,

    /// The hook program on the host that CDI files name; by default /usr/bin/nvidia-ctk [`NVIDIA_CDI_HOOK_PATH`,
    /// `NVIDIA_CTK_PATH`]
    #[arg(long, alias = "nvidia-ctk-path", value_name = "PATH")]
    nvidia_cdi_hook_path: Option<String>,

    /// How replicas lie on GPUs: distributed or packed; by default distributed [`SHARED_DEVICES_ALLOCATION_POLICY`]
    #[arg(long, value_name = "POLICY")]
    shared_devices_allocation_policy: Option<AllocationPolicy>,

    /// IMEX channels that every container gets: 0 or none [`IMEX_CHANNEL_IDS`]
    #[arg(long, value_name = "CHANNELS", value_parser = ImexChannels::from_str)]
    imex_channel_ids: Option<ImexChannels>,

    /// Whether a channel that is missing is an error [`IMEX_REQUIRED`]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    imex_required: Option<bool>,
}

impl VendorArguments {
    /// As settings.
    pub(super) fn flags(&self) -> Flags {
        Flags {
            mig_strategy: self.mig_strategy,
            fail_on_init_error: self.fail_on_init_error,
            mps_root: self.mps_root.clone(),
            nvidia_driver_root: self.driver_root.clone(),
            nvidia_dev_root: self.dev_root.clone(),
            gdrcopy_enabled: self.gdrcopy_enabled,
            gds_enabled: self.gds_enabled,
            mofed_enabled: self.mofed_enabled,
            device_discovery_strategy: self.device_discovery_strategy,
            plugin: PluginFlags {
                pass_device_specs: self.pass_device_specs,
                device_list_strategy: self.device_list_strategy.clone(),
                device_id_strategy: self.device_id_strategy,
                cdi_annotation_prefix: self.cdi_annotation_prefix.clone(),
                nvidia_ctk_path: self.nvidia_cdi_hook_path.clone(),
                container_driver_root: self.driver_root_ctr_path.clone(),
                shared_devices_allocation_policy: self.shared_devices_allocation_policy,
            },
            imex_channel_ids: self.imex_channel_ids.clone().map(|channels| channels.0),
            imex_required: self.imex_required,
            ..Flags::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ImexChannels(Vec<u32>);

impl FromStr for ImexChannels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Imex::parse_channels(text).map(Self)
    }
}
