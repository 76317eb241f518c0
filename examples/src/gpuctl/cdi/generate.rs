mod mode;

use std::{
    collections::BTreeSet,
    env,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use gpu_cdi::{
    DiscoverConfig, DriverFiles, GenerateOptions, HookName, Kind, NameStrategy, ORIN_COMPAT_DIR, Platform,
    PlatformSigns, Spec, TegraConfig, TegraFiles, WslFiles,
};
use gpu_core::{
    Inventory, PciInventory,
    nvml::{Library, LibrarySearch, Parts},
};

use self::mode::Mode;
use super::output::{self, Notation};
use crate::{
    driver_files::with_search_paths,
    program::{BadUsage, remark},
    toolkit_config, vendor,
};

/// The flags and variables of `nvidia-ctk cdi generate` (v1.20).
#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Generate {
    /// Where the spec is written [default: standard output]
    #[arg(long, env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", value_name = "PATH")]
    output: Option<PathBuf>,

    /// Its notation [default: as the extension of the output says, else yaml]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT", value_enum)]
    format: Option<Notation>,

    /// What is described
    #[arg(
        long,
        alias = "discovery-mode",
        env = "NVIDIA_CTK_CDI_GENERATE_MODE",
        value_enum,
        default_value = "auto"
    )]
    mode: Mode,

    /// The GPUs and MIG devices, by index (0, 0:1) or UUID, or the IMEX channels; `all` for all that there are, `none` for a
    /// device with the driver and no GPU
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
    device_id: Vec<String>,

    /// How GPUs and MIG devices are named, each name making one device
    #[arg(
        long,
        alias = "device-name-strategies",
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES",
        value_delimiter = ',',
        default_values = ["index", "uuid"],
        value_name = "index|type-index|uuid"
    )]
    device_name_strategy: Vec<NameStrategy>,

    /// Leaves out the device `all`
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    no_all_device: bool,

    /// The vendor part of the kind
    #[arg(long, alias = "cdi-vendor", default_value = "nvidia.com")]
    vendor: String,

    /// The class part of the kind
    #[arg(long, alias = "cdi-class", default_value = "gpu")]
    class: String,

    /// The root of the driver's files [default: `nvidia-container-cli.root` of the toolkit's configuration, else /]
    #[arg(long, env = "NVIDIA_DRIVER_ROOT", value_name = "PATH")]
    driver_root: Option<PathBuf>,

    /// The root of the device nodes [default: the driver root]
    #[arg(long, env = "NVIDIA_CTK_DEV_ROOT", value_name = "PATH")]
    dev_root: Option<PathBuf>,

    /// Folders to look for libraries in, in place of the usual ones
    #[arg(
        long,
        alias = "library-search-paths",
        env = "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    library_search_path: Vec<PathBuf>,

    /// Folders to look for configuration files in, in place of the usual ones
    #[arg(
        long,
        alias = "config-search-paths",
        env = "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    config_search_path: Vec<PathBuf>,

    /// The hook program on the host [default: nvidia-cdi-hook as found in PATH, else /usr/bin/nvidia-cdi-hook]
    #[arg(
        long,
        alias = "nvidia-ctk-path",
        env = "NVIDIA_CTK_CDI_HOOK_PATH",
        value_name = "PATH"
    )]
    nvidia_cdi_hook_path: Option<String>,

    /// The host's ldconfig, for the hook that calls it [default: the hook's own]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH", value_name = "PATH")]
    ldconfig_path: Option<String>,

    /// Hooks to leave out; `all` for all
    #[arg(
        long,
        alias = "disable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS",
        value_name = "NAMES"
    )]
    disable_hook: Vec<String>,

    /// Hooks to keep that are left out otherwise
    #[arg(
        long,
        alias = "enable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS",
        value_name = "NAMES"
    )]
    enable_hook: Vec<String>,

    /// In mode csv: the files that name what a container gets
    #[arg(long = "csv.file", value_delimiter = ',', value_name = "PATH", default_values = TegraConfig::FILES)]
    csv_file: Vec<PathBuf>,

    /// In mode csv: paths that are not mounted, or names where the pattern has no slash
    #[arg(long = "csv.ignore-pattern", value_delimiter = ',', value_name = "PATTERN")]
    csv_ignore_pattern: Vec<String>,

    /// In mode csv: where images have the compatibility libraries for Orin
    #[arg(long = "csv.compat-container-root", value_name = "PATH", default_value = ORIN_COMPAT_DIR)]
    csv_compat_container_root: String,

    /// Has one hook do the work of all; the hook program must be gpu-cdi-hook (an addition of this program)
    #[arg(long)]
    combined_hook: bool,

    /// Mounts the driver's libraries for 32-bit programs too (an addition of this program)
    #[arg(long)]
    compat32: bool,

    /// The vendor's switches: enable-explicit-driver-libraries, enable-coherent-annotations,
    /// no-additional-gids-for-device-nodes, disable-ipc-discoverer, disable-nvsandboxutils, disable-multiple-csv-devices
    #[arg(
        long,
        alias = "feature-flags",
        env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    feature_flag: Vec<String>,

    /// The toolkit's configuration file [default: /etc/nvidia-container-runtime/config.toml]
    #[arg(long, env = "NVIDIA_CTK_CONFIG_FILE_PATH", value_name = "PATH")]
    config: Option<PathBuf>,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, value_name = "PATH", env = "GPU_NVML_LIBRARY")]
    nvml_library: Option<PathBuf>,

    /// Where the host's /sys is (an addition of this program)
    #[arg(long, value_name = "PATH", env = "GPU_HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
}

