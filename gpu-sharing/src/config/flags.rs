use std::{ffi::OsString, fmt, str::FromStr};

use serde::Serialize;

use super::{
    AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Error, Imex, Interval, MigStrategy,
    Result,
    document::Value,
    key::{Field, Map, Walk},
    strategy::go_bool,
};

/// The settings that can be flags, environment variables or lines of the file, as far as somebody wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "`Config` documents what each means")]
pub struct Flags {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_strategy: Option<MigStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_on_init_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mps_root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvidia_driver_root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvidia_dev_root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gdrcopy_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gds_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mofed_enabled: Option<bool>,
    #[serde(rename = "useNodeFeatureAPI", skip_serializing_if = "Option::is_none")]
    pub use_node_feature_api: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_discovery_strategy: Option<DiscoveryStrategy>,
    #[serde(skip_serializing_if = "is_default")]
    pub plugin: PluginFlags,
    #[serde(skip_serializing_if = "is_default")]
    pub gfd: GfdFlags,
    /// Not in this section of a file: there it is `imex` at the top.
    #[serde(skip)]
    pub imex_channel_ids: Option<Vec<u32>>,
    /// Likewise.
    #[serde(skip)]
    pub imex_required: Option<bool>,
}

/// What only the device plugin reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "`Plugin` documents what each means")]
pub struct PluginFlags {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass_device_specs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_list_strategy: Option<Vec<DeviceListStrategy>>,
    #[serde(rename = "deviceIDStrategy", skip_serializing_if = "Option::is_none")]
    pub device_id_strategy: Option<DeviceIdStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdi_annotation_prefix: Option<String>,
    #[serde(rename = "nvidiaCTKPath", skip_serializing_if = "Option::is_none")]
    pub nvidia_ctk_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_driver_root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_devices_allocation_policy: Option<AllocationPolicy>,
}

/// What only feature discovery reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "`Gfd` documents what each means")]
pub struct GfdFlags {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oneshot: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_timestamp: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep_interval: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type_file: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Which program reads the settings: each has its own environment variables, and accepts its own values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `nvidia-device-plugin`.
    DevicePlugin,
    /// `gpu-feature-discovery`.
    FeatureDiscovery,
    /// `mps-control-daemon`.
    MpsDaemon,
}

impl Flags {
    /// These settings, and where they say nothing those of `lower`.
    #[must_use]
    pub fn or(self, lower: Self) -> Self {
        Self {
            mig_strategy: self.mig_strategy.or(lower.mig_strategy),
            fail_on_init_error: self.fail_on_init_error.or(lower.fail_on_init_error),
            mps_root: self.mps_root.or(lower.mps_root),
            nvidia_driver_root: self.nvidia_driver_root.or(lower.nvidia_driver_root),
            nvidia_dev_root: self.nvidia_dev_root.or(lower.nvidia_dev_root),
            gdrcopy_enabled: self.gdrcopy_enabled.or(lower.gdrcopy_enabled),
            gds_enabled: self.gds_enabled.or(lower.gds_enabled),
            mofed_enabled: self.mofed_enabled.or(lower.mofed_enabled),
            use_node_feature_api: self.use_node_feature_api.or(lower.use_node_feature_api),
            device_discovery_strategy: self.device_discovery_strategy.or(lower.device_discovery_strategy),
            plugin: self.plugin.or(lower.plugin),
            gfd: self.gfd.or(lower.gfd),
            imex_channel_ids: self.imex_channel_ids.or(lower.imex_channel_ids),
            imex_required: self.imex_required.or(lower.imex_required),
        }
    }

