use std::path::{Path, PathBuf};

use super::{
    DeviceFile, DeviceRule, DiscoverConfig, FileProblem, FoundFile, device_nodes,
    found::{Search, is_absent},
};
use crate::Result;

/// Most bytes of one csv file; the vendor's have some 30 KiB.
const LIMIT: u64 = 4 << 20;

/// Where and how the csv files of a Tegra machine are read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TegraConfig {
    /// The folder that the files and what they name are in. Default: `/`.
    pub driver_root: PathBuf,
    /// The folder whose `dev` holds the device nodes. Default: the driver root.
    pub dev_root: Option<PathBuf>,
    /// The files beneath the driver root; of the vendor's three, one that does not exist is passed over. Default: these.
    pub files: Vec<PathBuf>,
    /// Patterns of paths, or of names where they have no slash, that are not mounted. Default: none.
    pub ignored: Vec<String>,
    /// What counts as a device node. Default: character devices.
    pub device_rule: DeviceRule,
}

impl TegraConfig {
    /// The vendor's files, beneath the driver root.
    pub const FILES: [&str; 3] = [
        "/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv",
        "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv",
        "/etc/nvidia-container-runtime/host-files-for-container.d/l4t.csv",
    ];

    /// The settings above for the driver root at `driver_root`.
    pub fn new(driver_root: impl Into<PathBuf>) -> Self {
        Self {
            driver_root: driver_root.into(),
            dev_root: None,
            files: Self::FILES.map(PathBuf::from).to_vec(),
            ignored: Vec::new(),
            device_rule: DeviceRule::CharacterDevice,
        }
    }
}

/// What the csv files of a Tegra machine name and there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TegraFiles {
    /// Where the driver root was, as the reader saw it.
    pub driver_root: String,
    /// Where the device root was, as the reader saw it.
    pub dev_root: String,
    /// Device nodes (`dev`).
    pub device_nodes: Vec<DeviceFile>,
    /// Folders (`dir`).
    pub folders: Vec<FoundFile>,
    /// Libraries and other files (`lib`).
    pub libraries: Vec<FoundFile>,
    /// Links (`sym`), each as `target::link`.
    pub links: Vec<String>,
    /// Lines that say nothing, and what is named and missing or could not be read.
    pub problems: Vec<FileProblem>,
}

