//! What the flags ask for.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use gpu_cdi::{GenerateOptions, HookName, Kind};

use super::{Generate, hook_program};
use crate::program::BadUsage;

pub(super) const COHERENT: &str = "enable-coherent-annotations";
pub(super) const EXPLICIT: &str = "enable-explicit-driver-libraries";

impl Generate {
    pub(super) fn has_flag(&self, name: &str) -> bool {
        self.feature_flag.iter().any(|flag| flag == name)
    }

    pub(super) fn options(&self) -> anyhow::Result<GenerateOptions> {
        let mut options = GenerateOptions::default();
        options.kind = Kind::new(&self.vendor, &self.class)
            .map_err(|error| BadUsage::new(format_args!("`--vendor` and `--class`: {error}")))?;
        options.names.clone_from(&self.device_name_strategy);
        options.all_device = !self.no_all_device;
        options.hook_path = hook_program::path(self.nvidia_cdi_hook_path.as_deref().unwrap_or_default());
        options.ldconfig_path = self.ldconfig_path.clone().filter(|path| !path.is_empty());
        options.disabled_hooks = self.disabled_hooks()?;
        options.libraries_32 = self.compat32;
        options.combined_hook = self.combined_hook;
        for flag in self.feature_flag.iter().filter(|flag| !flag.is_empty()) {
            match flag.as_str() {
                "no-additional-gids-for-device-nodes" => options.additional_gids = false,
                "disable-ipc-discoverer" => options.ipc_sockets = false,
                COHERENT => options.coherent_annotations = true,
                // The first is read where the driver root is searched. What the others ask for is so anyway: the library they
                // turn off is not used, groups are added, and mode csv has one device.
                EXPLICIT
                | "disable-nvsandboxutils"
                | "allow-additional-gids-for-device-nodes"
                | "disable-multiple-csv-devices" => {}
                other => bail!(BadUsage::new(format_args!(
                    "`--feature-flag`: `{other}` is not supported"
                ))),
            }
        }
        Ok(options)
    }

    fn disabled_hooks(&self) -> anyhow::Result<BTreeSet<HookName>> {
        let enabled = self.enable_hook.join(",");
        ensure!(
            enabled.split(',').all(|name| name.trim() != "all"),
            BadUsage::new("`--enable-hook` takes names of hooks, not `all`")
        );
        let enabled = hooks("--enable-hook", &enabled)?;
        ensure!(
            !enabled.contains(&HookName::Chmod),
            BadUsage::new("`--enable-hook`: hook `chmod` is in no spec and cannot be enabled")
        );
        let disabled = hooks("--disable-hook", &self.disable_hook.join(","))?;
        Ok(disabled.difference(&enabled).copied().collect())
    }
}

fn hooks(flag: &str, names: &str) -> anyhow::Result<BTreeSet<HookName>> {
    let bad = |error| BadUsage::new(format_args!("`{flag}`: {error}"));
    Ok(HookName::parse_list(names).map_err(bad)?)
}