    /// The variables that a program reads of an environment, which is asked for each: [`std::env::var_os`] is that of the process.
    ///
    /// A variable that is empty counts as not set, except the two of feature discovery for which emptiness means something:
    /// its output file (standard output) and its machine file (none).
    ///
    /// # Errors
    /// Where a value cannot be understood or is not UTF-8, with the variable's name. Other variables may hold anything.
    pub fn from_environment(program: Program, environment: impl Fn(&'static str) -> Option<OsString>) -> Result<Self> {
        let env = Environment(&environment);
        let plugin = program == Program::DevicePlugin;
        let gfd = program == Program::FeatureDiscovery;
        let on = |wanted: bool, names: &[&'static str]| if wanted { env.bool(names) } else { Ok(None) };
        Ok(Self {
            mig_strategy: env.parsed(if gfd {
                &["GFD_MIG_STRATEGY", "MIG_STRATEGY"]
            } else {
                &["MIG_STRATEGY"]
            })?,
            fail_on_init_error: if gfd {
                env.bool(&["GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"])?
            } else {
                on(plugin, &["FAIL_ON_INIT_ERROR"])?
            },
            mps_root: env.text(plugin, &["MPS_ROOT"])?,
            nvidia_driver_root: env.text(plugin, &["NVIDIA_DRIVER_ROOT"])?,
            nvidia_dev_root: env.text(plugin, &["NVIDIA_DEV_ROOT"])?,
            gdrcopy_enabled: on(plugin, &["GDRCOPY_ENABLED"])?,
            gds_enabled: on(plugin, &["GDS_ENABLED"])?,
            mofed_enabled: on(plugin, &["MOFED_ENABLED"])?,
            use_node_feature_api: on(gfd, &["GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"])?,
            device_discovery_strategy: if plugin || gfd {
                env.parsed(&["DEVICE_DISCOVERY_STRATEGY"])?
            } else {
                None
            },
            plugin: PluginFlags::from_environment(&env, program)?,
            gfd: if gfd {
                GfdFlags::from_environment(&env)?
            } else {
                GfdFlags::default()
            },
            imex_channel_ids: if plugin {
                env.with(&["IMEX_CHANNEL_IDS"], Imex::parse_channels)?
            } else {
                None
            },
            imex_required: on(plugin, &["IMEX_REQUIRED"])?,
        })
    }

    pub(super) fn read(map: &Map<'_>, walk: &mut Walk) -> Result<Self> {
        let plugin = match map.get("plugin") {
            Some(field) => walk.map(field.node, "flags.plugin", &field.path)?,
            None => None,
        };
        let gfd = match map.get("gfd") {
            Some(field) => walk.map(field.node, "flags.gfd", &field.path)?,
            None => None,
        };
        Ok(Self {
            mig_strategy: map.parsed("migStrategy")?,
            fail_on_init_error: map.bool("failOnInitError")?,
            mps_root: map.text("mpsRoot")?,
            nvidia_driver_root: map.text("nvidiaDriverRoot")?,
            nvidia_dev_root: map.text("nvidiaDevRoot")?,
            gdrcopy_enabled: map.bool("gdrcopyEnabled")?,
            gds_enabled: map.bool("gdsEnabled")?,
            mofed_enabled: map.bool("mofedEnabled")?,
            use_node_feature_api: map.bool("useNodeFeatureAPI")?,
            device_discovery_strategy: map.parsed("deviceDiscoveryStrategy")?,
            plugin: plugin
                .map(|map| PluginFlags::read(&map))
                .transpose()?
                .unwrap_or_default(),
            gfd: gfd.map(|map| GfdFlags::read(&map)).transpose()?.unwrap_or_default(),
            imex_channel_ids: None,
            imex_required: None,
        })
    }
}

impl PluginFlags {
    fn or(self, lower: Self) -> Self {
        Self {
            pass_device_specs: self.pass_device_specs.or(lower.pass_device_specs),
            device_list_strategy: self.device_list_strategy.or(lower.device_list_strategy),
            device_id_strategy: self.device_id_strategy.or(lower.device_id_strategy),
            cdi_annotation_prefix: self.cdi_annotation_prefix.or(lower.cdi_annotation_prefix),
            nvidia_ctk_path: self.nvidia_ctk_path.or(lower.nvidia_ctk_path),
            container_driver_root: self.container_driver_root.or(lower.container_driver_root),
            shared_devices_allocation_policy: self
                .shared_devices_allocation_policy
                .or(lower.shared_devices_allocation_policy),
        }
    }

    fn from_environment(env: &Environment<'_>, program: Program) -> Result<Self> {
        let root = |wanted| env.text(wanted, &["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"]);
        if program != Program::DevicePlugin {
            // Feature discovery has this flag of the plugin's, and the vendor's makes no use of it.
            return Ok(Self {
                container_driver_root: root(program == Program::FeatureDiscovery)?,
                ..Self::default()
            });
        }
        Ok(Self {
            pass_device_specs: env.bool(&["PASS_DEVICE_SPECS"])?,
            device_list_strategy: env.with(&["DEVICE_LIST_STRATEGY"], |text| {
                let words = text.split(',').map(|word| word.trim().parse::<DeviceListStrategy>());
                words.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
            })?,
            device_id_strategy: env.parsed(&["DEVICE_ID_STRATEGY"])?,
            cdi_annotation_prefix: env.text(true, &["CDI_ANNOTATION_PREFIX"])?,
            nvidia_ctk_path: env.text(true, &["NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"])?,
            container_driver_root: root(true)?,
            shared_devices_allocation_policy: env.parsed(&["SHARED_DEVICES_ALLOCATION_POLICY"])?,
        })
    }

    fn read(map: &Map<'_>) -> Result<Self> {
        Ok(Self {
            pass_device_specs: map.bool("passDeviceSpecs")?,
            device_list_strategy: map.get("deviceListStrategy").map(|field| lists(&field)).transpose()?,
            device_id_strategy: map.parsed("deviceIDStrategy")?,
            cdi_annotation_prefix: map.text("cdiAnnotationPrefix")?,
            nvidia_ctk_path: map.text("nvidiaCTKPath")?,
            container_driver_root: map.text("containerDriverRoot")?,
            shared_devices_allocation_policy: map.parsed("sharedDevicesAllocationPolicy")?,
        })
    }
}

/// One strategy, or a list of them.
fn lists(field: &Field<'_>) -> Result<Vec<DeviceListStrategy>> {
    let word = |field: &Field<'_>| match &field.node.value {
        Value::Text(word) => word.parse().map_err(|error| field.error(error)),
        _ => Err(field.error("invalid deviceListStrategy: expected a word")),
    };
    match &field.node.value {
        Value::List(list) if list.is_empty() => {
            Err(field.error("invalid deviceListStrategy: without a strategy no container would be told its devices"))
        }
        Value::List(_) => field.list()?.iter().map(word).collect(),
        Value::Text(_) => Ok(vec![word(field)?]),
        _ => Err(field.error("invalid deviceListStrategy: expected a word or a list of words")),
    }
}

impl GfdFlags {
    fn or(self, lower: Self) -> Self {
        Self {
            oneshot: self.oneshot.or(lower.oneshot),
            no_timestamp: self.no_timestamp.or(lower.no_timestamp),
            sleep_interval: self.sleep_interval.or(lower.sleep_interval),
            output_file: self.output_file.or(lower.output_file),
            machine_type_file: self.machine_type_file.or(lower.machine_type_file),
        }
    }

