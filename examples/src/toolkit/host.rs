//! Where the host has what a container sees elsewhere.
//!
//! The GPU Operator mounts the folder of the engine's file at `/runtime/config-dir` and the host's root, read-only, at
//! `/host`. What is written into an engine's files must be the host's paths, and it must be written through the mount that
//! may be written.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, ensure};
use gpu_core::root::Root;
use gpu_runtime_config::Preset;
use rustix::fs::Access;

use crate::engine::Engine;

/// The host's folders, as they are seen from here.
#[derive(Debug)]
pub(super) struct Folders<'h> {
    host_root: &'h Path,
    /// Whether anything is to be written to them.
    are_written: bool,
}

/// A file or socket of the engine.
#[derive(Debug)]
pub(super) struct Place {
    /// The variable that says where the host has it.
    variable: &'static str,
    /// Its usual paths on the host.
    usual: Vec<PathBuf>,
}

impl<'h> Folders<'h> {
    pub(super) fn new(host_root: &'h Path, are_written: bool) -> Self {
        Self { host_root, are_written }
    }

    /// The host's path of a file that is given as it is here, or as the host has it.
    ///
    /// # Errors
    /// If its folder is here and cannot be told among the host's, or is neither here nor there: what was written to such a
    /// place, no engine would read.
    pub(super) fn on_host(&self, given: Option<PathBuf>, place: &Place) -> anyhow::Result<Option<PathBuf>> {
        let Some(given) = given.filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let (Some(folder), Some(name)) = (given.parent(), given.file_name()) else {
            return Err(anyhow!("`{}` is no file", given.display()));
        };
        if self.host_root == Path::new("/") || given.is_relative() {
            return Ok(Some(given));
        }
        let usual: BTreeSet<&Path> = place.usual.iter().filter_map(|path| path.parent()).collect();
        if !folder.is_dir() {
            ensure!(
                !self.are_written || usual.contains(folder) || self.is_likely(folder),
                "there is no `{}`, neither here nor beneath `{}`: is it mounted? Where the host has the file elsewhere, say it \
                 by `{}`",
                folder.display(),
                self.host_root.display(),
                place.variable
            );
            return Ok(Some(given));
        }
        let mut folders = std::iter::once(folder).chain(usual.iter().copied());
        let found = folders.find(|other| is_same(folder, &self.here(other)));
        let unknown = || {
            let usual: Vec<_> = usual.iter().map(|folder| format!("`{}`", folder.display())).collect();
            anyhow!(
                "cannot tell where the host has `{}`: beneath `{}` its folder is none of {}; mount it under the host's own \
                 path, or say that by `{}`",
                given.display(),
                self.host_root.display(),
                usual.join(", "),
                place.variable
            )
        };
        Ok(Some(found.ok_or_else(unknown)?.join(name)))
    }

    /// Whether the host has this folder, or one in which it can be made.
    fn is_likely(&self, folder: &Path) -> bool {
        let Ok(root) = Root::open(self.host_root) else {
            return false;
        };
        let above = folder.parent().filter(|above| above.parent().is_some());
        std::iter::once(folder)
            .chain(above)
            .any(|folder| root.stat(folder).is_ok())
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

/// The main file of an engine.
pub(super) fn main(engine: Engine) -> Place {
    Place {
        variable: "RUNTIME_CONFIG",
        usual: usual(engine, engine.main(), |preset| vec![preset.main()]),
    }
}

/// Our drop-in.
pub(super) fn drop_in(engine: Engine) -> Place {
    Place {
        variable: "RUNTIME_DROP_IN_CONFIG_HOST_PATH",
        usual: usual(engine, engine.drop_in().unwrap_or_default(), |preset| {
            [2, 3].map(|version| preset.drop_in(version)).to_vec()
        }),
    }
}

/// The socket of an engine.
pub(super) fn socket(engine: Engine) -> Place {
    Place {
        variable: "RUNTIME_SOCKET",
        usual: usual(engine, engine.socket(), |preset| vec![preset.socket()]),
    }
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
        let folders = Folders::new(&host, true);
        let on_host = |path: PathBuf| folders.on_host(Some(path), &main(Engine::Containerd));
        assert_eq!(
            on_host(here.join("containerd.toml")).unwrap(),
            Some("/etc/k0s/containerd.toml".into())
        );
        assert_eq!(folders.on_host(None, &main(Engine::Docker)).unwrap(), None);
        let error = on_host(dir.path().join("x.toml")).unwrap_err().to_string();
        let expected = "its folder is none of `/etc/containerd`, `/etc/cri`, `/etc/k0s`, `/var/lib/rancher/k3s/agent/etc/containerd`, ";
        assert!(
            error.starts_with("cannot tell where the host has") && error.contains(expected),
            "{error}"
        );
        assert!(error.ends_with("or say that by `RUNTIME_CONFIG`"), "{error}");
    }

    #[test]
    fn a_path_that_is_not_here_is_the_hosts_where_the_host_has_it_or_could() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("srv/engine")).unwrap();
        let on_host = |path: &str, are_written| {
            let folders = Folders::new(host.path(), are_written);
            let found = folders.on_host(Some(path.into()), &main(Engine::Containerd));
            found.map(|path| path.unwrap().display().to_string())
        };
        // A usual place, a folder that is there, and one in a folder that is there.
        for path in [
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "/srv/engine/config.toml",
            "/srv/engine/conf.d/config.toml",
        ] {
            assert_eq!(on_host(path, true).unwrap(), path);
        }
        for path in ["/runtime-x/config-dir/config.toml", "/runtime-x/config.toml"] {
            let error = on_host(path, true).unwrap_err().to_string();
            assert!(error.starts_with("there is no `/runtime-x"), "{error}");
            assert!(
                error.contains("is it mounted?") && error.contains("`RUNTIME_CONFIG`"),
                "{error}"
            );
            assert_eq!(on_host(path, false).unwrap(), path, "nothing is written there");
        }
    }
}
