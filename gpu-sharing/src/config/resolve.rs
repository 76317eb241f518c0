use serde::Serialize;

use super::{
    AllocationPolicy, ConfigFile, DeviceIdStrategy, DeviceListStrategy, DeviceSelector, DiscoveryStrategy, Error,
    Flags, Imex, Interval, MigStrategy, ParseResourceNameError, Program, Replicas, ResourceName, Resources, Result,
    Shared, Sharing, UnknownWord, Warning, WrittenSharing,
};

/// What a configuration means: every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// What MIG devices are offered as; by default not at all.
    pub mig_strategy: MigStrategy,
    /// Whether a node without a working driver ends the program; by default yes.
    pub fail_on_init_error: bool,
    /// Where device plugin and MPS daemon meet on the host; by default nowhere.
    pub mps_root: Option<String>,
    /// The root of the driver's files on the host; `/` by default.
    pub nvidia_driver_root: String,
    /// The root of the device nodes on the host; the driver root by default.
    pub nvidia_dev_root: String,
    /// Whether containers get the devices of `GDRCopy`; by default not.
    pub gdrcopy_enabled: bool,
    /// Whether containers get the devices of `GPUDirect` Storage; by default not.
    pub gds_enabled: bool,
    /// Whether containers get the `InfiniBand` devices; by default not.
    pub mofed_enabled: bool,
    /// Whether labels go to a `NodeFeature` object rather than a file; by default yes.
    pub use_node_feature_api: bool,
    /// Where GPUs are looked for; by default wherever they are.
    pub device_discovery_strategy: DiscoveryStrategy,
    /// What only the device plugin reads.
    pub plugin: Plugin,
    /// What only feature discovery reads.
    pub gfd: Gfd,
    /// How devices are called. The rules of the file, if they were opted in; what none fits has its usual name.
    pub resources: Resources,
    /// How devices are shared.
    pub sharing: Sharing,
    /// Channels for memory shared between nodes.
    pub imex: Imex,
}

/// What only the device plugin reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plugin {
    /// Whether answers list device nodes too; by default not.
    pub pass_device_specs: bool,
    /// How containers are told their devices; by the environment variable by default.
    pub device_list_strategy: Vec<DeviceListStrategy>,
    /// By which name; the UUID by default.
    pub device_id_strategy: DeviceIdStrategy,
    /// The prefix of CDI annotations; `cdi.k8s.io/` by default.
    pub cdi_annotation_prefix: String,
    /// The program on the host that CDI files name; `/usr/bin/nvidia-ctk` by default.
    pub nvidia_ctk_path: String,
    /// Where the driver root is seen from the program; `/driver-root` by default.
    pub container_driver_root: String,
    /// How replicas lie on GPUs; by default on as many as there are.
    pub shared_devices_allocation_policy: AllocationPolicy,
}

/// What only feature discovery reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gfd {
    /// Whether it ends after one round; by default not.
    pub oneshot: bool,
    /// Whether the label with the time is left out; by default not.
    pub no_timestamp: bool,
    /// The time between two rounds; a minute by default.
    pub sleep_interval: Interval,
    /// The file that labels are written to; `None` for standard output.
    pub output_file: Option<String>,
    /// The file that names the machine's type; `None` for no such file.
    pub machine_type_file: Option<String>,
}

/// What a configuration may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether `resources`, `rename` and `devices` are honoured. The vendor's programs parse them and then warn that they do
    /// nothing; so by default do ours.
    pub naming: bool,
}

impl Default for Config {
    /// What an empty file means.
    fn default() -> Self {
        Self::resolve(ConfigFile::default(), Flags::default(), Options::default()).0
    }
}

