mod arguments;
mod hook_program;
mod mode;
mod options;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use gpu_cdi::{
    DiscoverConfig, DriverFiles, Error, GenerateOptions, Generated, ParseImexChannelError, Platform, PlatformSigns,
    SkipReason, SkippedDevice, Spec, TegraConfig, TegraFiles, WslFiles, names,
};
use gpu_core::{
    Inventory, PciInventory,
    nvml::{Library, LibrarySearch, Parts},
};

pub(in crate::gpuctl) use self::arguments::Generate;
use self::mode::Mode;
use super::output;
use crate::{
    cdi_feature::CdiFeature,
    driver_files::with_search_paths,
    gpuctl::count::count,
    program::{BadUsage, check_absolute, remark},
    toolkit_config::{ToolkitConfig, keys},
};

impl Generate {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let options = self.options()?;
        let driver_root = self.driver_root()?;
        if let Some(root) = &self.dev_root {
            check_absolute("--dev-root", root)?;
        }
        let ids: Vec<&str> = self.device_id.iter().map(String::as_str).collect();
        let spec = self.spec(&ids, &driver_root, options)?;
        let asked = self.nvidia_cdi_hook_path.as_deref().unwrap_or_default();
        if let Some(warning) = hook_program::warning(&spec, asked, &self.host_root) {
            remark(format_args!("warning: {warning}"));
        }
        self.write(&spec)
    }

    fn write(&self, spec: &Spec) -> anyhow::Result<()> {
        let output = self.output.as_deref().filter(|path| !path.as_os_str().is_empty());
        let file = output::write(spec, output, self.format)?;
        // A name without an extension has got one.
        let place = file.map(|path| format!(" in `{}`", path.display()));
        remark(format_args!(
            "Generated CDI spec with version {} and {}{}",
            spec.cdi_version,
            count(spec.devices.len(), "device"),
            place.unwrap_or_default()
        ));
        if self.has(CdiFeature::CoherentAnnotations) {
            for part in gpu_cdi::split_by_coherence(spec)? {
                // The vendor's program writes these to files only: two specs on standard output are none.
                if let Some(path) = output {
                    let (_, coherence) = part.kind.class().rsplit_once('.').unwrap_or_default();
                    output::write(&part, Some(&output::with_infix(path, coherence)), self.format)?;
                }
            }
        }
        Ok(())
    }

    fn spec(&self, ids: &[&str], driver_root: &Path, options: GenerateOptions) -> anyhow::Result<Spec> {
        if ids.contains(&names::NONE) {
            let others =
                || BadUsage::new("`--device-id`: `none` is a device without GPUs, and cannot be named with others");
            ensure!(ids == [names::NONE], others());
            let unknown = || BadUsage::new(format_args!("`--device-id`: mode `{}` has no device `none`", self.mode));
            ensure!(matches!(self.mode, Mode::Auto | Mode::Nvml), unknown());
            return Ok(gpu_cdi::generate_none(&self.files(driver_root, None)?, &options)?);
        }
        let mode = match self.mode {
            Mode::Auto => self.detected(driver_root)?,
            mode => mode,
        };
        match mode {
            Mode::Auto | Mode::Nvml => self.gpus(ids, driver_root, options),
            Mode::Imex => self.imex(ids, driver_root, &options),
            mode => {
                ensure!(
                    ids == [names::ALL],
                    BadUsage::new(format_args!(
                        "`--device-id`: mode `{mode}` describes all that there is, and no devices by name"
                    ))
                );
                self.all(mode, driver_root, &options)
            }
        }
    }

    /// All devices of a mode that knows no single ones.
    fn all(&self, mode: Mode, driver_root: &Path, options: &GenerateOptions) -> anyhow::Result<Spec> {
        match mode {
            Mode::Csv => self.tegra(driver_root, options),
            Mode::Wsl => self.wsl(driver_root, options),
            Mode::Vfio => self.vfio(driver_root, options),
            mode => {
                let files = self.files(driver_root, None)?;
                Ok(match mode.companion() {
                    Some(companion) => gpu_cdi::generate_companion(companion, &files, options)?,
                    None => gpu_cdi::generate_management(&files, options)?,
                })
            }
        }
    }

    fn imex(&self, ids: &[&str], driver_root: &Path, options: &GenerateOptions) -> anyhow::Result<Spec> {
        let channels = if ids.contains(&names::ALL) {
            Vec::new()
        } else {
            let bad = |error: ParseImexChannelError| BadUsage::new(format_args!("`--device-id`: {error}"));
            ids.iter().map(|id| id.parse().map_err(bad)).collect::<Result<_, _>>()?
        };
        Ok(gpu_cdi::generate_imex(
            &self.files(driver_root, None)?,
            &channels,
            options,
        )?)
    }

    /// What the machine is.
    fn detected(&self, driver_root: &Path) -> anyhow::Result<Mode> {
        let signs = PlatformSigns::discover(&self.search(driver_root))?;
        // NVML is asked where files leave it open.
        let read = || self.library(driver_root).ok()?.inventory(&self.host_root).ok();
        let nvml = signs.tegra.then(read).flatten();
        Ok(match Platform::of(signs, nvml.as_ref()) {
            Platform::Tegra => Mode::Csv,
            Platform::Wsl => Mode::Wsl,
            _ => Mode::Nvml,
        })
    }

    fn library(&self, driver_root: &Path) -> anyhow::Result<Library> {
        let library = Library::open(&LibrarySearch {
            library: self.nvml_library.clone(),
            driver_root: Some(driver_root.to_owned()),
        })?;
        Ok(library.with_parts(Parts::DEVICES))
    }

    fn inventory(&self, driver_root: &Path) -> anyhow::Result<Inventory> {
        let inventory = self.library(driver_root)?.inventory(&self.host_root)?;
        for problem in &inventory.problems {
            remark(format_args!("warning: {problem}"));
        }
        Ok(inventory)
    }

    fn gpus(&self, ids: &[&str], driver_root: &Path, mut options: GenerateOptions) -> anyhow::Result<Spec> {
        if !ids.contains(&names::ALL) {
            for id in ids {
                options.devices.push(id.parse()?);
            }
        }
        let inventory = self.inventory(driver_root)?;
        let version = inventory.driver.as_ref().map(|driver| driver.version.to_string());
        let files = self.files(driver_root, version)?;
        let generated = gpu_cdi::generate(&inventory, &files, &options);
        tell_where_nodes_are_looked_for(&generated, &files.dev_root);
        let generated = generated?;
        for device in &generated.skipped {
            remark(format_args!("warning: left out: {device}"));
        }
        for missing in files.missing() {
            remark(format_args!("warning: {missing}"));
        }
        Ok(generated.spec)
    }

    fn tegra(&self, driver_root: &Path, options: &GenerateOptions) -> anyhow::Result<Spec> {
        let mut config = TegraConfig::new(driver_root);
        config.dev_root.clone_from(&self.dev_root);
        config.files = beneath(driver_root, &self.csv_file);
        config.ignored.clone_from(&self.csv_ignore_pattern);
        let files = TegraFiles::discover(&config)?;
        for problem in &files.problems {
            remark(format_args!("warning: {problem}"));
        }
        // Older machines have no NVML, and their GPU no UUID.
        let inventory = match self.inventory(driver_root) {
            Ok(inventory) => Some(inventory),
            Err(error) => {
                remark(format_args!("NVML tells nothing of the GPU: {error:#}"));
                None
            }
        };
        Ok(gpu_cdi::generate_tegra(
            inventory.as_ref(),
            &files,
            options,
            &self.csv_compat_container_root,
        )?)
    }

    fn wsl(&self, driver_root: &Path, options: &GenerateOptions) -> anyhow::Result<Spec> {
        let files = WslFiles::discover(&self.search(driver_root))?;
        for problem in &files.problems {
            remark(format_args!("warning: {problem}"));
        }
        Ok(gpu_cdi::generate_wsl(&files, options)?)
    }

    fn vfio(&self, driver_root: &Path, options: &GenerateOptions) -> anyhow::Result<Spec> {
        let bus = PciInventory::read(&self.host_root)?;
        for problem in &bus.problems {
            remark(format_args!("warning: {problem}"));
        }
        let generated = gpu_cdi::generate_vfio(&bus, &self.files(driver_root, None)?, options)?;
        for problem in &generated.problems {
            remark(format_args!("warning: left out: {problem}"));
        }
        Ok(generated.spec)
    }

    fn search(&self, driver_root: &Path) -> DiscoverConfig {
        let mut config = with_search_paths(driver_root);
        config.dev_root.clone_from(&self.dev_root);
        config.sys_root.clone_from(&self.host_root);
        config
    }

    fn files(&self, driver_root: &Path, version: Option<String>) -> anyhow::Result<DriverFiles> {
        let mut config = self.search(driver_root);
        config.driver_version = version;
        config.library_search_paths = beneath(driver_root, &self.library_search_path);
        config.config_search_paths = beneath(driver_root, &self.config_search_path);
        config.explicit_libraries = self.has(CdiFeature::ExplicitLibraries);
        let files = DriverFiles::discover(&config)?;
        for problem in &files.problems {
            remark(format_args!("warning: {problem}"));
        }
        Ok(files)
    }

    fn driver_root(&self) -> anyhow::Result<PathBuf> {
        let config = self.config.as_deref().filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = config {
            // At the usual place there need not be one, but who names a file means it.
            fs::metadata(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        }
        let given = self.driver_root.as_ref().filter(|root| !root.as_os_str().is_empty());
        if let Some(root) = given {
            check_absolute("--driver-root", root)?;
            if config.is_none() {
                return Ok(root.clone());
            }
        }
        let toolkit = ToolkitConfig::read(config)?;
        for key in &toolkit.config.unknown_keys {
            remark(format_args!("warning: {key}"));
        }
        if let Some(root) = given {
            return Ok(root.clone());
        }
        let root = PathBuf::from(toolkit.config.driver_root.as_deref().unwrap_or("/"));
        ensure!(
            root.is_absolute(),
            "{} is not an absolute path: `{}`",
            toolkit.key(keys::DRIVER_ROOT),
            root.display()
        );
        Ok(root)
    }
}

/// Device nodes that are missing are named as the device root has them.
fn tell_where_nodes_are_looked_for(generated: &gpu_cdi::Result<Generated>, dev_root: &str) {
    let skipped = match generated {
        Ok(generated) => &generated.skipped,
        Err(Error::NothingToDescribe { skipped }) => skipped,
        Err(_) => return,
    };
    let is_node = |device: &SkippedDevice| {
        matches!(
            device.reason,
            SkipReason::DeviceNodeMissing { .. } | SkipReason::NotADevice { .. }
        )
    };
    if dev_root != "/" && skipped.iter().any(is_node) {
        remark(format_args!("note: device nodes are looked for beneath `{dev_root}`"));
    }
}

/// Paths as the driver root has them: the vendor's program takes them as the host does.
fn beneath(root: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let inside = |path: &PathBuf| match path.strip_prefix(root) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => path.clone(),
    };
    paths.iter().map(inside).collect()
}

#[cfg(test)]
mod tests;
