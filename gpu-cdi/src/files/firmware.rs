use std::path::{Path, PathBuf};

use super::{DiscoverConfig, FoundFile, found::Search};

/// The kernel parameter that names one more folder to load firmware from.
const CUSTOM_PATH: &str = "/sys/module/firmware_class/parameters/path";

/// The firmware of the GPU system processor, from every folder that the kernel would load it from.
pub(super) fn find(
    search: &mut Search,
    sys: &mut Search,
    config: &DiscoverConfig,
    version: Option<&str>,
) -> Vec<FoundFile> {
    let Some(version) = version else {
        return Vec::new();
    };
    let mut found: Vec<FoundFile> = Vec::new();
    for dir in dirs(sys, config) {
        let dir = dir.join("nvidia").join(version);
        for name in search.list(&dir).iter() {
            if crate::pattern::matches("gsp*.bin", name)
                && let Some(file) = search.file(&dir.join(name), |_| true)
                && !found.contains(&file)
            {
                found.push(file);
            }
        }
    }
    found
}

fn dirs(sys: &mut Search, config: &DiscoverConfig) -> Vec<PathBuf> {
    let release = config
        .kernel_release
        .clone()
        .unwrap_or_else(|| rustix::system::uname().release().to_string_lossy().into_owned());
    let mut dirs = Vec::from_iter(custom_dir(sys));
    for base in ["/lib/firmware/updates", "/lib/firmware"].map(PathBuf::from) {
        if !release.is_empty() {
            dirs.push(base.join(&release));
        }
        dirs.push(base);
    }
    dirs
}

fn custom_dir(sys: &mut Search) -> Option<PathBuf> {
    let path = Path::new(CUSTOM_PATH);
    match sys.root.read(path, 4096) {
        Ok(content) => {
            let text = String::from_utf8(content).ok()?;
            Some(PathBuf::from(text.trim())).filter(|dir| dir.is_absolute())
        }
        Err(error) => {
            sys.failed(path, &error);
            None
        }
    }
}
