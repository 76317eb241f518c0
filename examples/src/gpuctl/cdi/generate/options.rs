//! What the flags ask for.

use std::collections::BTreeSet;

use anyhow::ensure;
use gpu_cdi::{GenerateOptions, HookName, Kind};

use super::{Generate, hook_program};
use crate::{
    cdi_feature::CdiFeature,
    program::{BadUsage, check_absolute},
};

impl Generate {
    pub(super) fn has(&self, feature: CdiFeature) -> bool {
        self.feature_flag.contains(&feature)
    }

    pub(super) fn options(&self) -> anyhow::Result<GenerateOptions> {
        let mut options = GenerateOptions::default();
        options.kind = Kind::new(&self.vendor, &self.class)
            .map_err(|error| BadUsage::new(format_args!("`--vendor` and `--class`: {error}")))?;
        options.names.clone_from(&self.device_name_strategy);
        options.all_device = !self.no_all_device;
        options.hook_path = hook_program::path(self.nvidia_cdi_hook_path.as_deref().unwrap_or_default());
        options.ldconfig_path = self.ldconfig_path.clone().filter(|path| !path.is_empty());
        if let Some(path) = &options.ldconfig_path {
            check_absolute("--ldconfig-path", path.strip_prefix('@').unwrap_or(path).as_ref())?;
        }
        options.disabled_hooks = self.disabled_hooks()?;
        options.libraries_32 = self.compat32;
        options.combined_hook = self.combined_hook;
        options.additional_gids = !self.has(CdiFeature::NoAdditionalGids);
        options.ipc_sockets = !self.has(CdiFeature::NoIpcSockets);
        options.coherent_annotations = self.has(CdiFeature::CoherentAnnotations);
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