/// One line: what kind of thing, and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry<'l> {
    Device(&'l str),
    Folder(&'l str),
    Library(&'l str),
    Link(&'l str),
}

impl TegraFiles {
    /// Reads the csv files and looks for what they name.
    ///
    /// # Errors
    /// As for [`DriverFiles::discover`](crate::DriverFiles::discover).
    pub fn discover(config: &TegraConfig) -> Result<Self> {
        let dev_root = config.dev_root.as_ref().unwrap_or(&config.driver_root);
        let mut driver = Search::new(DiscoverConfig::open("driver root", &config.driver_root)?);
        let mut dev = Search::new(DiscoverConfig::open("device root", dev_root)?);
        let mut files = Self {
            driver_root: DiscoverConfig::name("driver root", &config.driver_root)?,
            dev_root: DiscoverConfig::name("device root", dev_root)?,
            device_nodes: Vec::new(),
            folders: Vec::new(),
            libraries: Vec::new(),
            links: Vec::new(),
            problems: Vec::new(),
        };
        let is_usual = |path: &Path| TegraConfig::FILES.iter().any(|usual| path == Path::new(usual));
        for path in &config.files {
            let text = match driver.root.read(path, LIMIT) {
                Ok(content) => String::from_utf8_lossy(&content).into_owned(),
                Err(error) => {
                    driver.failed(path, &error);
                    if is_absent(&error) && !is_usual(path) {
                        driver.problem(path, &"there is no such file");
                    }
                    continue;
                }
            };
            for (number, line) in (1..).zip(text.lines()) {
                match entry(line) {
                    Ok(None) => {}
                    Ok(Some(entry)) => files.add(entry, config, &mut driver, &mut dev),
                    Err(reason) => driver.problem(Path::new(&format!("{}:{number}", path.display())), &reason),
                }
            }
        }
        files.problems = driver.finish()?;
        files.problems.extend(dev.finish()?);
        Ok(files)
    }

    fn add(&mut self, entry: Entry<'_>, config: &TegraConfig, driver: &mut Search, dev: &mut Search) {
        let is_ignored = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            config.ignored.iter().any(|pattern| {
                let text = if pattern.contains('/') { path } else { name };
                crate::pattern::matches(pattern, text)
            })
        };
        match entry {
            Entry::Device(path) => {
                let found = nodes(dev, config.device_rule, path);
                if found.is_empty() {
                    dev.problem(Path::new(path), &"there is no such device node");
                }
                self.device_nodes.extend(found);
            }
            Entry::Folder(path) if !is_ignored(path) => match driver.folder(Path::new(path)) {
                Some(folder) => self.folders.push(folder),
                None => driver.problem(Path::new(path), &"there is no such folder"),
            },
            Entry::Library(path) if !is_ignored(path) => match driver.file(Path::new(path), |_| true) {
                Some(file) => self.libraries.push(file),
                None => driver.problem(Path::new(path), &"there is no such file"),
            },
            Entry::Link(path) if !is_ignored(path) => match driver.root.read_link(Path::new(path)) {
                Ok(target) => self.links.push(format!("{}::{path}", target.to_string_lossy())),
                Err(error) => {
                    driver.failed(Path::new(path), &error);
                    driver.problem(Path::new(path), &"there is no such link");
                }
            },
            Entry::Folder(_) | Entry::Library(_) | Entry::Link(_) => {}
        }
    }
}

/// The nodes that fit a path whose name may have stars.
fn nodes(dev: &mut Search, rule: DeviceRule, path: &str) -> Vec<DeviceFile> {
    let Some((dir, pattern)) = path.rsplit_once('/').filter(|(_, name)| name.contains('*')) else {
        return device_nodes::node(dev, rule, path).into_iter().collect();
    };
    let names = dev.list(Path::new(if dir.is_empty() { "/" } else { dir }));
    let fitting = names.iter().filter(|name| crate::pattern::matches(pattern, name));
    fitting
        .filter_map(|name| device_nodes::node(dev, rule, &format!("{dir}/{name}")))
        .collect()
}

/// A line `lib, /usr/lib/libx.so`; nothing where it is empty.
fn entry(line: &str) -> Result<Option<Entry<'_>>, &'static str> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (kind, path) = line.split_once(',').ok_or("expected a kind, a comma and a path")?;
    let path = path.trim();
    if !path.starts_with('/') || path.contains("::") {
        return Err("expected an absolute path");
    }
    match kind.trim() {
        "dev" => Ok(Some(Entry::Device(path))),
        "dir" => Ok(Some(Entry::Folder(path))),
        "lib" => Ok(Some(Entry::Library(path))),
        "sym" => Ok(Some(Entry::Link(path))),
        _ => Err("the kind is neither dev, dir, lib nor sym"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_kind_and_a_path() {
        #[track_caller]
        fn check(line: &str, expected: Result<Option<Entry<'_>>, &'static str>) {
            assert_eq!(entry(line), expected, "{line}");
        }
        check("dev, /dev/nvmap", Ok(Some(Entry::Device("/dev/nvmap"))));
        check(" lib ,/usr/lib/a,b.so ", Ok(Some(Entry::Library("/usr/lib/a,b.so"))));
        check("dir, /lib/firmware", Ok(Some(Entry::Folder("/lib/firmware"))));
        check("sym, /usr/lib/a.so", Ok(Some(Entry::Link("/usr/lib/a.so"))));
        check("", Ok(None));
        check("lib /usr/lib/a.so", Err("expected a kind, a comma and a path"));
        check("lib, usr/lib/a.so", Err("expected an absolute path"));
        check("lib, /a::/b", Err("expected an absolute path"));
        check("exe, /bin/a", Err("the kind is neither dev, dir, lib nor sym"));
    }
}