const COHERENT: &str = "enable-coherent-annotations";
const EXPLICIT: &str = "enable-explicit-driver-libraries";

impl Generate {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let options = self.options()?;
        let driver_root = self.driver_root()?;
        for root in [Some(&driver_root), self.dev_root.as_ref()].into_iter().flatten() {
            let bad = || BadUsage::new(format_args!("`{}` is not an absolute path", root.display()));
            ensure!(root.is_absolute(), bad());
        }
        let ids: Vec<&str> = self.device_id.iter().map(String::as_str).collect();
        let spec = self.spec(&ids, &driver_root, options)?;
        let output = self.output.as_deref().filter(|path| !path.as_os_str().is_empty());
        output::write(&spec, output, self.format)?;
        remark(format_args!(
            "Generated CDI spec with version {} and {} devices",
            spec.cdi_version,
            spec.devices.len()
        ));
        if self.has_flag(COHERENT) {
            for part in gpu_cdi::split_by_coherence(&spec)? {
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
        if ids.contains(&"none") {
            ensure!(ids == ["none"], BadUsage::new("`none` stands alone"));
            ensure!(
                matches!(self.mode, Mode::Auto | Mode::Nvml),
                BadUsage::new("this mode has no device `none`")
            );
            return Ok(gpu_cdi::generate_none(&self.files(driver_root, None)?, &options)?);
        }
        let mode = match self.mode {
            Mode::Auto => self.detected(driver_root)?,
            mode => mode,
        };
        Ok(match mode {
            Mode::Auto | Mode::Nvml => return self.gpus(ids, driver_root, options),
            Mode::Imex => {
                let channels = if ids.contains(&"all") {
                    Vec::new()
                } else {
                    ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?
                };
                gpu_cdi::generate_imex(&self.files(driver_root, None)?, &channels, &options)?
            }
            mode => {
                ensure!(
                    ids == ["all"],
                    BadUsage::new("this mode describes all devices, and has no `--device-id`")
                );
                match mode {
                    Mode::Csv => self.tegra(driver_root, &options)?,
                    Mode::Wsl => self.wsl(driver_root, &options)?,
                    Mode::Vfio => self.vfio(driver_root, &options)?,
                    mode => {
                        let files = self.files(driver_root, None)?;
                        match mode.companion() {
                            Some(companion) => gpu_cdi::generate_companion(companion, &files, &options)?,
                            None => gpu_cdi::generate_management(&files, &options)?,
                        }
                    }
                }
            }
        })
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
        if !ids.contains(&"all") {
            for id in ids {
                options.devices.push(id.parse()?);
            }
        }
        let inventory = self.inventory(driver_root)?;
        let version = inventory.driver.as_ref().map(|driver| driver.version.to_string());
        let files = self.files(driver_root, version)?;
        let generated = gpu_cdi::generate(&inventory, &files, &options)?;
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
        config.explicit_libraries = self.has_flag(EXPLICIT);
        let files = DriverFiles::discover(&config)?;
        for problem in &files.problems {
            remark(format_args!("warning: {problem}"));
        }
        Ok(files)
    }

    fn has_flag(&self, name: &str) -> bool {
        self.feature_flag.iter().any(|flag| flag == name)
    }

    fn driver_root(&self) -> anyhow::Result<PathBuf> {
        if let Some(root) = self.driver_root.as_ref().filter(|root| !root.as_os_str().is_empty()) {
            return Ok(root.clone());
        }
        let config = toolkit_config::read(self.config.as_deref())?;
        Ok(config.driver_root.map_or_else(|| PathBuf::from("/"), PathBuf::from))
    }

    fn options(&self) -> anyhow::Result<GenerateOptions> {
        let mut options = GenerateOptions::default();
        options.kind = Kind::new(&self.vendor, &self.class)?;
        options.names.clone_from(&self.device_name_strategy);
        options.all_device = !self.no_all_device;
        options.hook_path = hook_path(self.nvidia_cdi_hook_path.as_deref().unwrap_or_default());
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
                other => bail!(BadUsage::new(format_args!("feature flag `{other}` is not supported"))),
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
        let enabled = HookName::parse_list(&enabled).context("`--enable-hook`")?;
        ensure!(
            !enabled.contains(&HookName::Chmod),
            BadUsage::new("hook `chmod` is in no spec and cannot be enabled")
        );
        let disabled = HookName::parse_list(&self.disable_hook.join(",")).context("`--disable-hook`")?;
        Ok(disabled.difference(&enabled).copied().collect())
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

/// The hook program: a path as it is, a name as found in `PATH`, else in `/usr/bin`.
fn hook_path(asked: &str) -> String {
    if asked.starts_with('/') {
        return asked.to_owned();
    }
    let name = if asked.is_empty() { "nvidia-cdi-hook" } else { asked };
    let dirs = env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
    };
    let mut found = env::split_paths(&dirs)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name));
    match found
        .find(is_program)
        .map(PathBuf::into_os_string)
        .map(std::ffi::OsString::into_string)
    {
        Some(Ok(path)) => path,
        _ => format!("/usr/bin/{name}"),
    }
}

#[cfg(test)]
mod tests;
