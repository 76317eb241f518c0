//! Machines whose GPUs are not found in NVML alone.

use std::{fs, path::Path};

use anyhow::bail;
use gpu_sharing::config::DiscoveryStrategy;

/// Refuses a machine of the kinds that the vendor's program looks for with `auto`, and that are not supported here: whose GPUs
/// belong to Windows (WSL), or are a part of a Tegra without NVML. What follows would be misleading there.
///
/// With `nvml` nothing is looked for.
pub(super) fn check(
    strategy: DiscoveryStrategy,
    host_root: &Path,
    has_nvml: impl FnOnce() -> bool,
) -> anyhow::Result<()> {
    if strategy != DiscoveryStrategy::Auto {
        return Ok(());
    }
    let dxg = host_root.join("dev/dxg");
    if dxg.exists() {
        bail!(
            "there is `{}`: GPUs of Windows' subsystem for Linux are not supported",
            dxg.display()
        );
    }
    if is_tegra(host_root) && !has_nvml() {
        bail!("this is a Tegra machine without NVML, whose GPU is not supported");
    }
    Ok(())
}

/// As the vendor's program tells them (go-nvlib v0.12.0, `pkg/nvlib/info`).
fn is_tegra(host_root: &Path) -> bool {
    let family = fs::read_to_string(host_root.join("sys/devices/soc0/family")).unwrap_or_default();
    host_root.join("etc/nv_tegra_release").exists() || family.to_ascii_lowercase().starts_with("tegra")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_other_kinds_are_refused_by_name() {
        #[track_caller]
        fn check(file: &str, text: &str, has_nvml: bool, says: Option<&str>) {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            let done = super::check(DiscoveryStrategy::Auto, root.path(), || has_nvml);
            let error = done.err().map(|error| error.to_string());
            match says {
                None => assert_eq!(error, None),
                Some(says) => assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{error:?}"),
            }
            super::check(DiscoveryStrategy::Nvml, root.path(), || has_nvml).unwrap();
        }
        check("dev/dxg", "", true, Some("dev/dxg`: GPUs of Windows'"));
        check("etc/nv_tegra_release", "", false, Some("Tegra"));
        check("etc/nv_tegra_release", "", true, None);
        check("sys/devices/soc0/family", "Tegra\n", false, Some("Tegra"));
        check("sys/devices/soc0/family", "i.MX\n", false, None);
    }
}
