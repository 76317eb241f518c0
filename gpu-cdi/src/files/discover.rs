use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use gpu_core::root::Root;

use super::{
    DeviceRule, DriverFiles, binaries, capabilities, configs, device_nodes, driver_libraries, drm, firmware,
    found::{Search, is_absent},
    graphics, sockets, storage,
};
use crate::{Error, Result};

/// Where and how a driver root is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiscoverConfig {
    /// The folder that the driver is installed in. Default: `/`.
    pub driver_root: PathBuf,
    /// The folder whose `dev` holds the device nodes. Default: the driver root.
    pub dev_root: Option<PathBuf>,
    /// The folder whose `sys` and `proc` are the kernel's. Default: `/`.
    pub sys_root: PathBuf,
    /// The driver's version, as NVML tells it. Default: the one in the name of `libcuda` or `libnvidia-ml`.
    pub driver_version: Option<String>,
    /// What counts as a device node. Default: character devices.
    pub device_rule: DeviceRule,
    /// Folders of the driver root to look for libraries in, in place of the usual ones and the loader's cache.
    /// Default: none.
    pub library_search_paths: Vec<PathBuf>,
    /// Whether libraries without the driver's version in their names are among the driver's, such as `libGL` and
    /// `libOpenCL`. Default: no: a container brings its own.
    pub explicit_libraries: bool,
    /// Folders of the driver root to look for configuration files in, in place of `/etc` and the data folders.
    /// Default: none.
    pub config_search_paths: Vec<PathBuf>,
    /// Folders of the driver root with data files. Default: `/usr/local/share` and `/usr/share`.
    pub data_dirs: Vec<PathBuf>,
    /// Folders of the driver root to look for programs in, before the usual ones. Default: none.
    pub binary_search_paths: Vec<PathBuf>,
    /// The kernel's release, under which firmware may lie. Default: the running kernel's.
    pub kernel_release: Option<String>,
}

impl DiscoverConfig {
    /// The settings above for the driver root at `driver_root`.
    pub fn new(driver_root: impl Into<PathBuf>) -> Self {
        Self {
            driver_root: driver_root.into(),
            dev_root: None,
            sys_root: PathBuf::from("/"),
            driver_version: None,
            device_rule: DeviceRule::CharacterDevice,
            library_search_paths: Vec::new(),
            explicit_libraries: false,
            config_search_paths: Vec::new(),
            data_dirs: vec![PathBuf::from("/usr/local/share"), PathBuf::from("/usr/share")],
            binary_search_paths: Vec::new(),
            kernel_release: None,
        }
    }

    /// Takes over two lists of folders as the environment has them: `PATH` for programs and `XDG_DATA_DIRS` for data files.
    ///
    /// The vendor's programs search these, so a program that takes their place passes the values of these variables.
    /// Relative folders are left out; without data folders the default stays.
    #[must_use]
    pub fn with_search_paths(mut self, path: Option<&OsStr>, data_dirs: Option<&OsStr>) -> Self {
        self.binary_search_paths = split(path);
        if let dirs @ [_, ..] = split(data_dirs).as_slice() {
            self.data_dirs = dirs.to_vec();
        }
        self
    }

    pub(super) fn open(what: &'static str, path: &Path) -> Result<Root> {
        if !path.is_absolute() {
            return Err(Error::RelativeRoot {
                what,
                path: path.to_owned(),
            });
        }
        Root::open(path).map_err(|source| Error::Root {
            what,
            path: path.to_owned(),
            source,
        })
    }

    /// A root as specs name it.
    pub(super) fn name(what: &'static str, path: &Path) -> Result<String> {
        let name = path.to_str().map(str::to_owned);
        name.ok_or_else(|| Error::UnnamableRoot {
            what,
            path: path.to_owned(),
        })
    }
}

impl Default for DiscoverConfig {
    fn default() -> Self {
        Self::new("/")
    }
}

impl DriverFiles {
    /// Reads what a driver root holds.
    ///
    /// Nothing outside the three roots of `config` is opened: links resolve beneath the root they are in. A file or
    /// folder that cannot be read is in [`problems`](DriverFiles::problems) and does not hide the others; a root
    /// without a driver is an empty value.
    ///
    /// # Errors
    /// [`Error::Root`] if a root cannot be opened, [`Error::RelativeRoot`] if its path is not absolute, and
    /// [`Error::Exhausted`] if this process may open no more files: what was found then is no whole.
    pub fn discover(config: &DiscoverConfig) -> Result<Self> {
        let dev_root = config.dev_root.as_ref().unwrap_or(&config.driver_root);
        let mut driver = Search::new(DiscoverConfig::open("driver root", &config.driver_root)?);
        let mut dev = Search::new(DiscoverConfig::open("device root", dev_root)?);
        let mut sys = Search::new(DiscoverConfig::open("root of /sys and /proc", &config.sys_root)?);

        for folder in config.library_search_paths.iter().chain(&config.config_search_paths) {
            if driver.root.list(folder).is_err_and(|error| is_absent(&error)) {
                driver.problem(folder, &"there is no such folder");
            }
        }
        let found = driver_libraries::find(&mut driver, config);
        let (graphics_libraries, xorg_modules) = graphics::find(&mut driver, config, &found);
        let firmware = firmware::find(&mut driver, &mut sys, config, found.version.as_deref());
        let nodes = device_nodes::find(&mut dev, config.device_rule);
        let mut links = found.links;
        links.extend(drm::by_path_links(&mut dev));
        let mut files = Self {
            schema_version: Self::SCHEMA_VERSION,
            driver_root: DiscoverConfig::name("driver root", &config.driver_root)?,
            dev_root: DiscoverConfig::name("device root", dev_root)?,
            driver_version: found.version,
            library_dirs: found.dirs,
            libraries: found.libraries,
            libraries_32: found.libraries_32,
            graphics_libraries,
            xorg_modules,
            binaries: binaries::find(&mut driver, config),
            configs: configs::find(&mut driver, config),
            firmware,
            sockets: sockets::find(&mut driver),
            storage: storage::find(&mut driver),
            capabilities: capabilities::find(&mut sys, &nodes.devices),
            device_nodes: nodes.devices,
            not_devices: nodes.others,
            drm: drm::find(&mut sys),
            links,
            problems: driver.finish()?,
        };
        files.problems.extend(dev.finish()?);
        files.problems.extend(sys.finish()?);
        Ok(files)
    }
}

impl DriverFiles {
    /// The [`capabilities`](Self::capabilities) alone: the nodes of the MIG instances that exist, whether or not they are there.
    ///
    /// # Errors
    /// As for [`discover`](Self::discover).
    pub fn read_capabilities(config: &DiscoverConfig) -> Result<BTreeMap<String, u32>> {
        let mut kernel = Search::new(DiscoverConfig::open("root of /sys and /proc", &config.sys_root)?);
        let found = capabilities::find(&mut kernel, &[]);
        kernel.finish()?;
        Ok(found)
    }
}

fn split(list: Option<&OsStr>) -> Vec<PathBuf> {
    env::split_paths(list.unwrap_or_default())
        .filter(|path| path.is_absolute())
        .collect()
}
