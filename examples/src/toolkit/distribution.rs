//! Which distribution of Kubernetes a host's containerd is part of.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{anyhow, ensure};
use gpu_runtime_config::{Preset, UnknownPreset};

use crate::program::BadUsage;

/// Whose containerd is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    /// What the host shows.
    Auto,
    /// This one.
    Of(Preset),
}

impl FromStr for Distribution {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        match name {
            "auto" => Ok(Self::Auto),
            name => name.parse().map(Self::Of),
        }
    }
}

/// Those that keep files or socket elsewhere than containerd does by itself.
const OWN_PLACES: [Preset; 4] = [Preset::K3s, Preset::Rke2, Preset::K0s, Preset::MicroK8s];

impl Distribution {
    /// The distribution, `None` for containerd's own places. A main file and a socket that are given say it; else the
    /// sockets that there are do, and where none is, because nothing runs, the folders.
    pub(super) fn on_host(
        self,
        host_root: &Path,
        main: Option<&Path>,
        socket: Option<&Path>,
    ) -> anyhow::Result<Option<Preset>> {
        if let Self::Of(preset) = self {
            ensure!(
                main.is_none_or(|main| main == Path::new(preset.main())),
                BadUsage::new(format_args!(
                    "`--config`: the main file of {preset} is `{}`: give that or none",
                    preset.main()
                ))
            );
            return Ok(Some(preset));
        }
        if let Some(main) = main {
            return Ok(OWN_PLACES.into_iter().find(|preset| Path::new(preset.main()) == main));
        }
        let exists = |path: &str| host_root.join(path.trim_start_matches('/')).exists();
        let is_there = |preset: &Preset| match socket {
            Some(socket) => Path::new(preset.socket()) == socket,
            None => exists(preset.socket()),
        };
        // k3s and RKE2 have one socket, and folders of their own.
        let has_folder = |preset: &Preset| {
            let main = PathBuf::from(preset.main());
            main.parent().and_then(Path::to_str).is_some_and(exists)
        };
        let mut candidates: Vec<Preset> = OWN_PLACES.into_iter().filter(is_there).collect();
        if candidates.is_empty() && socket.is_none() && !exists(Preset::Kubeadm.socket()) {
            candidates.extend(OWN_PLACES.into_iter().filter(has_folder));
            // Beside one of those, containerd's own folder says that it may as well be the one that is meant.
            if !candidates.is_empty() {
                candidates.extend(Some(Preset::Kubeadm).filter(has_folder));
            }
        }
        if candidates.len() < 2 {
            return Ok(candidates.first().copied());
        }
        let mut with_folder = candidates.iter().copied().filter(has_folder);
        if let (Some(preset), None) = (with_folder.next(), with_folder.next()) {
            return Ok(Some(preset));
        }
        let names: Vec<_> = candidates.iter().map(ToString::to_string).collect();
        Err(anyhow!(
            "cannot tell whose containerd this host runs, of {}: say it by `--preset`, or its file by `--config`",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_distribution_is_told_by_what_is_given_and_else_by_what_is_there() {
        let host = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = host.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let found = |main: Option<&str>, socket: Option<&str>| {
            Distribution::Auto
                .on_host(host.path(), main.map(Path::new), socket.map(Path::new))
                .map_err(|error| error.to_string())
        };
        assert_eq!(found(None, None), Ok(None));
        make(Preset::MicroK8s.main());
        assert_eq!(
            found(None, None),
            Ok(Some(Preset::MicroK8s)),
            "it does not run, and is there"
        );
        make(Preset::Kubeadm.main());
        let error = found(None, None).unwrap_err();
        assert!(
            error.contains(", of microk8s, kubeadm: say it by `--preset`"),
            "{error}"
        );
        make("/run/containerd/containerd.sock");
        assert_eq!(found(None, None), Ok(None));
        assert_eq!(found(None, Some(Preset::K0s.socket())), Ok(Some(Preset::K0s)));
        make(Preset::K3s.socket());
        let error = found(None, None).unwrap_err();
        assert!(
            error.starts_with("cannot tell whose containerd this host runs, of k3s, rke2"),
            "{error}"
        );
        make(Preset::Rke2.main());
        assert_eq!(found(None, None), Ok(Some(Preset::Rke2)));
        assert_eq!(found(Some("/etc/containerd/config.toml"), None), Ok(None));
        assert_eq!(found(Some(Preset::K3s.main()), None), Ok(Some(Preset::K3s)));
        make(Preset::K3s.main());
        assert!(found(None, None).is_err());
        let given = Distribution::Of(Preset::MicroK8s);
        assert_eq!(given.on_host(host.path(), None, None).unwrap(), Some(Preset::MicroK8s));
        let error = given.on_host(host.path(), Some("/x".as_ref()), None).unwrap_err();
        assert!(error.is::<BadUsage>(), "{error}");
    }
}