    fn from_environment(env: &Environment<'_>) -> Result<Self> {
        Ok(Self {
            oneshot: env.bool(&["GFD_ONESHOT"])?,
            no_timestamp: env.bool(&["GFD_NO_TIMESTAMP"])?,
            sleep_interval: env.parsed(&["GFD_SLEEP_INTERVAL"])?,
            output_file: env.get("GFD_OUTPUT_FILE")?,
            machine_type_file: env.get("GFD_MACHINE_TYPE_FILE")?,
        })
    }

    fn read(map: &Map<'_>) -> Result<Self> {
        let interval = |field: Field<'_>| match &field.node.value {
            Value::Integer(number) => Interval::from_nanoseconds(*number).map_err(|error| field.error(error)),
            Value::Text(text) => text.parse().map_err(|error| field.error(error)),
            _ => Err(field.error("expected a duration, as in `60s`")),
        };
        Ok(Self {
            oneshot: map.bool("oneshot")?,
            no_timestamp: map.bool("noTimestamp")?,
            sleep_interval: map.get("sleepInterval").map(interval).transpose()?,
            output_file: map.text("outputFile")?,
            machine_type_file: map.text("machineTypeFile")?,
        })
    }
}

struct Environment<'a>(&'a dyn Fn(&'static str) -> Option<OsString>);

impl Environment<'_> {
    fn get(&self, variable: &'static str) -> Result<Option<String>> {
        let value = (self.0)(variable).map(OsString::into_string).transpose();
        value.map_err(|value| Error::Environment {
            variable,
            value: value.to_string_lossy().into_owned(),
            reason: "it is not UTF-8".to_owned(),
        })
    }

    /// The first of these variables that is set and not empty.
    fn first(&self, names: &[&'static str]) -> Result<Option<(&'static str, String)>> {
        for name in names {
            if let Some(value) = self.get(name)?.filter(|value| !value.is_empty()) {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    fn text(&self, wanted: bool, names: &[&'static str]) -> Result<Option<String>> {
        let names = if wanted { names } else { &[] };
        Ok(self.first(names)?.map(|(_, value)| value))
    }

    fn bool(&self, names: &[&'static str]) -> Result<Option<bool>> {
        self.with(names, go_bool)
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&self, names: &[&'static str]) -> Result<Option<T>> {
        self.with(names, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    fn with<T>(&self, names: &[&'static str], parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>> {
        let Some((variable, value)) = self.first(names)? else {
            return Ok(None);
        };
        match parse(&value) {
            Ok(parsed) => Ok(Some(parsed)),
            Err(reason) => Err(Error::Environment {
                variable,
                value,
                reason,
            }),
        }
    }
}