impl Config {
    /// What a file, and flags and environment above it, mean.
    ///
    /// Flags come first: `command_line.or(environment)`. A flag of either beats the file.
    pub fn resolve(file: ConfigFile, flags: Flags, options: Options) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let flags = flags.or(file.flags);
        let filled = |path: Option<String>, default: &str| path.unwrap_or_else(|| default.to_owned());
        let nvidia_driver_root = filled(flags.nvidia_driver_root, "/");
        let resources = if options.naming || file.resources.is_empty() {
            file.resources
        } else {
            warnings.push(Warning::ResourcesIgnored);
            Resources::default()
        };
        let config = Self {
            mig_strategy: flags.mig_strategy.unwrap_or(MigStrategy::None),
            fail_on_init_error: flags.fail_on_init_error.unwrap_or(true),
            mps_root: flags.mps_root.filter(|root| !root.is_empty()),
            nvidia_dev_root: match flags.nvidia_dev_root {
                Some(root) if !root.is_empty() => root,
                _ => nvidia_driver_root.clone(),
            },
            nvidia_driver_root,
            gdrcopy_enabled: flags.gdrcopy_enabled.unwrap_or(false),
            gds_enabled: flags.gds_enabled.unwrap_or(false),
            mofed_enabled: flags.mofed_enabled.unwrap_or(false),
            use_node_feature_api: flags.use_node_feature_api.unwrap_or(true),
            device_discovery_strategy: flags.device_discovery_strategy.unwrap_or(DiscoveryStrategy::Auto),
            plugin: Plugin {
                pass_device_specs: flags.plugin.pass_device_specs.unwrap_or(false),
                device_list_strategy: flags
                    .plugin
                    .device_list_strategy
                    .unwrap_or_else(|| vec![DeviceListStrategy::EnvVar]),
                device_id_strategy: flags.plugin.device_id_strategy.unwrap_or(DeviceIdStrategy::Uuid),
                cdi_annotation_prefix: filled(flags.plugin.cdi_annotation_prefix, "cdi.k8s.io/"),
                nvidia_ctk_path: filled(flags.plugin.nvidia_ctk_path, "/usr/bin/nvidia-ctk"),
                container_driver_root: filled(flags.plugin.container_driver_root, "/driver-root"),
                shared_devices_allocation_policy: flags
                    .plugin
                    .shared_devices_allocation_policy
                    .unwrap_or(AllocationPolicy::Distributed),
            },
            gfd: Gfd {
                oneshot: flags.gfd.oneshot.unwrap_or(false),
                no_timestamp: flags.gfd.no_timestamp.unwrap_or(false),
                sleep_interval: flags
                    .gfd
                    .sleep_interval
                    .unwrap_or(Interval::Every(std::time::Duration::from_mins(1))),
                output_file: some(filled(
                    flags.gfd.output_file,
                    "/etc/kubernetes/node-feature-discovery/features.d/gfd",
                )),
                machine_type_file: some(filled(flags.gfd.machine_type_file, "/sys/class/dmi/id/product_name")),
            },
            resources,
            sharing: sharing(file.sharing, options, &mut warnings),
            imex: Imex {
                channel_ids: flags.imex_channel_ids.unwrap_or(file.imex.channel_ids),
                required: flags.imex_required.unwrap_or(file.imex.required),
            },
        };
        (config, warnings)
    }

    /// Whether a program can run with this configuration: what the vendor's refuses at its start, and what its containers could not
    /// start with.
    ///
    /// # Errors
    /// For a value or combination that the program does not take.
    pub fn check(&self, program: Program) -> Result<()> {
        let strategies: &[&str] = match program {
            Program::DevicePlugin => &["auto", "nvml", "tegra"],
            Program::FeatureDiscovery => &["auto", "nvml", "tegra", "vfio"],
            Program::MpsDaemon => return self.check_mig(),
        };
        let strategy = self.device_discovery_strategy.as_str();
        if !strategies.contains(&strategy) {
            let complaint = "invalid --device-discovery-strategy option";
            return Err(UnknownWord::new(complaint, strategy, strategies).into());
        }
        if program == Program::DevicePlugin {
            self.check_plugin()?;
        }
        Ok(())
    }

    /// What the device plugin would not offer, an MPS daemon does not serve.
    fn check_mig(&self) -> Result<()> {
        match (&self.sharing, self.mig_strategy) {
            (Sharing::Mps(_), MigStrategy::Mixed) => Err(Error::MpsWithMixedMig),
            _ => Ok(()),
        }
    }

    fn check_plugin(&self) -> Result<()> {
        self.check_mig()?;
        let by_mps = matches!(self.sharing, Sharing::Mps(_));
        let plugin = &self.plugin;
        if by_mps && self.mps_root.is_none() {
            Err(Error::MpsWithoutRoot)
        } else if !plugin.nvidia_ctk_path.starts_with('/') {
            let path = plugin.nvidia_ctk_path.clone();
            Err(Error::RelativeHookPath { path })
        } else if plugin.cdi_annotation_prefix.is_empty() {
            Err(Error::EmptyAnnotationPrefix)
        } else {
            Ok(())
        }
    }

    /// The resource that whole GPUs of a model are offered as.
    pub fn gpu_resource(&self, model: &str) -> ResourceName {
        let rule = self.resources.gpus.iter().find(|rule| rule.matches(model));
        rule.map_or_else(ResourceName::gpu, |rule| rule.name.clone())
    }

    /// The resource that MIG devices of a profile are offered as; `None` where MIG devices are not offered.
    ///
    /// # Errors
    /// Where no rule fits the profile and its name makes no resource's.
    pub fn mig_resource(&self, profile: &str) -> Result<Option<ResourceName>, ParseResourceNameError> {
        if self.mig_strategy == MigStrategy::None {
            return Ok(None);
        }
        match self.resources.mig.iter().find(|rule| rule.matches(profile)) {
            Some(rule) => Ok(Some(rule.name.clone())),
            None if self.mig_strategy == MigStrategy::Single => Ok(Some(ResourceName::gpu())),
            None => ResourceName::mig(profile).map(Some),
        }
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// MPS if it is there, else time-slicing: as the vendor's programs choose.
fn sharing(written: WrittenSharing, options: Options, warnings: &mut Vec<Warning>) -> Sharing {
    let mut shared = |section, replicas: Replicas, fail| {
        let resources = if options.naming {
            replicas.resources
        } else {
            default_naming(section, replicas, warnings)
        };
        Shared {
            fail_requests_greater_than_one: fail,
            resources,
        }
    };
    let fail = |replicas: &Replicas, default| replicas.fail_requests_greater_than_one.unwrap_or(default);
    let time_slicing = written.time_slicing.map(|replicas| {
        let fail = fail(&replicas, false);
        shared("timeSlicing", replicas, fail)
    });
    let mps = written.mps.map(|replicas| {
        let fail = fail(&replicas, true);
        shared("mps", replicas, fail)
    });
    match (time_slicing, mps) {
        (None, None) => Sharing::None,
        (Some(shared), None) => Sharing::TimeSlicing(shared),
        (None, Some(shared)) => Sharing::Mps(shared),
        (Some(_), Some(shared)) => {
            warnings.push(Warning::TimeSlicingIgnored);
            Sharing::Mps(shared)
        }
    }
}

/// All devices, under the resource's own name or its default one for replicas; a warning for each that says otherwise.
fn default_naming(
    section: &'static str,
    replicas: Replicas,
    warnings: &mut Vec<Warning>,
) -> Vec<super::SharedResource> {
    let by_default = replicas.rename_by_default;
    let mut resources = replicas.resources;
    let repeated = |n: &usize| {
        let (earlier, entry) = (&resources[..*n], &resources[*n]);
        // Of others it was said when the file was read.
        earlier.iter().any(|earlier| earlier.name == entry.name)
            && !earlier.iter().any(|earlier| entry.repeats(earlier))
    };
    let repeated: Vec<_> = (1..resources.len()).filter(repeated).collect();
    warnings.extend(repeated.into_iter().map(|n| Warning::SharedTwice {
        key: format!("sharing.{section}.resources[{n}]"),
        line: None,
        resource: resources[n].name.clone(),
    }));
    let (mut renamed, mut selected) = (false, false);
    for resource in &mut resources {
        // That this name fits was checked when the file was read, unless another one was written.
        let default = by_default.then(|| resource.name.shared().ok()).flatten();
        if resource.rename != default {
            renamed = true;
            resource.rename = default;
        }
        if resource.devices != DeviceSelector::All {
            selected = true;
            resource.devices = DeviceSelector::All;
        }
    }
    if renamed {
        warnings.push(Warning::RenameIgnored { section });
    }
    if selected {
        warnings.push(Warning::DevicesIgnored { section });
    }
    resources
}
