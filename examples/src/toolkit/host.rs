//! Where the host has what a container sees elsewhere.
//!
//! The GPU Operator mounts the folder of the engine's file at `/runtime/config-dir` and the host's root, read-only, at
//! `/host`. What is written into an engine's files must be the host's paths, and it must be written through the mount that
//! may be written.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use gpu_runtime_config::Preset;
use rustix::fs::Access;

use crate::engine::Engine;

/// The host's folders, as they are seen from here.
#[derive(Debug)]
pub(super) struct Folders<'h> {
    host_root: &'h Path,
}

impl<'h> Folders<'h> {
    pub(super) fn new(host_root: &'h Path) -> Self {
        Self { host_root }
    }

    /// The host's path of a file that is given as it is here, or as the host has it; `candidates` are the usual paths of it.
    pub(super) fn on_host(&self, given: Option<PathBuf>, candidates: &[PathBuf]) -> anyhow::Result<Option<PathBuf>> {
        let Some(given) = given.filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let (Some(folder), Some(name)) = (given.parent(), given.file_name()) else {
            return Err(anyhow!("`{}` is no file", given.display()));
        };
        if self.host_root == Path::new("/") || !folder.is_dir() {
            return Ok(Some(given));
        }
        let usual = candidates.iter().filter_map(|path| path.parent());
        let mut folders = std::iter::once(folder).chain(usual);
        match folders.find(|other| is_same(folder, &self.here(other))) {
            Some(found) => Ok(Some(found.join(name))),
            None => Err(anyhow!(
                "cannot tell where the host has `{}`: it is none of the usual places beneath `{}`",
                given.display(),
                self.host_root.display()
            )),
        }
    }

    /// Makes the folder of `on_host` writable beneath the host's root, if it is the one through which `here` can be written.
    pub(super) fn cover(&self, here: &Path, on_host: &Path) -> anyhow::Result<()> {
        let (Some(from), Some(to)) = (here.parent(), on_host.parent()) else {
            return Ok(());
        };
        let to = self.here(to);
        if from == to
            || !is_same(from, &to)
            || rustix::fs::access(&to, Access::WRITE_OK) != Err(rustix::io::Errno::ROFS)
        {
            return Ok(());
        }
        rustix::mount::mount_bind(from, &to).with_context(|| {
            format!(
                "cannot write to `{}`, nor mount `{}` there",
                to.display(),
                from.display()
            )
        })
    }

    fn here(&self, on_host: &Path) -> PathBuf {
        self.host_root.join(on_host.strip_prefix("/").unwrap_or(on_host))
    }
}

fn is_same(left: &Path, right: &Path) -> bool {
    let id = |path| fs::metadata(path).ok().map(|status| (status.dev(), status.ino()));
    id(left).is_some_and(|left| Some(left) == id(right))
}

/// The usual places of an engine's main file.
pub(super) fn mains(engine: Engine) -> Vec<PathBuf> {
    usual(engine, engine.main(), |preset| vec![preset.main()])
}

/// The usual places of our drop-in.
pub(super) fn drop_ins(engine: Engine) -> Vec<PathBuf> {
    usual(engine, engine.drop_in().unwrap_or_default(), |preset| {
        [2, 3].map(|version| preset.drop_in(version)).to_vec()
    })
}

/// The usual places of an engine's socket.
pub(super) fn sockets(engine: Engine) -> Vec<PathBuf> {
    usual(engine, engine.socket(), |preset| vec![preset.socket()])
}

fn usual(engine: Engine, own: &'static str, of: impl Fn(Preset) -> Vec<&'static str>) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from(own)];
    if engine == Engine::Containerd {
        paths.extend(Preset::ALL.into_iter().flat_map(of).map(PathBuf::from));
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_mounted_folder_is_found_on_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let (host, here) = (dir.path().join("host"), dir.path().join("config-dir"));
        for folder in ["etc/containerd", "etc/k0s"] {
            fs::create_dir_all(host.join(folder)).unwrap();
        }
        // A link is as good as a mount here: both lead to the same folder.
        symlink(host.join("etc/k0s"), &here).unwrap();
        let folders = Folders::new(&host);
        let on_host = |path: PathBuf| folders.on_host(Some(path), &mains(Engine::Containerd));
        assert_eq!(
            on_host(here.join("containerd.toml")).unwrap(),
            Some("/etc/k0s/containerd.toml".into())
        );
        assert_eq!(
            on_host("/no/such/folder/x".into()).unwrap(),
            Some("/no/such/folder/x".into())
        );
        assert_eq!(folders.on_host(None, &[]).unwrap(), None);
        let error = on_host(dir.path().join("x.toml")).unwrap_err().to_string();
        assert!(error.starts_with("cannot tell where the host has"), "{error}");
    }
}
